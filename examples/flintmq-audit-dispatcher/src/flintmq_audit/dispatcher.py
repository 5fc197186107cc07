"""The dispatcher: one JSON line per topic and batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from flintmq.core.kernel.ports import RecordBatch


class AuditLine(msgspec.Struct):
    """What was stored of one topic in one batch."""

    topic: str
    messages: int
    bytes: int
    first_offset_bytes: int
    """Physical offset of the first record."""
    end_offset_bytes: int
    """Physical offset behind the batch's last record of any topic: where the next run continues."""
    store_timestamp_ms: int
    """Of the topic's last record in the batch."""


class AuditDispatcher:
    """Appends to a JSON-lines file. Loop thread.

    Args:
        path: the file; its folder is made.
        max_bytes: at this size the file becomes ``<path>.1``.
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
        """Notes the records it has not noted yet. Raises OSError when the file cannot be written."""
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
        """All of it or nothing: half a batch would be noted twice when it comes again."""
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
    """Cuts off a torn last line; returns where the last whole one ends in the log, 0 without any."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        os.truncate(path, len(whole))
    last = whole.rstrip(b"\n").rpartition(b"\n")[2]
    return msgspec.json.decode(last, type=AuditLine).end_offset_bytes if last else 0
