"""The server: sockets, connections, and the way from a request's code to its processor.

Processors are registered per code, each in a pool: a bounded number of requests that may be under way at once. The loop
thread runs them; one that must wait (for the disk, for a client) is a coroutine or answers later through the channel.

See docs/internals/protocol.md, Errors before a processor.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from flintmq.core.client_log import client_log
from flintmq.core.errors import FlintError, RefusedError, RemotingError, StoreError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.blame import PLUGIN_FAULTS
from flintmq.core.kernel.plugin_shapes import drop, shown
from flintmq.core.kernel.ports import Authenticator, Caller
from flintmq.core.kernel.ports.processor import (
    BatchHandler,
    BatchProcessor,
    Handler,
    Request,
    RequestChannel,
    RequestDeclaration,
    RequestProcessor,
    Response,
)
from flintmq.core.limits import (
    BUFFERED_MAX_BYTES,
    CONNECTIONS_PER_ADDRESS_MAX,
    FIRST_FRAME_TIMEOUT_S,
    FRAME_TIMEOUT_S,
)
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.server.audit import RefusalAudit, audited
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.handler_threads import HandlerThreads
from flintmq.remoting.server.postponed import PostponedWork
from flintmq.remoting.server.processor_shape import check_processor
from flintmq.remoting.server.server_hooks import BeforeHook, HookedChannel, ServerHooks
from flintmq.remoting.server.socket_turns import SocketListener, SocketTurns
from flintmq.remoting.wire.refusal import hook_failed, refusal_of, unsupported

if TYPE_CHECKING:
    from flintmq.remoting.server.tls import ServerTls
    from flintmq.remoting.server.tls_listener import TlsListener

log = client_log("flintmq.remoting")

_SWEEP_S: Final = 5.0
_DRAIN_POLL_S: Final = 0.002
_LINGER_S: Final = 1.0
"""How long a stopping server lets answers leave before it cuts the connections."""
_VIP_ATTEMPTS: Final = 20
"""With a free port asked for: how often another one is tried whose neighbour is free too."""


class Pool:
    """A bounded queue: how many requests of some codes may be under way. Loop thread.

    Args:
        name: ``admission.<name>_queue`` of the configuration sets its capacity.
        capacity: in requests.
        key: the configuration key of the capacity, where it is another.
        threads: what runs its plain handlers; None for the loop.
    """

    __slots__ = ("capacity", "key", "name", "refused", "threads", "waiting")

    def __init__(self, name: str, capacity: int, *, key: str = "", threads: HandlerThreads | None = None) -> None:
        self.name = name
        self.capacity = capacity
        self.key = key or f"admission.{name}_queue"
        self.threads = threads
        self.waiting = 0
        """Requests taken and not answered yet."""
        self.refused = 0
        """Requests turned away because the queue was full."""

    def overload(self) -> RefusedError:
        """The answer when the queue is full; counts it."""
        self.refused += 1
        return RefusedError(
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]system busy, start flow control for a while",
            reason="queue.full",
            measured=f"{self.waiting} requests in queue {self.name}",
            key=self.key,
        )


class RemotingServer:
    """Listens on one or more ports. Loop thread.

    Args:
        clock: for idle times.
        max_frame_bytes: longest frame accepted.
        max_connections: further ones are closed at once.
        max_connections_per_address: likewise, of one address.
        max_buffered_bytes: halves of frames and answers not read, of all connections; beyond it whoever holds most is closed.
        idle_timeout_ms: a connection without a byte either way for so long is closed.
        on_closed: told about each connection that ended.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_frame_bytes: int,
        max_connections: int,
        max_connections_per_address: int = CONNECTIONS_PER_ADDRESS_MAX,
        max_buffered_bytes: int = BUFFERED_MAX_BYTES,
        idle_timeout_ms: int,
        backlog: int = 1024,
        on_closed: Callable[[ServerChannel], None] | None = None,
    ) -> None:
        self.clock = clock
        self.now_s = clock.monotonic_s
        self.max_frame_bytes = max_frame_bytes
        self.idle_timeout_ms = idle_timeout_ms
        self._max_connections = max_connections
        self._max_connections_per_address = max_connections_per_address
        self._connections_of: Counter[str] = Counter()
        """By address."""
        self._max_buffered_bytes = max_buffered_bytes
        self._buffered: dict[ServerChannel, int] = {}
        """What is held for connections that hold much."""
        self.buffered_bytes = 0
        """The sum of it."""
        self._backlog = backlog
        self._on_closed = on_closed
        self._handlers: dict[int, tuple[Handler, Pool]] = {}
        self._batch_handlers: dict[int, tuple[BatchHandler, Pool]] = {}
        self._may_wait: set[int] = set()
        """Codes of batch handlers whose requests are postponed when a turn takes long."""
        self.postponed = PostponedWork(self._handle_postponed)
        self._without: dict[int, frozenset[int]] = {}
        self._authenticators: tuple[Authenticator, ...] = ()
        self._servers: list[SocketListener | TlsListener] = []
        self._turns: SocketTurns | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_flush: set[RequestChannel] = set()
        self.channels: set[ServerChannel] = set()
        self._all_closed: asyncio.Future[None] | None = None
        self._declared: dict[int, RequestDeclaration] = {}
        """What is declared of each code that a processor answers."""
        self._refusal_audit = RefusalAudit(clock)
        self.on_authenticator_failed: Callable[[Authenticator, Request, BaseException], None] = _log_authenticator
        """Told of an authenticator that raised something else than a refusal."""
        self.on_failed: Callable[[Request, BaseException], None] = _log_failed
        """Told of what nobody foresaw when a request was handled; it is answered already."""
        self.on_hook_failed: Callable[[BeforeHook, Request, BaseException], None] = _log_hook
        """Told of a hook that raised something else than a refusal; its request is refused."""
        self.hooks = ServerHooks()
        """What plugins want to be told; see :meth:`hook`."""
        self._tells = False
        """Whether anybody wants to be told of connections."""
        self._announced: set[ServerChannel] = set()
        """Those that ``hooks.connected`` was told of; kept only where somebody is told of their end."""
        self._default: tuple[Handler, Pool] | None = None
        """Answers the codes that nobody else does."""
        self.handled = 0
        """Requests handed to processors."""

    # registration

    def register(self, code: int, handler: Handler, pool: Pool) -> None:
        """Answers a code by a handler of single requests. The last registration of a code counts."""
        self._batch_handlers.pop(code, None)
        self._handlers[code] = (handler, pool)

    def register_batch(self, code: int, handler: BatchHandler, pool: Pool, *, may_wait: bool = False) -> None:
        """Answers a code by a handler that takes all requests of a read at once.

        Args:
            may_wait: each may be answered in a later turn of the loop, when this one takes long.
        """
        self._handlers.pop(code, None)
        self._batch_handlers[code] = (handler, pool)
        (self._may_wait.add if may_wait else self._may_wait.discard)(code)

    def hook(self, hooks: ServerHooks) -> None:
        """Has plugins told of connections and requests. Before the server listens."""
        self.hooks = hooks
        self._tells = bool(hooks.connected or hooks.closed or hooks.failed or hooks.idle)

    def register_default(self, handler: Handler, pool: Pool) -> None:
        """Answers every code without a processor, as RocketMQ's ``registerDefaultProcessor``."""
        if pool.threads is not None and not inspect.iscoroutinefunction(handler):
            handler = pool.threads.behind(handler)
        self._default = (handler, pool)

    def add_processor(
        self,
        processor: RequestProcessor | BatchProcessor,
        declarations: Sequence[RequestDeclaration],
        pool: Callable[[str], Pool],
        where: str = "a request processor",
    ) -> None:
        """Answer the declared codes by a processor, with a line in the audit log for those that are audited.

        Args:
            processor: one with ``process(batch)`` takes requests in batches, else ``handlers()`` has a handler for each code.
            declarations: of its codes.
            pool: the bounded queue of a name.
            where: who registered it under which name, for errors.

        Raises:
            PluginError: it is not a processor.
        """
        codes = [one.code for one in declarations]
        pools = {one.code: pool(one.pool) for one in declarations}
        handlers = check_processor(where, processor, codes, in_threads=any(one.threads for one in pools.values()))
        self._declared.update((one.code, one) for one in declarations)
        if handlers is None:
            batches = cast("BatchProcessor", processor)
            for code in codes:
                self.register_batch(code, batches.process, pools[code], may_wait=getattr(batches, "may_wait", False))
            return
        for one in declarations:
            handler, threads = handlers[one.code], pools[one.code].threads
            if threads is not None and not inspect.iscoroutinefunction(handler):
                handler = threads.behind(handler)
            self.register(one.code, audited(handler) if one.audited else handler, pools[one.code])

    def exclude(self, local_port: int, codes: frozenset[int]) -> None:
        """Codes that are not answered on one of the ports (the VIP port serves no pulls)."""
        self._without[local_port] = codes

    def authenticate_with(self, authenticators: Sequence[Authenticator]) -> None:
        """Every request must pass all of them."""
        self._authenticators = tuple(authenticators)

    @property
    def authenticates(self) -> bool:
        return bool(self._authenticators)

    @property
    def keeps_ext_fields(self) -> bool:
        """Whether somebody looks at all fields of a request before its processor does."""
        return bool(self._authenticators or self.hooks.before or self.hooks.after)

    @property
    def codes(self) -> frozenset[int]:
        """Codes with a processor."""
        return frozenset(self._handlers.keys() | self._batch_handlers.keys())

    # life

    async def listen(self, sock: socket.socket, tls: ServerTls | None = None) -> None:
        """Starts to accept connections on a socket made by :func:`bind`, which is closed with the server.

        Args:
            tls: encrypted connections are taken too, or alone; None takes plain ones only.
        """
        loop = asyncio.get_running_loop()
        if self._turns is None:
            self._turns = self.postponed.turns = SocketTurns(loop)
        if tls is not None:
            from flintmq.remoting.server.tls_listener import TlsListener

            self._servers.append(TlsListener(sock, self._new_channel, tls, self._backlog, turns=self._turns))
        else:
            self._servers.append(SocketListener(self._turns, sock, self._new_channel, self._backlog))
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    def _new_channel(self) -> ServerChannel:
        return HookedChannel(self) if self.hooks.after else ServerChannel(self)

    async def close(self, drain_s: float = 0.0) -> None:
        """Stops listening, lets requests under way be answered, and closes every connection. Idempotent.

        Args:
            drain_s: how long at most to wait for answers that are due; nothing new is read meanwhile.
        """
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for server in self._servers:
            server.close()
        for channel in list(self.channels):
            channel.stop_reading()
        deadline_s = time.monotonic() + drain_s
        # Looked at now and then, because a signal would cost the hot path something with every answer.
        while self._answers_due() and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in list(self.channels):
            channel.close()
        try:
            async with asyncio.timeout(_LINGER_S):
                await self._wait_for_no_channel()
        except TimeoutError:
            for channel in list(self.channels):
                channel.abort()
            await self._wait_for_no_channel()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        if self._turns is not None:
            self._turns.close()
            self._turns = self.postponed.turns = None

    def _answers_due(self) -> bool:
        return bool(self._tasks) or any(channel.unanswered and not channel.is_stalled for channel in self.channels)

    async def _wait_for_no_channel(self) -> None:
        while self.channels:
            self._all_closed = asyncio.get_running_loop().create_future()
            await self._all_closed

    def opened(self, channel: ServerChannel) -> str:
        """Takes a new connection; says why not when there are too many."""
        self.channels.add(channel)
        self._connections_of[channel.remote_host] += 1
        if len(self.channels) > self._max_connections:
            return "too many connections (listen.max_connections)"
        if self._connections_of[channel.remote_host] > self._max_connections_per_address:
            return "too many connections of its address (listen.max_connections_per_address)"
        if self._tells:
            self._announced.add(channel)
            for connected in self.hooks.connected:
                connected(channel)
        return ""

    def holds(self, channel: ServerChannel, size_bytes: int) -> None:
        """Notes what is held for a connection: half a frame, answers not read. When all of them hold too much, the one that
        holds most is closed."""
        self.buffered_bytes += size_bytes - self._buffered.pop(channel, 0)
        if size_bytes:
            self._buffered[channel] = size_bytes
        if self.buffered_bytes > self._max_buffered_bytes:
            largest = max(self._buffered, key=self._buffered.__getitem__)
            held = self._buffered.pop(largest)
            self.buffered_bytes -= held
            largest.close(f"it holds {held} bytes, the most of all connections (listen.max_buffered_bytes)")

    def failed(self, channel: ServerChannel, error: Exception) -> None:
        """Tells who wants to know that a connection ends because of an error."""
        if channel in self._announced:
            for failed in self.hooks.failed:
                failed(channel, error)

    def closed(self, channel: ServerChannel, error: Exception | None = None) -> None:
        """Forgets a connection that ended.

        Args:
            error: of the network, where that ended it.
        """
        if channel in self._announced:
            if error is not None:
                self.failed(channel, error)
            self._announced.discard(channel)
            for closed in self.hooks.closed:
                closed(channel)
        self.channels.discard(channel)
        self.postponed.forget(channel)
        self.buffered_bytes -= self._buffered.pop(channel, 0)
        self._connections_of[channel.remote_host] -= 1
        if not self._connections_of[channel.remote_host]:
            del self._connections_of[channel.remote_host]
        if not self.channels and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)
        if self._on_closed is not None:
            self._on_closed(channel)

    def _sweep(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        self.sweep()

    def sweep(self) -> None:
        """Closes connections that are idle, silent, or stuck in half a frame. Called every few seconds."""
        now_s = self.now_s()
        for channel in list(self.channels):
            if now_s - channel.active_s > self.idle_timeout_ms / 1000:
                if channel in self._announced:
                    for idle in self.hooks.idle:
                        idle(channel)
                channel.close(f"idle for {now_s - channel.active_s:.0f} s")
            elif not channel.has_spoken and now_s - channel.opened_s > FIRST_FRAME_TIMEOUT_S:
                channel.close("no frame since it connected")
            elif channel.partial_since_s is not None and now_s - channel.partial_since_s > FRAME_TIMEOUT_S:
                channel.close("half a frame, and no rest")

    # requests

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        """Calls back when all that has arrived on all connections is read; see :meth:`SocketTurns.at_end`."""
        if self._turns is not None:
            self._turns.at_end(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    def dispatch(self, requests: list[Request]) -> None:
        """Hands the requests of one read to their processors, those of a batch handler together."""
        if self._authenticators:
            requests = [request for request in requests if self._lets_pass(request)]
        if self.hooks.before:
            requests = [request for request in requests if self._hooks_let_pass(request)]
        self.handled += len(requests)
        batches: dict[int, list[Request]] = {}
        batch_handlers = self._batch_handlers
        excluded = self._without.get(requests[0].channel.local_port) if self._without and requests else None
        for request in requests:
            code = request.code
            if excluded is not None and code in excluded:
                self._unsupported(request)
            elif code in batch_handlers:
                if code in batches:
                    batches[code].append(request)
                else:
                    batches[code] = [request]
            elif self.postponed.must_wait(request.channel):
                self.postponed.put((request,))
            else:
                self._handle(request)
        for code, batch in batches.items():
            if code in self._may_wait and self.postponed.must_wait(batch[0].channel):
                self.postponed.put(batch)
            else:
                self._handle_batch(code, batch)

    def _handle_postponed(self, request: Request) -> None:
        if request.code in self._batch_handlers:
            self._handle_batch(request.code, [request])
        else:
            self._handle(request)

    def _handle_batch(self, code: int, batch: list[Request]) -> None:
        handler, pool = self._batch_handlers[code]
        if pool.waiting + len(batch) > pool.capacity:
            for request in batch:
                request.channel.refuse(request, pool.overload())
            return
        try:
            returned: object = handler(batch)
            if returned is not None:
                drop(returned)
                raise TypeError("expected process(batch) to answer through the channel and return None")
        except PLUGIN_FAULTS as error:
            self._failed(batch, error)

    def _lets_pass(self, request: Request) -> bool:
        declared = self._declared.get(request.code)
        rule = declared.needs if declared is not None else None
        caller = Caller(request.channel.remote_host, request.code, request.ext_fields or {}, request.body, rule)
        try:
            for authenticator in self._authenticators:
                authenticate: Callable[[Caller], object] = authenticator.authenticate
                if (returned := authenticate(caller)) is not None:
                    drop(returned)
                    raise TypeError(f"expected None, or a RefusedError to be raised; found {shown(returned)} returned")
        except RefusedError as error:
            if declared is not None and declared.audited:
                self._refusal_audit(request, error)
            request.channel.refuse(request, error)
            return False
        except (
            PLUGIN_FAULTS
        ) as error:  # a plugin's fault must not open the door, nor keep the others of this read from it
            self.on_authenticator_failed(authenticator, request, error)
            refusal = RefusedError(
                ResponseCode.SYSTEM_ERROR, "it cannot be told who sent this", reason="authenticator.failed"
            )
            request.channel.refuse(request, refusal)
            return False
        return True

    def _hooks_let_pass(self, request: Request) -> bool:
        for hook in self.hooks.before:
            try:
                if (returned := hook(request)) is not None:
                    drop(returned)
                    raise TypeError(f"expected None, or a RefusedError to be raised; found {shown(returned)} returned")
            except RefusedError as error:
                request.channel.refuse(request, error)
                return False
            except PLUGIN_FAULTS as error:
                self.on_hook_failed(hook, request, error)
                request.channel.refuse(request, hook_failed(error))
                return False
        return True

    def _unsupported(self, request: Request) -> None:
        request.channel.refuse(request, unsupported(request.code))

    def _handle(self, request: Request) -> None:
        entry = self._handlers.get(request.code) or self._default
        if entry is None:
            self._unsupported(request)
            return
        handler, pool = entry
        channel = request.channel
        if pool.waiting >= pool.capacity:
            channel.refuse(request, pool.overload())
            return
        try:
            answer = handler(request)
            if answer is None:
                return
            if isinstance(answer, Response) or not inspect.isawaitable(answer):
                channel.respond(request, answer)
                return
        except PLUGIN_FAULTS as error:
            self._failed((request,), error)
            return
        pool.waiting += 1
        self._spawn(self._finish(request, answer, pool))
        self.postponed.started()

    async def _finish(self, request: Request, answer: Awaitable[Response | None], pool: Pool) -> None:
        channel = request.channel
        try:
            result = await answer
            if result is not None:
                channel.respond(request, result)
        except PLUGIN_FAULTS as error:
            self._failed((request,), error)
        finally:
            pool.waiting -= 1
        channel.flush()

    def _failed(self, requests: Sequence[Request], error: BaseException) -> None:
        """Answers with what kept requests from being answered; only what nobody foresaw is logged with its trace."""
        request = requests[0]
        if isinstance(error, StoreError):
            log.warning("request %d of %s failed: %s", request.code, request.channel.remote_address, error)
        elif not isinstance(error, FlintError):
            self.on_failed(request, error)
        refusal = refusal_of(error)
        for one in requests:
            one.channel.refuse(one, refusal)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # writes

    def flush_soon(self, channel: RequestChannel) -> None:
        """Flushes a channel with the loop's next turn; several calls make one write."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._to_flush.add(channel)

    def _flush_all(self) -> None:
        channels, self._to_flush = self._to_flush, set()
        for channel in channels:
            channel.flush()


def _log_failed(request: Request, error: BaseException) -> None:
    log.error("request %d of %s failed", request.code, request.channel.remote_address, exc_info=error)


def _log_hook(_hook: BeforeHook, request: Request, error: BaseException) -> None:
    log.error("request %d of %s: a hook failed", request.code, request.channel.remote_address, exc_info=error)


def _log_authenticator(_authenticator: Authenticator, request: Request, error: BaseException) -> None:
    log.error("request %d of %s: an authenticator failed", request.code, request.channel.remote_address, exc_info=error)


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address, not listening yet: a peer that comes too early is refused, not kept waiting.

    Args:
        port: 0 takes a free one.

    Raises:
        RemotingError: the port is in use, or the address is not this machine's.
    """
    try:
        # As bytes where that says the same: of a text Python asks its tables of international names, which it reads for it.
        named = host.encode() if host.isascii() else host
        family, kind, protocol, _, address = socket.getaddrinfo(named, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return sock


def bind_with_vip(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Two sockets, on a port and on the one two below it, where RocketMQ answers too (docs/internals/protocol.md, Ports).

    Raises:
        RemotingError: as :func:`bind`.
    """
    for attempt in range(_VIP_ATTEMPTS):
        main = bind(host, port)
        try:
            return main, bind(host, main.getsockname()[1] - 2)
        except RemotingError:
            main.close()
            if port or attempt == _VIP_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
