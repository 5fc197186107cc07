"""Messages that cannot be read, as producers send them and as disks damage them."""

from __future__ import annotations

import attrs

from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import SendResult

FALSE_ZLIB = 0x1
UNKNOWN_METHOD = 0x701


async def send_flagged(producer: Producer, message: Message, sys_flag: int) -> SendResult:
    """Send a message with a flag of one's own, as any producer can."""
    prepared = attrs.evolve(producer._preparer.one(message), sys_flag=sys_flag)
    return await producer._sender.send(prepared, None, 3_000)


def false_checksum(record: bytes) -> bytes:
    """Return a record with a bit of its body flipped."""
    at = 88 if record[88:] else 0
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


def torn(record: bytes) -> bytes:
    """Return a record whose inner lengths lead beyond its end; it still says how long it is."""
    return record[:84] + (len(record) * 2).to_bytes(4, "big") + record[88:]


def without_size(record: bytes) -> bytes:
    """Return a record that does not say how long it is."""
    return b"\xff\xff\xff\xff" + record[4:]


def without_magic(record: bytes) -> bytes:
    """Return a record that begins as none does."""
    return record[:4] + bytes(4) + record[8:]


def topic_of_no_text(record: bytes, topic: bytes) -> bytes:
    """Return a record whose topic is not UTF-8."""
    at = record.index(topic, 88)
    return record[:at] + b"\xff" * len(topic) + record[at + len(topic) :]


def cut(record: bytes) -> bytes:
    """Return the first half of a record."""
    return record[: len(record) // 2]
