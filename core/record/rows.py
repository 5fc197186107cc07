"""Structs for :mod:`struct` that consist of many equal rows, so that one call packs or unpacks a whole batch."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_KEPT_ROWS: Final = 64
"""Maximum number of rows that a cached struct packs. A struct for more rows would occupy memory, and creating a struct costs
little."""


def rows_struct(rows: int, row: str, *lengths: int) -> struct.Struct:
    """Return a struct that packs or unpacks a number of equal rows, big-endian and without gaps.

    Structs of up to 64 rows are cached, with the arguments of this function as the key.

    Args:
        rows: the number of rows.
        row: the :mod:`struct` format of one row, with ``%d`` for each variable length.
        lengths: the numbers that replace the ``%d`` in ``row``, in order. They are separate arguments because the cache finds
            numbers faster than a format string that contains the numbers.
    """
    return (_kept if rows <= _KEPT_ROWS else _kept.__wrapped__)(rows, row, *lengths)


@lru_cache(maxsize=128)
def _kept(rows: int, row: str, *lengths: int) -> struct.Struct:
    return struct.Struct(">" + row % lengths * rows)
