"""Checks of the objects and functions that plugins register, with errors that say what was expected and what was found.

A :class:`Shape` lists the methods that every object of one kind, such as a dispatcher, must have. Each object that a plugin's
factory makes is checked once, while a broker is assembled. A mistake in a signature is therefore an error at the start and in
``flintmq config check``, not a failure of the first message. A test checks the built-ins in the same way.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final

import msgspec

from flintmq.config.errors import nearest
from flintmq.core.errors import PluginError
from flintmq.core.kernel import ports
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.ports.processor import DefaultProcessor
from flintmq.core.kernel.ports.server import ConnectionListener, RpcHook

Signature = tuple[str, ...]
"""Names of a function's arguments, in the order of their positions."""

_TEXT_MAX_CHARS: Final = 120
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class Shape(msgspec.Struct, frozen=True):
    """The methods and attributes that every object of one kind, such as a dispatcher, must have. Plugins' factories make the
    objects."""

    kind: str
    """Kind of the objects, such as ``dispatcher``. Texts of errors contain the kind."""
    hook: str
    """Name of the hook in which plugins register objects of the kind :attr:`kind`."""
    methods: Mapping[str, FunctionType] = msgspec.field(default_factory=dict)
    """Methods of a port (an interface for plugins) that a plugin's object must have, keyed by name. If the port's method is
    annotated to return an ``Awaitable``, the object's method may be ``async def``; if the port's method returns an
    ``Iterable``, the object's method may be a generator."""
    optional: Mapping[str, FunctionType] = msgspec.field(default_factory=dict)
    """Methods of ports that a plugin's object may have, keyed by name."""
    results: Mapping[str, Callable[[Any], str]] = msgspec.field(default_factory=dict)
    """Checks of the results of methods, keyed by method name. A check returns a text that names the expected result; the text
    is empty if the result is valid."""
    resting: Mapping[str, object] = msgspec.field(default_factory=dict)
    """Results that the broker uses while an object of a plugin is switched off and its methods are not called, keyed by method
    name."""
    passed_on: tuple[str, ...] = ()
    """Names of methods that the object of a plugin may have, in addition to the methods in :attr:`methods` and
    :attr:`optional`. The object is the result of the factory that the plugin registered. Errors of these additional methods are
    not counted as failures of the plugin."""
    values: tuple[str, ...] = ()
    """Names of attributes that the made object must have and that are values, not methods."""
    one_of: bool = False
    """Whether an object that a plugin's factory made must have at least one of the methods in :attr:`optional`. If false, the
    object may lack all of them."""

    def where(self, owner: PluginOrigin, name: object) -> str:
        """Return the text with which every error about one registration begins."""
        return f"{owner}: {self.hook}: the {self.kind} {shown(name)}"

    def expect(self, owner: PluginOrigin, name: object, fits: bool, expected: str, found: object) -> None:
        """Raise ``PluginError`` with the expected and the found value of a registration, unless ``fits`` is true."""
        if not fits:
            raise PluginError(f"{self.where(owner, name)}: expected {expected}; found {shown(found)}")

    def check_factory(self, owner: PluginOrigin, name: object, factory: object) -> None:
        """Raise ``PluginError`` unless a third party's factory can be called as ``factory(context)``. Mypy checks built-ins."""
        if owner.built_in:
            return
        wrong = wrong_call(factory, ("context",))
        if wrong:
            raise PluginError(
                f"{self.where(owner, name)} needs a callable: expected a plain function, called as factory(context); "
                f"found {wrong}"
            )

    def check_made(self, owner: PluginOrigin, name: object, made: object) -> None:
        """Raise ``PluginError`` unless the object that the factory made has the required methods and values."""
        wrong = self._wrong(made)
        if wrong:
            drop(made)
            raise PluginError(f"{self.where(owner, name)} cannot be used: its factory made {wrong}")

    def _wrong(self, made: object) -> str:
        wanted = self.optional if self.one_of else self.methods
        needed = ", ".join(
            [f"{name}({', '.join(_arguments(one))})" for name, one in wanted.items()] + list(self.values)
        )
        expected = f"expected an object with {'one of ' if self.one_of else ''}{needed}"
        if made is None:
            return f"None; {expected}"
        if isinstance(made, type):
            return f"the class {made.__name__}; {expected}: an instance, {made.__name__}(…)"
        if inspect.isawaitable(made) or inspect.isasyncgen(made) or inspect.isgenerator(made):
            return f"a {type(made).__name__}; {expected}: the factory is a plain function that returns it"
        for method, port in {**self.methods, **self.optional}.items():
            if wrong := _wrong_method(made, method, port, needed=method in self.methods):
                return wrong
        if self.one_of and not any(hasattr(made, method) for method in self.optional):
            close = next((near for name in dir(made) if name[0] != "_" and (near := nearest(name, self.optional))), "")
            hint = f"; did you mean '{close}'?" if close else ""
            return f"a {type(made).__name__} with none of {needed}; expected at least one{hint}"
        for value in self.values:
            if wrong := _wrong_value(made, value):
                return wrong
        return ""


