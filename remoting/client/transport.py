"""The client side of the wire: requests to any number of addresses, one connection each (docs/internals/protocol.md, Frame).

::

    connecting ──made──▶ open ──lost / idle / bad frame / close()──▶ closed
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

import msgspec

from flintmq.core import limits
from flintmq.core.errors import FrameError, RefusedError, RemotingConnectError, RemotingError, RemotingTimeoutError
from flintmq.remoting.wire.codes import ResponseCode
from flintmq.remoting.wire.command import (
    REQUEST_LANGUAGE,
    RemotingCommand,
    decode_command,
    encode_command,
    next_opaque,
    response,
)
from flintmq.remoting.wire.frame import FrameDecoder

MAX_IN_FLIGHT: Final = 65_535
"""RocketMQ's bound on requests of one client that are not answered yet."""
IDLE_TIMEOUT_S: Final = 120.0
"""Servers close a connection that is idle for so long; doing it first leaves no half-open one."""
CONNECT_TIMEOUT_MS: Final = 3_000

WRITE_BYTES: Final = 64 * 1024
"""Frames are joined to writes of about this size: fewer system calls, and no large copies."""
CLOSE_TIMEOUT_S: Final = 1.0
"""A peer that does not read may not hold up a close for longer."""

RequestHandler = Callable[[RemotingCommand, str], "RemotingCommand | Awaitable[RemotingCommand | None] | None"]
"""Answers a request that the server at an address pushed; None: no answer."""


class RpcHook(Protocol):
    """Sees every request before it is written and every answer: signatures, traces."""

    def before_request(self, address: str, command: RemotingCommand) -> None: ...

    def after_response(self, address: str, command: RemotingCommand, answer: RemotingCommand) -> None: ...


