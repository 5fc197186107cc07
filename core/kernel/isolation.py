"""Keeps an optional plugin's failure from becoming the broker's."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, Final

from flintmq.core.errors import FlintError, PluginError, RefusedError, StoreFencedError, StoreFullError
from flintmq.core.kernel.accounts import Account
from flintmq.core.kernel.blame import PLUGIN_FAULTS, Blame
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.plugin_shapes import Shape, check_not_awaitable, drop, shown, wrong_offset
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


class IsolatedDispatcher:
    """A dispatcher whose calls are noted, and whose failures are counted and named. Loop thread.

    An essential one raises through: the store stops acknowledging. An optional one loses the batch it failed on, and once its
    budget is used up it is fed no more until the broker is restarted, when it is handed what it says it lacks.
    ``StoreFullError`` and ``StoreFencedError`` always pass: they are about the store, and dispatch must stand still.

    Args:
        dispatcher: what the plugin made.
        account: its account.
        essential: whether the broker cannot do without it.
        blame: counts its failures.
        name: what it is registered under.
    """

    def __init__(
        self, dispatcher: CommitLogDispatcher, account: Account, *, essential: bool, blame: Blame, name: str = ""
    ) -> None:
        self.name = name
        """What it is registered under."""
        self._dispatcher = dispatcher
        self._dispatch = dispatcher.dispatch
        self._account = account
        self._is_timed = not account.owner.built_in
        self._essential = essential
        self._blame = blame

    @property
    def disabled(self) -> bool:
        """Whether its budget is used up."""
        return self._account.is_off

    @property
    def why_disabled(self) -> str:
        """What led to it; empty while it is on."""
        return self._account.why_off

    @property
    def owner(self) -> PluginOrigin:
        return self._account.owner

    @property
    def inner(self) -> CommitLogDispatcher:
        return self._dispatcher

    def dispatch(self, batch: RecordBatch) -> None:
        """Hand a batch to the dispatcher; what it raises is counted."""
        account = self._account
        if account.is_off:
            return
        begin_s = perf_counter() if self._is_timed else 0.0
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
                    raise RuntimeError(f"{self.owner}: dispatch called sys.exit()") from error
                raise
            account.failed(guilty)
        finally:
            if self._is_timed:
                account.spent(begin_s)

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
        return self._blame.note(self.owner, f"dispatcher '{self.name}' ({method})", error)


class IsolatedFilter:
    """A third party's filter: a message for which it raises does not fit, and is not delivered to that subscription.

    As RocketMQ treats an expression whose evaluation fails; other subscriptions are not concerned. Each failure is counted and
    named. While its type is switched off pulls with it are refused (``check``), because messages that it does not let pass
    would be lost to its consumers. Loop thread.
    """

    def __init__(self, inner: MessageFilter, account: Account, note: Callable[[str, BaseException], object]) -> None:
        self._inner = inner
        self._note = note
        self._spent = account.spent
        self.check = account.check
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
        begin_s = perf_counter()
        try:
            matches = method(*arguments)
            if matches is not True and matches is not False and inspect.isawaitable(matches):  # it would pass for true
                drop(matches)
                raise TypeError(f"expected True or False; found {shown(matches)}")
            return bool(matches)
        except PLUGIN_FAULTS as error:
            self._note(name, error)
            return False
        finally:
            self._spent(begin_s)


class IsolatedBitMapFilter(IsolatedFilter):
    """An :class:`IsolatedFilter` that also looks at bit maps, which only ever say that a message surely does not fit."""

    def __init__(self, inner: BitMapFilter, account: Account, note: Callable[[str, BaseException], object]) -> None:
        super().__init__(inner, account, note)
        self._matches_bit_map = inner.matches_bit_map

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        return self._decided("matches_bit_map", self._matches_bit_map, bit_map, store_timestamp_ms)


_REST: Final[Mapping[str, object]] = {"dispatch": None, "take": False, "would_take": None, "check_batch": None}
"""What the methods of an index builder and an intake step return while these are switched off."""


class Accountable:
    """Stands before a third party's object: what its methods raise is counted and named, and raised on. As thread-safe as it.

    Args:
        inner: the object.
        shape: what it is.
        where: the plugin that registered it and the name, for errors.
        account: its calls are noted here. While it is switched off, an index builder is handed nothing and an intake step is
            passed over; other things are not switched off.
        note: called with each failure. Errors that FlintMQ raises on purpose (a refusal, a full store) are none. What ``close``
            raises is not passed on.
    """

    def __init__(
        self,
        inner: object,
        shape: Shape,
        where: str,
        account: Account,
        note: Callable[[str, BaseException], object],
    ) -> None:
        self._inner = inner
        self._shape = shape
        self._where = where
        self._note = note
        self._account = account
        # All of them now: the methods decide which protocols it supports.
        for name in dir(inner):
            if not name.startswith("_") and callable(inspect.getattr_static(inner, name, None)):
                self.__dict__[name] = self._watched(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _watched(self, name: str) -> Callable[..., Any]:
        method, note = getattr(self._inner, name), self._note
        hook, where, wrong_result = self._shape.hook, self._where, self._shape.results.get(name)
        account, rests = self._account, name in _REST

        def call(*arguments: Any, **named: Any) -> Any:
            if rests and account.is_off:
                return _REST[name]
            begin_s = perf_counter()
            try:
                result = method(*arguments, **named)
                if inspect.iscoroutine(result):
                    result.close()
                    raise PluginError(f"{where}: expected {name} to be a plain method; found a coroutine returned")
                expected = wrong_result(result) if wrong_result is not None else ""
                if expected:
                    raise PluginError(f"{where}: expected {name} to return {expected}; found {shown(result)}")
                return result
            except PLUGIN_FAULTS as error:
                if not isinstance(error, FlintError) or isinstance(error, PluginError):
                    note(name, error)
                if name == "close":  # everything else has to be closed, too
                    return None
                if isinstance(error, SystemExit):
                    raise RuntimeError(f"{where}: {name} called sys.exit() ({hook})") from error
                raise
            finally:
                account.spent(begin_s)

        return call


def filter_failed(expression_type: str) -> RefusedError:
    """Return the refusal of an expression on which the factory of a filter fails."""
    return RefusedError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: the filter {expression_type} failed on the expression",
        reason="filter.failed",
    )
