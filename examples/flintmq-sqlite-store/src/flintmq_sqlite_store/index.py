"""An index of message keys in a SQLite database, which stores whole keys instead of their hashes."""

from __future__ import annotations

import sqlite3
from typing import Final

from flintmq.core.kernel.ports import RecordBatch
from flintmq.protocol import index_keys, indexed

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS keys (
    topic TEXT, key TEXT, physical INTEGER, store_ms INTEGER, PRIMARY KEY (topic, key, physical)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS taken (
    id INTEGER PRIMARY KEY CHECK (id = 0), end INTEGER, store_ms INTEGER, physical INTEGER
);
"""


class SqliteIndex:
    """A :class:`flintmq.core.kernel.ports.IndexBuilder` that stores each batch in one transaction. Used only on the event
    loop's thread."""

    def __init__(self, rows: sqlite3.Connection) -> None:
        self._rows = rows
        rows.executescript(_TABLES)
        taken = rows.execute("SELECT end, store_ms, physical FROM taken").fetchone()
        self._taken_until_bytes, self._last_ms, self._last_offset_bytes = taken or (0, 0, 0)

    def dispatch(self, batch: RecordBatch) -> None:
        """Store the keys of the batch's records. Rolled-back transactions and records that were stored before are ignored."""
        if batch.end_offset_bytes <= self._taken_until_bytes:
            return
        requests = batch.requests()
        rows = [
            (request.topic, key, request.commit_log_offset_bytes, request.store_timestamp_ms)
            for request in indexed(requests)
            for key in index_keys(request)
        ]
        last = requests[-1]
        taken = (batch.end_offset_bytes, last.store_timestamp_ms, last.commit_log_offset_bytes)
        with self._rows:
            self._rows.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?)", rows)
            self._rows.execute("INSERT OR REPLACE INTO taken VALUES (0, ?, ?, ?)", taken)
        self._taken_until_bytes, self._last_ms, self._last_offset_bytes = taken

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        """Return a list and two numbers. The list has the physical offsets of records with a key, newest first. The numbers are
        the store time in ms and the physical offset of the index's last record."""
        sql = (
            "SELECT physical FROM keys WHERE topic = ? AND key = ? AND store_ms BETWEEN ? AND ? "
            "ORDER BY physical DESC LIMIT ?"
        )
        found = self._rows.execute(sql, (topic, key, begin_timestamp_ms, end_timestamp_ms, max_num)).fetchall()
        return [physical for (physical,) in found], self._last_ms, self._last_offset_bytes

    def committed(self) -> int:
        """Return the physical offset just past the last record in the index. When the broker starts, it dispatches the records
        after this offset again."""
        return self._taken_until_bytes

    def truncate(self, end_offset_bytes: int) -> None:
        """Delete the keys of records at or after a physical offset from the index. Other records will be written at these
        offsets."""
        self._taken_until_bytes = min(self._taken_until_bytes, end_offset_bytes)
        with self._rows:
            self._rows.execute("DELETE FROM keys WHERE physical >= ?", (end_offset_bytes,))
            if self._last_offset_bytes >= end_offset_bytes:
                newest = self._rows.execute(
                    "SELECT physical, store_ms FROM keys ORDER BY physical DESC LIMIT 1"
                ).fetchone()
                self._last_offset_bytes, self._last_ms = newest or (0, 0)
            left = (self._taken_until_bytes, self._last_ms, self._last_offset_bytes)
            self._rows.execute("UPDATE taken SET end = ?, store_ms = ?, physical = ?", left)

    def flush(self) -> None:
        """Do nothing: the index commits each batch to the database when the batch is dispatched, so no flush is needed."""

    def close(self) -> None:
        """Close the index's database."""
        self._rows.close()
