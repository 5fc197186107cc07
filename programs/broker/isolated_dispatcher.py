"""Isolates dispatchers of plugins, so that a failure of an optional dispatcher does not stop the store."""

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
    """Wraps a dispatcher, and counts its failures for its plugin. For the loop thread only.

    An error of an essential dispatcher is raised, and the store stops acknowledging. An optional dispatcher loses the batch on
    which it failed. After ``plugin_failures_max`` failures the dispatcher gets no more batches. The next start of the broker
    dispatches the records again that the dispatcher has not stored durably (:meth:`committed`). ``StoreFullError`` and
    ``StoreFencedError`` are always raised, because they concern the store, and dispatch must stop.

    Args:
        dispatcher: the plugin's dispatcher.
        part: the object that counts the dispatcher's calls and failures, and switches the dispatcher off.
        essential: whether the broker needs the dispatcher to work.
        name: the name under which it is registered.
    """

    def __init__(self, dispatcher: CommitLogDispatcher, part: Part, *, essential: bool, name: str = "") -> None:
        self.name = name
        """Name under which the dispatcher is registered."""
        self._dispatcher = dispatcher
        self._dispatch = dispatcher.dispatch
        self._part = part
        self._essential = essential

    @property
    def inner(self) -> CommitLogDispatcher:
        return self._dispatcher

    def dispatch(self, batch: RecordBatch) -> None:
        """Pass a batch to the dispatcher, and count its failures. Do nothing if the dispatcher is switched off."""
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
        """Return the physical offset below which the dispatcher has stored all records durably.

        None if the dispatcher does not report this offset (:class:`flintmq.core.kernel.ports.SupportsCommitted`). If the call
        fails, an essential dispatcher stops the start; for an optional dispatcher None is returned, and no record is dispatched
        again.
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
        """Pass the new end of a truncated log to the dispatcher, if the dispatcher is a
        :class:`~flintmq.core.kernel.ports.SupportsTruncate`."""
        if isinstance(self._dispatcher, SupportsTruncate):
            with self._counted("truncate"):
                self._dispatcher.truncate(end_offset_bytes)

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Let the dispatcher read the records that it missed, and return whether it can do so.

        False if the dispatcher does not support this (:class:`flintmq.core.kernel.ports.SupportsCatchUp`). The caller must then
        dispatch these records.
        """
        does = isinstance(self._dispatcher, SupportsCatchUp)
        if isinstance(self._dispatcher, SupportsCatchUp):
            with self._counted("catch_up"):
                does = self._dispatcher.catch_up(start_offset_bytes, end_offset_bytes)
        return does

    def close(self) -> None:
        """Close the dispatcher, if the dispatcher has a method ``close``. Errors of the method are only counted, so that the
        store can close."""
        if isinstance(self._dispatcher, SupportsClose):
            with self._counted("close", passes=False):
                self._dispatcher.close()

    @contextmanager
    def _counted(self, method: str, *, passes: bool = True) -> Iterator[None]:
        """Count an error that the ``with`` block raises as a failure of the dispatcher, and suppress or raise the error.

        Args:
            method: the name of the dispatcher's method that the block calls.
            passes: True to raise the error again if the dispatcher is essential; the error of an optional dispatcher is
                suppressed. False to suppress the error of any dispatcher.
        """
        try:
            yield
        except Exception as error:
            self._part.failed(error, method)
            if self._essential and passes:
                raise
