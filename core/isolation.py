"""Keeps an optional plugin's failure from becoming the broker's."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from flintmq.core.errors import StoreFencedError, StoreFullError
from flintmq.core.io.clock import Clock
from flintmq.core.plugin_info import PluginOrigin
from flintmq.core.ports import (
    ColumnDispatcher,
    CommitLogDispatcher,
    DispatchRequest,
    Run,
    RunDispatcher,
    SupportsCatchUp,
    SupportsClose,
    SupportsCommitted,
    SupportsTruncate,
)
from flintmq.core.store.bulk_columns import RecordColumns

Batch = TypeVar("Batch")

_LOG = logging.getLogger("flintmq.plugins")

FAILURES_MAX: Final = 5
"""So many failures within the window switch an optional dispatcher off until the broker is restarted."""

WINDOW_S: Final = 60.0


class Blame:
    """Counts what each plugin raised. Loop thread."""

    def __init__(self) -> None:
        self._errors: dict[str, int] = {}
        self._last: dict[str, str] = {}

    def note(self, owner: PluginOrigin, doing: str, error: Exception) -> None:
        """Counts and logs an error, with the plugin's name."""
        self._errors[owner.name] = self._errors.get(owner.name, 0) + 1
        self._last[owner.name] = f"{doing}: {type(error).__name__}: {error}"
        _LOG.error("%s raised in %s", owner, doing, exc_info=error)

    def errors(self, owner: PluginOrigin) -> int:
        return self._errors.get(owner.name, 0)

    def last_error(self, owner: PluginOrigin) -> str:
        return self._last.get(owner.name, "")


class IsolatedDispatcher:
    """A dispatcher whose failures are counted and named. Loop thread.

    An essential one raises through: the store stops acknowledging. An optional one loses the batch it failed on, and after
    :data:`FAILURES_MAX` failures within :data:`WINDOW_S` seconds it is fed no more until the broker is restarted.
    ``StoreFullError`` and ``StoreFencedError`` always pass: they are about the store, and dispatch must stand still.
    """

    def __init__(
        self, dispatcher: CommitLogDispatcher, owner: PluginOrigin, *, essential: bool, blame: Blame, clock: Clock
    ) -> None:
        self._dispatcher = dispatcher
        self._dispatch: Callable[[Sequence[DispatchRequest]], None] = dispatcher.dispatch
        self._owner = owner
        self._essential = essential
        self._blame = blame
        self._clock = clock
        self._failed_at_s: deque[float] = deque(maxlen=FAILURES_MAX)
        self.disabled = False
        """True once it failed too often."""

    @property
    def inner(self) -> CommitLogDispatcher:
        return self._dispatcher

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        self._guarded(self._dispatch, batch)

    def _guarded(self, dispatch: Callable[[Batch], None], batch: Batch) -> None:
        if self.disabled:
            return
        try:
            dispatch(batch)
        except (StoreFullError, StoreFencedError):
            raise
        except Exception as error:
            self._blame.note(self._owner, "dispatch", error)
            if self._essential:
                raise
            self._count_failure()

    def committed(self) -> int | None:
        """What the dispatcher has for good, where it says so (:class:`flintmq.core.ports.SupportsCommitted`).

        An essential one that cannot tell stops the start; of an optional one that cannot, nothing is handed over again.
        """
        if not isinstance(self._dispatcher, SupportsCommitted):
            return None
        try:
            return self._dispatcher.committed()
        except Exception as error:
            self._blame.note(self._owner, "committed", error)
            if self._essential:
                raise
            return None

    def truncate(self, end_offset_bytes: int) -> None:
        """Tells the dispatcher where the log ends, where it wants to know (:class:`flintmq.core.ports.SupportsTruncate`)."""
        if not isinstance(self._dispatcher, SupportsTruncate):
            return
        try:
            self._dispatcher.truncate(end_offset_bytes)
        except Exception as error:
            self._blame.note(self._owner, "truncate", error)
            if self._essential:
                raise

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> bool:
        """Leaves it to the dispatcher to read what it missed; False when it has to be handed over."""
        if not isinstance(self._dispatcher, SupportsCatchUp):
            return False
        try:
            return self._dispatcher.catch_up(start_offset_bytes, end_offset_bytes)
        except Exception as error:
            self._blame.note(self._owner, "catch_up", error)
            if self._essential:
                raise
            return True

    def close(self) -> None:
        """Closes the dispatcher where it can be closed; never raises, the store is on its way out."""
        if not isinstance(self._dispatcher, SupportsClose):
            return
        try:
            self._dispatcher.close()
        except Exception as error:
            self._blame.note(self._owner, "close", error)

    def _count_failure(self) -> None:
        now_s = self._clock.monotonic_s()
        self._failed_at_s.append(now_s)
        if len(self._failed_at_s) == FAILURES_MAX and now_s - self._failed_at_s[0] <= WINDOW_S:
            self.disabled = True
            _LOG.error("%s failed %d times in %.0f s: its dispatcher is off", self._owner, FAILURES_MAX, WINDOW_S)


class IsolatedColumnDispatcher(IsolatedDispatcher):
    """The same for one that also takes columns."""

    def __init__(
        self, dispatcher: ColumnDispatcher, owner: PluginOrigin, *, essential: bool, blame: Blame, clock: Clock
    ) -> None:
        super().__init__(dispatcher, owner, essential=essential, blame=blame, clock=clock)
        self._dispatch_columns: Callable[[RecordColumns], None] = dispatcher.dispatch_columns

    def dispatch_columns(self, columns: RecordColumns) -> None:
        self._guarded(self._dispatch_columns, columns)


class IsolatedRunDispatcher(IsolatedColumnDispatcher):
    """The same for one that takes batches as they were appended, too."""

    def __init__(
        self, dispatcher: RunDispatcher, owner: PluginOrigin, *, essential: bool, blame: Blame, clock: Clock
    ) -> None:
        super().__init__(dispatcher, owner, essential=essential, blame=blame, clock=clock)
        self._dispatch_runs: Callable[[Sequence[Run]], None] = dispatcher.dispatch_runs

    def dispatch_runs(self, runs: Sequence[Run]) -> None:
        self._guarded(self._dispatch_runs, runs)
