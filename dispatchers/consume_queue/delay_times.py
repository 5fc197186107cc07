"""The delays of delay levels, and their changes over the log (docs/internals/algorithms.md, Delay levels).

In units of the schedule topic's queues, the tags code is the delivery time: the record's store time plus the delay of its level
(docs/internals/store-format.md, Special topics). The record names only the level. Code that makes or checks such a unit
therefore needs the delay that the level had when the record was stored. If the levels have changed since the last start, a
broker writes them to ``flint/delay_levels.json``::

    {"delayLevels": {"1": [[0, 1000], [73400, 2000]], "2": [[0, 5000]]}}      level: [physical offset, delay in ms] …

RocketMQ brokers do not write this file. Delays that are not in it are unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import FlintError, StoreFormatError
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.log_events import event_log
from flintmq.core.record import properties as props
from flintmq.core.record.java_number import number_or

Runs = list[tuple[int, int]]
"""The delays that one delay level had in the course of the log: pairs of a physical offset in bytes and the delay in ms that
applies from this offset on. The pairs are in order of the physical offset."""
_KEY: Final = "delayLevels"
_UNKNOWN: Final = -(2**62)
_UNKNOWN_END: Final = _UNKNOWN + 2**60
DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"(\d{1,9})([smhd])")
_log = event_log("flintmq.store")


class DelayTimes(msgspec.Struct):
    """The delays of each delay level, with the physical offsets of the log from which each delay applies. Not thread-safe."""

    levels: dict[int, Runs] = msgspec.field(default_factory=dict)
    guessed_ms: Mapping[int, int] = msgspec.field(default_factory=dict)
    """Delays in ms, keyed by delay level, that are assumed for records whose delay is not known; empty to assume no delays."""

    def delay_ms(self, level: int, physical_offset_bytes: int) -> int | None:
        """Return the delay in ms that a delay level had for a record at a physical offset; None if the delay is unknown and
        ``guessed_ms`` has no delay for the level."""
        runs = self.levels.get(level)
        at = bisect_right(runs, (physical_offset_bytes, 2**63)) - 1 if runs else -1
        if runs and at >= 0:
            return runs[at][1]
        return self.guessed_ms.get(min(level, max(self.guessed_ms, default=0)))

    def begin(self, end_offset_bytes: int, delay_level_ms: Mapping[int, int]) -> bool:
        """Set the delays of delay levels that apply from the log's end on; return whether a delay has changed."""
        changed = False
        for level, delay_ms in delay_level_ms.items():
            runs = [run for run in self.levels.get(level, []) if run[0] < end_offset_bytes]
            if not runs or runs[-1][1] != delay_ms:
                runs.append((end_offset_bytes, delay_ms))
            changed = changed or runs != self.levels.get(level)
            self.levels[level] = runs
        return changed

    def note(self, level: int, physical_offset_bytes: int, delay_ms: int) -> None:
        """Set the delay of a delay level for records from a physical offset on. The offset must be greater than in earlier
        calls."""
        runs = self.levels.setdefault(level, [])
        if not runs or runs[-1][1] != delay_ms:
            runs.append((physical_offset_bytes, delay_ms))

    def known_from(self, level: int) -> int:
        """Return the physical offset from which on the delay of a delay level is known; the largest 64-bit integer if the delay
        is unknown."""
        runs = self.levels.get(level)
        return runs[0][0] if runs else 2**63 - 1

    def extended(self, earlier: DelayTimes) -> DelayTimes:
        """Return a copy of these delays, extended to earlier records. Before the first known delay of a level, the delays in
        ``earlier`` apply."""
        levels = {level: list(runs) for level, runs in self.levels.items()}
        for level, runs in earlier.levels.items():
            known_from = self.known_from(level)
            levels[level] = [run for run in runs if run[0] < known_from] + levels.get(level, [])
        return DelayTimes(levels)

    @classmethod
    def always(cls, delay_level_ms: Mapping[int, int]) -> DelayTimes:
        """Return delays of delay levels that never change: one delay for each level, which applies from the beginning of the
        log on.

        Args:
            delay_level_ms: delays in ms, keyed by delay level.
        """
        return cls({level: [(0, delay_ms)] for level, delay_ms in delay_level_ms.items()})


def delay_times_path(root: Path) -> Path:
    """Return the path of the file with the delays of a store's delay levels."""
    return root / "flint" / "delay_levels.json"


