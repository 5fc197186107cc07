"""Replication on a master: the port for slaves, their connections, and the alarms about them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.core.broker.log_copy import LogCopy
from flintmq.core.broker.role import SYNC_MASTER
from flintmq.core.errors import FlintError, NotFollowedError
from flintmq.core.io.clock import Clock, Scheduled
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm, Level
from flintmq.core.limits import HA_PENDING_MAX, HA_SEND_BUFFER_BYTES
from flintmq.core.log_events import event_log
from flintmq.plugins.replication.gone_slaves import GoneSlaves
from flintmq.plugins.replication.group_transfer import GroupTransferService
from flintmq.plugins.replication.link_settings import LinkSettings, link_settings, wants_tls
from flintmq.plugins.replication.master_link import MasterLink, Stage
from flintmq.plugins.replication.store_log import StoreLog
from flintmq.remoting.server.addresses import is_loopback
from flintmq.remoting.server.descriptors import bind
from flintmq.remoting.server.secure_links import TLS_RELOAD_S, server_tls

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.remoting.server.tls import ServerTls
    from flintmq.remoting.server.tls_listener import TlsListener

log = event_log("flintmq.ha")

_TICK_MAX_S: Final = 1.0
_EXPIRE_S: Final = 0.1


class MasterReplication:
    """The replication service of a master, which sends the log to slaves. Used only on the event loop's thread.

    The constructor begins a new epoch of the log, before the master appends any message. An epoch is a part of the log in which
    each physical offset was used only once (:mod:`flintmq.core.log.epochs`).

    Args:
        api: the broker.

    Raises:
        ConfigError: the secret is missing.
    """

    is_following: Final = False

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        config, copy = api.settings.current, api.part(LogCopy)
        self._settings = link_settings(config)
        self._socket: socket.socket | None = None
        self._copy = copy
        copy.become_master()
        self.gate: GroupTransferService | None = None
        """Service that makes appends wait for slaves; None if the master is not a sync master."""
        self._timers: list[Scheduled] = []
        if api.role.kind == SYNC_MASTER:
            self.gate = GroupTransferService(
                api.log.marks,
                api.clock,
                timeout_ms=config.ha.slave_timeout_ms,
                fallbehind_max_bytes=config.ha.slave_fallbehind_max_bytes,
            )
            copy.wait_for_slaves(self.gate)
        self.master = HaMasterService(
            StoreLog(copy, api.log, config.broker.name, api.address.host_port),
            self._settings,
            api.clock,
            gate=self.gate,
            max_slaves=config.ha.max_slaves,
            on_progress=api.log.dispatch,
        )

    @property
    def ha_port(self) -> int:
        """Port on which the master accepts slaves; 0 before the start."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    def start(self) -> None:
        """Bind the port for slaves. :meth:`ready` begins to listen on it.

        Raises:
            ConfigError: other machines can reach the port, and no secret protects it.
            RemotingError: the port is in use.
        """
        config = self._api.settings.current
        listen = config.listen
        host = config.ha.host or listen.host
        if self._settings.secret is None and not is_loopback(host) and not listen.insecure:
            raise ConfigError(
                f"'ha.host' {host} can be reached from other machines, and with ha.compat: rocketmq anyone there could read "
                "the whole log: choose 127.0.0.1, or accept it with listen.insecure: true",
                key="ha.host",
            )
        port = listen.ha_port
        if port is None:
            port = self._api.address.listening_port + 1 if listen.port else 0
        self._socket = bind(host, port, "ha.host, listen.ha_port")

    async def ready(self) -> None:
        """Listen for slaves. Raises ``ConfigError`` if encryption is configured without a certificate."""
        assert self._socket is not None
        api = self._api
        await self.master.start(self._socket, self._tls())
        self._copy.appended.subscribe(self.master.wake)
        api.log.progressed.subscribe(self.master.wake_from_thread)
        if self.gate is not None:
            self._timers.append(api.work.pace(_EXPIRE_S, self.gate.expire, "promises of slaves"))

    def _tls(self) -> ServerTls | None:
        if not wants_tls(self._api.settings.current):
            return None
        tls = server_tls(self._api.settings.current)
        if tls is None:
            raise ConfigError("'ha.tls' needs 'listen.tls.certificate'", key="ha.tls")
        self._timers.append(self._api.work.every(TLS_RELOAD_S, tls.reload, "certificate of replication"))
        return tls

    def halt(self) -> None:
        """Stop sending the log, because the broker has become a slave. Consumers may now read all records of the log, also
        records that were not sent to any slave. The caller then calls :meth:`withdraw` and :meth:`stop`.
        """
        api, copy = self._api, self._copy
        for timer in self._timers:
            timer.cancel()
        copy.appended.unsubscribe(self.master.wake)
        api.log.progressed.unsubscribe(self.master.wake_from_thread)
        self.master.close()
        if self.gate is not None:
            self.gate.close()
            copy.wait_for_slaves(None)
            api.log.dispatch()

    async def withdraw(self) -> None:
        """Complete all waiters, so that no acknowledgement waits for a slave any longer, and close the connections of the
        slaves."""
        if self.gate is not None:
            self.gate.close()
        await self.master.stop()

    async def stop(self) -> None:
        """Close the port for slaves."""
        if self._socket is not None:
            self._socket.close()

    def runtime_info(self) -> dict[str, str]:
        """Return the figures of replication for GET_BROKER_RUNTIME_INFO (request 28)."""
        return self.master.runtime_info()

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each slave that is disconnected or far behind, and for a sync master without slaves."""
        config, master = self._api.settings.current, self.master
        followers: dict[str, int] = {}
        for one in master.connections:
            # A slave that has just reconnected may have two connections, so the larger of two reported offsets counts.
            if one.is_following:
                followers[one.identity] = max(followers.get(one.identity, 0), one.link.held_offset_bytes)
        gone_ms, limit_ms = master.gone.gone_ms(), config.alarms.slave_gone_ms
        alone = self.gate is not None and not followers
        told = {name: ms for name, ms in gone_ms.items() if name not in followers and ms >= limit_ms}
        if alone and not told and master.gone.alone_ms() >= limit_ms:
            told = {"": master.gone.alone_ms()}
        for name, ms in told.items():
            who = f"slave {name} has" if name else "no slave has"
            so = (
                "; no acknowledgement says that a slave has a message, and what no slave has is invisible"
                if alone
                else ""
            )
            text = f"{who} {'not ' if name else ''}followed for {ms / 1000:.0f} s{so}: start it, and read its log"
            level: Level = CRITICAL if alone else WARNING
            yield Alarm("slave.gone", level, name, text, ms, "ms", limit_ms, "alarms.slave_gone_ms")
        limit_bytes, end = config.ha.slave_fallbehind_max_bytes, master.log.end_offset_bytes
        behind = {name: end - held for name, held in followers.items() if end - held > limit_bytes}
        alone = self.gate is not None and len(behind) == len(followers)
        for name, behind_bytes in behind.items():
            text = (
                f"slave {name} is {behind_bytes:,} bytes behind, so no acknowledgement waits for it: look at its disk "
                "and at the network between the two"
            )
            level = CRITICAL if alone else WARNING
            yield Alarm(
                "slave.behind",
                level,
                name,
                text,
                behind_bytes,
                "bytes",
                limit_bytes,
                "ha.slave_fallbehind_max_bytes",
            )


class HaMasterService:
    """Accepts connections of slaves and sends the log to the slaves; RocketMQ's HAService. Used only on the event loop's
    thread.

    Args:
        master_log: the log to send.
        settings: settings of the connections.
        clock: the clock of the broker.
        gate: gets the physical offsets that slaves report; None if no acknowledgement waits for slaves.
        max_slaves: limit of slaves. Further connections are closed.
        on_progress: called when a slave has reported a greater physical offset.
    """

    def __init__(
        self,
        master_log: StoreLog,
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
        self.gone = GoneSlaves(clock, max_slaves)
        self._server: asyncio.Server | TlsListener | None = None
        self._tick: Scheduled | None = None
        self._pumping = False
        self._loop = asyncio.get_running_loop()

    async def start(self, sock: socket.socket, tls: ServerTls | None = None) -> None:
        """Listen for slaves on a bound socket. With ``tls``, only encrypted connections are accepted."""
        if tls is not None:
            from flintmq.remoting.server.tls_listener import TlsListener

            self._server = TlsListener(
                sock,
                lambda: SlaveConnection(self),
                tls,
                HA_PENDING_MAX,
                idle_s=lambda: self.settings.housekeeping_s,
                has_room=self.has_room,
                required=True,
            )
        else:
            self._server = await self._loop.create_server(
                lambda: SlaveConnection(self), sock=sock, backlog=HA_PENDING_MAX
            )
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        wait_s = min(_TICK_MAX_S, self.settings.heartbeat_s / 4, self.settings.housekeeping_s / 4)
        self._tick = self.clock.call_later(self._loop, wait_s, self._on_tick)

    def _on_tick(self) -> None:
        now_s = self.clock.monotonic_s()
        for connection in list(self.connections):
            if connection.link.is_dead(now_s):
                connection.close("silent for too long (ha.housekeeping_interval_ms)")
            else:
                connection.pump()
        self._schedule_tick()

    def has_room(self, silent: int = 0) -> bool:
        """Return whether a further connection may be accepted; :meth:`may_follow` decides later whether the slave may
        replicate.

        Args:
            silent: number of accepted connections that have sent no byte yet.
        """
        return len(self.connections) + silent < self._max_slaves + HA_PENDING_MAX

    def may_follow(self) -> bool:
        """Return whether the limit of slaves allows another slave."""
        return sum(connection.is_following for connection in self.connections) < self._max_slaves

    def wake(self) -> None:
        """Schedule the sending of new records to slaves for the loop's next iteration. Further calls before that iteration have
        no effect."""
        if self.connections and not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def wake_from_thread(self) -> None:
        """Schedule a call of :meth:`wake` on the loop's thread. Can be called from any thread."""
        self._loop.call_soon_threadsafe(self.wake)

    def _pump(self) -> None:
        self._pumping = False
        for connection in list(self.connections):
            connection.pump()

    def close(self) -> None:
        """Close the port for slaves, and begin to close the connections of all slaves. Idempotent."""
        if self._tick is not None:
            self._tick.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close("the master stops")

    async def stop(self) -> None:
        """Close the port for slaves and the connections of all slaves, and wait until the listener has ended."""
        self.close()
        if self._server is not None:
            await self._server.wait_closed()

    def runtime_info(self) -> dict[str, str]:
        """Return figures for GET_BROKER_RUNTIME_INFO (request 28): the number of slaves, the largest physical offset that a
        slave has reported, and the bytes of the log after this offset."""
        followers = [c.link for c in self.connections if c.link.stage is Stage.TRANSFER]
        held = max((link.held_offset_bytes for link in followers), default=0)
        return {
            "haSlaves": str(len(followers)),
            "haHeldOffset": str(held),
            "haBehindBytes": str(self.log.end_offset_bytes - held) if followers else "-1",
        }


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave: its socket and its :class:`MasterLink`; RocketMQ's HAConnection."""

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

    @property
    def identity(self) -> str:
        """Name by which a master recognizes a slave that reconnects: the slave's address, or the host of a RocketMQ slave's
        connection."""
        slave = self.link.slave
        return slave.address if slave is not None and slave.address else self.peer.rpartition(":")[0]

    def _follows(self) -> None:
        service, held = self._service, self.link.held_offset_bytes
        if not self.is_following:
            self.is_following = True
            service.gone.follows(self.identity)
            log.info(
                "replication.slave_follows",
                "slave %(slave)s follows from %(position)d on",
                slave=self.peer,
                position=self.link.next_offset_bytes,
            )
            if service.gate is not None:
                service.gate.joined(self, held)
                service.on_progress()
        elif service.gate is not None and service.gate.holds(self, held):
            service.on_progress()

    def pump(self) -> None:
        """Write frames to the slave's socket until its send buffer is full or nothing is left to send."""
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
        """Close the connection of a slave, and log the reason. The slave gets the reason, too, if the stream has a frame for
        it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        log.log(
            logging.ERROR if is_serious else logging.WARNING,
            "replication.slave_refused",
            "slave %(slave)s: %(reason)s",
            slave=self.peer,
            reason=reason,
        )
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
            log.info(
                "replication.slave_gone",
                "slave %(slave)s is gone, at %(position)d",
                slave=self.peer,
                position=self.link.held_offset_bytes,
            )
            self._service.gone.left(self.identity)
        if self._service.gate is not None:
            self._service.gate.left(self)
