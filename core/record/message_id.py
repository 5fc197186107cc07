"""The broker's message id: store host and physical offset in upper-case hex (docs/internals/store-format.md, Identifiers)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from flintmq.core.record.host import V4_BYTES, V6_BYTES, unpack_host


class MessageId(msgspec.Struct, frozen=True):
    """An offsetMsgId taken apart."""

    ip: str
    port: int
    commit_log_offset_bytes: int


def offset_message_id(store_host_hex: str, commit_log_offset_bytes: int) -> str:
    """``store_host_hex`` is the packed host in upper-case hex, which a broker computes once."""
    return f"{store_host_hex}{commit_log_offset_bytes:016X}"


def batch_message_id(store_host_hex: str, commit_log_offsets_bytes: Sequence[int]) -> str:
    """The ids of a batch's messages, separated by commas, as its answer carries them. At least one."""
    offsets = struct.pack(f">{len(commit_log_offsets_bytes)}q", *commit_log_offsets_bytes)
    return store_host_hex + offsets.hex(",", 8).upper().replace(",", f",{store_host_hex}")


def decode_message_id(text: str) -> MessageId:
    """Takes an offsetMsgId apart.

    Raises:
        ValueError: not 32 or 56 hex digits.
    """
    if len(text) not in (2 * (V4_BYTES + 8), 2 * (V6_BYTES + 8)):
        raise ValueError(f"a message id has 32 or 56 hex digits, not {len(text)}: {text[:80]!r}")
    raw = bytes.fromhex(text)
    ip, port = unpack_host(raw[:-8])
    return MessageId(ip, port, int.from_bytes(raw[-8:], "big", signed=True))
