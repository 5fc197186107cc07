"""The result of reading a queue (docs/internals/algorithms.md, Pull)."""

from __future__ import annotations

import enum

import msgspec


class GetMessageStatus(enum.Enum):
    """RocketMQ's names: they travel in the answer's remark."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(msgspec.Struct):
    """Messages as slices of the log, which stay readable as long as they are referenced."""

    status: GetMessageStatus
    next_begin_offset: int
    """Queue offset to ask for next."""
    min_offset: int
    """Smallest queue offset that exists."""
    max_offset: int
    """Queue offset of the next message to come."""
    slices: list[memoryview]
    """Runs of whole records."""
    message_count: int = 0
    size_bytes: int = 0
    suggest_slave: bool = False
    """Whether the reader is so far behind that memory no longer holds what it reads."""
