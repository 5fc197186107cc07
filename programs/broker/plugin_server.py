"""The server of a broker or name server, with the processors, connection listeners and RPC hooks that plugins registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from flintmq.config.sections.server import ListenSection
from flintmq.config.sections.service import AdmissionSection
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.failures import PLUGIN_FAULTS
from flintmq.core.kernel.hookspecs import ApiContext
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import PROCESSOR, check_not_awaitable
from flintmq.core.kernel.ports import Measurement
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.core.kernel.registry import Registered, Registry, ServerPart
from flintmq.programs.broker.authenticators import Authenticators
from flintmq.programs.broker.processors_in_force import default_processor_of, processors_of
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.pool import HandlerThreads, Pool
from flintmq.remoting.server.request_gate import AfterHook, BeforeHook, ServerHooks
from flintmq.remoting.server.request_table import Watch, wrong_response
from flintmq.remoting.server.server import RemotingServer

THREADS_END_S: Final = 2.0
"""Seconds that the stop of a server waits for handlers that run in threads."""
_CAPACITY: Final = 10_000
_POOL_FIGURES: Final = {
    "send": ("sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills"),
    "pull": ("pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity", "pullThreadPoolQueueHeadWaitTimeMills"),
    "query": ("queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity", "queryThreadPoolQueueHeadWaitTimeMills"),
    "end_transaction": ("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", ""),
}
_PROCESSORS: Final = {
    "query": "query_message",
    "client": "client_manager",
    "end_transaction": "transaction",
    "consumer": "consumer_manager",
}
"""RocketMQ's processor names in metrics, keyed by the name of the queue of waiting requests. A queue without an entry keeps its
name."""
_EVENTS: Final = {
    "connected": "on_channel_connect",
    "closed": "on_channel_close",
    "failed": "on_channel_exception",
    "idle": "on_channel_idle",
}


class Pools:
    """The bounded queues of waiting requests, each created when its name is first used. For the loop thread only.

    Args:
        held: the exit stack that ends the threads of the queues when the server stops.
        admission: the capacities of a broker's own queues; None to give all queues the same capacity.
    """

    def __init__(self, held: AsyncExitStack, admission: AdmissionSection | None = None) -> None:
        self._held = held
        self._admission = admission
        self.by_name: dict[str, Pool] = {}
        """The queues of waiting requests, keyed by name."""

    def get(self, name: str, threads: int = 0) -> Pool:
        """Return the queue of waiting requests with a name.

        Args:
            name: the name of one of the server's own queues, or of a plugin's queue, which has threads.
            threads: the number of threads for the queue's synchronous handlers; 0 to run the handlers on the loop.
        """
        pool = self.by_name.get(name)
        if pool is None:
            pool = self.by_name[name] = self._new(name)
        if threads:
            if pool.threads is None:
                pool.threads = HandlerThreads(name, threads)
                self._held.push_async_callback(pool.threads.close, THREADS_END_S)
            pool.threads.grow(threads)
        return pool

    def figures(self) -> dict[str, int]:
        """Return the figures about waiting requests, for answers to GET_BROKER_RUNTIME_INFO (request 28).

        Only the queues of waiting requests that a RocketMQ broker also has are included.
        """
        found: dict[str, int] = {}
        for name, (size, capacity, head_wait) in _POOL_FIGURES.items():
            pool = self.by_name.get(name)
            found[size] = pool.waiting if pool is not None else 0
            found[capacity] = pool.capacity if pool is not None else 0
            if head_wait:
                # A request that the event loop handles never waits in a queue, because it is handled as soon as it is read.
                found[head_wait] = 0
        return found

    def measurements(self) -> Iterator[Measurement]:
        """Yield the number of waiting requests in each of the server's queues of requests."""
        for name, pool in self.by_name.items():
            yield Measurement("rocketmq_processor_watermark", pool.waiting, {"processor": _PROCESSORS.get(name, name)})

    def _new(self, name: str) -> Pool:
        if self._admission is None:
            return Pool(name, _CAPACITY)
        capacity = getattr(self._admission, f"{name}_queue", None)
        if capacity is not None:
            return Pool(name, capacity)
        return Pool(name, self._admission.admin_queue, key="admission.admin_queue")


