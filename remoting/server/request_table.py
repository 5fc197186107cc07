"""Maps the request codes of one server to their handlers, their pools and their declarations, and checks the request processors
of plugins. A pool is a bounded queue of requests. A declaration has the header types and the access rule of a request code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from flintmq.core.errors import PluginError
from flintmq.core.kernel.failures import PLUGIN_FAULTS, brief
from flintmq.core.kernel.plugin_shapes import drop, is_async, shown, wrong_call
from flintmq.core.kernel.ports.processor import (
    BatchHandler,
    BatchProcessor,
    Handler,
    RequestDeclaration,
    RequestProcessor,
    Response,
)
from flintmq.remoting.server.audit import audited
from flintmq.remoting.server.pool import Pool

Watch = Callable[[Handler], Handler]
"""Function that wraps a request handler. The new handler does some work, calls the wrapped handler, and returns the wrapped
handler's result."""


class RequestTable:
    """The request handlers of one server, by request code. Used only on the event loop's thread.

    The table is filled while the server is assembled. :class:`~flintmq.remoting.server.server.RemotingServer` reads the table.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, tuple[Handler, Pool]] = {}
        """Handlers that get one request at a time, with their pools, keyed by request code."""
        self.batch_handlers: dict[int, tuple[BatchHandler, Pool]] = {}
        """Handlers that get all requests of a read together, with their pools, keyed by request code."""
        self.may_wait: set[int] = set()
        """Request codes of batch handlers whose requests may be postponed if an iteration of the event loop takes long."""
        self.default: tuple[Handler, Pool] | None = None
        """Handler of the request codes that no other handler answers, with its pool. If None, such requests are answered as
        unsupported."""
        self.declared: dict[int, RequestDeclaration] = {}
        """Declarations of the requests that processors answer, keyed by request code."""
        self.excluded: dict[int, frozenset[int]] = {}
        """Request codes that are answered as unsupported at some ports, keyed by local port."""

    @property
    def codes(self) -> frozenset[int]:
        """Return the request codes that have a separate handler.

        Codes that only the default handler answers are left out.
        """
        return frozenset(self.handlers.keys() | self.batch_handlers.keys())

    def register(self, code: int, handler: Handler, pool: Pool) -> None:
        """Set the handler that gets single requests with a code. An earlier handler of the code is replaced."""
        self.batch_handlers.pop(code, None)
        self.handlers[code] = (handler, pool)

    def register_batch(self, code: int, handler: BatchHandler, pool: Pool, *, may_wait: bool = False) -> None:
        """Set the handler that gets, in one call, all requests with a code that were read together. An earlier handler of the
        code is replaced.

        Args:
            code: the request code.
            handler: the handler, which answers each request through its channel.
            pool: the bounded queue of the requests.
            may_wait: whether requests may be postponed to a later iteration of the loop if the current iteration takes long.
        """
        self.handlers.pop(code, None)
        self.batch_handlers[code] = (handler, pool)
        (self.may_wait.add if may_wait else self.may_wait.discard)(code)

    def register_default(self, handler: Handler, pool: Pool, watch: Watch | None = None) -> None:
        """Set the handler for every request code without a processor, as RocketMQ's ``registerDefaultProcessor`` does."""
        self.default = (_on_threads(handler, pool, watch), pool)

    def add_processor(
        self,
        processor: RequestProcessor | BatchProcessor,
        declarations: Sequence[RequestDeclaration],
        pool: Callable[[str], Pool],
        where: str,
        watch: Watch | None = None,
    ) -> None:
        """Set a request processor as the handler of its declared codes. Audited requests get a line in the audit log.

        Args:
            processor: the processor. If it has ``process(batch)``, it gets requests in batches; otherwise ``handlers()``
                returns a handler for each code.
            declarations: the declarations of its codes.
            pool: returns the pool that has the given name.
            where: the plugin and the name of the registration, for errors.
            watch: wraps each handler; None for no wrapper.

        Raises:
            PluginError: the processor has a wrong form.
        """
        codes = [one.code for one in declarations]
        pools = {one.code: pool(one.pool) for one in declarations}
        handlers = check_processor(where, processor, codes, in_threads=any(one.threads for one in pools.values()))
        self.declared.update((one.code, one) for one in declarations)
        if handlers is None:
            batches = cast("BatchProcessor", processor)
            process = cast("BatchHandler", watch(cast("Handler", batches.process))) if watch else batches.process
            for code in codes:
                self.register_batch(code, process, pools[code], may_wait=getattr(batches, "may_wait", False))
            return
        for one in declarations:
            handler = _on_threads(handlers[one.code], pools[one.code], watch)
            self.register(one.code, audited(handler) if one.audited else handler, pools[one.code])

    def exclude(self, local_port: int, codes: frozenset[int]) -> None:
        """Answer requests with the given codes as unsupported on one local port. The VIP port excludes pulls in this way."""
        self.excluded[local_port] = codes


