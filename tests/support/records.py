"""Make records of every kind for tests of what reads them, field by field, not by the code that is tested."""

from __future__ import annotations

import struct
import zlib

import attrs

from flintmq.core.record.record import MAGIC_V1, MAGIC_V2
from flintmq.core.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

HOST_V4 = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
HOST_V6 = bytes(15) + b"\x01" + struct.pack(">i", 10911)


@attrs.frozen
class RecordFields:
    """What a record is made of; the IPv6 bits of the flag follow from the hosts' lengths."""

    topic: bytes = b"Orders"
    body: bytes = b"hello"
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    born_host: bytes = HOST_V4
    store_timestamp_ms: int = 1_700_000_000_001
    store_host: bytes = HOST_V4
    reconsume_times: int = 0
    prepared_transaction_offset_bytes: int = 0
    is_v2: bool = False
    crc: int | None = None
    """None for the right one."""

    def encode(self, physical_offset_bytes: int) -> bytes:
        """Return the record for a place in the log."""
        sys_flag = self.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
        sys_flag |= BORN_HOST_V6 if len(self.born_host) == 20 else 0
        sys_flag |= STORE_HOST_V6 if len(self.store_host) == 20 else 0
        crc = zlib.crc32(self.body) & 0x7FFFFFFF if self.crc is None else self.crc
        rest = b"".join(
            (
                struct.pack(">I", MAGIC_V2 if self.is_v2 else MAGIC_V1),
                struct.pack(
                    ">iiiqqi", crc, self.queue_id, self.flag, self.queue_offset, physical_offset_bytes, sys_flag
                ),
                struct.pack(">q", self.born_timestamp_ms),
                self.born_host,
                struct.pack(">q", self.store_timestamp_ms),
                self.store_host,
                struct.pack(">iq", self.reconsume_times, self.prepared_transaction_offset_bytes),
                struct.pack(">i", len(self.body)),
                self.body,
                struct.pack(">H" if self.is_v2 else ">B", len(self.topic)),
                self.topic,
                struct.pack(">H", len(self.properties)),
                self.properties,
            )
        )
        return struct.pack(">i", len(rest) + 4) + rest


def encode_all(records: list[RecordFields], first_offset_bytes: int = 0) -> tuple[bytes, list[int]]:
    """Return consecutive records, and where each begins in the bytes."""
    log = bytearray()
    starts = []
    for record in records:
        starts.append(len(log))
        log += record.encode(first_offset_bytes + len(log))
    return bytes(log), starts
