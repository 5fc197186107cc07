"""What a landing zone is to the lander: a place where a stretch of the log lands in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow

    from flintmq.plugins.spark.landing.manifest import Commit


class LandingZone(Protocol):
    """One user at a time: the lander keeps others out (:mod:`flintmq.plugins.spark.landing.lock`)."""

    def open(self) -> None:
        """Finishes or undoes what a crash interrupted.

        Raises:
            LandingError: the zone belongs to another log, or is damaged; says what to change.
        """
        ...

    @property
    def committed_bytes(self) -> int | None:
        """Everything below this physical offset has landed; None in a new zone."""
        ...

    def publish(
        self, start_offset_bytes: int, end_offset_bytes: int, rows: pyarrow.Table, *, lost_to_bytes: int | None = None
    ) -> Commit:
        """Make rows visible, durably and once: after a crash either all of a commit is there or nothing.

        Args:
            start_offset_bytes: where the last commit ended.
            end_offset_bytes: behind the last record.
            rows: every column of :mod:`flintmq.plugins.spark.schema`, in the log's order.
            lost_to_bytes: see :class:`flintmq.plugins.spark.landing.manifest.Commit`.

        Raises:
            StoreError, OSError: it could not be made durable; nothing has happened, or the next opening finishes it.
        """
        ...

    def close(self) -> None:
        """Let the next one in. Idempotent."""
        ...
