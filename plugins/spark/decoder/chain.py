"""Finds the beginnings of records by walking from one record to the next; see :mod:`flintmq.core.record.log_walk`.

Only the end of the previous record shows where a record begins. Bytes in a body may look like a record, even with the physical
offset of their position (docs/large-stores.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.core.record import bulk_scan
from flintmq.core.record.record import BLANK_MIN_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC
from flintmq.plugins.spark.decoder.slices import Ints

Bytes = npt.NDArray[np.uint8]
BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * 1024 * 1024
BATCH_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Maximum value of ``batch_bytes``; a larger value is reduced to this maximum. The maximum limits a column of an Arrow batch to
twice this number of bytes."""


@attrs.frozen
class Chain:
    """Consecutive records of the commit log: their positions, and why the walk over the log ended."""

    starts: Ints
    end: int
    """Position just past the last of the consecutive records. If no record was found, the position at which the search
    began."""
    why: str
    """Reason why no further record follows the consecutive records: the ``end`` of the bytes, a ``blank`` record, ``zero``
    bytes, or ``bad`` bytes that are not a record."""


def walk(data: Bytes, start: int, end: int) -> Chain:
    """Return the complete records in ``data[start:end]``, of which the first must begin at ``start``."""
    found: list[Ints] = [np.empty(0, np.int64)]
    at = start
    while places := bulk_scan.chain(data.data, at, end, bulk_scan.ROWS_MAX):
        found.append(np.array(places, np.int64))
        at = places[-1] + SIZE_AND_MAGIC.unpack_from(data.data, places[-1])[0]
    return Chain(np.concatenate(found), at, _why_none(data.data, at, end))


def in_batches(starts: Ints, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES) -> Iterator[Ints]:
    """Yield the positions of commit log records in batches. A batch has at most ``batch_rows`` records, which all begin within
    ``batch_bytes`` of the first. It has at least one record."""
    at = 0
    while at < len(starts):
        full = int(np.searchsorted(starts, int(starts[at]) + min(batch_bytes, BATCH_BYTES_MAX)))
        until = min(max(full, at + 1), at + batch_rows)
        yield starts[at:until]
        at = until


def _why_none(view: memoryview, at: int, end: int) -> str:
    """Return the reason why no record of the commit log begins at a position."""
    if at == end:
        return "end"
    size, magic = SIZE_AND_MAGIC.unpack_from(view, at) if end - at >= BLANK_MIN_BYTES else (-1, -1)
    if magic == MAGIC_BLANK:
        return "blank"
    return "zero" if magic == 0 and size == 0 else "bad"