def load_delay_times(root: Path, disk: Disk = OS_DISK) -> DelayTimes:
    """Return the delays of delay levels that a store's file contains; empty if the file does not exist.

    Raises:
        StoreFormatError: the file cannot be read, or its content is not valid.
    """
    path = delay_times_path(root)
    value = JsonFile(path, disk).load()
    try:
        table = {} if value is None else value[_KEY]
        levels = {int(level): _runs(runs) for level, runs in table.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreFormatError(
            f"{path}: the recorded delays of the levels cannot be read; move the file away: {error!r}"
        ) from error
    return DelayTimes(levels)


def save_delay_times(root: Path, times: DelayTimes, disk: Disk = OS_DISK) -> None:
    """Write the file with the delays of a store's delay levels. Raises StoreError."""
    JsonFile(delay_times_path(root), disk).save(
        {_KEY: {str(level): [list(run) for run in runs] for level, runs in sorted(times.levels.items())}}
    )


def _runs(value: Any) -> Runs:
    runs = [(begin, delay_ms) for begin, delay_ms in value]
    if not all(type(number) is int and number >= 0 for run in runs for number in run) or runs != sorted(runs):
        raise ValueError(f"expected a sorted list of [position, delay], not {value!r}")
    return runs


def is_delay(duration_ms: int) -> bool:
    """Return whether a duration in ms can be the delay of a delay level. A delay is not negative, and is a whole number of
    seconds, because the setting ``delay.levels`` has no smaller unit."""
    return duration_ms >= 0 and not duration_ms % 1_000


def unknown_due(store_timestamp_ms: int) -> int:
    """Return a placeholder for the delivery time of a message whose delay level has an unknown delay."""
    return _UNKNOWN + store_timestamp_ms


def may_be_due(wanted: int, due_ms: int) -> bool:
    """Return whether a consume queue unit can have the right delivery time although the delay of the message's level is
    unknown.

    This is so if the delivery time is a whole number of seconds after the message's store time, because all delays are whole
    seconds.

    Args:
        wanted: the result of :func:`unknown_due` for the message, which contains its store time.
        due_ms: the delivery time in the message's consume queue unit, in ms since 1970.
    """
    return is_delay(due_ms - (wanted - _UNKNOWN))


def is_unknown_due(tags_code: int) -> bool:
    """Return whether a tags code is the placeholder for an unknown delivery time, which :func:`unknown_due` returns.

    In the queues of the schedule topic, the tags code is a message's delivery time. A check of these queues computes the
    expected tags codes from the log. It uses the placeholder if the delay of a message's delay level is not known.
    """
    return _UNKNOWN <= tags_code < _UNKNOWN_END


class DelayLevels:
    """The delays of levels 1, 2, … Messages of level n wait in queue n - 1 of the schedule topic. Read-only.

    Args:
        text: delays separated by blanks, with the units ``s``, ``m``, ``h`` and ``d``, such as ``1s 5m``.

    Raises:
        FlintError: the text does not have this form.
    """

    def __init__(self, text: str = DEFAULT_LEVELS) -> None:
        delays = []
        for word in text.split():
            match = _LEVEL.fullmatch(word)
            if match is None:
                raise FlintError(f"delay level {word[:20]!r} is not a number with one of the units s, m, h, d")
            delays.append(int(match.group(1)) * _UNITS_MS[match.group(2)])
        if not delays:
            raise FlintError("the list of delay levels is empty")
        self._delays_ms = tuple(delays)

    @property
    def max_level(self) -> int:
        return len(self._delays_ms)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, self.max_level + 1))

    def clamp(self, level: int) -> int:
        """Return a delay level limited to the highest level; 0, which means no delay, if the level is 0 or less."""
        return max(0, min(level, self.max_level))

    def delay_ms(self, level: int) -> int:
        """Return the delay of a delay level in ms; like in RocketMQ, 1,000 for a level that does not exist."""
        return self._delays_ms[level - 1] if 1 <= level <= self.max_level else 1_000


DELAY_LEVEL_MS: Final[Mapping[int, int]] = {level: DelayLevels().delay_ms(level) for level in DelayLevels()}
"""The delay of each of RocketMQ's eighteen levels, in ms."""


class DelayTagsCodes:
    """Computes the delivery times of delayed messages in a store (:class:`flintmq.core.kernel.ports.TagsCodes`).

    Args:
        delay_level_ms: the current delays in ms, keyed by level.
        times: the delays that applied to earlier records.
        root: the folder of the store.
        disk: writes the file of delays.
    """

    def __init__(self, delay_level_ms: Mapping[int, int], times: DelayTimes, root: Path, disk: Disk) -> None:
        self.times = times
        self._delay_level_ms = delay_level_ms
        self._level_max = max(delay_level_ms, default=0)
        self._root = root
        self._disk = disk

    def tags_code(
        self,
        properties: Mapping[str, str],
        tags_code: int,
        store_timestamp_ms: int,
        physical_offset_bytes: int | None,
    ) -> int:
        """Return the delivery time of a delayed message, in ms since 1970. For a message without a delay level, return
        ``tags_code``, the hash of its tags."""
        level = number_or(properties.get(props.DELAY), 0)
        if level <= 0:
            return tags_code
        delay_ms = None if physical_offset_bytes is None else self.times.delay_ms(level, physical_offset_bytes)
        if delay_ms is None:
            delay_ms = self._delay_level_ms.get(min(level, self._level_max))
        return tags_code if delay_ms is None else store_timestamp_ms + delay_ms

    def begin(self, end_offset_bytes: int) -> None:
        """Record that the current delays of the delay levels apply from the log's end on. Raises ``StoreError``."""
        if self.times.begin(end_offset_bytes, self._delay_level_ms):
            save_delay_times(self._root, self.times, self._disk)


def delay_tags_codes(config: BrokerConfig, disk: Disk) -> DelayTagsCodes:
    """Return the object that computes the delivery times of delayed messages for a broker with this configuration."""
    levels = DelayLevels(config.delay.levels)
    return tags_codes_with({level: levels.delay_ms(level) for level in levels}, config, disk)


def tags_codes_with(delay_level_ms: Mapping[int, int], config: BrokerConfig, disk: Disk) -> DelayTagsCodes:
    """Return the object that computes the delivery times of delayed messages, with given delays instead of those in the
    configuration.

    Args:
        delay_level_ms: the delays in ms, keyed by delay level.
        config: the configuration, for the path of the store.
        disk: reads and writes the file with the earlier delays.
    """
    root = Path(config.store.path)
    try:
        times = load_delay_times(root, disk)
    except StoreFormatError as error:
        _log.warning("delay.levels_unknown", "delay levels of earlier messages are not known: %(error)s", error=error)
        times = DelayTimes()
    return DelayTagsCodes(delay_level_ms, times, root, disk)
