"""Which log lands: a store's id and the epoch, so that one landing zone never mixes two histories."""

from __future__ import annotations

import attrs


@attrs.frozen
class LogSource:
    """Where messages come from."""

    store_id: str
    """The store's id (``flint/epochs``)."""
    broker_name: str
    """For the column ``brokerName``."""
    epochs: tuple[tuple[int, int], ...]
    """Number and start of each epoch of the log, oldest first."""

    @property
    def epoch(self) -> int:
        """The current epoch's number."""
        return self.epochs[-1][0] if self.epochs else 0

    def cut_below(self, epoch: int, end_offset_bytes: int) -> int | None:
        """Where the log was cut since an epoch, if that is below a position: what lay behind it is no longer in the log."""
        starts = [start for number, start in self.epochs if number > epoch and start < end_offset_bytes]
        return min(starts) if starts else None
