"""Wrappers around third parties' objects, which count and log the errors of these objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from flintmq.core.errors import FlintError, PluginError
from flintmq.core.kernel.failures import PLUGIN_FAULTS, Part
from flintmq.core.kernel.plugin_shapes import Shape, check_not_awaitable, shown
from flintmq.core.kernel.ports import BitMapFilter, MessageFilter


class IsolatedFilter:
    """Wrapper around a third party's filter. A message for which the filter raises does not match.

    RocketMQ treats an expression whose evaluation fails in the same way. Other subscriptions still get the message. Each
    failure is counted and logged. While the filter's type is switched off, ``check`` refuses pulls, so that consumers do not
    skip messages that the filter has not seen. Used only on the event loop's thread.
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
                # An ``async def`` method returns an awaitable. As awaitables count as true, the filter would match everything.
                check_not_awaitable(matches)
            return bool(matches)
        except PLUGIN_FAULTS as error:
            self._part.failed(error, name)
            return False


class IsolatedBitMapFilter(IsolatedFilter):
    """Wrapper around a third party's filter that also checks bit maps of messages. If the filter raises, the message does not
    match, and the failure is counted and logged. A bit map can only exclude messages: if it does not exclude a message, the
    message's properties decide."""

    def __init__(self, inner: BitMapFilter, part: Part) -> None:
        super().__init__(inner, part)
        self._matches_bit_map = inner.matches_bit_map

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        return self._decided("matches_bit_map", self._matches_bit_map, bit_map, store_timestamp_ms)


class Guarded:
    """Wrapper around a third party's object, which counts and logs the errors of a port's methods, and raises them again.

    Errors that FlintMQ raises on purpose (a refusal, a full store) do not count as failures. Errors of ``close`` are
    suppressed. The wrapper is as thread-safe as the object.

    Args:
        inner: the object.
        shape: the methods that are guarded; other methods are called directly.
        part: the plugin's part whose failures are counted. While the part is off, the methods in ``shape.resting`` are not
            called.
        where: the plugin that registered the object and its name, for errors.
    """

    def __init__(self, inner: object, shape: Shape, part: Part, where: str) -> None:
        self._inner = inner
        for name in (*shape.methods, *shape.optional):
            # Only methods that ``inner`` has are added, because callers find out with ``hasattr`` which optional methods exist.
            if hasattr(inner, name):
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
            if name == "close":
                # An error of a plugin's close() is not raised, because the broker must still close the other plugins.
                return None
            if isinstance(error, SystemExit):
                raise RuntimeError(f"{where}: {name} called sys.exit() ({shape.hook})") from error
            raise

    return call
