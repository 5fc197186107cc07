"""Mapped pages given back to the kernel in slices, so that the loop's thread is not kept for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flintmq.core.io.disk import MappedRegion

SLICE_BYTES: Final = 4 * 1024 * 1024


def evict_slices(region: MappedRegion, end: int) -> Iterator[None]:
    """Take the first part of a mapped file out of the process's memory, a slice at a time; see :meth:`.MappedRegion.evict`."""
    for start in range(0, end, SLICE_BYTES):
        region.evict(start, min(end, start + SLICE_BYTES))
        yield
