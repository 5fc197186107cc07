"""The dispatcher ``consume_queue`` in a form that stores all consume queues of a broker in one database file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.protocol import FILLER_SIZE, RECORD_MIN_BYTES, begins_again, deleted_topic, queued
from flintmq_sqlite_store.queue import SqliteQueue

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS queues (
    topic TEXT, queue_id INTEGER, min_offset INTEGER, max_offset INTEGER, PRIMARY KEY (topic, queue_id)
);
CREATE TABLE IF NOT EXISTS units (
    topic TEXT, queue_id INTEGER, queue_offset INTEGER, physical INTEGER, size INTEGER, tags_code INTEGER,
    is_filler INTEGER, PRIMARY KEY (topic, queue_id, queue_offset)
) WITHOUT ROWID;
"""

Row = tuple[str, int, int, int, int, int, bool]


class SqliteConsumeQueues:
    """A :class:`flintmq.core.kernel.ports.ConsumeQueues` that stores each batch in one transaction. Used only on the event
    loop's thread.

    Args:
        rows: a connection to the database.
        root: the folder of the database file.
    """

    def __init__(self, rows: sqlite3.Connection, root: Path) -> None:
        self._rows = rows
        self.root = root
        rows.executescript(_TABLES)
        self.queues = {
            (topic, queue_id): SqliteQueue(rows, topic, queue_id, begin, end)
            for topic, queue_id, begin, end in rows.execute("SELECT * FROM queues").fetchall()
        }
        self.last_store_timestamp_ms = 0

    def find(self, topic: str, queue_id: int) -> SqliteQueue | None:
        """Return the consume queue of a topic and queue id, None if the queue does not exist."""
        return self.queues.get((topic, queue_id))

    def dispatch(self, batch: RecordBatch) -> None:
        """Add a queue unit for each record that has none yet; half messages and rollbacks of transactions get no units.

        If a record says that a topic was deleted, delete the queues of this topic."""
        requests = queued(batch.requests())
        begin = 0
        for at, request in enumerate(requests):
            if topic := deleted_topic(request):
                self._put(requests[begin:at])
                self._end_topic(topic, request.commit_log_offset_bytes)
                begin = at
        self._put(requests[begin:])

    def _put(self, requests: Sequence[DispatchRequest]) -> None:
        if not requests:
            return
        units: list[Row] = []
        touched: dict[tuple[str, int], SqliteQueue] = {}
        for request in requests:
            key = (request.topic, request.queue_id)
            queue = touched.get(key) or self._ending(key, request.queue_offset)
            if request.commit_log_offset_bytes + request.message_size_bytes > queue.max_physical_offset_bytes:
                if begins_again(request.queue_offset, queue.max_queue_offset):
                    units = [row for row in units if row[:2] != key]
                    self.delete_queue(*key)
                    queue = self._ending(key, request.queue_offset)
                units += _append(queue, request)
            touched[key] = queue
        ends = [(*key, queue.min_queue_offset, queue.max_queue_offset) for key, queue in touched.items()]
        with self._rows:
            self._rows.executemany("INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?, ?, ?, ?)", units)
            self._rows.executemany("INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?)", ends)
        self.last_store_timestamp_ms = requests[-1].store_timestamp_ms

    def _end_topic(self, topic: str, physical_offset_bytes: int) -> None:
        """Delete the queues of a deleted topic.

        A queue is kept only if all of its messages were stored after the deletion, because it then belongs to a new topic with
        the same name.
        """
        for key in [key for key in self.queues if key[0] == topic]:
            queue = self.queues[key]
            first = queue.first_from(lambda physical: physical < physical_offset_bytes)
            if first > queue.min_queue_offset or first == queue.max_queue_offset:
                self.delete_queue(*key)

    def _ending(self, key: tuple[str, int], first_queue_offset: int) -> SqliteQueue:
        """Return the queue to which a record's unit is appended. A new queue, or a queue without units, begins at the record's
        queue offset."""
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = SqliteQueue(self._rows, *key, first_queue_offset, first_queue_offset)
        elif queue.max_physical_offset_bytes < 0 and queue.min_queue_offset == queue.max_queue_offset:
            queue.min_queue_offset = queue.max_queue_offset = max(queue.max_queue_offset, first_queue_offset)
        return queue

    def truncate(self, end_offset_bytes: int) -> None:
        """Delete the units whose messages end after a physical offset."""
        for queue in self.queues.values():
            if queue.max_physical_offset_bytes > end_offset_bytes:
                queue.truncate(end_offset_bytes)

    def correct_min_offsets(self, min_physical_offset_bytes: int) -> None:
        """Set each queue's minimum offset to its first message that is still in the log."""
        for queue in self.queues.values():
            queue.begin_at(queue.first_from(lambda physical: physical < min_physical_offset_bytes))

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete a consume queue and its units."""
        if self.queues.pop((topic, queue_id), None) is not None:
            with self._rows:
                for table in ("units", "queues"):
                    self._rows.execute(f"DELETE FROM {table} WHERE topic = ? AND queue_id = ?", (topic, queue_id))

    def flush(self, least_pages: int) -> None:
        """Do nothing: the queues commit each batch to the database when the batch is dispatched, so no flush is needed."""

    def close(self) -> None:
        """Close the database of the consume queues."""
        self._rows.close()


def _append(queue: SqliteQueue, request: DispatchRequest) -> list[Row]:
    """Return the rows to insert for a record, and move the queue's end past it.

    If a damaged log has lost messages of the queue before the record, a filler row for each lost message comes first.
    """
    known = max(0, queue.max_physical_offset_bytes)
    gap = request.queue_offset - queue.max_queue_offset
    if not 0 < gap <= (request.commit_log_offset_bytes - known) // RECORD_MIN_BYTES:
        gap = 0
    place = (queue.topic, queue.queue_id)
    fillers = [(*place, queue.max_queue_offset + number, 0, FILLER_SIZE, 0, True) for number in range(gap)]
    at = queue.max_queue_offset + gap
    queue.max_queue_offset = at + 1
    queue.max_physical_offset_bytes = request.commit_log_offset_bytes + request.message_size_bytes
    size = request.message_size_bytes
    return [*fillers, (*place, at, request.commit_log_offset_bytes, size, request.tags_code, False)]
