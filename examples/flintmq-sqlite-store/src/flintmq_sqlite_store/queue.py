"""A consume queue whose units are rows of a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from flintmq.core.kernel.ports import MessageFilter
from flintmq.protocol import UNIT, Unit, is_filler


class SqliteQueue:
    """A :class:`flintmq.core.kernel.ports.QueueReader` over the rows of one queue. Used only on the event loop's thread.

    Args:
        rows: the database, see :class:`flintmq_sqlite_store.queues.SqliteConsumeQueues`.
        topic, queue_id: the queue's topic and number.
        begin, end: logical offsets of the queue's oldest message and of its next message.
    """

    def __init__(self, rows: sqlite3.Connection, topic: str, queue_id: int, begin: int, end: int) -> None:
        self._rows = rows
        self.topic = topic
        self.queue_id = queue_id
        self.min_queue_offset = begin
        self.max_queue_offset = end
        self.max_physical_offset_bytes = -1
        self.find_end()

    def find_end(self) -> None:
        """Set ``max_physical_offset_bytes`` to the physical end of the last message that has a queue unit; -1 if no message has
        a unit."""
        sql = "SELECT MAX(physical + size) FROM units WHERE topic = ? AND queue_id = ? AND is_filler = 0"
        (end,) = self._rows.execute(sql, (self.topic, self.queue_id)).fetchone()
        self.max_physical_offset_bytes = -1 if end is None else end

    def units(self, queue_offset: int, max_units: int) -> Iterator[Unit]:
        """Return the units of the queue from a logical offset on, at most ``max_units`` units."""
        sql = (
            "SELECT physical, size, tags_code FROM units "
            "WHERE topic = ? AND queue_id = ? AND queue_offset >= ? AND queue_offset < ? ORDER BY queue_offset"
        )
        end = queue_offset + max_units
        return iter(self._rows.execute(sql, (self.topic, self.queue_id, queue_offset, end)).fetchall())

    def unit(self, queue_offset: int) -> Unit | None:
        """Return the unit of the queue at a logical offset, None if the queue has no unit there."""
        return next(self.units(queue_offset, 1), None)

    def unit_bytes(self, queue_offset: int, max_units: int) -> memoryview:
        """Return at most ``max_units`` units from a logical offset on, each encoded in 20 bytes as in RocketMQ's consume queue
        files."""
        return memoryview(b"".join([UNIT.pack(*unit) for unit in self.units(queue_offset, max_units)]))

    def resolving(self, message_filter: MessageFilter) -> MessageFilter:
        """Return the message filter unchanged, because the queue has no extension file in which the filter would look up tags
        codes."""
        return message_filter

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """Return the logical offset at which a reader continues if it found no unit at an offset. The result is the queue's
        end, because the queue has a unit at each offset before its end."""
        return self.max_queue_offset

    def queue_offset_by_time(
        self, timestamp_ms: int, min_physical_offset_bytes: int, store_time: Callable[[int], int]
    ) -> int:
        """Return the logical offset of the message whose store time is nearest to a time in ms; 0 if the queue has no
        message."""
        after = self.first_from(lambda at: at < min_physical_offset_bytes or store_time(at) < timestamp_ms)
        before = after - 1
        while before >= self.min_queue_offset and (unit := self.unit(before)) is not None and is_filler(unit):
            before -= 1
        earlier, later = self.unit(before), self.unit(after)
        if earlier is None or before < self.min_queue_offset or earlier[0] < min_physical_offset_bytes:
            return after if later is not None else 0
        if later is None:
            return before
        return after if timestamp_ms - store_time(earlier[0]) > store_time(later[0]) - timestamp_ms else before

    def first_from(self, is_gone: Callable[[int], bool]) -> int:
        """Return the logical offset of the oldest message for which ``is_gone`` returns False. If it returns True for all
        messages, return the end of the queue.

        ``is_gone`` is called with the physical offset of a message in bytes.
        """
        low, high = self.min_queue_offset, self.max_queue_offset
        while low < high:
            middle = (low + high) // 2
            at = self._behind_fillers(middle)
            unit = self.unit(at)
            if at >= high or unit is None or not is_gone(unit[0]):
                high = middle
            else:
                low = at + 1
        return self._behind_fillers(low)

    def _behind_fillers(self, queue_offset: int) -> int:
        while (unit := self.unit(queue_offset)) is not None and is_filler(unit):
            queue_offset += 1
        return queue_offset

    def expire(self, is_gone: Callable[[int], bool]) -> bool:
        """Delete the units of the queue before the first message that the log still has."""
        self.begin_at(max(self.min_queue_offset, self.first_from(is_gone)))
        return True

    def begin_at(self, queue_offset: int) -> None:
        """Set the queue's minimum offset, and delete the units before it."""
        self.min_queue_offset = queue_offset
        with self._rows:
            self._rows.execute(
                "DELETE FROM units WHERE topic = ? AND queue_id = ? AND queue_offset < ?",
                (self.topic, self.queue_id, queue_offset),
            )
            self._note()

    def cut(self, queue_offset: int) -> None:
        """Delete all units of the queue from a logical offset on."""
        if queue_offset >= self.max_queue_offset:
            return
        self.max_queue_offset = queue_offset
        self.min_queue_offset = min(self.min_queue_offset, queue_offset)
        with self._rows:
            self._rows.execute(
                "DELETE FROM units WHERE topic = ? AND queue_id = ? AND queue_offset >= ?",
                (self.topic, self.queue_id, queue_offset),
            )
            self._note()
        self.find_end()

    def truncate(self, end_offset_bytes: int) -> None:
        """Delete the units whose messages end after a physical offset, and the fillers (units of lost messages) directly before
        these units."""
        sql = "SELECT MAX(queue_offset) FROM units WHERE topic = ? AND queue_id = ? AND is_filler = 0 AND physical + size <= ?"
        (last,) = self._rows.execute(sql, (self.topic, self.queue_id, end_offset_bytes)).fetchone()
        self.cut(self.min_queue_offset if last is None else last + 1)

    def _note(self) -> None:
        self._rows.execute(
            "UPDATE queues SET min_offset = ?, max_offset = ? WHERE topic = ? AND queue_id = ?",
            (self.min_queue_offset, self.max_queue_offset, self.topic, self.queue_id),
        )
