"""Read records, and refuse all that RocketMQ's own readers refuse; it shares no code with FlintMQ's record.

Every length is signed, as Java reads it: ``MessageDecoder.decode`` of the client, which leaves out the rest of a pull's answer
at the first message it cannot read, and ``CommitLog.checkMessageAndReturnSize`` of the broker, whose recovery cuts the log
there.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import attrs

_MAGIC: Final = -626843481
_BLANK: Final = -875286124


@attrs.frozen
class StrictRecord:
    """What a reader in Java makes of a record."""

    size_bytes: int
    physical_offset_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    reconsume_times: int
    body: bytes
    properties: dict[str, str]


class _Buffer:
    """Bytes read in order, as a ByteBuffer is: nothing beyond its limit, and no negative number of them."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0:
            raise ValueError(f"a length of {count} bytes at {self.at}")
        if self.at + count > len(self._raw):
            raise ValueError(f"{count} bytes at {self.at} of {len(self._raw)}")
        self.at += count
        return self._raw[self.at - count : self.at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(f">{kind}", self.take(struct.calcsize(kind)))[0])


def strict_record(raw: bytes) -> StrictRecord:
    """Read one record, which must take all of the bytes. Raises ValueError where a reader in Java would refuse it."""
    buffer = _Buffer(raw)
    size, magic = buffer.number("i"), buffer.number("i")
    if size != len(raw) or magic != _MAGIC:
        raise ValueError(f"size {size}, magic {magic}, {len(raw)} bytes")
    crc, queue_id, _flag = buffer.number("i"), buffer.number("i"), buffer.number("i")
    queue_offset, physical, sys_flag = buffer.number("q"), buffer.number("q"), buffer.number("i")
    buffer.number("q")
    _host(buffer, sys_flag & 0x10)
    stored_ms = buffer.number("q")
    _host(buffer, sys_flag & 0x20)
    reconsume_times = buffer.number("i")
    buffer.number("q")
    body = buffer.take(buffer.number("i"))
    if body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise ValueError("the body's checksum is wrong")
    topic = buffer.take(buffer.number("b")).decode("utf-8")
    text = buffer.take(buffer.number("h")).decode("utf-8", "replace")
    if buffer.at != size:
        raise ValueError(f"the fields take {buffer.at} bytes, the record says {size}")
    if queue_id < 0 or queue_offset < 0 or not topic:
        raise ValueError(f"no place: {topic!r}/{queue_id}/{queue_offset}")
    properties = _properties(text)
    if topic == "SCHEDULE_TOPIC_XXXX" and "DELAY" in properties:
        int(properties["DELAY"])
    return StrictRecord(
        size, physical, topic, queue_id, queue_offset, sys_flag, stored_ms, reconsume_times, body, properties
    )


def strict_records(raw: bytes) -> list[StrictRecord]:
    """Read consecutive records, as a pull's answer carries them. Raises ValueError, which says where."""
    found: list[StrictRecord] = []
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big", signed=True)
        if not 0 < size <= len(raw) - at:
            raise ValueError(f"size {size} at {at} of {len(raw)} bytes")
        try:
            found.append(strict_record(raw[at : at + size]))
        except ValueError as error:
            raise ValueError(f"the record at {at}: {error}") from error
        at += size
    return found


def strict_log(raw: bytes, start_offset_bytes: int = 0) -> list[StrictRecord]:
    """Read one file of a log up to its blank, or to its unused end.

    Args:
        raw: the file's bytes.
        start_offset_bytes: its place in the log.

    Raises:
        ValueError: RocketMQ would end the log before its end; says where.
    """
    end = 0
    while end + 8 <= len(raw):
        size, magic = struct.unpack_from(">ii", raw, end)
        if magic == _BLANK or size <= 0:
            break
        end += size
    found = strict_records(raw[:end])
    place = start_offset_bytes
    for record in found:
        if record.physical_offset_bytes != place:
            raise ValueError(f"the record at {place} says it lies at {record.physical_offset_bytes}")
        place += record.size_bytes
    is_blank = struct.unpack_from(">ii", raw, end)[1] == _BLANK if end + 8 <= len(raw) else False
    if not is_blank and raw[end:].strip(b"\0"):
        raise ValueError(f"bytes that are no record at {place}")
    return found


def _host(buffer: _Buffer, is_v6: int) -> None:
    buffer.take(16 if is_v6 else 4)
    port = buffer.number("i")
    if not 0 <= port <= 65_535:
        raise ValueError(f"port {port}")


def _properties(text: str) -> dict[str, str]:
    entries = (entry.split("\x01", 1) for entry in text.split("\x02") if len(entry) >= 3)
    return {entry[0]: entry[1] for entry in entries if len(entry) == 2 and all(entry)}
