"""What a query's own filters say about where its rows can lie, for leaving out the rest."""

from __future__ import annotations

import attrs

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1


@attrs.frozen
class Range:
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int = _INT64_MIN
    high: int = _INT64_MAX

    def both(self, other: Range) -> Range:
        """What lies in both."""
        return Range(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_empty(self) -> bool:
        return self.low > self.high


ANY = Range()
"""Every number."""


@attrs.frozen
class Bounds:
    """Rows outside cannot be in the result; rows inside may or may not."""

    topics: frozenset[str] | None = None
    """None for any."""
    tags: frozenset[str] | None = None
    queue_id: Range = ANY
    queue_offset: Range = ANY
    physical_offset: Range = ANY
    store_timestamp_ms: Range = ANY
