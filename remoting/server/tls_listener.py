"""Accepts connections on a port, and distinguishes TLS connections from plain connections: a TLS handshake begins with the byte
0x16.

The first byte is read with ``MSG_PEEK`` and stays in the socket. Then the connection gets an encrypted or a plain transport
with a :class:`~flintmq.remoting.server.channel.ServerChannel`. So plain connections are as fast as on a server without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

from flintmq.core.limits import ACCEPTS_PER_TURN, TLS_HANDSHAKE_TIMEOUT_S, TLS_PENDING_MAX, TLS_PENDING_PER_ADDRESS_MAX
from flintmq.core.log_events import client_log
from flintmq.remoting.server.descriptors import has_room, is_below_ceiling
from flintmq.remoting.server.socket_turns import SocketTransport, SocketTurns
from flintmq.remoting.server.tls import ServerTls

log = client_log("flintmq.tls")

HANDSHAKE: Final = b"\x16"
_SHUTDOWN_S: Final = 1.0
_ACCEPT_RETRY_S: Final = 0.1


class TlsListener:
    """Accepts the plain and the encrypted connections of one port. Used only on the event loop's thread.

    The class is used like an ``asyncio.Server``.

    Args:
        sock: a bound socket that does not listen yet; it is closed with the listener.
        make_protocol: makes the channel of a connection.
        tls: the TLS context, and whether TLS is required.
        backlog: number of connections that may wait to be accepted.
        idle_s: a function that returns the seconds after which a silent connection is closed. This limit applies to the wait
            for the first byte, too.
        has_room: a function that returns whether one more connection may be accepted; the function's argument is the number of
            connections that have sent nothing yet.
        required: whether to close plain connections on this port, even if `tls` accepts them.
        turns: the ``SocketTurns`` that reads plain connections; None: asyncio reads plain connections.
    """

    def __init__(
        self,
        sock: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ServerTls,
        backlog: int,
        *,
        idle_s: Callable[[], float],
        has_room: Callable[[int], bool],
        required: bool = False,
        turns: SocketTurns | None = None,
    ) -> None:
        self._sock = sock
        self._turns = turns
        self._make_protocol = make_protocol
        self._tls = tls
        self._required = required or tls.required
        self._idle_s = idle_s
        self._takes_more = has_room
        self._pending: set[asyncio.Task[None]] = set()
        """Tasks of connections that have sent nothing yet, or are in their TLS handshake."""
        self._pending_of: Counter[str] = Counter()
        """Numbers of connections that have sent nothing yet, or are in their TLS handshake, keyed by the peer's host."""
        self._handshakes = 0
        """Number of connections that are in their TLS handshake."""
        sock.listen(backlog)
        sock.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more connections, and close the connections that have not finished their TLS handshake."""
        self._accepting.cancel()
        for task in self._pending:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the tasks that :meth:`close` canceled have ended, and close the socket."""
        await asyncio.gather(self._accepting, *self._pending, return_exceptions=True)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            if accepted % ACCEPTS_PER_TURN == ACCEPTS_PER_TURN - 1:
                # sleep(0) lets other tasks run, because sock_accept() does not suspend the task while connections wait.
                await asyncio.sleep(0)
            accepted += 1
            await self._room()
            try:
                connection, address = await loop.sock_accept(self._sock)
            except OSError as error:
                # sock_accept() fails if no descriptor is free or the peer has already disconnected. The loop tries again later.
                log.warning("connection.not_accepted", "a connection could not be accepted: %(error)s", error=error)
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            if not is_below_ceiling(connection.fileno()):
                # The process opened other files after a free descriptor was found, so the connection is closed.
                connection.close()
                continue
            host = str(address[0])
            if self._pending_of[host] >= TLS_PENDING_PER_ADDRESS_MAX or not self._takes_more(len(self._pending)):
                connection.close()
                continue
            task = loop.create_task(self._begin(connection, address))
            self._pending.add(task)
            self._pending_of[host] += 1
            task.add_done_callback(functools.partial(self._begun, host))

    async def _room(self) -> None:
        """Wait until a file descriptor is free for one more connection."""
        is_told = False
        while not has_room(self._sock.fileno()):
            if not is_told:
                is_told = True
                log.warning(
                    "connection.no_descriptor",
                    "connections wait to be accepted: no descriptor is free for them (ulimit -n)",
                )
            await asyncio.sleep(_ACCEPT_RETRY_S)

    def _begun(self, host: str, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        self._pending_of[host] -= 1
        if not self._pending_of[host]:
            del self._pending_of[host]

    async def _begin(self, connection: socket.socket, address: object) -> None:
        """Give a connection an encrypted or a plain transport, depending on the connection's first byte.

        An error closes only this connection.
        """
        try:
            idle_s = self._idle_s()
            try:
                async with asyncio.timeout(idle_s):
                    first = await _first_byte(connection)
            except TimeoutError:
                raise TimeoutError(f"the connection was idle for {idle_s:g} s") from None
            if first == b"" or (self._required and first != HANDSHAKE):
                if first:
                    log.info(
                        "connection.plain",
                        "closing %(client)s: it does not use TLS, which this port requires (listen.tls.mode, ha.tls)",
                        client=address,
                    )
                connection.close()
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            if first == HANDSHAKE:
                await self._encrypted(connection)
            elif self._turns is not None:
                SocketTransport(self._turns, connection, self._make_protocol())
            else:
                await loop.connect_accepted_socket(self._make_protocol, connection)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.info(
                "connection.closed",
                "closing %(client)s: %(reason)s",
                client=address,
                reason=str(error) or type(error).__name__,
            )
            connection.close()
        except BaseException:
            connection.close()
            raise

    async def _encrypted(self, connection: socket.socket) -> None:
        """Do the TLS handshake, and give the connection a channel.

        Raises:
            OSError: the handshake failed, or too many connections are in their handshake.
        """
        if self._handshakes >= TLS_PENDING_MAX:
            raise OSError("too many connections are in their handshake")
        self._handshakes += 1
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._tls.context,
                ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        finally:
            self._handshakes -= 1


async def _first_byte(connection: socket.socket) -> bytes:
    """Return a connection's first byte, and leave the byte in the socket; empty if the peer has closed the connection."""
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return connection.recv(1, socket.MSG_PEEK)
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, _wake, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
