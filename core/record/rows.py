"""Structs of many equal rows: one call takes a whole batch apart, or puts it together."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_KEPT_ROWS: Final = 64
"""Structs of more rows are made for each use, which costs little beside the use; kept ones would hold memory."""


def rows_struct(row: str, rows: int) -> struct.Struct:
    """Packs and unpacks so many rows, big-endian and without gaps.

    Args:
        row: the format of one, as :mod:`struct` has it.
    """
    return _kept(row, rows) if rows <= _KEPT_ROWS else struct.Struct(">" + row * rows)


@lru_cache(maxsize=128)
def _kept(row: str, rows: int) -> struct.Struct:
    return struct.Struct(">" + row * rows)
