"""One connection of a server.

States and rules::

    FRESH ──first frame──► OPEN ──close(), closed by peer, idle, or wrong frame──► CLOSED

* The bytes of one read are split into frames and decoded. The server gets the requests of one read as one batch.
* Answers are collected in the channel and sent in one write: at the end of the read that caused them, or by
  :meth:`ServerChannel.flush`.
* If a header cannot be read, the answer contains the error, and the connection stays open.
* If received bytes are not a frame, the connection is closed. If the bytes contain the opaque of a request, the request is
  answered with an error first. Frames that precede the bytes in the same read are lost.
* The channel stops reading from a peer that does not read its answers. The channel closes the connection if more than
  ``SEND_BUFFER_MAX_BYTES`` wait for the peer.
* The channel stops reading from a peer with too many unanswered requests, until half of them are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from flintmq.core.errors import FrameError, HeaderError, RefusedError, RemotingError
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.core.limits import ENDING_S, IN_FLIGHT_PER_CONNECTION, SEND_BUFFER_MAX_BYTES
from flintmq.core.log_events import client_log
from flintmq.core.record.host import pack_host
from flintmq.core.response_code import ONEWAY_FLAG, RESPONSE_FLAG
from flintmq.remoting.server.request import Questions, decode_request
from flintmq.remoting.server.request_table import wrong_response
from flintmq.remoting.wire.codes import PULLS
from flintmq.remoting.wire.command import (
    JSON,
    RemotingCommand,
    encode_command,
    request,
    response,
)
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.remoting.wire.lenient_header import (
    Known,
    begins_no_object,
    may_begin_a_header,
    what_is_known,
)

if TYPE_CHECKING:
    from flintmq.remoting.server.server import RemotingServer
from collections.abc import Callable

from flintmq.remoting.wire.lenient_header import LOOKED_AT_BYTES

log = client_log("flintmq.remoting")

_WRITE_HIGH_WATER_BYTES = 1024 * 1024
_MUCH_BYTES = 1024 * 1024
"""A connection's buffered bytes count towards the limit of all connections only if the connection has more than this number of
buffered bytes."""


class ServerChannel(asyncio.Protocol):
    """The server's end of a client's connection. Used only on the event loop's thread.

    Channels are compared by identity.
    """

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._decoder = FrameDecoder(server.max_frame_bytes)
        self._out: list[bytes | memoryview] = []
        self._questions = Questions()
        self._transport: asyncio.Transport | None = None
        self._paused = 0
        self.unanswered = 0
        """Number of the connection's requests that are not answered yet. Requests that are answered while the data is read are
        not counted."""
        self._full = False
        self._reading_stopped = False
        self._buffer_reported = False
        self._ending: LastWords | None = None
        """Reader of the bytes that arrive after a wrong frame, until the connection is closed; None before a wrong frame."""
        self.is_stalled = False
        """Whether too many bytes of answers are buffered, because the peer does not read. The peer's postponed requests are not
        answered until the peer reads."""
        self.remote_address = "?"
        """Address of the peer, as ``ip:port``."""
        self.remote_host = "?"
        self.remote_port = 0
        self.packed_host = b"\0" * 8
        """The peer's address in the form in which records contain it."""
        self.local_host = ""
        """The local address to which the peer connected."""
        self.local_port = 0
        self.active_s = self.read_s = server.clock.monotonic_s()
        self.has_spoken = False
        self.partial_since_s: float | None = None
        """Monotonic time in seconds at which the first bytes of an incomplete frame were received; None if no frame is
        incomplete."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer:
            self.remote_host, self.remote_port = peer[0], peer[1]
            self.remote_address = _address(peer[0], peer[1])
            self.packed_host = pack_host(peer[0], peer[1])
        if local:
            self.local_host, self.local_port = local[0], local[1]
        _reset_if_killed(self._transport, True)
        too_many = self._server.connections.opened(self)
        if too_many:
            self.close(too_many)

    def data_received(self, data: bytes) -> None:
        if self._ending is not None:
            self._ending.add(data)
            return
        server = self._server
        self.active_s = self.read_s = server.now_s()
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self._end_after(error)
            return
        if frames:
            self.has_spoken = True
            if server.postponed.is_late():
                server.postponed.put_frames(self, frames)
            else:
                self.take(frames)
        pending_bytes = self._decoder.pending_bytes
        if pending_bytes > _MUCH_BYTES or self._buffer_reported:
            self._report_buffered(pending_bytes)
        if not pending_bytes:
            self.partial_since_s = None
        elif frames or self.partial_since_s is None:
            # The first bytes of the incomplete frame came with the latest read, whose time is ``active_s``.
            self.partial_since_s = self.active_s
        if self._out:
            self.flush()

    def take(self, frames: list[bytes]) -> None:
        """Decode a client's frames and pass their requests to the server as one batch."""
        server = self._server
        keep = server.keeps_ext_fields
        requests: list[Request] = []
        for frame in frames:
            try:
                decoded = decode_request(self, frame, keep_ext_fields=keep)
            except HeaderError as error:
                known = what_is_known(frame)
                if known is None and begins_no_object(frame):
                    server.connections.failed(self, error)
                    # The frame has no readable opaque, so no client waits for an answer. Like RocketMQ, close the connection.
                    self.close(str(error))
                    return
                self._refuse_frame(error, known or Known(0, 0, JSON))
            except FrameError as error:
                error.rest = frame
                self._end_after(error)
                return
            else:
                if type(decoded) is Request:
                    requests.append(decoded)
                else:
                    self._questions.answered(cast("RemotingCommand", decoded), self.remote_address)
        if requests:
            server.process(requests)

    def _refuse_frame(self, error: FrameError, asked: Known) -> None:
        """Send an error as the answer to a frame whose header cannot be read. Frames that are answers or one-way requests get
        no answer."""
        log.info(
            "connection.unreadable",
            "%(client)s sent a frame that cannot be read: %(error)s",
            client=self.remote_address,
            error=error,
        )
        if error.refusal is not None and not asked.flag & (RESPONSE_FLAG | ONEWAY_FLAG):
            self.write(encode_command(response(asked, error.refusal.code, error.refusal.remark)))
            self.flush()

    def _end_after(self, error: FrameError) -> None:
        """Close the connection of a peer whose bytes are not frames.

        If the bytes contain the opaque of a request, this request is answered with the error first. The connection then stays
        open for ``ENDING_S`` seconds, because an immediate reset of the connection would lose the answer. Bytes that arrive in
        this time are dropped after the search for the opaque.
        """
        self._server.connections.failed(self, error)
        if not may_begin_a_header(error.rest):
            self.close(str(error))
            return
        self._ending = LastWords(error, self._refuse_frame)
        asyncio.get_running_loop().call_later(ENDING_S, self.close)
        self._ending.add(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        _reset_if_killed(self._transport, False)
        self._transport = None
        self._out.clear()
        self._questions.fail(f"{self.remote_address} closed the connection")
        self._server.postponed.forget(self)
        self._server.connections.closed(self, exc)

    def pause_writing(self) -> None:
        self.is_stalled = True
        self.hold_reading()

    def resume_writing(self) -> None:
        if self._buffer_reported:
            self._report_buffered(self._decoder.pending_bytes)
        self.is_stalled = False
        self.release_reading()
        self._server.postponed.resumed(self)

    # state

    @property
    def is_open(self) -> bool:
        """Return whether the connection is neither closed nor closing."""
        return self._transport is not None and self._ending is None and not self._transport.is_closing()

    def close(self, reason: str = "") -> None:
        """Close the connection. Without a reason, unsent answers are sent first; with a reason, unsent answers are dropped.

        Args:
            reason: the peer's misbehavior, for the log.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        _reset_if_killed(transport, False)
        if reason:
            log.info("connection.closed", "closing %(client)s: %(reason)s", client=self.remote_address, reason=reason)
            transport.abort()
        else:
            self.flush()
            transport.close()

    def abort(self) -> None:
        """Close the connection at once and drop its unsent answers, even if the connection is closing already."""
        if self._transport is not None:
            self._transport.abort()

    def stop_reading(self) -> None:
        """Read no more requests and answers from the client. The client's earlier requests are still answered."""
        if not self._reading_stopped:
            self._reading_stopped = True
            self.hold_reading()
            self._questions.fail("the server stops")

    def hold_reading(self) -> None:
        """Stop reading from the connection until :meth:`release_reading` has been called as often as this method."""
        self._paused += 1
        if self._paused == 1 and self.is_open and self._transport is not None:
            self._transport.pause_reading()

    def release_reading(self) -> None:
        """Undo one call of :meth:`hold_reading`. When all calls are undone, the connection is read again."""
        self._paused -= 1
        if self._paused == 0 and self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def took(self, count: int) -> None:
        """Count requests of the client that are answered later.

        If more than ``IN_FLIGHT_PER_CONNECTION`` requests are unanswered, the channel stops reading.
        """
        self.unanswered += count
        if self.unanswered > IN_FLIGHT_PER_CONNECTION and not self._full:
            self._full = True
            self.hold_reading()

    def gave(self, count: int) -> None:
        """Count answers to the requests that :meth:`took` has counted.

        The channel reads again when half of ``IN_FLIGHT_PER_CONNECTION`` requests are unanswered.
        """
        self.unanswered -= count
        if self._full and self.unanswered <= IN_FLIGHT_PER_CONNECTION // 2:
            self._full = False
            self.release_reading()

    # answers

    def write(self, data: bytes | memoryview) -> None:
        """Collect bytes of an answer for the next :meth:`flush`, or drop the bytes if the connection is closed."""
        if self._transport is not None:
            self._out.append(data)

    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Collect several pieces of an answer for the next :meth:`flush`, or drop the pieces if the connection is closed."""
        if self._transport is not None:
            self._out += pieces

    def flush(self) -> None:
        """Write all collected bytes of answers to the transport in one call."""
        out, self._out = self._out, []
        transport = self._transport
        if transport is None or transport.is_closing() or not out:
            return
        self.active_s = self._server.now_s()
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
        waiting_bytes = transport.get_write_buffer_size()
        if waiting_bytes > SEND_BUFFER_MAX_BYTES:
            self.close(f"{waiting_bytes} bytes wait for a peer that does not read")
        elif waiting_bytes > _MUCH_BYTES or self._buffer_reported:
            self._report_buffered(self._decoder.pending_bytes)

    def _report_buffered(self, pending_bytes: int) -> None:
        """Report to the server how many bytes are buffered for this peer. If the number is at most ``_MUCH_BYTES``, 0 is
        reported."""
        transport = self._transport
        held_bytes = pending_bytes + (transport.get_write_buffer_size() if transport is not None else 0)
        self._buffer_reported = held_bytes > _MUCH_BYTES
        self._server.connections.holds(self, held_bytes if self._buffer_reported else 0)

    def respond(self, to: Request, answer: Response) -> None:
        """Answer a request of the client, unless the request is one-way.

        Raises:
            TypeError: the answer is not a ``Response``, or one of its fields has a wrong type. Nothing is sent.
        """
        wrong = wrong_response(answer)
        if wrong:
            raise TypeError(wrong)
        latency = self._server.latency
        if latency is not None:
            took_s = self._server.now_s() - (to.read_s or self.read_s)
            latency.add(to.code, answer.code, took_s, 1, to.read_s > 0 and to.code in PULLS, to.is_oneway)
        if to.is_oneway:
            return
        command = response(to, answer.code, answer.remark, answer.ext_fields, answer.body)
        try:
            self.write(encode_command(command))
        except FrameError:
            command.codec = JSON
            self.write(encode_command(command))

    def refuse(self, to: Request, error: RefusedError) -> None:
        """Answer a request with the code and remark of a refusal, and count the refusal."""
        self._server.refused(error.reason)
        self.respond(to, Response(error.code, error.remark))

    # --- requests that the server sends to the client ---

    def send_oneway(self, code: int, header: Mapping[str, str], body: bytes = b"") -> None:
        """Send the client a one-way request in the next iteration of the event loop."""
        self.write(encode_command(request(code, header, body, oneway=True, language="JAVA")))
        self._server.flush_soon(self)

    async def invoke(self, code: int, header: Mapping[str, str], body: bytes, timeout_s: float) -> RemotingCommand:
        """Send the client a request and wait for the client's answer.

        Raises:
            RemotingTimeoutError: no answer came in time.
            RemotingError: the connection is closed.
        """
        if not self.is_open or self._reading_stopped:
            raise RemotingError(f"{self.remote_address} is not connected")

        def send(data: bytes) -> None:
            self.write(data)
            self.flush()

        return await self._questions.ask(
            code, header, body, send=send, address=self.remote_address, timeout_s=timeout_s
        )


def _reset_if_killed(transport: asyncio.Transport | None, is_wanted: bool) -> None:
    """Set whether the kernel resets a connection if this process is killed. A lingering time of 0 has this effect.

    RocketMQ's Java clients up to 4.9 notice a reset, and repeat their requests within 3 s. If a connection ends without a
    reset, the client's open requests, including held pulls, fail only after the timeout of 30 s
    (``NettyRemotingClient.failFast``).
    """
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is not None and sock.family != socket.AF_UNIX:
        # An OSError means that the connection has already ended, so the kernel need not reset it.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_wanted, 0))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class LastWords:
    """Collects the bytes after a connection's last valid frame, and finds the opaque of a request in them, so that the request
    can be answered.

    Used only on the event loop's thread.

    Args:
        error: the error in the bytes. Its ``rest`` has the bytes that have arrived.
        refuse: a function that answers the request, called when the request's opaque is found in the bytes.
    """

    def __init__(self, error: FrameError, refuse: Callable[[FrameError, Known], None]) -> None:
        self._error: FrameError | None = error if error.refusal is not None else None
        self._refuse = refuse

    def add(self, data: bytes) -> None:
        """Add bytes that the peer has sent, and refuse the peer's request as soon as the bytes contain the request's opaque."""
        error = self._error
        if error is None:
            return
        error.rest += data[: max(0, LOOKED_AT_BYTES - len(error.rest))]
        known = what_is_known(error.rest)
        if known is not None:
            self._error = None
            self._refuse(error, known)
