"""The unit of a consume queue: ``physicalOffset 8 | size 4 | tagsCode 8`` (docs/internals/store-format.md, Consume queue).

Whatever keeps a broker's queues hands their units over in this form.
"""

from __future__ import annotations

import struct
from typing import Final

UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = UNIT.size
FILLER_SIZE: Final = 0x7FFFFFFF
"""The size in a unit without a message: before a queue's first one, and in the place of a lost one. Its position is 0."""

MAX_ADDRESS: Final = -(2**31) - 1
"""The greatest address in a file of the folder ``consumequeue_ext`` that may stand in the place of a tags code."""

Unit = tuple[int, int, int]
"""Physical offset, size in bytes and tags code of a message."""


def is_filler(unit: Unit) -> bool:
    """Return whether a unit refers to no message."""
    return unit[1] == FILLER_SIZE and not unit[0]


def is_address(tags_code: int) -> bool:
    """Return whether what stands in the place of a tags code is an address."""
    return tags_code <= MAX_ADDRESS
