"""Keeps an optional plugin's failure from becoming the broker's."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from flintmq.core.errors import RefusedError, StoreFencedError, StoreFullError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.blame import PLUGIN_FAULTS, Blame
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.plugin_shapes import check_not_awaitable, drop, shown, wrong_offset
from flintmq.core.kernel.ports import (
    BitMapFilter,
    CommitLogDispatcher,
    MessageFilter,
    RecordBatch,
    SupportsCatchUp,
    SupportsClose,
    SupportsCommitted,
    SupportsTruncate,
)
from flintmq.core.response_code import ResponseCode

_LOG = logging.getLogger("flintmq.plugins")

FAILURES_MAX: Final = 5
"""So many failures within the window switch an optional dispatcher off until the broker is restarted."""

WINDOW_S: Final = 60.0


class IsolatedDispatcher:
    """A dispatcher whose failures are counted and named. Loop thread.

    An essential one raises through: the store stops acknowledging. An optional one loses the batch it failed on, and after
    :data:`FAILURES_MAX` failures within :data:`WINDOW_S` seconds it is fed no more until the broker is restarted.
    ``StoreFullError`` and ``StoreFencedError`` always pass: they are about the store, and dispatch must stand still.
    """

    def __init__(
        self,
        dispatcher: CommitLogDispatcher,
        owner: PluginOrigin,
        *,
        essential: bool,
        blame: Blame,
        clock: Clock,
        name: str = "",
    ) -> None:
        self.name = name
        """What it is registered under."""
        self._dispatcher = dispatcher
        self._dispatch = dispatcher.dispatch
        self._owner = owner
        self._essential = essential
        self._blame = blame
        self._clock = clock
        self._failed_at_s: deque[float] = deque(maxlen=FAILURES_MAX)
        self.disabled = False
        """True once it failed too often."""
        self.why_disabled = ""
        """What led to it; empty while it is on."""

    @property
    def owner(self) -> PluginOrigin:
        return self._owner

    @property
    def inner(self) -> CommitLogDispatcher:
        return self._dispatcher

    def dispatch(self, batch: RecordBatch) -> None:
        """Hand a batch to the dispatcher; what it raises is counted."""
        if self.disabled:
            return
        try:
            returned: object = self._dispatch(batch)
            if returned is not None:
                check_not_awaitable(returned)
        except (StoreFullError, StoreFencedError):
            raise
        except PLUGIN_FAULTS as error:
            guilty = self._note("dispatch", error)
            if self._essential:
                if isinstance(error, SystemExit):
                    raise RuntimeError(f"{self._owner}: dispatch called sys.exit()") from error
                raise
            self._count_failure(guilty)

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

    @contextlib.contextmanager
    def _counted(self, method: str, *, passes: bool = True) -> Iterator[None]:
        """Count what a method raises; of an essential dispatcher it ``passes``."""
        try:
            yield
        except Exception as error:
            self._note(method, error)
            if self._essential and passes:
                raise

    def _note(self, method: str, error: BaseException) -> PluginOrigin:
        return self._blame.note(self._owner, f"dispatcher '{self.name}' ({method})", error)

    def _count_failure(self, guilty: PluginOrigin) -> None:
        now_s = self._clock.monotonic_s()
        self._failed_at_s.append(now_s)
        if len(self._failed_at_s) == FAILURES_MAX and now_s - self._failed_at_s[0] <= WINDOW_S:
            self.disabled = True
            self.why_disabled = (
                f"failed {FAILURES_MAX} times in {WINDOW_S:.0f} s, the last time in {self._blame.last_error(guilty)}"
            )
            if guilty != self._owner:
                self.why_disabled += f" (raised by {guilty})"
            _LOG.error(
                "%s: its dispatcher '%s' is off until the broker is restarted: it %s",
                self._owner,
                self.name,
                self.why_disabled,
            )


class IsolatedFilter:
    """A third party's filter: a message for which it raises does not fit, and is not delivered to that subscription.

    As RocketMQ treats an expression whose evaluation fails; other subscriptions are not concerned. Each failure is counted and
    named. Loop thread.
    """

    def __init__(self, inner: MessageFilter, note: Callable[[str, BaseException], object]) -> None:
        self._inner = inner
        self._note = note
        self._matches_tags_code = inner.matches_tags_code
        self._matches_properties = inner.matches_properties

    @property
    def needs_properties(self) -> bool:
        try:
            return bool(self._inner.needs_properties)
        except PLUGIN_FAULTS as error:
            self._note("needs_properties", error)
            return True

    def matches_tags_code(self, tags_code: int) -> bool:
        return self._decided("matches_tags_code", self._matches_tags_code, tags_code)

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return self._decided("matches_properties", self._matches_properties, properties)

    def _decided(self, name: str, method: Callable[..., object], *arguments: object) -> bool:
        try:
            matches = method(*arguments)
            if matches is not True and matches is not False and inspect.isawaitable(matches):  # it would pass for true
                drop(matches)
                raise TypeError(f"expected True or False; found {shown(matches)}")
            return bool(matches)
        except PLUGIN_FAULTS as error:
            self._note(name, error)
            return False


class IsolatedBitMapFilter(IsolatedFilter):
    """An :class:`IsolatedFilter` that also looks at bit maps, which only ever say that a message surely does not fit."""

    def __init__(self, inner: BitMapFilter, note: Callable[[str, BaseException], object]) -> None:
        super().__init__(inner, note)
        self._matches_bit_map = inner.matches_bit_map

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        return self._decided("matches_bit_map", self._matches_bit_map, bit_map, store_timestamp_ms)


def filter_failed(expression_type: str) -> RefusedError:
    """Return the refusal of an expression on which the factory of a filter fails."""
    return RefusedError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: the filter {expression_type} failed on the expression",
        reason="filter.failed",
    )
