"""Listens on ports, keeps the connections, and passes each request to the processor of its code.

Processors are registered by request code (:mod:`flintmq.remoting.server.request_table`), each in a pool. A pool bounds the
requests that are under way at once. Processors run on the event loop's thread. A processor that waits for the disk or for a
client is a coroutine, or answers later through the channel.

See docs/internals/protocol.md, Errors before a processor.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from flintmq.core.errors import FlintError, StoreError
from flintmq.core.io.clock import Clock, Scheduled, stopwatch_of
from flintmq.core.kernel.failures import PLUGIN_FAULTS
from flintmq.core.kernel.plugin_shapes import drop
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.kernel.ports.processor import Request, RequestChannel, Response
from flintmq.core.kernel.ports.server import RequestLatency
from flintmq.core.log_events import client_log
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.connections import ConnectionLimits, Connections
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.request_gate import (
    AuthenticatorFailed,
    HookedChannel,
    HookFailed,
    RequestGate,
    ServerHooks,
)
from flintmq.remoting.server.request_scheduler import RequestScheduler
from flintmq.remoting.server.request_table import RequestTable
from flintmq.remoting.server.socket_turns import SocketListener, SocketTransport, SocketTurns, watches_descriptors
from flintmq.remoting.wire.refusal import refusal_of, unsupported

if TYPE_CHECKING:
    from flintmq.remoting.server.tls import ServerTls
    from flintmq.remoting.server.tls_listener import TlsListener

log = client_log("flintmq.remoting")

_REASONS_MAX: Final = 500
_SWEEP_S: Final = 5.0
_DRAIN_POLL_S: Final = 0.002
_LINGER_S: Final = 1.0
"""Seconds that a stopping server waits until answers are sent. After this time it drops the remaining answers and closes the
connections."""


class RemotingServer:
    """Listens on one or more ports and passes requests to their processors. Used only on the event loop's thread.

    The class corresponds to RocketMQ's ``NettyRemotingServer``.

    Args:
        clock: clock for idle times and latencies.
        max_frame_bytes: length of the longest frame that is accepted.
        max_connections: limit of connections; further connections are closed at once.
        max_connections_per_address: limit of connections from one address; further connections are closed at once.
        max_buffered_bytes: limit of the bytes in incomplete frames and unsent answers of all connections. If the limit is
            exceeded, the connection with the most buffered bytes is closed.
        idle_timeout_ms: time after which a connection is closed if no byte is received or sent.
        backlog: number of connections that may wait to be accepted.
        authenticators: authenticators that every request must pass.
        on_closed: called with each connection that ended.
        on_failed: called with an unexpected error of a processor, while its request is refused.
        on_authenticator_failed: called if an authenticator raises an exception that is not a refusal.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_frame_bytes: int,
        max_connections: int,
        max_connections_per_address: int,
        max_buffered_bytes: int,
        idle_timeout_ms: int,
        backlog: int,
        authenticators: Sequence[Authenticator],
        on_closed: Callable[[ServerChannel], None],
        on_failed: Callable[[Request, BaseException], None],
        on_authenticator_failed: AuthenticatorFailed,
    ) -> None:
        self.clock = clock
        self.now_s = clock.monotonic_s
        self.max_frame_bytes = max_frame_bytes
        limits = ConnectionLimits(max_connections, max_connections_per_address, max_buffered_bytes)
        self.connections = Connections(limits, idle_timeout_ms, on_closed)
        self.table = RequestTable()
        """The server's handlers of requests, keyed by request code."""
        self.postponed = RequestScheduler(self._process_postponed, stopwatch_of(clock))
        self.hooks = ServerHooks()
        """The hooks of plugins, set by :meth:`hook`."""
        self.keeps_ext_fields = bool(authenticators)
        """Whether requests are decoded with all their fields, because an authenticator or a hook reads them."""
        self.refusals: dict[str, int] = {}
        """Numbers of refused requests, keyed by the reason of the refusal. ``other`` counts the reasons beyond the first
        500."""
        self.on_store_failed: Callable[[StoreError], None] = lambda error: None
        """Function that is called with an error of the store that made a request fail."""
        self.processed = 0
        """Number of requests that the server has passed to processors."""
        self.latency: RequestLatency | None = None
        """Counters of the latency of requests; None if latency is not recorded."""
        self._gate = RequestGate(clock, self.table.declared, authenticators, on_authenticator_failed)
        self._on_failed = on_failed
        self._backlog = backlog
        self._listeners: list[SocketListener | TlsListener | asyncio.AbstractServer] = []
        self._turns: SocketTurns | None = None
        self._sweeper: Scheduled | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_flush: set[RequestChannel] = set()

    def hook(self, hooks: ServerHooks, failed: HookFailed) -> None:
        """Set the hooks of plugins for connections, requests and answers. This method is called before the server listens.

        Args:
            hooks: the hooks.
            failed: called if a hook of ``hooks.before`` raises an exception that is not a refusal.
        """
        self.hooks = hooks
        self.connections.hook(hooks)
        self._gate.hook(hooks.before, failed)
        self.keeps_ext_fields = bool(self._gate.is_watched or hooks.after)

    # Start and stop

    async def listen(self, sock: socket.socket, tls: ServerTls | None = None) -> None:
        """Start to accept connections on a socket made by :func:`~flintmq.remoting.server.descriptors.bind`.

        Args:
            sock: the bound socket, which is closed with the server.
            tls: the TLS context and whether TLS is required; None accepts plain connections only.
        """
        turns = self._begin()
        if tls is not None:
            from flintmq.remoting.server.tls_listener import TlsListener

            connections = self.connections
            listener = TlsListener(
                sock,
                self._new_channel,
                tls,
                self._backlog,
                idle_s=lambda: connections.idle_timeout_ms / 1000,
                has_room=connections.has_room,
                turns=turns,
            )
            self._listeners.append(listener)
        elif turns is not None:
            self._listeners.append(SocketListener(turns, sock, self._new_channel, self._backlog))
        else:
            loop = asyncio.get_running_loop()
            self._listeners.append(await loop.create_server(self._new_channel, sock=sock, backlog=self._backlog))

    def join(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Serve a connection whose other end is in this process.

        Args:
            sock: a connected socket, which is closed with the connection.
            peer: the host and port to use for the other end in logs, records and lists of clients.
        """
        turns = self._begin()
        assert turns is not None, "the loop watches no descriptors, so nobody can have made a socket for it"
        SocketTransport(turns, sock, self._new_channel(), peer)

    def _begin(self) -> SocketTurns | None:
        """Start to read the server's sockets and to close idle connections.

        Return the object that reads the sockets; None if the event loop cannot watch file descriptors, as the event loop of a
        simulation.
        """
        loop = asyncio.get_running_loop()
        if self._turns is None and watches_descriptors(loop):
            self._turns = SocketTurns(loop, self.postponed)
        if self._sweeper is None:
            self._sweeper = self.clock.call_later(loop, _SWEEP_S, self._sweep)
        return self._turns

    def _new_channel(self) -> ServerChannel:
        return HookedChannel(self) if self.hooks.after else ServerChannel(self)

    def _sweep(self) -> None:
        self._sweeper = self.clock.call_later(asyncio.get_running_loop(), _SWEEP_S, self._sweep)
        self.connections.sweep(self.now_s())

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop listening, wait for the answers to the requests under way, and close every connection. Idempotent.

        Args:
            drain_s: longest time to wait for the answers, in seconds. No new requests are read during this time.
        """
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for listener in self._listeners:
            listener.close()
        for channel in list(self.connections.channels):
            channel.stop_reading()
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + drain_s
        # Pending answers are polled, because setting an event for each answer would make all answers slower.
        while self._answers_due() and now_s() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.connections.close(_LINGER_S)
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()
        if self._turns is not None:
            self._turns.close()
            self._turns = None

    def _answers_due(self) -> bool:
        channels = self.connections.channels
        return bool(self._tasks) or any(channel.unanswered and not channel.is_stalled for channel in channels)

    # Requests

    def process(self, requests: Sequence[Request]) -> None:
        """Pass the requests of one read to their processors.

        A batch handler gets all requests of the read with its code together.
        """
        if self._gate.is_watched:
            requests = self._gate.passing(requests)
        if not requests:
            return
        self.processed += len(requests)
        table = self.table
        if excluded := table.excluded.get(requests[0].channel.local_port):
            for request in requests:
                if request.code in excluded:
                    request.channel.refuse(request, unsupported(request.code))
            requests = [request for request in requests if request.code not in excluded]
        batches: dict[int, list[Request]] = {}
        for request in requests:
            batch = batches.get(request.code)
            if batch is not None:
                batch.append(request)
            elif request.code in table.batch_handlers:
                batches[request.code] = [request]
            elif self.postponed.must_wait(request.channel):
                self.postponed.put((request,))
            else:
                self._process_one(request)
        for code, batch in batches.items():
            if code in table.may_wait and self.postponed.must_wait(batch[0].channel):
                self.postponed.put(batch)
            else:
                self._process_batch(code, batch)

    def _process_postponed(self, request: Request) -> None:
        if request.code in self.table.batch_handlers:
            self._process_batch(request.code, [request])
        else:
            self._process_one(request)

    def _process_batch(self, code: int, batch: list[Request]) -> None:
        handler, pool = self.table.batch_handlers[code]
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

    def _process_one(self, request: Request) -> None:
        entry = self.table.handlers.get(request.code) or self.table.default
        channel = request.channel
        if entry is None:
            channel.refuse(request, unsupported(request.code))
            return
        handler, pool = entry
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
        request.read_s = channel.read_s
        task = asyncio.get_running_loop().create_task(self._finish(request, answer, pool))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.postponed.started()

    async def _finish(self, request: Request, answer: Awaitable[Response | None], pool: Pool) -> None:
        channel = request.channel
        result: Response | None = None
        try:
            result = await answer
            if result is not None:
                channel.respond(request, result)
        except PLUGIN_FAULTS as error:
            drop(result)
            self._failed((request,), error)
        finally:
            pool.waiting -= 1
        channel.flush()

    def _failed(self, requests: Sequence[Request], error: BaseException) -> None:
        """Refuse requests whose processor raised an error. Only unexpected errors are passed to ``on_failed``."""
        request = requests[0]
        if isinstance(error, StoreError):
            self.on_store_failed(error)
            log.warning(
                "request.failed",
                "request %(code)d of %(client)s failed: %(error)s",
                code=request.code,
                client=request.channel.remote_address,
                error=error,
            )
        elif not isinstance(error, FlintError):
            self._on_failed(request, error)
        refusal = refusal_of(error)
        for one in requests:
            one.channel.refuse(one, refusal)

    def refused(self, reason: str) -> None:
        """Count a refused request under its reason in :attr:`refusals`."""
        known = self.refusals
        if reason not in known and len(known) >= _REASONS_MAX:
            reason = "other"
        known[reason] = known.get(reason, 0) + 1

    # Writes

    def flush_soon(self, channel: RequestChannel) -> None:
        """Write a channel's collected answers in the event loop's next iteration.

        Several calls for a channel cause one write.
        """
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._to_flush.add(channel)

    def _flush_all(self) -> None:
        channels, self._to_flush = self._to_flush, set()
        for channel in channels:
            channel.flush()
