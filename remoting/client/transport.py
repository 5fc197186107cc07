"""The client's transport: requests to any number of addresses, over one connection each (``NettyRemotingClient``)."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypedDict, runtime_checkable

from flintmq.core import limits
from flintmq.core.errors import FlintError, RefusedError, RemotingConnectError, RemotingError
from flintmq.core.event import Event
from flintmq.core.log_events import event_log
from flintmq.remoting.client.callbacks import ended, outcome_of, returned_by, told
from flintmq.remoting.client.connection import ClientConnection, timed_out
from flintmq.remoting.wire.codes import ResponseCode
from flintmq.remoting.wire.command import (
    REQUEST_LANGUAGE,
    RemotingCommand,
    next_opaque,
    response,
)

log = event_log("flintmq.client")

MAX_IN_FLIGHT: Final = 65_535
"""Maximum number of unanswered requests of one client, as in RocketMQ."""
IDLE_TIMEOUT_S: Final = 120.0
"""Seconds without a read or a write after which a client closes a connection. Servers use the same time, so no connection stays
half open."""
CONNECT_TIMEOUT_MS: Final = 3_000

RequestHandler = Callable[[RemotingCommand, str], "RemotingCommand | Awaitable[RemotingCommand | None] | None"]
"""A function that answers a request that a server sends to the client. Its arguments are the command and the server's address.
It returns None if no answer is to be sent."""


class RpcHook(Protocol):
    """A hook that is called with each request before it is sent, and with each answer. It can sign or trace requests.

    The methods of a hook are plain functions, called on the event loop. An exception of a method is raised by the call that
    sends the request. If ``before_request`` raises, the request is not sent. If ``after_response`` raises, the server has
    already carried out the request.
    """

    def before_request(self, address: str, command: RemotingCommand, /) -> None: ...

    def after_response(self, address: str, command: RemotingCommand, answer: RemotingCommand, /) -> None: ...


@runtime_checkable
class InProcessServer(Protocol):
    """A server in this process, such as an embedded broker, to which clients connect without the network."""

    def connect(self, address: str) -> socket.socket:
        """Return a socket that is connected to the server. Thread-safe; it does not block.

        Args:
            address: the broker's address from a route, or :data:`IN_PROCESS` for requests to a name server.

        Raises:
            RemotingConnectError: the server is not running.
        """
        ...


IN_PROCESS: Final = "in-process:0"
"""The address that clients use for the name server of an :class:`InProcessServer`."""


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` into host and port; an IPv6 host can be in brackets.

    Raises:
        RemotingConnectError: the text is not a ``host:port``.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal():
        raise RemotingConnectError(f"{address!r} is not a host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


class RemotingOptions(TypedDict, total=False):
    """The keyword arguments of :class:`RemotingClient`, for the type annotations of functions that pass them on."""

    max_in_flight: int
    idle_timeout_s: float
    connect_timeout_ms: int
    ssl_context: ssl.SSLContext | None
    max_frame_bytes: int
    in_process: InProcessServer | None


class RemotingClient:
    """Sends requests to servers, and handles requests that servers push. Used only on the event loop's thread.

    Connections are opened on demand, and closed if they are idle.

    After a connection is lost, the next request to its address opens a new connection. Requests to one address are pipelined.

    Args:
        max_in_flight: the maximum number of unanswered requests; further requests wait, within their timeouts.
        idle_timeout_s: a connection without traffic for this time is closed.
        connect_timeout_ms: the limit for opening a connection.
        ssl_context: the TLS context of every connection; None for plain connections.
        max_frame_bytes: the maximum size of a received frame.
        in_process: a server in this process that provides the connections to all addresses, without network and TLS.
    """

    def __init__(
        self,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        ssl_context: ssl.SSLContext | None = None,
        max_frame_bytes: int = limits.FRAME_MAX_BYTES,
        in_process: InProcessServer | None = None,
    ) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._ssl_context = ssl_context
        self._max_frame_bytes = max_frame_bytes
        self._in_process = in_process
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._freed = asyncio.Event()
        """Event that is set whenever a request ends. It wakes the requests that wait because ``max_in_flight`` requests are
        unanswered."""
        self._connections: dict[str, ClientConnection] = {}
        self._connecting: dict[str, asyncio.Task[ClientConnection]] = {}
        self._handlers: dict[int, RequestHandler] = {}
        self._hooks: list[RpcHook] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.connections_lost: int = 0
        """Number of connections of this client that have ended. After a change of this number, servers may no longer know the
        client."""
        self.lost: Event[[str]] = Event()
        """Event that is published if a connection ends before this client is closed. Its argument is the server's address."""

    def register_processor(self, code: int, handler: RequestHandler) -> None:
        """Set the function that is called when a server sends a request with the given code to this client.

        The function is called as ``handler(command, address)``: with the request, and with the server's address.
        """
        self._handlers[code] = handler

    def add_hook(self, hook: RpcHook) -> None:
        """Add a hook. Hooks are called in the order in which they were added.

        Raises:
            TypeError: a method of the hook is a coroutine function, which would not be awaited.
        """
        for method in (hook.before_request, hook.after_response):
            if inspect.iscoroutinefunction(method):
                raise TypeError(f"{method.__qualname__} is a coroutine function: a hook's methods are plain functions")
        self._hooks.append(hook)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Send a request and return its answer. The opaque of the command is replaced by a new opaque.

        Raises:
            RemotingConnectError: no server answers at the address.
            RemotingTimeoutError: no answer arrived in time; the request may still be carried out.
            RemotingError: the connection was lost before the answer; the request may still be carried out.
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
            returned_by(hook.after_response, address, command, answer)
        return answer

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: float = 3_000) -> None:
        """Send a one-way request, which has no answer; return when the request is written.

        Raises the exceptions of :meth:`invoke`.
        """
        command.flag |= 2
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = self._connections.get(address)
        if connection is None or not connection.is_ready or self._in_flight >= self._max_in_flight:
            connection = await self._ready_connection(address, command, timeout_ms, deadline_s)
        self._prepare(address, command)
        connection.write(command)

    @property
    def is_in_process(self) -> bool:
        """Whether requests to all addresses go to a server in this process, without a network port."""
        return self._in_process is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the client's connections; None if the client has no connection."""
        connecting = next(iter(self._connecting.values()), None)
        connection = next(iter(self._connections.values()), None)
        return connecting.get_loop() if connecting is not None else connection.loop if connection is not None else None

    def open(self) -> None:
        """Allow connections again after :meth:`close`; the next request opens a connection."""
        self._closed = False

    async def close(self) -> None:
        """Close every connection; pending calls raise ``RemotingError``. Idempotent."""
        self._closed = True
        left = await ended([*self._connecting.values(), *self._tasks])
        if left:
            log.warning(
                "client.not_cancelled",
                "%(client)s is closed, these tasks still run although they were cancelled: %(tasks)s",
                client="a client",
                tasks=", ".join(left),
            )
        await asyncio.gather(*(connection.close() for connection in list(self._connections.values())))

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # --- internals ---

    def _prepare(self, address: str, command: RemotingCommand) -> None:
        command.opaque = next_opaque()
        for hook in self._hooks:
            returned_by(hook.before_request, address, command)

    async def _ready_connection(
        self, address: str, command: RemotingCommand, timeout_ms: float, deadline_s: float
    ) -> ClientConnection:
        """Return a writable connection to an address, once ``max_in_flight`` allows another request.

        Raises as :meth:`invoke`.
        """
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
            raise timed_out(address, command.code, timeout_ms) from failure

    async def _connection_to(self, address: str) -> ClientConnection:
        if self._closed:
            raise RemotingConnectError("this client is closed")
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        connecting = self._connecting.get(address)
        # If the connection task is done without an open connection, a new attempt begins.
        # Awaiting a finished task does not suspend: a caller that retries in a loop would block the event loop.
        if connecting is None or connecting.done():
            connecting = asyncio.create_task(self._connect(address))
            self._connecting[address] = connecting
            connecting.add_done_callback(lambda task: self._connect_done(address, task))
        # If a caller is cancelled, wait() does not cancel the connection attempt, for which other callers may wait.
        # shield() is not used: since Python 3.14 it reports a failed attempt to the event loop if the caller was cancelled.
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise RemotingConnectError("this client is closed")
        return connecting.result()

    def _connect_done(self, address: str, task: asyncio.Task[ClientConnection]) -> None:
        if self._connecting.get(address) is task:
            del self._connecting[address]
        if not task.cancelled():
            # Without the call of exception(), asyncio would log an exception of a task for which no caller waits any more.
            task.exception()

    async def _connect(self, address: str) -> ClientConnection:
        connection = ClientConnection(
            address, self._request_received, self._connection_lost, self._idle_timeout_s, self._max_frame_bytes
        )
        encrypted = self._ssl_context is not None and self._in_process is None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._open(address, connection)
        except TimeoutError as failure:
            hint = ", neither in plain nor encrypted: this client uses TLS" if encrypted else ""
            raise RemotingConnectError(
                f"{address} did not answer within {self._connect_timeout_s:g} s{hint}"
            ) from failure
        except ssl.SSLCertVerificationError as failure:
            raise RemotingConnectError(
                f"the certificate of {address} is not trusted: {failure.verify_message or failure}; "
                "give ssl_context the authority that signed it (FLINT_TLS_CA)"
            ) from failure
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, EOFError) as failure:
            if not encrypted:
                raise RemotingConnectError(f"nobody answers at {address}: {failure}") from failure
            raise RemotingConnectError(
                f"{address} answers, but the TLS handshake failed ({failure or type(failure).__name__}): "
                "if the port is not encrypted, leave ssl_context out (FLINT_TLS)"
            ) from failure
        except OSError as failure:
            raise RemotingConnectError(f"nobody answers at {address}: {failure}") from failure
        self._connections[address] = connection
        return connection

    async def _open(self, address: str, connection: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        if self._in_process is not None:
            await loop.create_connection(lambda: connection, sock=self._in_process.connect(address))
            return
        host, port = parse_address(address)
        await loop.create_connection(lambda: connection, host, port, ssl=self._ssl_context)

    def _connection_lost(self, connection: ClientConnection) -> None:
        self.connections_lost += 1
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
            if not self._closed:
                self.lost.publish(connection.address)

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
            return  # If the connection is lost, the answer is dropped, because the requester cannot get it.

    async def _handle(self, connection: ClientConnection, command: RemotingCommand) -> RemotingCommand | None:
        handler = self._handlers.get(command.code)
        if handler is None:
            return response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
            )
        try:
            answer = await outcome_of(handler, command, connection.address)
            if answer is None or isinstance(answer, RemotingCommand):
                return answer
            raise TypeError(f"a handler returns a RemotingCommand or None, not {answer!r}")
        except RefusedError as refused:
            return response(command, refused.code, refused.remark)
        except Exception as failure:
            # Like RocketMQ's client, answer the request with the handler's error, and keep the connection.
            is_foreign = not isinstance(failure, FlintError | ValueError)
            log.warning(
                "client.pushed_failed",
                "request %(code)d that %(server)s pushed failed: %(error)s",
                code=command.code,
                server=connection.address,
                error=told(failure),
                exc_info=is_foreign,
            )
            return response(command, ResponseCode.SYSTEM_ERROR, told(failure))
