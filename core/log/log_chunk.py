"""A chunk of another store's commit log, which is appended byte for byte."""

from __future__ import annotations

import msgspec


class LogChunk(msgspec.Struct, frozen=True):
    """Verified bytes of one file of a commit log: complete records, or the blank end of the file."""

    offset_bytes: int
    """Physical offset of the chunk's first byte."""
    data: bytes
    store_timestamp_ms: int
    """Store time of the last record in the chunk, in ms since 1970; 0 if the chunk has no record."""
    messages: int = 0
    """Number of records that end in the chunk."""
    messages_bytes: int = 0
    """Total size of the records that end in the chunk, in bytes."""
