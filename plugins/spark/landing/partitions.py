"""Splits rows by topic and day, each part in the log's order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

if TYPE_CHECKING:
    import pyarrow

_DAY_US: Final = 86_400_000_000
_NO_DAY: Final = -(2**62)


@attrs.frozen
class Partition:
    """The rows of one topic and day."""

    topic: str
    day: int | None
    """Days since 1970 in UTC, of the store time; None where that is not a time."""
    rows: pyarrow.Table
    """Without the column ``topic``: the folder tells it."""


def partitions(rows: pyarrow.Table) -> Iterator[Partition]:
    """The parts of rows that have the columns ``topic`` and ``storeTimestamp``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return
    topics = pc.fill_null(rows.column("topic"), "").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    stored_us = rows.column("storeTimestamp").cast(pa.timestamp("us")).cast(pa.int64())
    days = pc.fill_null(stored_us, _NO_DAY).to_numpy()
    days = np.where(days == _NO_DAY, _NO_DAY, days // _DAY_US)
    kept = rows.drop_columns(["topic"])
    order = np.lexsort((days, codes))  # stable: equal keys stay in the log's order
    codes, days = codes[order], days[order]
    if len(names) > 1 or days[0] != days[-1]:
        kept = kept.take(pa.array(order))
    new = np.flatnonzero((codes[1:] != codes[:-1]) | (days[1:] != days[:-1])) + 1
    cuts = [0, *(int(cut) for cut in new), len(codes)]
    for start, end in itertools.pairwise(cuts):
        day = int(days[start])
        yield Partition(names[int(codes[start])], None if day == _NO_DAY else day, kept.slice(start, end - start))
