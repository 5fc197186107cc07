"""Keeps an optional plugin's failure from becoming the broker's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flintmq.core.errors import FlintError, PluginError, RefusedError, StoreFencedError, StoreFullError
from flintmq.core.kernel.failures import PLUGIN_FAULTS, Part
from flintmq.core.kernel.plugin_shapes import Shape, check_not_awaitable, shown, wrong_offset
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


class IsolatedFilter:
    """A third party's filter: a message for which it raises does not fit, and is not delivered to that subscription.

    As RocketMQ treats an expression whose evaluation fails; other subscriptions are not concerned. Each failure is counted and
    named. While its type is switched off pulls with it are refused (``check``), because messages that it does not let pass
    would be lost to its consumers. Loop thread.
    """

    def __init__(self, inner: MessageFilter, part: Part) -> None:
        self._inner = inner
        self._part = part
        self.check = part.check
        self._matches_tags_code = inner.matches_tags_code
        self._matches_properties = inner.matches_properties

    @property
    def needs_properties(self) -> bool:
        try:
            return bool(self._inner.needs_properties)
        except PLUGIN_FAULTS as error:
            self._part.failed(error, "needs_properties")
            return True

    def matches_tags_code(self, tags_code: int) -> bool:
        return self._decided("matches_tags_code", self._matches_tags_code, tags_code)

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return self._decided("matches_properties", self._matches_properties, properties)

    def _decided(self, name: str, method: Callable[..., object], *arguments: object) -> bool:
        self._part.calls += 1
        try:
            matches = method(*arguments)
            if matches is not True and matches is not False:
                check_not_awaitable(matches)  # it would pass for true
            return bool(matches)
        except PLUGIN_FAULTS as error:
            self._part.failed(error, name)
            return False


class IsolatedBitMapFilter(IsolatedFilter):
    """An :class:`IsolatedFilter` that also looks at bit maps, which only ever say that a message surely does not fit."""

    def __init__(self, inner: BitMapFilter, part: Part) -> None:
        super().__init__(inner, part)
        self._matches_bit_map = inner.matches_bit_map

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        return self._decided("matches_bit_map", self._matches_bit_map, bit_map, store_timestamp_ms)


class Guarded:
    """A third party's object: what the methods of its port raise is counted and named, and raised on. As thread-safe as it.

    Errors that FlintMQ raises on purpose (a refusal, a full store) are no failures. What ``close`` raises is not passed on.

    Args:
        inner: the object.
        shape: what it is; other methods than its are called as they are.
        part: counts the failures. While it is off, the methods in ``shape.resting`` are not called.
        where: the plugin that registered it and the name, for errors.
    """

    def __init__(self, inner: object, shape: Shape, part: Part, where: str) -> None:
        self._inner = inner
        for name in (*shape.methods, *shape.optional):
            if hasattr(inner, name):  # protocols are recognized by their methods
                setattr(self, name, _guarded(getattr(inner, name), name, shape, part, where))
        for name in shape.passed_on:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _guarded(method: Callable[..., Any], name: str, shape: Shape, part: Part, where: str) -> Callable[..., Any]:
    rests, wrong_result = name in shape.resting, shape.results.get(name)

    def call(*arguments: Any, **named: Any) -> Any:
        if rests and part.why_off:
            return shape.resting[name]
        part.calls += 1
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
                part.failed(error, name, raised_on=True)
            if name == "close":  # everything else has to be closed, too
                return None
            if isinstance(error, SystemExit):
                raise RuntimeError(f"{where}: {name} called sys.exit() ({shape.hook})") from error
            raise

    return call


def filter_failed(expression_type: str) -> RefusedError:
    """Return the refusal of an expression on which the factory of a filter fails."""
    return RefusedError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: the filter {expression_type} failed on the expression",
        reason="filter.failed",
    )
