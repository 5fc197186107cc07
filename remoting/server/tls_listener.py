"""Accepts connections and looks at their first byte: 0x16 begins a TLS handshake, anything else is a plain frame.

The byte is looked at and left where it is, so that what comes after is either kind of asyncio transport with the same
:class:`~flintmq.remoting.server.channel.ServerChannel` on it, and plain connections are as fast as on a server without TLS.
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
    """The accept loop of one port. Loop thread; used like an ``asyncio.Server``.

    Args:
        sock: bound, not listening yet; closed with the listener.
        make_protocol: makes the channel of a connection.
        tls: the context, and whether plain connections are taken.
        backlog: connections that may wait to be accepted.
        idle_s: return for how many seconds a connection may be silent; as long for its first byte as for any other.
        has_room: whether one more connection is taken beside so many that are silent so far.
        required: closes plain connections, whatever is the setting of the other ports.
        turns: in which plain connections are read; None leaves them to asyncio.
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
        """Of connections that are silent so far, or in their handshake."""
        self._pending_of: Counter[str] = Counter()
        """By address."""
        self._handshakes = 0
        sock.listen(backlog)
        sock.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Take no more connections, and drop those that have not finished their handshake."""
        self._accepting.cancel()
        for task in self._pending:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when nothing is left, after :meth:`close`."""
        await asyncio.gather(self._accepting, *self._pending, return_exceptions=True)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            if accepted % ACCEPTS_PER_TURN == ACCEPTS_PER_TURN - 1:
                await asyncio.sleep(0)  # where a connection waits already, nothing below gives others their turn
            accepted += 1
            await self._room()
            try:
                connection, address = await loop.sock_accept(self._sock)
            except OSError as error:  # out of descriptors, or the peer has gone already
                log.warning("connection.not_accepted", "a connection could not be accepted: %(error)s", error=error)
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            if not is_below_ceiling(connection.fileno()):
                connection.close()  # others took the room while no connection came here
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
        """Return when a connection may be accepted."""
        is_told = False
        while not has_room(self._sock.fileno()):
            if not is_told:
                is_told = True
                log.warning(
                    "connection.no_descriptor",
                    "connections wait to be accepted: no descriptor is free that one may have (ulimit -n)",
                )
            await asyncio.sleep(_ACCEPT_RETRY_S)

    def _begun(self, host: str, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        self._pending_of[host] -= 1
        if not self._pending_of[host]:
            del self._pending_of[host]

    async def _begin(self, connection: socket.socket, address: object) -> None:
        """Until the connection has a transport of the right kind; any failure ends this connection alone."""
        try:
            idle_s = self._idle_s()
            try:
                async with asyncio.timeout(idle_s):
                    first = await _first_byte(connection)
            except TimeoutError:
                raise TimeoutError(f"idle for {idle_s:g} s") from None
            if first == b"" or (self._required and first != HANDSHAKE):
                if first:
                    log.info(
                        "connection.plain",
                        "closing %(client)s: plain, and this port is encrypted (listen.tls.mode, ha.tls)",
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
        """Shake hands, and serve the connection then."""
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
    """Return the first byte without taking it; empty when the peer has closed."""
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
