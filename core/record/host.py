"""The binary form of addresses in records, and a broker's message id (offsetMsgId).

An address is an IP of 4 or 16 bytes and an int32 port. A message id is the store host and the physical offset, in upper-case
hexadecimal.

See docs/internals/store-format.md, Commit log record and Identifiers.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from flintmq.core.record.rows import rows_struct

V4_BYTES = 8
V6_BYTES = 20
PORT_MAX = 65_535


def pack_ip(ip: str) -> bytes:
    """Return an IPv4 or IPv6 address as 4 or 16 bytes, without its zone. Raises ValueError if the text is not an address."""
    try:
        return socket.inet_pton(socket.AF_INET, ip)
    except OSError:
        return ipaddress.ip_address(ip.partition("%")[0]).packed


@lru_cache(maxsize=4_096)
def pack_host(ip: str, port: int) -> bytes:
    """Return an IPv4 or IPv6 address, without its zone, and a port as 8 or 20 bytes. Raises ValueError if the address or the
    port is invalid.
    """
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"a port is 0 to {PORT_MAX}, not {port}")
    return pack_ip(ip) + struct.pack(">i", port)


def unpack_host(packed: bytes | memoryview) -> tuple[str, int]:
    """Return the IP address and the port that a packed host of 8 or 20 bytes contains; the inverse of :func:`pack_host`."""
    raw = bytes(packed)
    return str(ipaddress.ip_address(raw[:-4])), int.from_bytes(raw[-4:], "big", signed=True)


def host_text(packed: bytes | memoryview) -> str:
    """Return a packed host as text, ``ip:port``, with an IPv6 address in brackets."""
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


class MessageId(msgspec.Struct, frozen=True):
    """The parts of a broker's message id (offsetMsgId): the broker's address and the record's physical offset."""

    ip: str
    port: int
    commit_log_offset_bytes: int


def offset_message_id(store_host_hex: str, commit_log_offset_bytes: int) -> str:
    """Return a broker's message id; ``store_host_hex`` is the broker's packed address in upper-case hexadecimal."""
    return f"{store_host_hex}{commit_log_offset_bytes:016X}"


def batch_message_id(store_host_hex: str, commit_log_offsets_bytes: Sequence[int]) -> str:
    """Return the message ids of a batch, joined by commas as in the broker's answer; the batch must not be empty."""
    offsets = rows_struct(len(commit_log_offsets_bytes), "q").pack(*commit_log_offsets_bytes)
    return store_host_hex + offsets.hex(",", 8).upper().replace(",", f",{store_host_hex}")


def decode_message_id(text: str) -> MessageId:
    """Return the parts of a broker's message id (offsetMsgId).

    Raises:
        ValueError: the text does not have 32 or 56 hexadecimal digits, or its port is invalid. A sender's id looks similar, but
            has other bytes in place of the port.
    """
    if len(text) not in (2 * (V4_BYTES + 8), 2 * (V6_BYTES + 8)):
        raise ValueError(f"a message id has 32 or 56 hex digits, not {len(text)}: {text[:80]!r}")
    raw = bytes.fromhex(text)
    ip, port = unpack_host(raw[:-8])
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"the port in a broker's message id must be 0 to {PORT_MAX}, not {port}: {text}")
    return MessageId(ip, port, int.from_bytes(raw[-8:], "big", signed=True))
