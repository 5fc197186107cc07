"""Listens for slaves: sockets around :class:`flintmq.plugins.replication.master_link.MasterLink`."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.core.errors import FlintError, NotFollowedError
from flintmq.core.io.clock import Clock
from flintmq.core.limits import HA_PENDING_MAX, HA_SEND_BUFFER_BYTES
from flintmq.plugins.replication.group_transfer import GroupTransferService
from flintmq.plugins.replication.link import LinkSettings, MasterLog
from flintmq.plugins.replication.master_link import MasterLink, Stage

if TYPE_CHECKING:
    from flintmq.remoting.server.tls import ServerTls
    from flintmq.remoting.server.tls_listener import TlsListener

log = logging.getLogger("flintmq.ha")

TICK_MAX_S = 1.0


class HaMasterService:
    """Sends the log to every slave that connects. Loop thread.

    Args:
        master_log: what is sent.
        settings: how connections behave.
        clock: time.
        gate: learns how far slaves hold the log; None where no acknowledgement waits for them.
        max_slaves: further connections are closed.
        on_progress: called when more is held by a slave than before.
    """

    def __init__(
        self,
        master_log: MasterLog,
        settings: LinkSettings,
        clock: Clock,
        *,
        gate: GroupTransferService | None,
        max_slaves: int,
        on_progress: Callable[[], None],
    ) -> None:
        self.log = master_log
        self.settings = settings
        self.clock = clock
        self.gate = gate
        self._max_slaves = max_slaves
        self.on_progress = on_progress
        self.connections: set[SlaveConnection] = set()
        self._server: asyncio.Server | TlsListener | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._pumping = False
        self._loop = asyncio.get_running_loop()

    async def start(self, sock: socket.socket, tls: ServerTls | None = None) -> None:
        """Listen at a bound socket; with ``tls`` to encrypted connections alone."""
        if tls is not None:
            from flintmq.remoting.server.tls_listener import TlsListener

            self._server = TlsListener(sock, lambda: SlaveConnection(self), tls, HA_PENDING_MAX, required=True)
        else:
            self._server = await self._loop.create_server(
                lambda: SlaveConnection(self), sock=sock, backlog=HA_PENDING_MAX
            )
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        wait_s = min(TICK_MAX_S, self.settings.heartbeat_s / 4, self.settings.housekeeping_s / 4)
        self._tick = self._loop.call_later(wait_s, self._on_tick)

    def _on_tick(self) -> None:
        now_s = self.clock.monotonic_s()
        for connection in list(self.connections):
            if connection.link.is_dead(now_s):
                connection.close("silent for too long (ha.housekeeping_interval_ms)")
            else:
                connection.pump()
        self._schedule_tick()

    def has_room(self) -> bool:
        """Return whether one more connection is taken. Whether it may follow is decided when it has proved the secret."""
        return len(self.connections) < self._max_slaves + HA_PENDING_MAX

    def may_follow(self) -> bool:
        """Return whether one more slave may follow."""
        return sum(connection.is_following for connection in self.connections) < self._max_slaves

    def wake(self) -> None:
        """Send what was appended in the loop's next iteration, once however often this is called."""
        if self.connections and not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def wake_from_thread(self) -> None:
        """Call :meth:`wake` on the loop's thread. Any thread."""
        self._loop.call_soon_threadsafe(self.wake)

    def _pump(self) -> None:
        self._pumping = False
        for connection in list(self.connections):
            connection.pump()

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._tick is not None:
            self._tick.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close("the master stops")
        if self._server is not None:
            await self._server.wait_closed()

    def runtime_info(self) -> dict[str, str]:
        """Return figures for request 28."""
        followers = [c.link for c in self.connections if c.link.stage is Stage.TRANSFER]
        held = max((link.held_offset_bytes for link in followers), default=0)
        return {
            "haSlaves": str(len(followers)),
            "haHeldOffset": str(held),
            "haBehindBytes": str(self.log.end_offset_bytes - held) if followers else "-1",
        }


class SlaveConnection(asyncio.Protocol):
    """The socket of one slave."""

    def __init__(self, service: HaMasterService) -> None:
        self._service = service
        self.link = MasterLink(service.log, service.settings, service.clock.monotonic_s())
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self.is_following = False
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self._transport = transport
        if not self._service.has_room():
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=HA_SEND_BUFFER_BYTES)
        self._service.connections.add(self)

    def data_received(self, data: bytes) -> None:
        service, link = self._service, self.link
        try:
            link.receive(data, service.clock.monotonic_s())
        except FlintError as error:
            self.close(str(error), is_serious=isinstance(error, NotFollowedError))
            return
        if link.stage is Stage.TRANSFER:
            if not self.is_following and not service.may_follow():
                self.close("too many slaves follow already (ha.max_slaves)", is_serious=True)
                return
            self._follows()
        self.pump()

    def _follows(self) -> None:
        service, held = self._service, self.link.held_offset_bytes
        if not self.is_following:
            self.is_following = True
            log.info("slave %s follows from %d on", self.peer, self.link.next_offset_bytes)
            if service.gate is not None:
                service.gate.joined(self, held)
                service.on_progress()
        elif service.gate is not None and service.gate.holds(self, held):
            service.on_progress()

    def pump(self) -> None:
        """Write what there is to send, as far as the peer reads."""
        transport = self._transport
        if transport is None or self._is_paused or transport.is_closing():
            return
        budget = HA_SEND_BUFFER_BYTES - transport.get_write_buffer_size()
        try:
            out = self.link.output(budget, self._service.clock.monotonic_s())
        except FlintError as error:
            self.close(str(error), is_serious=True)
            return
        if out:
            transport.writelines(out)
        if self.link.stage is Stage.TRANSFER and self.link.next_offset_bytes < self._service.log.end_offset_bytes:
            self._service.wake()

    def close(self, reason: str, *, is_serious: bool = False) -> None:
        """End the connection; write the reason to the log and, where the stream has a frame for it, to the slave."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        log.log(logging.ERROR if is_serious else logging.WARNING, "slave %s: %s", self.peer, reason)
        transport.writelines(self.link.farewell(reason))
        transport.close()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.pump()

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._service.connections.discard(self)
        if self.is_following:
            log.info("slave %s is gone, at %d", self.peer, self.link.held_offset_bytes)
        if self._service.gate is not None:
            self._service.gate.left(self)
