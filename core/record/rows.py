"""Structs of many equal rows: one call takes a whole batch apart, or puts it together."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_KEPT_ROWS: Final = 64
"""Structs of more rows are made for each use, which costs little beside the use; kept ones would hold memory."""


def rows_struct(rows: int, row: str, *lengths: int) -> struct.Struct:
    """Packs and unpacks so many rows, big-endian and without gaps.

    Args:
        rows: how many.
        row: the format of one, as :mod:`struct` has it.
        lengths: stand in it for each ``%d``: numbers are looked up faster than the format that is made of them.
    """
    return (_kept if rows <= _KEPT_ROWS else _kept.__wrapped__)(rows, row, *lengths)


@lru_cache(maxsize=128)
def _kept(rows: int, row: str, *lengths: int) -> struct.Struct:
    return struct.Struct(">" + row % lengths * rows)