class PluginServer:
    """The server of a broker or name server. Errors of plugins' code are counted for the plugins. For the loop thread only.

    Args:
        kernel: the registry of plugins, with the objects that they registered.
        at: ``broker`` or ``nameserver``.
        listen: the limits of connections.
        idle_timeout_ms: how long a connection may be idle before it is closed.
        clock: measures idle times.
        authenticators: check every request.
        on_closed: called with each closed connection.
    """

    def __init__(
        self,
        kernel: Kernel,
        at: str,
        listen: ListenSection,
        *,
        idle_timeout_ms: int,
        clock: Clock,
        authenticators: Authenticators,
        on_closed: Callable[[ServerChannel], None],
    ) -> None:
        self.kernel = kernel
        self._at = at
        self.authenticators = authenticators
        self._handled_by: dict[int, Registered[ServerPart]] = {}
        """The processor that handles a request, keyed by request code."""
        self._default = default_processor_of(kernel.registries, at)
        """The default processor, which handles all request codes without another processor; None if no default processor is
        registered."""
        self._of_hook: dict[int, Registered[ServerPart]] = {}
        self.server = RemotingServer(
            clock,
            max_frame_bytes=listen.max_frame_bytes,
            max_connections=listen.max_connections,
            max_connections_per_address=listen.max_connections_per_address,
            max_buffered_bytes=listen.max_buffered_bytes,
            idle_timeout_ms=idle_timeout_ms,
            backlog=listen.backlog,
            authenticators=authenticators.in_force,
            on_closed=on_closed,
            on_failed=self._request_failed,
            on_authenticator_failed=authenticators.failed,
        )

    def add_parts(self, owner: object, pools: Pools) -> None:
        """Create the request processors, connection listeners and RPC hooks that plugins registered, and add them to the server
        before the server listens.

        Args:
            owner: the argument of factories: the :class:`~flintmq.core.broker.api.BrokerApi`, or the name server.
            pools: the queues of requests.

        Raises:
            ConfigError, PluginError: a plugin is at fault; the error names the plugin.
        """
        registries, table = self.kernel.registries, self.server.table
        for processor in processors_of(registries, self._at):
            made, spec = self._made(processor, owner), processor.value
            where = PROCESSOR.where(processor.owner, processor.name)
            table.add_processor(made, spec.declarations, partial(_pool_of, pools, spec), where, self._watch(processor))
            self._handled_by.update(dict.fromkeys(spec.codes, processor))
        default = self._default
        if default is not None:
            ((pool_name, threads),) = default.value.threads.items()
            pool = pools.get(pool_name, threads)
            table.register_default(self._made(default, owner).handle, pool, self._watch(default))
        listeners = [*self._made_of(registries.connection_listeners, owner)]
        hooks = [*self._made_of(registries.rpc_hooks, owner)]
        by_event = {
            event: tuple(self._counted(entry, made, method) for entry, made in listeners if hasattr(made, method))
            for event, method in _EVENTS.items()
        }
        before: list[BeforeHook] = []
        for entry, made in hooks:
            if hasattr(made, "do_before_request"):
                before.append(self.kernel.part(entry).watched(made.do_before_request))
                self._of_hook[id(before[-1])] = entry
        after = tuple(self._after(entry, made) for entry, made in hooks if hasattr(made, "do_after_response"))
        self.server.hook(ServerHooks(**by_event, before=tuple(before), after=after), self._hook_failed)

    def measurements(self, not_durable: Mapping[str, int]) -> Iterator[Measurement]:
        """Yield the server's numbers of requests, connections and refused requests.

        Args:
            not_durable: the numbers of requests that were refused because their messages are stored but maybe not durable,
                keyed by reason. They are added to the server's refused requests.
        """
        server = self.server
        yield Measurement("flintmq_requests_total", server.processed, kind="counter")
        yield Measurement("flintmq_connections", len(server.connections.channels))
        for reason, count in (Counter(server.refusals) + Counter(not_durable)).items():
            yield Measurement("flintmq_refusals_total", count, {"reason": reason}, "counter")

    def _made(self, entry: Registered[Any], owner: object) -> Any:
        return self.kernel.make(entry, entry.value.factory, self.kernel.context(entry, ApiContext, api=owner))

    def _made_of(self, registry: Registry[ServerPart], owner: object) -> Iterator[tuple[Registered[ServerPart], Any]]:
        return ((entry, self._made(entry, owner)) for entry in registry.every() if entry.value.is_for(self._at))

    def _watch(self, entry: Registered[Any]) -> Watch | None:
        """Return the function that wraps the request handlers of a third party's plugin; None for a built-in plugin.

        The calls of a wrapped handler are counted, and are refused while the handler is switched off.
        """
        return None if entry.owner.built_in else self.kernel.part(entry).watched

    def _counted(self, entry: Registered[ServerPart], made: Any, method: str) -> Callable[..., None]:
        """Return a function that calls a method of a connection listener and counts the method's errors for the listener's
        plugin."""
        call: Callable[..., object] = getattr(made, method)
        part = self.kernel.part(entry)

        def called(*arguments: object) -> None:
            if not part.why_off:
                with part.counting(method):
                    check_not_awaitable(call(*arguments))

        return called

    def _after(self, entry: Registered[ServerPart], made: Any) -> AfterHook:
        """Return a function that calls an RPC hook. If the hook fails or makes the answer invalid, the original answer is
        restored."""
        call: Callable[[Request, Response], object] = made.do_after_response
        part = self.kernel.part(entry)

        def called(request: Request, response: Response) -> None:
            part.calls += 1
            code, remark, body = response.code, response.remark, response.body
            fields = None if response.ext_fields is None else dict(response.ext_fields)
            try:
                call(request, response)
                if wrong := wrong_response(response):
                    raise TypeError(wrong)
            except PLUGIN_FAULTS as error:
                response.code, response.remark, response.ext_fields, response.body = code, remark, fields, body
                part.failed(error, "do_after_response")

        return called

    def _request_failed(self, request: Request, error: BaseException) -> None:
        processor = self._handled_by.get(request.code)
        if processor is not None:
            self.kernel.part(processor).failed(error, f"request {request.code}")
        elif self._default is not None:
            self.kernel.part(self._default).failed(error, "handle")

    def _hook_failed(self, hook: BeforeHook, _request: Request, error: BaseException) -> None:
        self.kernel.part(self._of_hook[id(hook)]).failed(error, "do_before_request")


def _pool_of(pools: Pools, spec: ServerPart, name: str) -> Pool:
    return pools.get(name, spec.threads[name])
