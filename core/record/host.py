"""Addresses as records and message ids hold them: 4 or 16 bytes of IP and an int32 port; and the broker's message id, the store
host and physical offset in upper-case hex.

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
    """``ip`` (v4 or v6, a zone is dropped) as 4 or 16 bytes. Raises ValueError."""
    try:
        return socket.inet_pton(socket.AF_INET, ip)
    except OSError:
        return ipaddress.ip_address(ip.partition("%")[0]).packed


@lru_cache(maxsize=4_096)
def pack_host(ip: str, port: int) -> bytes:
    """``ip`` (v4 or v6, a zone is dropped) and port as 8 or 20 bytes. Raises ValueError."""
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"a port is 0 to {PORT_MAX}, not {port}")
    return pack_ip(ip) + struct.pack(">i", port)


def unpack_host(packed: bytes | memoryview) -> tuple[str, int]:
    """Return the inverse of :func:`pack_host`."""
    raw = bytes(packed)
    return str(ipaddress.ip_address(raw[:-4])), int.from_bytes(raw[-4:], "big", signed=True)


def host_text(packed: bytes | memoryview) -> str:
    """``ip:port``; an IPv6 address in brackets."""
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


class MessageId(msgspec.Struct, frozen=True):
    """An offsetMsgId taken apart."""

    ip: str
    port: int
    commit_log_offset_bytes: int


def offset_message_id(store_host_hex: str, commit_log_offset_bytes: int) -> str:
    """``store_host_hex`` is the packed host in upper-case hex, which a broker computes once."""
    return f"{store_host_hex}{commit_log_offset_bytes:016X}"


def batch_message_id(store_host_hex: str, commit_log_offsets_bytes: Sequence[int]) -> str:
    """Return the ids of a batch's messages, separated by commas, as its answer carries them. At least one."""
    offsets = rows_struct(len(commit_log_offsets_bytes), "q").pack(*commit_log_offsets_bytes)
    return store_host_hex + offsets.hex(",", 8).upper().replace(",", f",{store_host_hex}")


def decode_message_id(text: str) -> MessageId:
    """Take an offsetMsgId apart.

    Raises:
        ValueError: not 32 or 56 hex digits, or of no port: a sender's id, which looks alike, has other bytes there.
    """
    if len(text) not in (2 * (V4_BYTES + 8), 2 * (V6_BYTES + 8)):
        raise ValueError(f"a message id has 32 or 56 hex digits, not {len(text)}: {text[:80]!r}")
    raw = bytes.fromhex(text)
    ip, port = unpack_host(raw[:-8])
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"a message id of a broker names a port, 0 to {PORT_MAX}, and not {port}: {text}")
    return MessageId(ip, port, int.from_bytes(raw[-8:], "big", signed=True))