def shown(value: object) -> str:
    """Return a value's ``repr``, on one line and shortened, for errors; the name of its type if ``repr`` raises."""
    try:
        text = _ADDRESS.sub("", " ".join(repr(value).split()))
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _TEXT_MAX_CHARS else f"{text[:_TEXT_MAX_CHARS]}…"


def drop(value: object) -> None:
    """Close a coroutine that is never awaited, so that Python does not warn about it. Ignores other values."""
    if inspect.iscoroutine(value):
        value.close()


def check_not_awaitable(returned: object) -> None:
    """Raise ``TypeError`` if a plain method returned an awaitable, which its caller would not await."""
    if inspect.isawaitable(returned):
        drop(returned)
        raise TypeError(f"expected a plain method; found {shown(returned)} returned, which is never awaited")


def wrong_call(function: object, arguments: Signature, returns: str = "") -> str:
    """Return the reason why an object cannot be called with the given arguments; empty if it can.

    Args:
        function: the object.
        arguments: the names of the arguments, in order.
        returns: the annotation of the result; ``Awaitable…`` permits ``async def``, ``Iterable…`` a generator.
    """
    if not callable(function):
        return f"{shown(function)}, of type {type(function).__name__}"
    if is_async(function) and not returns.startswith("Awaitable"):
        return f"{_named(function)}, which is 'async def' and never awaited"
    if inspect.isgeneratorfunction(function) and not returns.startswith("Iterable"):
        return f"{_named(function)}, which has a 'yield': a call of it does nothing"
    try:
        # A call of a decorated function reaches the wrapper first, so the wrapper's signature counts.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        # A function written in C may have no signature, so its parameters cannot be checked before a call.
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"{_named(function)}{signature}: {error}"
    return ""


def is_async(function: object) -> bool:
    """Return whether calls of an object return an awaitable or an async generator.

    Examines ``partial`` objects and ``__call__``.
    """
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the function itself is wanted
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (function, call))


def _named(function: object) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name)[:_TEXT_MAX_CHARS]


def _wrong_method(made: object, method: str, port: FunctionType, *, needed: bool) -> str:
    expected, returns = f"expected {method}({', '.join(_arguments(port))})", str(port.__annotations__.get("return"))
    try:
        found: Any = getattr(made, method)
    except AttributeError:
        if not needed:
            return ""
        close = nearest(method, [name for name in dir(made) if not name.startswith("_")])
        hint = f"; did you mean its '{close}' to be it?" if close else ""
        return f"a {type(made).__name__} without '{method}'; {expected}{hint}"
    wrong = wrong_call(found, _arguments(port), returns)
    kind = "plain or 'async def'" if returns.startswith("Awaitable") else "a plain method"
    return f"a {type(made).__name__}; {expected}, {kind}; found {wrong}" if wrong else ""


def _wrong_value(made: object, value: str) -> str:
    try:
        found: Any = getattr(made, value)
    except AttributeError:
        return f"a {type(made).__name__} without '{value}'; expected an attribute or property of that name"
    if callable(found):
        return f"a {type(made).__name__}; expected '{value}' as an attribute or property; found a method"
    return ""


def _wrong_waiter(result: Any) -> str:
    fits = hasattr(result, "add_done_callback") and hasattr(result, "status")
    return "" if fits else "a FlushWaiter, with status and add_done_callback"


def _wrong_found(result: Any) -> str:
    fits = isinstance(result, tuple) and len(result) == 3 and isinstance(result[0], (list, tuple))
    return "" if fits else "a tuple of a list of offsets, a time in ms and an offset"


def wrong_offset(result: Any) -> str:
    """Return a text that names the valid results if the result of a dispatcher's method ``committed`` or ``committed_below`` is
    not valid. The text is empty if the result is valid. Valid results are an int, which is a physical offset, and None."""
    return (
        "" if result is None or (hasattr(result, "__index__") and not isinstance(result, bool)) else "an int, or None"
    )


def _arguments(method: FunctionType) -> Signature:
    """Return the names of the arguments of a port's method, without ``self``."""
    return method.__code__.co_varnames[1 : method.__code__.co_argcount]