def parse_address(address: str) -> tuple[str, int]:
    """``host:port`` taken apart; an IPv6 host may stand in brackets. Raises ``RemotingConnectError``."""
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal():
        raise RemotingConnectError(f"{address!r} is not a host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _timed_out(address: str, code: int, timeout_ms: float) -> RemotingTimeoutError:
    return RemotingTimeoutError(f"no answer from {address} to request {code} within {timeout_ms:g} ms")


class Waiting(msgspec.Struct, gc=False):
    """A request that is not answered yet."""

    answered: asyncio.Future[RemotingCommand]
    code: int
    timeout_ms: float
    deadline_s: float


class ClientConnection(asyncio.Protocol):
    """The protocol of one connection. Loop thread only.

    Args:
        address: ``host:port``, for messages.
        on_request: called with requests that the server pushes.
        on_lost: called once, when the connection is gone.
        idle_timeout_s: without a read or a write for so long, the connection is closed.
        max_frame_bytes: the longest frame accepted.
    """

    def __init__(
        self,
        address: str,
        on_request: Callable[[ClientConnection, RemotingCommand], None],
        on_lost: Callable[[ClientConnection], None],
        idle_timeout_s: float,
        max_frame_bytes: int,
    ) -> None:
        self.address = address
        self.waiting: dict[int, Waiting] = {}
        """Opaque → the request that is not answered yet."""
        self._outgoing: list[bytes] = []
        """Frames of this turn of the loop: they leave in one write, or in as few as :data:`WRITE_BYTES` allows."""
        self._outgoing_bytes = 0
        self._expiry: asyncio.TimerHandle | None = None
        """Of the earliest deadline among those that wait, or an earlier time."""
        self._on_request = on_request
        self._on_lost = on_lost
        self._idle_timeout_s = idle_timeout_s
        self._decoder = FrameDecoder(max_frame_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_writable = False
        self._writable = asyncio.Event()
        """Set while it can be written to, and when it is lost: then nobody needs to wait any more."""
        self._closed = asyncio.Event()
        self._active_at_s = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reason = "closed"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_ready(self) -> bool:
        """Return whether it takes a frame now, because its peer keeps up."""
        return self._is_writable and self._transport is not None and not self._transport.is_closing()

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by type
        self.resume_writing()
        self._arm_idle_timer()

    def data_received(self, data: bytes) -> None:
        self._active_at_s = self._loop.time()
        try:
            for frame in self._decoder.feed(data):
                self._command_received(decode_command(frame))
        except FrameError as failure:
            self._reason = f"bad frame: {failure}"
            self.abort()

    def pause_writing(self) -> None:
        self._is_writable = False
        self._writable.clear()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        for timer in (self._idle_timer, self._expiry):
            if timer is not None:
                timer.cancel()
        self._transport = None
        self._is_writable = False
        self._writable.set()
        for waiting in self.waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(self._lost())
        self.waiting.clear()
        self._closed.set()
        self._on_lost(self)

    # --- what the client calls ---

    async def writable(self) -> None:
        """Wait until the peer keeps up, or the connection is gone."""
        await self._writable.wait()

    def write(self, command: RemotingCommand) -> None:
        """Write a command, with the others of this turn of the loop. Raises ``RemotingError`` when the connection is gone."""
        if self._transport is None or self._transport.is_closing():
            raise self._lost()
        frame = encode_command(command)
        if not self._outgoing:
            self._loop.call_soon(self._write_outgoing)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if (
            self._outgoing_bytes >= WRITE_BYTES
        ):  # whoever sends without ever waiting must notice that the peer does not keep up
            self._write_outgoing()

    def ask(self, command: RemotingCommand, timeout_ms: float, deadline_s: float) -> asyncio.Future[RemotingCommand]:
        """Write a request and return its answer to come; whoever no longer waits for it removes it from :attr:`waiting`.

        Args:
            command: the request, with an opaque that nobody waits for.
            timeout_ms: what the error names.
            deadline_s: the loop's time at which ``RemotingTimeoutError`` is raised in place of an answer.

        Raises:
            RemotingError: the connection is gone; in place of the answer, when it is lost before.
        """
        self.write(command)
        answered: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.waiting[command.opaque] = Waiting(answered, command.code, timeout_ms, deadline_s)
        if self._expiry is None or deadline_s < self._expiry.when():
            self._expire_at(deadline_s)
        return answered

    async def close(self) -> None:
        """Send what is buffered, then close. Return when the connection is gone, within ``CLOSE_TIMEOUT_S``."""
        if self._transport is None:
            return
        self._write_outgoing()
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._closed.wait()
        except TimeoutError:
            self.abort()
            await self._closed.wait()

    def abort(self) -> None:
        """Close without sending what is buffered."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside ---

    def _command_received(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._on_request(self, command)
            return
        waiting = self.waiting.pop(command.opaque, None)
        if waiting is not None and not waiting.answered.done():
            waiting.answered.set_result(command)

    def _write_outgoing(self) -> None:
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if not outgoing or self._transport is None or self._transport.is_closing():
            return  # lost meanwhile: those who wait for an answer have been told
        self._active_at_s = self._loop.time()
        self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _expire_at(self, deadline_s: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        """Tell those whose time is over. One timer for all: nearly every request is answered long before its own would ring."""
        self._expiry = None
        now_s = self._loop.time()
        for waiting in self.waiting.values():
            if waiting.deadline_s <= now_s and not waiting.answered.done():
                waiting.answered.set_exception(_timed_out(self.address, waiting.code, waiting.timeout_ms))
        left = [waiting.deadline_s for waiting in self.waiting.values() if not waiting.answered.done()]
        if left:
            self._expire_at(min(left))

    def _arm_idle_timer(self) -> None:
        quiet_s = self._loop.time() - self._active_at_s
        if quiet_s >= self._idle_timeout_s:
            self._reason = f"idle for {self._idle_timeout_s:g} s"
            self.abort()
            return
        self._idle_timer = self._loop.call_later(self._idle_timeout_s - quiet_s, self._arm_idle_timer)

    def _lost(self) -> RemotingError:
        return RemotingError(f"the connection to {self.address} is lost: {self._reason}")


class RemotingClient:
    """Asks and answers over connections that it opens when needed and closes when idle. Loop thread only.

    A connection that is lost is opened again by the next request to its address. Requests to one address are pipelined.

    Args:
        max_in_flight: requests waiting for an answer; further ones wait for a place, within their own timeout.
        idle_timeout_s: a connection without traffic for so long is closed.
        connect_timeout_ms: how long opening a connection may take.
        ssl_context: TLS for every connection; None for plain ones.
        max_frame_bytes: the longest frame accepted.
    """

    def __init__(
        self,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        ssl_context: ssl.SSLContext | None = None,
        max_frame_bytes: int = limits.FRAME_MAX_BYTES,
    ) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._ssl_context = ssl_context
        self._max_frame_bytes = max_frame_bytes
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._freed = asyncio.Event()
        """Set whenever a request leaves room for another."""
        self._connections: dict[str, ClientConnection] = {}
        self._connecting: dict[str, asyncio.Task[ClientConnection]] = {}
        self._handlers: dict[int, RequestHandler] = {}
        self._hooks: list[RpcHook] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.connections_lost = 0
        """How many connections have ended: a user that relies on a server knowing this client compares it."""

    def register_processor(self, code: int, handler: RequestHandler) -> None:
        """From now on requests of this code that a server pushes go to ``handler(command, address)``."""
        self._handlers[code] = handler

    def add_hook(self, hook: RpcHook) -> None:
        """Hooks are called in the order they were added."""
        self._hooks.append(hook)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Send a request and wait for its answer. The command is given a new opaque.

        Raises:
            RemotingConnectError: no server answers at the address.
            RemotingTimeoutError: no answer in time; the request may still be carried out.
            RemotingError: the connection was lost while waiting; likewise.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = self._connections.get(address)
        if connection is None or not connection.is_ready or self._in_flight >= self._max_in_flight:
            connection = await self._ready_connection(address, command, timeout_ms, deadline_s)
        self._prepare(address, command)
        self._in_flight += 1
        try:
            answer = await connection.ask(command, timeout_ms, deadline_s)
        finally:
            connection.waiting.pop(command.opaque, None)
            self._in_flight -= 1
            self._freed.set()
        for hook in self._hooks:
            hook.after_response(address, command, answer)
        return answer

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: float = 3_000) -> None:
        """Send a request that is not answered. Raises as :meth:`invoke` does, short of the answer."""
        command.flag |= 2
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = self._connections.get(address)
        if connection is None or not connection.is_ready or self._in_flight >= self._max_in_flight:
            connection = await self._ready_connection(address, command, timeout_ms, deadline_s)
        self._prepare(address, command)
        connection.write(command)

    async def close(self) -> None:
        """Close every connection; pending calls raise ``RemotingError``. Idempotent."""
        self._closed = True
        pending = [*self._connecting.values(), *self._tasks]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in list(self._connections.values())))

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # --- inside ---

    def _prepare(self, address: str, command: RemotingCommand) -> None:
        command.opaque = next_opaque()
        for hook in self._hooks:
            hook.before_request(address, command)

    async def _ready_connection(
        self, address: str, command: RemotingCommand, timeout_ms: float, deadline_s: float
    ) -> ClientConnection:
        """Wait for a connection that takes a frame, and for a place among the requests in flight. Raises as :meth:`invoke`."""
        try:
            async with asyncio.timeout_at(deadline_s):
                while True:
                    while self._in_flight >= self._max_in_flight:
                        self._freed.clear()
                        await self._freed.wait()
                    connection = await self._connection_to(address)
                    await connection.writable()
                    if connection.is_ready and self._in_flight < self._max_in_flight:
                        return connection
        except TimeoutError as failure:
            raise _timed_out(address, command.code, timeout_ms) from failure

    async def _connection_to(self, address: str) -> ClientConnection:
        if self._closed:
            raise RemotingConnectError("this client is closed")
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.create_task(self._connect(address))
            self._connecting[address] = connecting
            connecting.add_done_callback(lambda task: self._connect_done(address, task))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():
                raise RemotingConnectError("this client is closed") from None
            raise

    def _connect_done(self, address: str, task: asyncio.Task[ClientConnection]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # the callers that wait have it; there may be none left

    async def _connect(self, address: str) -> ClientConnection:
        host, port = parse_address(address)
        connection = ClientConnection(
            address, self._request_received, self._connection_lost, self._idle_timeout_s, self._max_frame_bytes
        )
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=self._ssl_context,
                )
        except TimeoutError as failure:
            raise RemotingConnectError(f"{address} did not answer within {self._connect_timeout_s:g} s") from failure
        except OSError as failure:
            raise RemotingConnectError(f"nobody answers at {address}: {failure}") from failure
        self._connections[address] = connection
        return connection

    def _connection_lost(self, connection: ClientConnection) -> None:
        self.connections_lost += 1
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    def _request_received(self, connection: ClientConnection, command: RemotingCommand) -> None:
        task = asyncio.ensure_future(self._answer(connection, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: ClientConnection, command: RemotingCommand) -> None:
        answer = await self._handle(connection, command)
        if answer is None or command.is_oneway:
            return
        answer.opaque, answer.codec = command.opaque, command.codec
        answer.flag |= 1
        answer.language = REQUEST_LANGUAGE
        await connection.writable()
        try:
            connection.write(answer)
        except RemotingError:
            return  # the requester is gone

    async def _handle(self, connection: ClientConnection, command: RemotingCommand) -> RemotingCommand | None:
        handler = self._handlers.get(command.code)
        if handler is None:
            return response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
            )
        try:
            answer = handler(command, connection.address)
            return await answer if inspect.isawaitable(answer) else answer
        except RefusedError as refused:
            return response(command, refused.code, refused.remark)
        except Exception as failure:  # a handler's fault is answered, as RocketMQ does; the connection lives on
            return response(command, ResponseCode.SYSTEM_ERROR, f"{type(failure).__name__}: {failure}")
