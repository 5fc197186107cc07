"""The tags codes of the schedule topic's units: times of delivery (docs/internals/store-format.md, Special topics)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreFormatError
from flintmq.core.io.disk import Disk
from flintmq.core.record import properties as props
from flintmq.plugins.delay.delay_levels import DelayLevels
from flintmq.plugins.delay.delay_times import DelayTimes, load_delay_times, save_delay_times

_log = logging.getLogger("flintmq.store")


class DelayTagsCodes:
    """Computes the time of delivery of delayed messages in one store (:class:`flintmq.core.kernel.ports.TagsCodes`).

    Args:
        delay_level_ms: the delay of each level in force, in ms.
        times: which delays earlier records had, by their place in the log.
        root: the folder of the store.
        disk: what the note of the delays is written through.
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
        """Return when a message is due, in ms since 1970; the hash of its tags where it names no level."""
        text = properties.get(props.DELAY)
        if text is None:
            return tags_code
        try:
            level = int(text)
        except ValueError:
            return tags_code
        if level <= 0:
            return tags_code
        delay_ms = None if physical_offset_bytes is None else self.times.delay_ms(level, physical_offset_bytes)
        if delay_ms is None:
            delay_ms = self._delay_level_ms.get(min(level, self._level_max))
        return tags_code if delay_ms is None else store_timestamp_ms + delay_ms

    def begin(self, end_offset_bytes: int) -> None:
        """Write down from where in the log on the levels in force hold. Raises ``StoreError``."""
        if self.times.begin(end_offset_bytes, self._delay_level_ms):
            save_delay_times(self._root, self.times, self._disk)


def delay_tags_codes(config: BrokerConfig, disk: Disk) -> DelayTagsCodes:
    """Return what a broker with this configuration computes times of delivery with."""
    levels = DelayLevels(config.delay.levels)
    return tags_codes_with({level: levels.delay_ms(level) for level in levels}, config, disk)


def tags_codes_with(delay_level_ms: Mapping[int, int], config: BrokerConfig, disk: Disk) -> DelayTagsCodes:
    """Return the same for other levels than those of the configuration."""
    root = Path(config.store.path)
    try:
        times = load_delay_times(root, disk)
    except StoreFormatError as error:
        _log.warning("delay levels of earlier messages are not known: %s", error)
        times = DelayTimes()
    return DelayTagsCodes(delay_level_ms, times, root, disk)
