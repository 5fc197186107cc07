"""One client connection: frames out, answers and pushed requests in. States::

    connecting ──made──▶ open ──lost / idle / bad frame / close()──▶ closed

A request waits in ``waiting`` under its opaque until its answer comes or the connection is lost; both end it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from flintmq.core.errors import FrameError, RemotingError
from flintmq.remoting.wire.command import RemotingCommand, decode_command, encode_command
from flintmq.remoting.wire.frame import FrameDecoder

CLOSE_TIMEOUT_S: Final = 1.0
"""A peer that does not read may not hold up a close for longer."""

OnRequest = Callable[["ClientConnection", RemotingCommand], None]
OnLost = Callable[["ClientConnection"], None]


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
        self, address: str, on_request: OnRequest, on_lost: OnLost, idle_timeout_s: float, max_frame_bytes: int
    ) -> None:
        self.address = address
        self.waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._on_request = on_request
        self._on_lost = on_lost
        self._idle_timeout_s = idle_timeout_s
        self._decoder = FrameDecoder(max_frame_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._active_at_s = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reason = "closed"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by type
        self._writable.set()
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
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._transport = None
        self._writable.set()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(self._lost())
        self.waiting.clear()
        self._closed.set()
        self._on_lost(self)

    # --- what the client calls ---

    async def write(self, command: RemotingCommand) -> None:
        """Write a command once the peer keeps up. Raises ``RemotingError`` when the connection is gone."""
        frame = encode_command(command)
        await self._writable.wait()
        if self._transport is None or self._transport.is_closing():
            raise self._lost()
        self._active_at_s = self._loop.time()
        self._transport.write(frame)

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """Write a request and wait for its answer. Raises ``RemotingError`` when the connection is lost before."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.waiting[command.opaque] = future
        try:
            await self.write(command)
            return await future
        finally:
            self.waiting.pop(command.opaque, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen, also where writing failed first

    async def close(self) -> None:
        """Send what is buffered, then close. Return when the connection is gone, within ``CLOSE_TIMEOUT_S``."""
        if self._transport is None:
            return
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
        future = self.waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)

    def _arm_idle_timer(self) -> None:
        quiet_s = self._loop.time() - self._active_at_s
        if quiet_s >= self._idle_timeout_s:
            self._reason = f"idle for {self._idle_timeout_s:g} s"
            self.abort()
            return
        self._idle_timer = self._loop.call_later(self._idle_timeout_s - quiet_s, self._arm_idle_timer)

    def _lost(self) -> RemotingError:
        return RemotingError(f"the connection to {self.address} is lost: {self._reason}")