def _on_threads(handler: Handler, pool: Pool, watch: Watch | None) -> Handler:
    """Return the handler that the server calls for a request, made from the registered handler.

    If ``watch`` is not None, it is a function that wraps the handler: it returns a new handler, which does some work and calls
    the registered handler. If the pool has threads, a handler that is not ``async def`` runs in the pool's threads.
    """
    waits = is_async(handler)
    if watch is not None:
        handler = watch(handler)
    return handler if pool.threads is None or waits else pool.threads.behind(handler)


_ARE_TEXT: Final = frozenset((str,)).issuperset
_EXPECTED: Final = "expected an object with process(batch), or with handlers() that returns a handler(request) per code"


def check_processor(
    where: str, made: Any, codes: Sequence[int], *, in_threads: bool = False
) -> Mapping[int, Handler] | None:
    """Check the object that a plugin's factory of a request processor returned.

    Args:
        where: the plugin and the name of the registration, for errors.
        made: the object.
        codes: the request codes that the processor is registered for.
        in_threads: whether its pool has threads, which handle single requests only.

    Returns:
        The handlers, keyed by request code; None if the processor gets requests in batches.

    Raises:
        PluginError: the object is not a processor, or lacks a handler for one of the codes.
    """
    wrong = _wrong(made, in_threads=in_threads)
    handlers = None
    if not wrong and not hasattr(made, "process"):
        try:
            handlers = made.handlers()
        except PLUGIN_FAULTS as error:
            raise PluginError(
                f"{where} cannot be used: expected handlers() to return a mapping; it raised {brief(error)}"
            ) from error
        wrong = _wrong_handlers(made, handlers, codes)
    if wrong:
        drop(made)
        raise PluginError(f"{where} cannot be used: its factory made {wrong}")
    return handlers


def _wrong(made: Any, *, in_threads: bool) -> str:
    if made is None:
        return f"None; {_EXPECTED}"
    if isinstance(made, type):
        return f"the class {made.__name__}; {_EXPECTED}: an instance, {made.__name__}(…)"
    if inspect.isawaitable(made):
        return f"a {type(made).__name__}; {_EXPECTED}: the factory is a plain function that returns it"
    kind = f"a {type(made).__name__}"
    if hasattr(made, "process"):
        if in_threads:
            return f"{kind} with process(batch), which the loop calls; expected handlers() in a pool of threads"
        wrong = wrong_call(made.process, ("batch",))
        return f"{kind}; expected process(batch), a plain method; found {wrong}" if wrong else ""
    if not hasattr(made, "handlers"):
        return f"{kind} with neither; {_EXPECTED}; found {shown(made)}"
    wrong = wrong_call(made.handlers, ())
    return f"{kind}; expected handlers(), a plain method; found {wrong}" if wrong else ""


def _wrong_handlers(made: Any, handlers: Any, codes: Sequence[int]) -> str:
    kind = f"a {type(made).__name__}"
    if not isinstance(handlers, Mapping):
        return f"{kind}; expected handlers() to return a mapping of code to handler; found {shown(handlers)}"
    for code in codes:
        if code not in handlers:
            return f"{kind}; expected handlers() to have the code {code}; found {shown(sorted(map(str, handlers)))}"
        wrong = wrong_call(handlers[code], ("request",), "Awaitable")
        if wrong:
            return f"{kind}; expected handler(request), plain or 'async def', for the code {code}; found {wrong}"
    return ""


def wrong_response(answer: Any) -> str:
    """Return the reason why an answer to a request cannot be sent; empty if the answer can be sent.

    An answer with a wrong type would break the connection.
    """
    if not isinstance(answer, Response):
        return f"expected a Response, None, or something to await that gives one; found {shown(answer)}"
    code: Any = answer.code  # A plugin may have assigned a value of any type to each field of its answer.
    body: Any = answer.body
    remark: Any = answer.remark
    fields: Any = answer.ext_fields
    if not isinstance(code, int) or code is True or code is False or not -(2**15) <= code < 2**15:
        return f"expected a Response's code to be an int of 16 bits; found {shown(code)}"
    if type(body) is not bytes and not isinstance(body, (bytearray, memoryview, bytes)):
        return f"expected a Response's body to be bytes; found {shown(body)}, of type {type(body).__name__}"
    if remark is not None and not isinstance(remark, str):
        return f"expected a Response's remark to be a str or None; found {shown(remark)}"
    if fields is None or (
        type(fields) is dict and _ARE_TEXT(map(type, fields)) and _ARE_TEXT(map(type, fields.values()))
    ):
        return ""
    if not isinstance(fields, Mapping):
        return f"expected a Response's ext_fields to be a mapping of str to str; found {shown(fields)}"
    for name, value in fields.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return f"expected a Response's ext_fields to be of str; found {shown(name)}: {shown(value)}"
    return ""
