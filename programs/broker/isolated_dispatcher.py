"""Keeps the failure of an optional dispatcher from becoming the store's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flintmq.core.errors import StoreFencedError, StoreFullError
from flintmq.core.kernel.failures import PLUGIN_FAULTS, Part
from flintmq.core.kernel.plugin_shapes import check_not_awaitable, shown, wrong_offset
from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    RecordBatch,
    SupportsCatchUp,
    SupportsClose,
    SupportsCommitted,
    SupportsTruncate,
)


class IsolatedDispatcher:
    """A dispatcher whose failures are counted and named. Loop thread.

    An essential one raises through: the store stops acknowledging. An optional one loses the batch it failed on. After
    ``plugin_failures_max`` failures it is fed no more until the broker is restarted, which hands over what it says it lacks.
    ``StoreFullError`` and ``StoreFencedError`` always pass: they are about the store, and dispatch must stand still.

    Args:
        dispatcher: what the plugin made.
        part: counts its calls and failures.
        essential: whether the broker cannot do without it.
        name: what it is registered under.
    """

    def __init__(self, dispatcher: CommitLogDispatcher, part: Part, *, essential: bool, name: str = "") -> None:
        self.name = name
        """What it is registered under."""
        self._dispatcher = dispatcher
        self._dispatch = dispatcher.dispatch
        self._part = part
        self._essential = essential

    @property
    def inner(self) -> CommitLogDispatcher:
        return self._dispatcher

    def dispatch(self, batch: RecordBatch) -> None:
        """Hand a batch to the dispatcher; what it raises is counted."""
        part = self._part
        if part.why_off:
            return
        part.calls += 1
        try:
            returned: object = self._dispatch(batch)
            if returned is not None:
                check_not_awaitable(returned)
        except (StoreFullError, StoreFencedError):
            raise
        except PLUGIN_FAULTS as error:
            part.failed(error, "dispatch")
            if self._essential:
                if isinstance(error, SystemExit):
                    raise RuntimeError(f"{part.owner}: dispatch called sys.exit()") from error
                raise

    def committed(self) -> int | None:
        """Return below which position the dispatcher has everything for good, where it says so
        (:class:`flintmq.core.kernel.ports.SupportsCommitted`).

        An essential one that cannot tell stops the start; of an optional one that cannot, nothing is handed over again.
        """
        committed: int | None = None
        if isinstance(self._dispatcher, SupportsCommitted):
            with self._counted("committed"):
                returned = self._dispatcher.committed()
                expected = wrong_offset(returned)
                if expected:
                    raise TypeError(f"expected {expected} to be returned; found {shown(returned)}")
                committed = returned
        return committed

    def truncate(self, end_offset_bytes: int) -> None:
        """Tell the dispatcher where the log ends, if it is a :class:`~flintmq.core.kernel.ports.SupportsTruncate`."""
        if isinstance(self._dispatcher, SupportsTruncate):
            with self._counted("truncate"):
                self._dispatcher.truncate(end_offset_bytes)

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Leave it to the dispatcher to read what it missed; False when it has to be handed over."""
        does = isinstance(self._dispatcher, SupportsCatchUp)
        if isinstance(self._dispatcher, SupportsCatchUp):
            with self._counted("catch_up"):
                does = self._dispatcher.catch_up(start_offset_bytes, end_offset_bytes)
        return does

    def close(self) -> None:
        """Close the dispatcher where it can be closed; never raises, the store is on its way out."""
        if isinstance(self._dispatcher, SupportsClose):
            with self._counted("close", passes=False):
                self._dispatcher.close()

    @contextmanager
    def _counted(self, method: str, *, passes: bool = True) -> Iterator[None]:
        """Count what a method raises; of an essential dispatcher it ``passes``."""
        try:
            yield
        except Exception as error:
            self._part.failed(error, method)
            if self._essential and passes:
                raise
