"""A proxy between clients and a server. A test can cut the connections through the proxy, and make the proxy lose answers."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, cast

import attrs

from flintmq.core.errors import FrameError
from flintmq.remoting.client.blocking import LoopThread
from flintmq.remoting.wire.command import decode_command
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.testing.fault import Fault

_LENGTH: Final = struct.Struct(">I")


@attrs.define(eq=False)
class AnswerFault(Fault):
    """A fault of an answer: the n-th answer to requests with a code is lost or late, or the connection is closed instead.
    Answers are counted from the time when the fault is scripted."""

    code: int
    delay_s: float | None = None
    """Delay of the server's answer, in seconds; None if the answer is not sent."""
    disconnects: bool = False
    """Whether the client's connection is closed in place of sending the server's answer."""


@attrs.define(eq=False)
class Cut(Fault):
    """A fault of the network: no bytes are forwarded."""

    is_silent: bool = False
    """Whether connections stay open during the fault, although no bytes are forwarded. If False, open connections end, and new
    connections end at once."""


class FaultyWire:
    """Forwards connections to a server, and applies the faults that a test has scripted. Thread-safe.

    The proxy does not change frames, so every client can connect through the proxy. On encrypted connections, the proxy cannot
    recognize answers.

    Args:
        host: the host on which to listen, at :attr:`port`.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.target = (host, 0)
        """(host, port) of the server to which connections are forwarded."""
        self._links: set[_Link] = set()
        self._answers: list[AnswerFault] = []
        self._cut: Cut | None = None
        self._loop = LoopThread("flintmq-wire")
        self._server = self._loop.run(self._listen(host))
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self, host: str) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: _Link(self).client, host, 0)

    def close(self) -> None:
        """End every forwarded connection, and stop listening. Idempotent."""
        if self._loop.is_usable:
            self._loop.run(self._close())
            self._loop.stop()

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.abort()
        await self._server.wait_closed()

    def script(self, fault: AnswerFault) -> AnswerFault:
        """Add a fault that affects one answer of the server, and return the fault. The answer is lost or late, or the
        connection is closed before the answer is sent."""
        self._answers.append(fault)
        fault.undone.subscribe(lambda: self._answers.remove(fault))
        return fault

    def cut(self, fault: Cut) -> Cut:
        """Let no bytes pass between clients and the server until the fault is undone."""
        self._loop.run(self._set_cut(fault))
        fault.undone.subscribe(lambda: self._loop.run(self._set_cut(None)))
        return fault

    async def _set_cut(self, fault: Cut | None) -> None:
        self._cut = fault
        for link in list(self._links):
            if fault is not None and not fault.is_silent:
                link.abort()
            else:
                link.pause(is_paused=fault is not None)

    def disconnect(self) -> None:
        """End every forwarded connection now; clients may connect again at once."""
        self._loop.run(self._disconnect())

    async def _disconnect(self) -> None:
        for link in list(self._links):
            link.abort()

    def begin(self, link: _Link) -> bool:
        """Register a new connection to forward, and return False if the connection must be closed. Called only on the event
        loop's thread."""
        if self._cut is not None:
            self._cut.strike()
            if not self._cut.is_silent:
                return False
            link.pause(is_paused=True)
        self._links.add(link)
        return True

    def end(self, link: _Link) -> None:
        """Forget a forwarded connection that has ended. Called only on the event loop's thread."""
        self._links.discard(link)

    def fault_of(self, code: int) -> AnswerFault | None:
        """Return the fault that applies to the answer to a request that has just arrived; None if no fault applies. Loop
        thread."""
        found = None
        for fault in list(self._answers):
            if fault.code == code and fault.counts() and found is None:
                found = fault
        return found


class _Link:
    """One forwarded connection, with a socket to the client and a socket to the server. Used only on the event loop's
    thread."""

    def __init__(self, wire: FaultyWire) -> None:
        self.wire = wire
        self.client = _Side(self)
        self.server = _Side(self)
        self._faults: dict[int, AnswerFault] = {}
        """The faults of answers that the server has not sent yet, keyed by the request's opaque."""
        self._connecting: asyncio.Task[None] | None = None

    def made(self, side: _Side) -> None:
        if side is self.server:
            return
        if not self.wire.begin(self):
            self.abort()
            return
        self.client.pause(is_paused=True)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        host, port = self.wire.target
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, host, port)
        except OSError:
            # If the server is down, the client sees a closed connection.
            self.abort()
        else:
            self.client.pause(is_paused=False)

    def lost(self, side: _Side) -> None:
        """Close the other end of a forwarded connection after one end is lost. Bytes that were already written to the other end
        are sent first."""
        other = self.server if side is self.client else self.client
        if other.transport is not None:
            other.transport.close()
        if side is self.client:
            self.wire.end(self)
            if self._connecting is not None:
                self._connecting.cancel()

    def abort(self) -> None:
        for side in (self.client, self.server):
            if side.transport is not None:
                side.transport.abort()

    def pause(self, *, is_paused: bool) -> None:
        for side in (self.client, self.server):
            side.pause(is_paused=is_paused)

    def passes(self, side: _Side, frame: bytes) -> bool:
        """Return whether to forward a frame now. If a fault is scripted for the answer in the frame, apply the fault to the
        connection or the answer, and return False."""
        try:
            command = decode_command(frame)
        except FrameError:
            # A frame that cannot be decoded is forwarded, because the receiver reports it.
            return True
        if side is self.client:
            if not command.is_response and (fault := self.wire.fault_of(command.code)) is not None:
                self._faults[command.opaque] = fault
            return True
        fault = self._faults.pop(command.opaque, None) if command.is_response else None
        if fault is None:
            return True
        fault.strike()
        if fault.disconnects:
            self.abort()
        elif fault.delay_s is not None:
            asyncio.get_running_loop().call_later(fault.delay_s, self.client.write, frame)
        return False


class _Side(asyncio.Protocol):
    """One end of a forwarded connection, at the client or at the server. The bytes that one end reads are written to the other
    end."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._frames: FrameDecoder | None = FrameDecoder()
        """Decoder that splits the received bytes into frames. It is None after invalid bytes were received; from then on all
        bytes are forwarded unchanged."""
        self._pauses = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._pauses:
            self.transport.pause_reading()
        self._link.made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._link.lost(self)

    def data_received(self, data: bytes) -> None:
        if self._frames is None:
            self._other.write_raw(data)
            return
        try:
            frames = self._frames.feed(data)
        except FrameError:
            self._frames = None
            self._other.write_raw(data)
            return
        for frame in frames:
            if self._link.passes(self, frame):
                self._other.write(frame)

    def pause_writing(self) -> None:
        self._other.pause(is_paused=True)

    def resume_writing(self) -> None:
        self._other.pause(is_paused=False)

    @property
    def _other(self) -> _Side:
        return self._link.server if self is self._link.client else self._link.client

    def write(self, frame: bytes) -> None:
        self.write_raw(_LENGTH.pack(len(frame)) + frame)

    def write_raw(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def pause(self, *, is_paused: bool) -> None:
        """Stop reading from this end of the connection, or undo one earlier stop. Reading continues when all stops are
        undone."""
        before = self._pauses
        self._pauses = max(0, before + (1 if is_paused else -1))
        if self.transport is None or bool(before) == bool(self._pauses):
            return
        if self._pauses:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
