"""Which handler answers a request code at one server, in which bounded queue, and what is declared of the code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import cast

from flintmq.core.kernel.ports.processor import (
    BatchHandler,
    BatchProcessor,
    Handler,
    RequestDeclaration,
    RequestProcessor,
)
from flintmq.remoting.server.audit import audited
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.processor_shape import check_processor


class RequestTable:
    """Filled while a server is put together, read by :class:`~flintmq.remoting.server.server.RemotingServer`. Loop thread."""

    def __init__(self) -> None:
        self.handlers: dict[int, tuple[Handler, Pool]] = {}
        """Of single requests, by code."""
        self.batch_handlers: dict[int, tuple[BatchHandler, Pool]] = {}
        """Of all requests of a read, by code."""
        self.may_wait: set[int] = set()
        """Codes of batch handlers whose requests are postponed when an iteration of the loop takes long."""
        self.default: tuple[Handler, Pool] | None = None
        """Answers the codes that no other handler does."""
        self.declared: dict[int, RequestDeclaration] = {}
        """What is declared of each code that a processor answers."""
        self._without: dict[int, frozenset[int]] = {}

    @property
    def codes(self) -> frozenset[int]:
        """The codes with a handler."""
        return frozenset(self.handlers.keys() | self.batch_handlers.keys())

    def register(self, code: int, handler: Handler, pool: Pool) -> None:
        """Answer a code by a handler of single requests. The last registration of a code counts."""
        self.batch_handlers.pop(code, None)
        self.handlers[code] = (handler, pool)

    def register_batch(self, code: int, handler: BatchHandler, pool: Pool, *, may_wait: bool = False) -> None:
        """Answer a code by a handler that takes all requests of a read at once.

        Args:
            code: the request code.
            handler: answers each request through its channel.
            pool: the bounded queue of the requests.
            may_wait: each may be answered in a later iteration of the loop, when this one takes long.
        """
        self.handlers.pop(code, None)
        self.batch_handlers[code] = (handler, pool)
        (self.may_wait.add if may_wait else self.may_wait.discard)(code)

    def register_default(self, handler: Handler, pool: Pool) -> None:
        """Answer every code without a processor, as RocketMQ's ``registerDefaultProcessor``."""
        self.default = (_on_threads(handler, pool), pool)

    def add_processor(
        self,
        processor: RequestProcessor | BatchProcessor,
        declarations: Sequence[RequestDeclaration],
        pool: Callable[[str], Pool],
        where: str,
    ) -> None:
        """Answer the declared codes by a processor, with a line in the audit log for those that are audited.

        Args:
            processor: one with ``process(batch)`` takes requests in batches, else ``handlers()`` has a handler for each code.
            declarations: of its codes.
            pool: the bounded queue of a name.
            where: the plugin that registered it and the name, for errors.

        Raises:
            PluginError: it is not a processor.
        """
        codes = [one.code for one in declarations]
        pools = {one.code: pool(one.pool) for one in declarations}
        handlers = check_processor(where, processor, codes, in_threads=any(one.threads for one in pools.values()))
        self.declared.update((one.code, one) for one in declarations)
        if handlers is None:
            batches = cast("BatchProcessor", processor)
            for code in codes:
                self.register_batch(code, batches.process, pools[code], may_wait=getattr(batches, "may_wait", False))
            return
        for one in declarations:
            handler = _on_threads(handlers[one.code], pools[one.code])
            self.register(one.code, audited(handler) if one.audited else handler, pools[one.code])

    def exclude(self, local_port: int, codes: frozenset[int]) -> None:
        """Answer codes on one of the ports as unsupported (the VIP port serves no pulls)."""
        self._without[local_port] = codes

    def excluded(self, local_port: int) -> frozenset[int]:
        """Return the codes that are not answered on a port."""
        return self._without.get(local_port, frozenset())


def _on_threads(handler: Handler, pool: Pool) -> Handler:
    """A plain handler runs in its pool's threads, where the pool has some."""
    if pool.threads is None or inspect.iscoroutinefunction(handler):
        return handler
    return pool.threads.behind(handler)
