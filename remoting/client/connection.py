"""A client's connection to one server: it joins frames into few writes and matches answers to requests.

docs/internals/protocol.md, Frame, describes the format.

::

    connecting ──made──▶ open ──lost / idle / bad frame / close()──▶ closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

import msgspec

from flintmq.core.errors import FrameError, RemotingError, RemotingTimeoutError
from flintmq.remoting.wire.command import RemotingCommand, decode_command, encode_command
from flintmq.remoting.wire.frame import FrameDecoder

WRITE_BYTES: Final = 64 * 1024
"""Approximate maximum number of bytes that are joined into one write. Joining frames saves system calls. The maximum limits the
number of bytes that joining copies."""
SILENCE_S: Final = 3.0
"""Seconds without data from the server after which the client closes a connection on which a request has timed out. They are
counted from the time at which the request was sent.

If the network is broken, the kernel would close the connection only after it has retransmitted for some 15 minutes."""
_TLS_ALERT: Final = b"\x15\x03"
"""The first two bytes of a TLS alert, which a TLS server sends as its answer to a plain frame."""
WANTS_TLS: Final = "it may want TLS (ssl_context, FLINT_TLS), or not take this client"
CLOSE_TIMEOUT_S: Final = 1.0
"""Maximum time in seconds to close a connection. A server that does not read would otherwise delay the close without limit."""


def timed_out(address: str, code: int, timeout_ms: float) -> RemotingTimeoutError:
    """Return the error for a request that was not answered within its timeout."""
    return RemotingTimeoutError(f"no answer from {address} to request {code} within {timeout_ms:g} ms")


class Waiting(msgspec.Struct, gc=False):
    """A request that its server has not answered yet."""

    answered: asyncio.Future[RemotingCommand]
    code: int
    timeout_ms: float
    deadline_s: float


class ClientConnection(asyncio.Protocol):
    """The asyncio protocol of one connection, used by :class:`~flintmq.remoting.client.transport.RemotingClient`.

    Used only on the event loop's thread.

    Args:
        address: the server's ``host:port``, for error messages.
        on_request: called with each request that the server sends.
        on_lost: called once, after the connection has ended.
        idle_timeout_s: the connection is closed after this time without a read or a write.
        max_frame_bytes: the maximum size of a frame; a longer frame closes the connection.
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
        """Requests of this connection that are not answered yet, keyed by opaque."""
        self._outgoing: list[bytes] = []
        """Frames to send in the current iteration of the event loop. They are joined into writes of about
        :data:`WRITE_BYTES`."""
        self._outgoing_bytes = 0
        self._expiry: asyncio.TimerHandle | None = None
        """Timer that fails the requests whose deadlines have passed; None if no timer is set. The timer is set for the earliest
        deadline of all unanswered requests. If the request with this deadline is answered, the timer is not changed. It then
        fails no request when it expires, and is set for the next deadline."""
        self._on_request = on_request
        self._on_lost = on_lost
        self._idle_timeout_s = idle_timeout_s
        self._decoder = FrameDecoder(max_frame_bytes)
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_writable = False
        self._writable = asyncio.Event()
        """Event that is set while the connection is writable. It is also set when the connection is lost, so that no task waits
        forever."""
        self._closed = asyncio.Event()
        self._active_at_s = self._received_at_s = self.loop.time()
        self._has_received = self._has_written = self._is_closing = False
        self._silent_since_s: float | None = None
        """Start of the server's silence, in seconds on the loop's clock: the time at which the first unanswered request was
        sent. None if no request has timed out after the last byte from the server."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reason = "closed"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_ready(self) -> bool:
        """Whether the connection is open and asyncio has not paused writing because of a full write buffer."""
        return self._is_writable and self._transport is not None and not self._transport.is_closing()

    # --- methods that asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The cast is needed because uvloop's transports are not subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self.resume_writing()
        self._arm_idle_timer()

    def data_received(self, data: bytes) -> None:
        self._active_at_s = self._received_at_s = self.loop.time()
        self._silent_since_s = None
        if not self._has_received:
            self._has_received = True
            if data[:2] == _TLS_ALERT:
                self._reason = WANTS_TLS
                self.abort()
                return
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
        if self._has_written and not (self._has_received or self._is_closing) and self._is_plain():
            self._reason = f"the server ended it before it said a word ({exc or 'closed'}): {WANTS_TLS}"
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

    # --- methods that the client calls ---

    async def writable(self) -> None:
        """Wait until the connection's write buffer has space, or the connection is lost."""
        await self._writable.wait()

    def write(self, command: RemotingCommand) -> None:
        """Queue a command to be written in this iteration of the loop. Raises ``RemotingError`` if the connection is lost."""
        if self._transport is None or self._transport.is_closing():
            raise self._lost()
        frame = encode_command(command)
        if not self._outgoing:
            self.loop.call_soon(self._write_outgoing)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        # If many bytes wait to be written, they are written immediately and not in the next iteration of the event loop.
        # asyncio reports a full write buffer only after a write. Without a report, a sender without ``await`` would not stop.
        if self._outgoing_bytes >= WRITE_BYTES:
            self._write_outgoing()

    def ask(self, command: RemotingCommand, timeout_ms: float, deadline_s: float) -> asyncio.Future[RemotingCommand]:
        """Write a request and return the future of its answer.

        If the caller stops waiting for the answer, it must remove the request from :attr:`waiting`.

        Args:
            command: the request, with an opaque that no other waiting request has.
            timeout_ms: the timeout that the error's text states.
            deadline_s: the time on the loop's clock at which the future gets ``RemotingTimeoutError``.

        Raises:
            RemotingError: the connection is lost. If the connection is lost after the write, the future gets this error.
        """
        self.write(command)
        answered: asyncio.Future[RemotingCommand] = self.loop.create_future()
        self.waiting[command.opaque] = Waiting(answered, command.code, timeout_ms, deadline_s)
        if self._expiry is None or deadline_s < self._expiry.when():
            self._expire_at(deadline_s)
        return answered

    async def close(self) -> None:
        """Write the buffered frames and close the connection, within ``CLOSE_TIMEOUT_S``."""
        if self._transport is None:
            return
        self._write_outgoing()
        self._is_closing = True
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._closed.wait()
        except TimeoutError:
            self.abort()
            await self._closed.wait()

    def abort(self) -> None:
        """Close the connection at once and discard buffered frames."""
        if self._transport is not None:
            self._is_closing = True
            self._transport.abort()

    # --- internals ---

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
            # If the connection is lost, nothing is written: connection_lost() has already reported the loss to waiting callers.
            return
        self._active_at_s = self.loop.time()
        self._has_written = True
        self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _expire_at(self, deadline_s: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self.loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose deadlines have passed, and close the connection if the server is silent.

        One timer serves all requests, because nearly all are answered long before their deadlines.
        """
        self._expiry = None
        now_s = self.loop.time()
        for waiting in self.waiting.values():
            if waiting.deadline_s <= now_s and not waiting.answered.done():
                asked_at_s = waiting.deadline_s - waiting.timeout_ms / 1000
                if self._received_at_s < asked_at_s and self._silent_since_s is None:
                    self._silent_since_s = asked_at_s
                waiting.answered.set_exception(timed_out(self.address, waiting.code, waiting.timeout_ms))
        if self._silent_since_s is not None and now_s - self._silent_since_s >= SILENCE_S:
            self._reason = f"no answer for {now_s - self._silent_since_s:.1f} s"
            # Like RocketMQ's client, close a silent connection (clientCloseSocketIfTimeout); the next request opens a new one.
            self.abort()
            return
        left = [waiting.deadline_s for waiting in self.waiting.values() if not waiting.answered.done()]
        if left:
            self._expire_at(min(left))

    def _arm_idle_timer(self) -> None:
        quiet_s = self.loop.time() - self._active_at_s
        if quiet_s >= self._idle_timeout_s:
            self._reason = f"idle for {self._idle_timeout_s:g} s"
            self.abort()
            return
        self._idle_timer = self.loop.call_later(self._idle_timeout_s - quiet_s, self._arm_idle_timer)

    def _is_plain(self) -> bool:
        return self._transport is None or self._transport.get_extra_info("sslcontext") is None

    def _lost(self) -> RemotingError:
        return RemotingError(f"the connection to {self.address} is lost: {self._reason}")