def _methods(*ports: type) -> dict[str, FunctionType]:
    """Return the public methods that the given classes define or inherit, keyed by the method's name. The classes are ports,
    which are the interfaces that plugins implement."""
    return {
        name: method
        for port in ports
        for base in reversed(port.__mro__)
        for name, method in vars(base).items()
        if not name.startswith("_") and isinstance(method, FunctionType)
    }


def _of_port(
    kind: str,
    hook: str,
    port: type,
    *optional: type,
    resting: Mapping[str, object] | None = None,
    passed_on: tuple[str, ...] = (),
    **results: Any,
) -> Shape:
    """Return the :class:`Shape` of objects that implement a port (an interface for plugins) and may implement further ports.

    Args:
        kind: the name of the kind in errors.
        hook: the name of the hook.
        port: the port, all of whose methods are required.
        optional: ports whose methods are optional.
        resting: the results that the broker uses while an object is switched off and not called, keyed by method.
        passed_on: the names of further methods, whose errors are not counted.
        results: checks of methods' results, keyed by method.
    """
    methods = _methods(port)
    more = {name: signature for name, signature in _methods(*optional).items() if name not in methods}
    values = [name for base in port.__mro__ for name, value in vars(base).items() if isinstance(value, property)]
    return Shape(kind, hook, methods, more, results, resting or {}, passed_on, tuple(values))


def _one_of(kind: str, hook: str, port: type) -> Shape:
    """Return the :class:`Shape` of objects that implement at least one method of a port."""
    return Shape(kind, hook, optional=_methods(port), one_of=True)


DISPATCHER: Final = _of_port(
    "dispatcher",
    "flintmq_dispatchers",
    ports.CommitLogDispatcher,
    ports.SupportsCommitted,
    ports.SupportsCatchUp,
    ports.SupportsTruncate,
    ports.SupportsClose,
)
CONSUME_QUEUES: Final = _of_port("dispatcher", "flintmq_dispatchers", ports.ConsumeQueues)
"""Requirements that the dispatcher ``consume_queue`` must meet."""
FLUSH_STRATEGY: Final = _of_port(
    "flush strategy",
    "flintmq_flush_services",
    ports.FlushCommitLogService,
    ports.SupportsFlushSoon,
    submit=_wrong_waiter,
    statistics=lambda made: "" if hasattr(made, "syncs") and hasattr(made, "waiters") else "a FlushStatistics",
)
POOL: Final = _of_port(
    "transient store pool",
    "flintmq_transient_store_pools",
    ports.TransientStorePool,
    borrow=lambda made: "" if made is None or isinstance(made, memoryview) else "a writable memoryview, or None",
)
INDEX_BUILDER: Final = _of_port(
    "index builder",
    "flintmq_index_builders",
    ports.IndexBuilder,
    ports.SupportsCommitted,
    ports.SupportsCommittedBelow,
    ports.SupportsTruncate,
    ports.SupportsDeleteBefore,
    resting={"dispatch": None},
    passed_on=("query_steps", "evict"),
    query=_wrong_found,
    committed=wrong_offset,
    committed_below=wrong_offset,
)
PROCESSOR: Final = Shape("request processor", "flintmq_request_processors")
"""Requirements for the registrations of request processors by plugins. A plugin registers a factory, which returns the request
processor. The module :mod:`flintmq.remoting.server.request_table` checks the returned processor and the processor's handler
functions."""
FILTER: Final = _of_port(
    "message filter",
    "flintmq_message_filters",
    ports.MessageFilter,
    ports.BitMapFilter,
)
AUTHENTICATOR: Final = _of_port("authenticator", "flintmq_authenticators", ports.Authenticator, ports.SupportsClose)
DEFAULT_PROCESSOR: Final = _of_port("default processor", "flintmq_default_processors", DefaultProcessor)
CONNECTION_LISTENER: Final = _one_of("connection listener", "flintmq_connection_listeners", ConnectionListener)
RPC_HOOK: Final = _one_of("RPC hook", "flintmq_rpc_hooks", RpcHook)
SERVICE: Final = _of_port("service", "flintmq_services", ports.Service, *ports.OPTIONAL_OF_SERVICES)
INTAKE_STEP: Final = _of_port(
    "intake step",
    "flintmq_intake_steps",
    ports.IntakeStep,
    ports.ChecksAhead,
    ports.ChecksBatches,
    resting={"take": False, "would_take": None, "check_batch": None},
    take=lambda result: "" if result is None or isinstance(result, bool) else "a bool",
)
SYSTEM_TOPIC: Final = Shape("system topic", "flintmq_system_topics")
CONFIG_SECTION: Final = Shape("config section", "flintmq_config_sections")
COMMAND: Final = Shape("command", "flintmq_cli_commands")
