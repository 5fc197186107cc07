"""The unit of a consume queue: ``physicalOffset 8 | size 4 | tagsCode 8`` (docs/internals/store-format.md, Consume queue).

Every implementation of a broker's queues returns units in this format.
"""

from __future__ import annotations

import struct
from typing import Final

UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = UNIT.size
FILLER_SIZE: Final = 0x7FFFFFFF
"""Value of the field for the size in a filler unit of a consume queue. A filler unit has no message: it stands before a queue's
first message, or in place of a lost message.

The physical offset in a filler unit is 0.
"""

MAX_ADDRESS: Final = -(2**31) - 1
"""Greatest address in the files of ``consumequeue_ext``. A unit can contain such an address in the field for the tags code. A
greater value in this field is a tags code."""

Unit = tuple[int, int, int]
"""Unit of a consume queue: physical offset, size in bytes and tags code of a message."""


def is_filler(unit: Unit) -> bool:
    """Return whether a unit of a consume queue is a filler, which refers to no message."""
    return unit[1] == FILLER_SIZE and not unit[0]


def is_address(tags_code: int) -> bool:
    """Return whether the value in place of a tags code is an address in the files of ``consumequeue_ext``."""
    return tags_code <= MAX_ADDRESS
