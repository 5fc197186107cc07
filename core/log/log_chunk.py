"""Defines a piece of another store's commit log that is appended byte for byte."""

from __future__ import annotations

import msgspec


class LogChunk(msgspec.Struct, frozen=True):
    """Checked bytes of one file of a commit log: whole records, or the blank end of the file."""

    offset_bytes: int
    """The physical offset of the first byte."""
    data: bytes
    store_timestamp_ms: int
    """The store time of the last record in it; 0 without any."""
    messages: int = 0
    """The number of records that end in it."""
    messages_bytes: int = 0
    """The sum of their sizes."""
