"""Finds the delays of a store's delay levels: in the store's file of delay levels, else in the operator's values, else in the
store's queues.

A queue unit of the schedule topic contains the delivery time of a message. The delay is the difference between the delivery
time and the record's store time. All messages of a level have the same delay until ``delay.levels`` is changed. The delays are
enough to rebuild the units of the schedule topic. They also reveal damaged units, because a delay is a whole number of seconds.
They cannot prove that a unit is correct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.errors import StoreFormatError
from flintmq.core.record import record as rec
from flintmq.core.record.queue_unit import UNIT, is_address
from flintmq.dispatchers.consume_queue.delay_times import (
    DelayLevels,
    DelayTimes,
    is_delay,
    load_delay_times,
    save_delay_times,
)
from flintmq.programs.doctor.files import FileView, StoreFiles
from flintmq.programs.doctor.verify_queues import ext_tags_code, used_units


@attrs.frozen
class Delays:
    """The known delays of a store's delay levels."""

    times: DelayTimes
    told_by_queues: frozenset[int]
    """Delay levels whose delays were found only in the schedule topic's queues, not in the store's file of delay levels."""
    unreadable: str
    """Why the store's file of delay levels could not be read; empty if the file was read or does not exist."""

    def unsure_levels(self) -> list[int]:
        """Return the delay levels whose delays may differ from the broker's setting. Each of these delays was found only in the
        schedule topic's queues, because the store's file of delay levels lacks it. It also differs from RocketMQ's default for
        the level."""
        usual = DelayLevels()
        return sorted(
            level
            for level in self.told_by_queues
            if {delay_ms for _, delay_ms in self.times.levels[level]} != {usual.delay_ms(level)}
        )

    def keep(self, root: Path) -> None:
        """Write the delays of the delay levels to the store's file of delay levels. Call it before the queues of the schedule
        topic are replaced, because often only these queues show the delays. Raises StoreError."""
        if self.times.levels and (self.unreadable or load_delay_times(root) != self.times):
            save_delay_times(root, self.times)


def delays_of(files: StoreFiles, delay_level_ms: Mapping[int, int] | None) -> Delays:
    """Return the known delays of a store's delay levels.

    Args:
        files: the store.
        delay_level_ms: milliseconds by delay level from the operator; None if they are not given.
    """
    unreadable = ""
    try:
        known = load_delay_times(files.root)
    except StoreFormatError as error:
        known, unreadable = DelayTimes(), str(error)
    if delay_level_ms is not None:
        return Delays(known.extended(DelayTimes.always(delay_level_ms)), frozenset(), unreadable)
    told = DelayTimes()
    for topic, queue_id, parts in files.queues():
        if topic == SCHEDULE_TOPIC:
            known_from = known.known_from(queue_id + 1)
            for physical, delay_ms in _delays_in(files, queue_id, parts, known_from):
                told.note(queue_id + 1, physical, delay_ms)
    for runs in told.levels.values():
        runs[0] = (0, runs[0][1])
    return Delays(known.extended(told), frozenset(told.levels), unreadable)


def _delays_in(files: StoreFiles, queue_id: int, parts: list[FileView], known_from: int) -> Iterator[tuple[int, int]]:
    """Yield (physical offset, delay in ms) for each unit of a queue of the schedule topic. Stop at the first record at or after
    the physical offset ``known_from``, because the delays of later records are already known."""
    for physical, size, tags_code in UNIT.iter_unpack(used_units(parts)):
        if physical >= known_from:
            return
        file = files.log_file(physical)
        if file is None or file.size - (physical - file.start) < max(size, rec.RECORD_MIN_BYTES):
            continue
        at = physical - file.start
        found_size, magic = rec.SIZE_AND_MAGIC.unpack_from(file.view, at)
        if found_size != size or magic not in (rec.MAGIC_V1, rec.MAGIC_V2):
            continue
        due_ms = tags_code
        if is_address(tags_code):
            due_ms = ext_tags_code(files.ext_files(SCHEDULE_TOPIC, queue_id), tags_code)
        delay_ms = due_ms - rec.store_timestamp_at(file.view, at)
        if is_delay(delay_ms):
            yield physical, delay_ms
