"""Delivers delayed messages (docs/internals/algorithms.md, Delay levels; docs/internals/store-format.md, Properties).

A delayed message waits in the schedule topic, in the queue of its level. A property names its real topic. Its consume queue
entry holds the delivery time instead of a tags code, so a level is scanned without reading messages. Delivery copies the
message to its real topic. Like RocketMQ, it copies the stored property string unchanged, including DELAY.

Messages are delivered at least once. The table of offsets is written at intervals, after the delivered copies are on disk.
After a crash, messages delivered since the last write are delivered again. If offsets were written before the copies, a power
cut would lose messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.broker.durable_positions import DurablePositions
from flintmq.core.broker.redirected_message import PutOutcome, RedirectedMessageStore, delivery_of, give_up
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.typed_json import Int, Long, of_file, read_as
from flintmq.core.log_events import client_log
from flintmq.dispatchers.consume_queue.delay_times import DelayLevels

_log = client_log(__name__)


class _StoredDelays(msgspec.Struct, rename="camel"):
    """Content of ``delayOffset.json``: queue offsets, keyed by delay level (RocketMQ's ``DelayOffsetSerializeWrapper``)."""

    offset_table: dict[Int, Long] = msgspec.field(default_factory=dict)


RETRY_INTERVAL_MS: Final = 100
"""Pause in ms after a failed delivery of a delayed message."""
IDLE_INTERVAL_MS: Final = 1_000
"""Interval in ms at which a delay level's queue is checked while no message waits in the queue. By default, no delay level has
a shorter delay."""
UNITS_PER_PASS: Final = 512
"""Maximum number of messages of one delay level that are delivered before messages of the next delay level are delivered."""


class ScheduleMessageService:
    """Delivers delayed messages that are due. Loop thread; the caller's timer calls :meth:`run_due` and :meth:`persist`.

    Args:
        store: see :class:`RedirectedMessageStore`.
        levels: the delay of each level.
        file: ``config/delayOffset.json``, or None to keep the offsets in memory.
    """

    def __init__(self, store: RedirectedMessageStore, levels: DelayLevels, file: JsonFile | None = None) -> None:
        self._store = store
        self.levels = levels
        self._file = file
        self._offsets: dict[int, int] = {}
        self._durable: DurablePositions[dict[int, int]] = DurablePositions(store)
        self._durable.saved = {}
        self._waits: dict[int, int] = {}
        """Due time, in ms since 1970, of the first waiting message of each delay level, keyed by delay level."""
        self.delivered = 0
        """Number of delayed messages that were delivered since the start."""
        self.discarded = 0
        """Number of delayed messages that were given up because they can never be delivered, see :func:`give_up`."""

    def run_due(self, now_ms: int) -> int:
        """Deliver every delayed message that is due.

        Args:
            now_ms: wall-clock time. If an entry is due later than now plus its level's delay, the clock was set back after the
                entry was stored, and the entry's message is delivered now.

        Returns:
            The time of the next call, in ms since 1970; ``now_ms`` itself if a level has more messages due.
        """
        self._waits.clear()
        return min(self._run_level(level, now_ms) for level in self.levels)

    def next_due_ms(self) -> int | None:
        """Return when the first delayed message is due, in ms since 1970, as of the last :meth:`run_due`; None if no message
        waits."""
        return min(self._waits.values(), default=None)

    def _run_level(self, level: int, now_ms: int) -> int:
        queue_id = level - 1
        end = self._store.max_queue_offset(SCHEDULE_TOPIC, queue_id)
        queue_offset = self._clamped(level, end)
        if queue_offset >= end:
            return now_ms + IDLE_INTERVAL_MS
        next_ms = now_ms + IDLE_INTERVAL_MS
        units = 0
        waits = False
        batch: list[tuple[int, int]] = []
        for commit_log_offset_bytes, size_bytes, due_ms in self._store.queue_units(
            SCHEDULE_TOPIC, queue_id, queue_offset, UNITS_PER_PASS
        ):
            if now_ms < due_ms <= now_ms + self.levels.delay_ms(level):
                next_ms = min(next_ms, due_ms)
                self._waits[level] = due_ms
                waits = True
                break
            units += 1
            batch.append((commit_log_offset_bytes, size_bytes))
        done = self._put(batch, queue_id)
        if done:
            self._offsets[level] = queue_offset + done
        if done < len(batch):
            return now_ms + RETRY_INTERVAL_MS
        # If the level's queue has more units, for example in its next file, ``now_ms`` requests another run immediately.
        return now_ms if not waits and 0 < units < end - queue_offset else next_ms

    def _clamped(self, level: int, end: int) -> int:
        """Return the queue offset of a delay level's next delivery. An offset outside of the level's queue is replaced by the
        nearest offset of the queue."""
        known = self._offsets.get(level, 0)
        start = max(0, self._store.min_queue_offset(SCHEDULE_TOPIC, level - 1))
        inside = min(max(known, start), max(end, start))
        if inside != known:
            _log.warning(
                "delay.offset_moved",
                "delay level %(level)d continues at queue offset %(now_offset)d instead of %(before_offset)d",
                level=level,
                now_offset=inside,
                before_offset=known,
            )
            if inside > known and level in self._offsets:
                _log.error(
                    "delivery.gone",
                    "%(messages)d messages of delay level %(level)d have expired with their log files [delivery.gone]",
                    messages=inside - known,
                    level=level,
                )
                self.discarded += inside - known
            self._offsets[level] = inside
        return inside

    def _put(self, batch: list[tuple[int, int]], queue_id: int) -> int:
        """Deliver delayed messages in order; return the number of messages that were delivered or given up.

        If the delivery of a message must be tried again later, the method returns without delivering the messages after it.

        Args:
            batch: the messages' physical offsets and sizes, in bytes.
        """
        records = [self._store.look_message(*place) for place in batch]
        due = [delivery_of(record) if record is not None else None for record in records]
        messages = [message for message in due if message is not None]
        outcomes = iter(self._store.put_messages(messages, SCHEDULE_TOPIC, queue_id) if messages else ())
        for done, (record, message) in enumerate(zip(records, due, strict=True)):
            outcome = PutOutcome.ILLEGAL if message is None else next(outcomes, PutOutcome.LATER)
            if outcome is PutOutcome.LATER:
                return done
            if outcome is PutOutcome.STORED:
                self.delivered += 1
                continue
            if outcome is PutOutcome.DROPPED:
                self.discarded += 1
                continue
            why = "the store refuses it" if message else "no topic it may go to" if record else "it cannot be read"
            if not give_up(self._store, record, batch[done][0], why):
                return done
            self.discarded += 1
        return len(batch)

    def offset(self, level: int) -> int:
        """Return the queue offset of a delay level's next delivery."""
        return self._offsets.get(level, 0)

    def runtime_info(self) -> dict[str, str]:
        """Return ``scheduleMessageOffset_<level>`` as ``done,end`` for each level.

        docs/internals/protocol.md, Runtime figures, describes the values.
        """
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in sorted(self._offsets.items())
        }

    def to_wire(self) -> dict[str, Any]:
        """Return the body of the answer to GET_ALL_DELAY_OFFSET (45)."""
        return _to_wire(self._offsets)

    def persist(self) -> bool:
        """Write ``delayOffset.json`` if offsets changed and the delivered messages are on disk; return whether the file was
        written.

        Raises StoreError.
        """
        offsets = self._durable.ready(dict(self._offsets)) if self._file is not None else None
        if self._file is None or offsets is None:
            return False
        self._file.save(_to_wire(offsets))
        self._durable.saved = offsets
        return True

    def load(self) -> bool:
        """Read ``delayOffset.json``. An offset outside its delay level's queue becomes the nearest offset of that queue. Return
        False if the file does not exist. Call this method after the store has recovered.

        Raises:
            StoreFormatError: the file and its backup cannot be read, or a member does not have RocketMQ's type.
        """
        value = self._file.load() if self._file is not None else None
        if self._file is None or value is None:
            return False
        with of_file(self._file.path):
            self.replace(value)
        self._durable.saved = dict(self._offsets)
        for level in list(self._offsets):
            self._clamped(level, self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1))
        return True

    def replace(self, value: Mapping[str, Any]) -> None:
        """Replace the offsets of the delay levels by those in the file or, on a slave, by those of the master. A level without
        a new offset begins at offset 0.

        Offsets of levels that this broker does not have are kept in the file.

        Raises:
            JsonTypeError: a member is not of RocketMQ's type; nothing was changed.
        """
        self._offsets = read_as(value, _StoredDelays).offset_table


def _to_wire(offsets: Mapping[int, int]) -> dict[str, Any]:
    return {"offsetTable": dict(sorted(offsets.items()))}
