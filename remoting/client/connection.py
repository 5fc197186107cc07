"""One connection of a client: frames out in few writes, answers paired with requests (docs/internals/protocol.md, Frame).

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
"""Frames are joined to writes of about this size: fewer system calls, and no large copies."""
SILENCE_S: Final = 3.0
"""A peer that leaves requests unanswered for so long, and sends nothing else either, is taken for lost: the path to it may have
been cut without a word, and the kernel would go on trying for a quarter of an hour."""
_TLS_ALERT: Final = b"\x15\x03"
"""What a server's answer to a plain frame begins with where it wants TLS."""
WANTS_TLS: Final = "it may want TLS (ssl_context, FLINT_TLS), or not take this client"
CLOSE_TIMEOUT_S: Final = 1.0
"""A peer that does not read may not hold up a close for longer."""


def timed_out(address: str, code: int, timeout_ms: float) -> RemotingTimeoutError:
    """Return the error for a request that was not answered in time."""
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
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_writable = False
        self._writable = asyncio.Event()
        """Set while it can be written to, and when it is lost: then nobody needs to wait any more."""
        self._closed = asyncio.Event()
        self._active_at_s = self._received_at_s = self.loop.time()
        self._has_received = self._has_written = self._is_closing = False
        self._silent_since_s: float | None = None
        """When the first request was sent that ran out of time while nothing came from the peer."""
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
            self.loop.call_soon(self._write_outgoing)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if self._outgoing_bytes >= WRITE_BYTES:  # a sender that never waits must notice a peer that is slow
            self._write_outgoing()

    def ask(self, command: RemotingCommand, timeout_ms: float, deadline_s: float) -> asyncio.Future[RemotingCommand]:
        """Write a request and return its answer to come; a caller that gives up removes it from :attr:`waiting`.

        Args:
            command: the request, with an opaque that nobody waits for.
            timeout_ms: what the error names.
            deadline_s: the loop's time at which ``RemotingTimeoutError`` is raised in place of an answer.

        Raises:
            RemotingError: the connection is gone; in place of the answer, when it is lost before.
        """
        self.write(command)
        answered: asyncio.Future[RemotingCommand] = self.loop.create_future()
        self.waiting[command.opaque] = Waiting(answered, command.code, timeout_ms, deadline_s)
        if self._expiry is None or deadline_s < self._expiry.when():
            self._expire_at(deadline_s)
        return answered

    async def close(self) -> None:
        """Send what is buffered, then close. Return when the connection is gone, within ``CLOSE_TIMEOUT_S``."""
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
        """Close without sending what is buffered."""
        if self._transport is not None:
            self._is_closing = True
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
        self._active_at_s = self.loop.time()
        self._has_written = True
        self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _expire_at(self, deadline_s: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self.loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        """Tell those whose time is over. One timer for all: nearly every request is answered long before its own would ring."""
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
            self.abort()  # as RocketMQ's client does (clientCloseSocketIfTimeout): the next request opens another
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
