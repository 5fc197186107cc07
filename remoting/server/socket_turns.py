"""Reads every ready socket once in each iteration of the event loop, then does the deferred work for all sockets together.

::

    loop ── the server's epoll is readable ──► read each ready connection ──► callbacks of ``at_turn_end``
                                               data_received()                (one append for all sends, their answers)

A broker stores messages that arrive together with one append. This is not possible if asyncio runs one callback for each ready
socket, because no callback can detect that it is the last callback of the iteration. Work that a callback defers would wait for
another poll of the kernel. Therefore the server registers all sockets without TLS with one epoll object, and the event loop
watches only this object. One callback of the event loop then reads all ready sockets. A *turn* is one run of this callback.
Deferred work is done at the end of the turn. Connections with TLS use asyncio's transports; their deferred work is done in the
next iteration of the event loop, see :meth:`.request_scheduler.RequestScheduler.at_turn_end`. Turns exist only on Linux.

An event loop that watches no descriptors, such as the event loop of a simulation, has no turns. On this loop the server uses
the loop's own transports and servers.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from flintmq.core.limits import ACCEPTS_PER_TURN
from flintmq.core.log_events import client_log
from flintmq.remoting.server.descriptors import has_room

if TYPE_CHECKING:
    from flintmq.remoting.server.request_scheduler import RequestScheduler

log = client_log("flintmq.remoting")

_EVENTS_PER_TURN: Final = 256
"""Maximum number of epoll events that are handled before the event loop does other work. The kernel reports the remaining
sockets first the next time."""
_READ_MIN_BYTES: Final = 16 * 1024
_READ_MAX_BYTES: Final = 256 * 1024
_JOINED_MAX_BYTES: Final = 64 * 1024
"""Total size up to which the pieces of answers are joined before they are sent, because copying them is cheaper than a vectored
write."""
_PIECES_MAX: Final = 1_024
"""Maximum number of pieces in one call of ``sendmsg``, which is IOV_MAX on Linux."""
_ACCEPT_RETRY_S: Final = 0.1
_HIGH_WATER_BYTES: Final = 64 * 1024
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Ready = Callable[[int], None]
"""Function that is called with the events that epoll reports for a socket."""


def watches_descriptors(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop can watch file descriptors.

    The loop of a simulation cannot; it has only its own transports.
    """
    return type(loop).add_reader is not asyncio.AbstractEventLoop.add_reader


