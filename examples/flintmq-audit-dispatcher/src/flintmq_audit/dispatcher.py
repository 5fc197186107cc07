"""The dispatcher ``audit``, which writes one JSON line for each topic of a batch of stored records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from flintmq.core.kernel.ports import RecordBatch


class AuditLine(msgspec.Struct):
    """A line of the audit file, about the records of one topic in one batch."""

    topic: str
    messages: int
    bytes: int
    first_offset_bytes: int
    """Physical offset of the topic's first record among the batch's new records."""
    end_offset_bytes: int
    """Physical offset just past the last record of the batch, which may belong to another topic. After a restart, the
    dispatcher continues at this offset."""
    store_timestamp_ms: int
    """Store time of the topic's last record in the batch, in ms since 1970."""


class AuditDispatcher:
    """Appends an account of stored records to a file of JSON lines. Used only on the event loop's thread.

    Args:
        path: the file to append to; its folder is created.
        max_bytes: size above which the file is renamed to ``<path>.1``.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._encoder = msgspec.json.Encoder()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._taken_until_bytes = max(_cut_and_read_end(path), _cut_and_read_end(self._rotated))
        self._file: BinaryIO = path.open("ab", buffering=0)

    @property
    def _rotated(self) -> Path:
        return self._path.with_name(self._path.name + ".1")

    def dispatch(self, batch: RecordBatch) -> None:
        """Append lines about the new records of a batch to the audit file. Records that the file already counts are skipped.

        Raises OSError if the file cannot be written.
        """
        new = [request for request in batch.requests() if request.commit_log_offset_bytes >= self._taken_until_bytes]
        if not new:
            return
        end = new[-1].commit_log_offset_bytes + new[-1].message_size_bytes
        lines: dict[str, AuditLine] = {}
        for request in new:
            line = lines.get(request.topic)
            if line is None:
                line = lines[request.topic] = AuditLine(request.topic, 0, 0, request.commit_log_offset_bytes, end, 0)
            line.messages += 1
            line.bytes += request.message_size_bytes
            line.store_timestamp_ms = request.store_timestamp_ms
        data = b"".join(self._encoder.encode(line) + b"\n" for line in lines.values())
        if self._file.tell() and self._file.tell() + len(data) > self._max_bytes:
            self._rotate()
        self._write(data)
        self._taken_until_bytes = end

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        """Write all of the data to the audit file, or nothing. A batch is dispatched again after an error, so a partly written
        batch would be counted twice."""
        begin = self._file.tell()
        written = self._file.write(data)
        if written != len(data):
            self._file.truncate(begin)
            raise OSError(f"{self._path}: only {written} of {len(data)} bytes could be written")

    def _rotate(self) -> None:
        self._file.close()
        self._path.replace(self._rotated)
        self._file = self._path.open("ab", buffering=0)


def _cut_and_read_end(path: Path) -> int:
    """Cut off an incomplete last line of the audit file. Return the end offset that the last complete line states, 0 if the
    file has no line."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        os.truncate(path, len(whole))
    last = whole.rstrip(b"\n").rpartition(b"\n")[2]
    return msgspec.json.decode(last, type=AuditLine).end_offset_bytes if last else 0