class SocketTurns:
    """Watches the sockets of one server, and reads all ready sockets in each iteration of the event loop.

    Used only on the event loop's thread. One reading of the ready sockets is called a turn.

    Args:
        loop: the running loop.
        schedule: called when a turn begins and when it ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, schedule: RequestScheduler) -> None:
        self.loop = loop
        self.schedule = schedule
        self._epoll = select.epoll()
        self._ready: dict[int, Ready] = {}
        loop.add_reader(self._epoll.fileno(), self._turn)

    def __len__(self) -> int:
        return len(self._ready)

    def watch(self, file_number: int, events: int, ready: Ready | None) -> None:
        """Watch a socket for events, or stop watching it.

        Args:
            file_number: descriptor of the socket.
            events: epoll's events to watch for.
            ready: called with the events that occur; None stops the watching.
        """
        if ready is None:
            del self._ready[file_number]
            self._epoll.unregister(file_number)
        elif file_number in self._ready:
            self._ready[file_number] = ready
            self._epoll.modify(file_number, events)
        else:
            self._epoll.register(file_number, events)
            self._ready[file_number] = ready

    def close(self) -> None:
        """Stop watching all sockets of the server. The sockets stay open."""
        if not self._epoll.closed:
            self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._ready.clear()

    def _turn(self) -> None:
        if self._epoll.closed:
            return
        ready = self._ready
        self.schedule.begin_turn()
        try:
            for file_number, events in self._epoll.poll(0, _EVENTS_PER_TURN):
                one = ready.get(file_number)
                # If the socket has no entry any more, an earlier callback of the same poll has closed the socket.
                if one is not None:
                    one(events)
        finally:
            self.schedule.end_turn()


class SocketTransport(asyncio.Transport):
    """The transport of a connection without TLS, over a socket that never blocks. Used only on the event loop's thread.

    Args:
        turns: the :class:`SocketTurns` that reports when the socket can be read or written.
        sock: a connected socket, which is closed with the transport.
        protocol: the protocol, whose methods are called in the same order as by asyncio's own transports.
        peer: host and port to report for the other end, if it is in this process and has no address; else None.
    """

    def __init__(
        self, turns: SocketTurns, sock: socket.socket, protocol: asyncio.Protocol, peer: tuple[str, int] | None = None
    ) -> None:
        sock.setblocking(False)
        names = {"sockname": _name(sock.getsockname), "peername": peer or _name(sock.getpeername)}
        super().__init__({"socket": sock, **names})
        self._turns = turns
        self._sock = sock
        self._file_number = sock.fileno()
        self._protocol = protocol
        self._events = 0
        self._read_bytes = _READ_MIN_BYTES
        self._is_paused = False
        self._is_closing = False
        self._has_ended = False
        self._unsent = bytearray()
        self._high_water_bytes = _HIGH_WATER_BYTES
        self._low_water_bytes = _HIGH_WATER_BYTES // 4
        self._has_stopped_writers = False
        protocol.connection_made(self)
        self._watch()

    # Methods of asyncio.Transport

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True
        self._watch()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._watch()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.Protocol:
        return self._protocol

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water_bytes = _HIGH_WATER_BYTES if high is None else high
        self._low_water_bytes = self._high_water_bytes // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water_bytes, self._high_water_bytes

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        if self._unsent:
            self._unsent += data
        else:
            sent = self._try(self._sock.send, data)
            if self._has_ended or sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._watch()
        self._stop_writers()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        pieces = list(list_of_data)
        if self._unsent or self._is_closing or sum(map(len, pieces)) <= _JOINED_MAX_BYTES:
            self.write(b"".join(pieces))
            return
        sent = self._try(self._sock.sendmsg, pieces[:_PIECES_MAX])
        if self._has_ended:
            return
        # Bytes that were not sent are copied: a piece of a mapped file would keep the file mapped until a slow peer reads it.
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
            else:
                self._unsent += memoryview(piece)[sent:]
                sent = 0
        if self._unsent:
            self._watch()
            self._stop_writers()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._watch()
            if not self._unsent:
                self._end(None)

    def abort(self) -> None:
        self._cut(None)

    # Events

    def _watch(self) -> None:
        """Set the events of the connection's socket to watch for.

        If no event is wanted, unregister the socket, because epoll would report the EPOLLHUP of a registered socket again and
        again.
        """
        wanted = select.EPOLLOUT if self._unsent else 0
        if not self._is_paused and not self._is_closing:
            wanted |= select.EPOLLIN
        if wanted != self._events:
            self._events = wanted
            self._turns.watch(self._file_number, wanted, self._ready if wanted else None)

    def _ready(self, events: int) -> None:
        if self._unsent:
            self._send_unsent()
        if self._is_paused or self._is_closing or not events & ~select.EPOLLOUT:
            return
        try:
            data = self._sock.recv(self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._cut(error)
            return
        if not data:
            if self._protocol.eof_received():
                # Without pause_reading(), epoll would report the end of the stream in every iteration of the event loop.
                self.pause_reading()
            else:
                self.close()
            return
        size_bytes = len(data)
        if size_bytes == self._read_bytes < _READ_MAX_BYTES:
            self._read_bytes *= 4
        elif size_bytes * 16 < self._read_bytes > _READ_MIN_BYTES:
            self._read_bytes //= 4
        try:
            self._protocol.data_received(data)
        except Exception as error:
            self._turns.loop.call_exception_handler(
                {
                    "message": "a protocol failed with what it received",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            self._cut(error)

    def _send_unsent(self) -> None:
        del self._unsent[: self._try(self._sock.send, self._unsent)]
        if self._has_ended:
            return
        if not self._unsent:
            self._watch()
            if self._is_closing:
                self._end(None)
        if self._has_stopped_writers and len(self._unsent) <= self._low_water_bytes:
            self._has_stopped_writers = False
            self._protocol.resume_writing()

    def _stop_writers(self) -> None:
        if not self._has_stopped_writers and len(self._unsent) > self._high_water_bytes:
            self._has_stopped_writers = True
            self._protocol.pause_writing()

    def _try(self, send: Callable[[Any], int], data: Any) -> int:
        """Return the number of sent bytes that the kernel accepted; 0 if the kernel's buffer is full.

        Other errors end the connection.
        """
        try:
            return send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._cut(error)
            return 0

    def _cut(self, error: Exception | None) -> None:
        self._unsent.clear()
        self._is_closing = True
        self._watch()
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._turns.loop.call_soon(self._tell_end, error)

    def _tell_end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()


class SocketListener:
    """Accepts the connections of one port. The class has the methods of ``asyncio.Server`` that a server needs.

    Used only on the event loop's thread.

    Args:
        turns: the :class:`SocketTurns` that watches the listening socket and the accepted connections.
        sock: a bound socket that does not listen yet; it is closed with the listener.
        make_protocol: makes the protocol of a connection.
        backlog: number of connections that may wait to be accepted.
    """

    def __init__(
        self, turns: SocketTurns, sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol], backlog: int
    ) -> None:
        self._turns = turns
        self._sock = sock
        self._make_protocol = make_protocol
        self._retry: asyncio.TimerHandle | None = None
        self._is_told = False
        """Whether the warning that connections wait to be accepted was already logged. While this is True, the warning is not
        logged again. The next accepted connection sets it to False."""
        sock.setblocking(False)
        sock.listen(backlog)
        self._listen()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Return a tuple with the listening socket, like the attribute ``sockets`` of an ``asyncio.Server``."""
        return (self._sock,)

    def close(self) -> None:
        """Accept no more connections on the port. Idempotent."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        elif self._sock.fileno() >= 0:
            self._turns.watch(self._sock.fileno(), 0, None)
        self._sock.close()

    async def wait_closed(self) -> None:
        """Return at once, because the listener is closed as soon as :meth:`close` returns."""

    def _listen(self) -> None:
        self._retry = None
        self._turns.watch(self._sock.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not has_room(self._sock.fileno()):
                self._pause("no descriptor is free that a connection may have (ulimit -n)")
                return
            try:
                connection, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._pause(str(error))
                else:
                    log.warning("connection.not_accepted", "a connection could not be accepted: %(error)s", error=error)
                return
            self._is_told = False
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            SocketTransport(self._turns, connection, self._make_protocol())

    def _pause(self, reason: str) -> None:
        """Stop watching the listening socket for 0.1 s, because no connection can be accepted now, and epoll would report the
        socket again and again.

        Args:
            reason: the reason why no connection can be accepted, for the log.
        """
        if not self._is_told:
            self._is_told = True
            log.warning("connection.waits", "connections wait to be accepted: %(reason)s", reason=reason)
        self._turns.watch(self._sock.fileno(), 0, None)
        self._retry = self._turns.loop.call_later(_ACCEPT_RETRY_S, self._listen)


def _name(ask: Callable[[], Any]) -> Any:
    """Return the address of one end of a connected socket; None if the peer has disconnected already."""
    try:
        return ask()
    except OSError:
        return None
