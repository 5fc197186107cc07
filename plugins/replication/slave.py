"""Replication on a slave: connects to the master, again whenever the connection ends, and copies the master's log and
tables."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.core.broker.log_copy import LogCopy, MasterTables
from flintmq.core.broker.sink import until_flushed
from flintmq.core.errors import FlintError, NotFollowedError
from flintmq.core.io.clock import Clock, Scheduled
from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm, Level
from flintmq.core.kernel.ports.replication import MasterDirectory
from flintmq.core.log.log_chunk import LogChunk
from flintmq.core.log_events import event_log
from flintmq.core.record.topic_lives import DELETIONS, deleted_topic
from flintmq.plugins.replication.link_settings import LinkSettings, link_settings, wants_tls
from flintmq.plugins.replication.slave_link import SlaveLink, SlaveStage
from flintmq.plugins.replication.slave_synchronize import SlaveSynchronize
from flintmq.plugins.replication.store_log import SlaveStoreLog
from flintmq.remoting.server.secure_links import name_server_client, replication_client_tls

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import RecordBatch

log = event_log("flintmq.ha")

_TICK_MAX_S: Final = 1.0
_CONNECT_TIMEOUT_S: Final = 5.0


class SlaveReplication:
    """The replication service of a slave, which copies the log and the tables of a master. Used only on the event loop's
    thread.

    Args:
        api: the broker.

    Raises:
        ConfigError: the secret is missing.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        config, copy = api.settings.current, api.part(LogCopy)
        self._client = name_server_client(config)
        self.slave = HaSlaveService(
            SlaveStoreLog(copy, api.log, config.broker.name, api.address.host_port),
            link_settings(config),
            api.clock,
            find_master=self._find_master,
            reconnect_s=config.ha.reconnect_interval_ms / 1000,
            on_appended=self._appended,
            make_context=partial(replication_client_tls, config) if wants_tls(config) else None,
        )
        self.synchronize = SlaveSynchronize(
            api,
            self._client,
            self._master_client_address,
            config.ha.sync_interval_ms / 1000,
            lambda: self.slave.is_following,
        )
        self._tables = api.part(MasterTables)
        api.log.arrived.subscribe(self._arrived)

    @property
    def ha_port(self) -> int:
        """Port on which slaves replicate from this broker when it becomes the master."""
        return self._api.settings.current.listen.ha_port or self._api.address.listening_port + 1

    @property
    def is_following(self) -> bool:
        """Whether the broker is connected to its master and receives the master's log."""
        return self.slave.is_following

    def start(self) -> None:
        """Do nothing. The slave connects to its master in :meth:`ready`, because the master's address may come from name
        servers, which know this broker only when it is ready."""

    async def ready(self) -> None:
        """Begin to copy the master's log and tables."""
        self.slave.start()
        self.synchronize.start()

    def halt(self) -> None:
        """Stop copying the master's log and tables, because the broker's role is not slave any more.

        The caller then calls :meth:`withdraw`, which closes the connections, and :meth:`stop`.
        """
        self._api.log.arrived.unsubscribe(self._arrived)
        self.synchronize.halt()
        self.slave.halt()

    async def withdraw(self) -> None:
        """Close the connections to the master."""
        await self.synchronize.stop()
        await self.slave.stop()

    async def stop(self) -> None:
        await self._client.close()

    def runtime_info(self) -> dict[str, str]:
        """Return the figures of replication for GET_BROKER_RUNTIME_INFO (request 28)."""
        return self.slave.runtime_info()

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm if the broker has not received its master's log for too long."""
        return self.slave.alarms(self._api.settings.current.alarms.slave_gone_ms)

    def _appended(self, messages: int, size_bytes: int) -> None:
        self._api.figures.counts.replicated(messages, size_bytes)
        self._api.log.dispatch()

    def _arrived(self, batch: RecordBatch) -> None:
        """Add each topic of the received messages that is missing in the topic table, which is a copy of the master's. Remove
        each topic that a received record declares deleted."""
        topics, learned = self._api.topics, self._tables.learned_topics
        queues = batch.queues()
        if DELETIONS in queues:
            queues = self._forget_deleted(batch)
        unknown = [queue for queue in queues if queue[0] in learned or queue[0] not in topics]
        if unknown:
            self.synchronize.unknown_arrived()
        highest = dict(sorted(unknown))
        news = [self._tables.learn_topic(topic, queue_id + 1) for topic, queue_id in highest.items()]
        if any(news):
            self.synchronize.wake()

    def _forget_deleted(self, batch: RecordBatch) -> set[tuple[str, int]]:
        """Remove the topics that records in a received batch declare deleted. Return the queues that have messages in the
        batch. A message that precedes the deletion of its topic does not count."""
        queues: set[tuple[str, int]] = set()
        for request in batch.requests():
            topic = deleted_topic(request)
            if topic:
                self.synchronize.forget_topic(topic)
                queues = {queue for queue in queues if queue[0] != topic}
            if request.topic != DELETED_TOPIC:
                queues.add((request.topic, request.queue_id))
        return queues

    def _directory(self) -> MasterDirectory | None:
        return next(self._api.parts(MasterDirectory), None)  # type: ignore[type-abstract]

    def _master_client_address(self) -> str:
        """Return the master's address for clients. A FlintMQ master sends this address with its log. The address of any other
        master comes from name servers."""
        directory = self._directory()
        return self.slave.master_client_address or (directory.master_address if directory is not None else "")

    async def _find_master(self) -> str | None:
        configured, directory = self._api.settings.current.ha.master_address, self._directory()
        if configured is not None or directory is None:
            return configured
        # register_all() updates ``master_ha_address``, because name servers answer a registration with the master's address.
        await directory.register_all()
        return directory.master_ha_address or None


class HaSlaveService:
    """Connects to a master and appends the master's log to the slave's log; RocketMQ's HAClient. Used only on the event loop's
    thread.

    Args:
        slave_log: the slave's log.
        settings: settings of the connection.
        clock: the clock of the broker.
        find_master: returns ``host:port`` of the master's port for slaves, or None if it is unknown.
        reconnect_s: pause before a new connection, in seconds.
        on_appended: called after each append, with the number of records and their bytes.
        make_context: makes the TLS context of a connection. This function is called for each connection, because certificates
            are renewed. None leaves connections unencrypted.
    """

    def __init__(
        self,
        slave_log: SlaveStoreLog,
        settings: LinkSettings,
        clock: Clock,
        *,
        find_master: Callable[[], Awaitable[str | None]],
        reconnect_s: float,
        on_appended: Callable[[int, int], None],
        make_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.log = slave_log
        self.settings = settings
        self.clock = clock
        self._find_master = find_master
        self._reconnect_s = reconnect_s
        self.on_appended = on_appended
        self._make_context = make_context
        self._task: asyncio.Task[None] | None = None
        self._connection: MasterConnection | None = None
        self._told = ""
        self._is_told_serious = False
        self._alone_since_s: float | None = clock.monotonic_s()
        self.connects = 0
        """Number of connections to masters that were made since the start."""
        self.is_halted = False
        """Whether the slave has stopped appending the master's log."""

    @property
    def is_following(self) -> bool:
        """Whether a connection to a master is open and the master's log is received."""
        connection = self._connection
        return connection is not None and connection.link.stage is SlaveStage.FOLLOWING and connection.is_open

    @property
    def master_client_address(self) -> str:
        """Master's address for clients, as ``host:port``; empty if the master has not sent it."""
        link = self._connection.link if self._connection is not None else None
        return link.master.address if link is not None and link.master is not None else ""

    def start(self) -> None:
        """Start the task that connects to the master, and connects again whenever the connection fails or ends."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def halt(self) -> None:
        """Stop appending the master's log. The connection and the task end soon after. Idempotent."""
        self.is_halted = True
        if self._connection is not None:
            self._connection.abort()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Close the connection to the master, and wait until the task that connects has ended. Idempotent."""
        self.halt()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._follow_once()
            except (FlintError, ConfigError, OSError, TimeoutError) as error:
                self.tell(f"{error or type(error).__name__}", is_serious=isinstance(error, NotFollowedError))
            except Exception as error:  # An unexpected error must not end replication.
                log.exception("replication.failed", "following the master failed")
                self.tell(f"{type(error).__name__}: {error}", is_serious=True)
            if self._alone_since_s is None:
                self._alone_since_s = self.clock.monotonic_s()
            await asyncio.sleep(self._reconnect_s)

    def tell(self, reason: str, *, is_serious: bool = False) -> None:
        """Log the reason why the master's log is not received. The same reason is not logged twice in a row."""
        self._is_told_serious = is_serious
        if reason != self._told:
            self._told = reason
            log.log(
                logging.ERROR if is_serious else logging.WARNING,
                "replication.not_following",
                "the master is not followed: %(reason)s",
                reason=reason,
            )

    async def _follow_once(self) -> None:
        address = await self._find_master()
        if address is None:
            self.tell("the master's address is unknown (ha.master_address, namesrv.addresses)")
            return
        host, _, port = address.rpartition(":")
        # The copied log is synced first, because the offset that a slave reports to its master must be on disk.
        if await until_flushed(self.log.copy.flush()) is not FlushStatus.FLUSHED:
            self.tell("the log could not be synced", is_serious=True)
            return
        loop = asyncio.get_running_loop()
        context = self._make_context() if self._make_context is not None else None
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(
                lambda: MasterConnection(self, address), host.strip("[]"), int(port), ssl=context
            )
        self.connects += 1
        self._connection = connection
        try:
            await connection.closed
        finally:
            self._connection = None
            connection.abort()

    def followed(self, address: str) -> None:
        """Record that this slave now receives the commit log of the master at an address, and log the event
        ``replication.following``."""
        self._told = ""
        self._alone_since_s = None
        log.info(
            "replication.following",
            "following the master at %(master)s from %(position)d on",
            master=address,
            position=self.log.end_offset_bytes,
        )

    def runtime_info(self) -> dict[str, str]:
        """Return, for GET_BROKER_RUNTIME_INFO (request 28), whether the master's log is received now, and the number of
        connections since the start."""
        return {"haFollows": str(self.is_following).lower(), "haConnects": str(self.connects)}

    def alarms(self, limit_ms: int) -> Iterator[Alarm]:
        """Yield an alarm if the master's log has not been received for ``limit_ms``, or if only an operator can make
        replication continue."""
        if self._alone_since_s is None:
            return
        alone_ms = round((self.clock.monotonic_s() - self._alone_since_s) * 1000)
        is_serious = self._is_told_serious and bool(self._told)
        if is_serious or alone_ms >= limit_ms:
            why = self._told or "the connection to it has ended"
            text = f"this slave has not followed its master for {alone_ms / 1000:.0f} s: {why}"
            level: Level = CRITICAL if is_serious else WARNING
            yield Alarm("slave.not_following", level, "", text, alone_ms, "ms", limit_ms, "alarms.slave_gone_ms")


class MasterConnection(asyncio.Protocol):
    """The connection to the master: its socket and its :class:`SlaveLink`."""

    def __init__(self, service: HaSlaveService, address: str) -> None:
        self._service = service
        self._address = address
        self.link = SlaveLink(service.log, service.settings, service.clock.monotonic_s())
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._tick: Scheduled | None = None
        self._followed = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._write()
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        settings = self._service.settings
        wait_s = min(_TICK_MAX_S, settings.heartbeat_s / 4, settings.housekeeping_s / 4)
        self._tick = self._service.clock.call_later(self._loop, wait_s, self._on_tick)

    def _on_tick(self) -> None:
        if self.link.is_dead(self._service.clock.monotonic_s()):
            self._give_up("the master is silent (ha.housekeeping_interval_ms)")
            self.abort()
            return
        self._write()
        self._schedule_tick()

    def data_received(self, data: bytes) -> None:
        service, link = self._service, self.link
        if service.is_halted:
            self.abort()
            return
        try:
            chunks = link.receive(data, service.clock.monotonic_s())
            if chunks:
                self._append(chunks)
        except FlintError as error:
            self._give_up(str(error), is_serious=isinstance(error, NotFollowedError))
            return
        if link.stage is SlaveStage.FOLLOWING and not self._followed:
            self._followed = True
            service.followed(self._address)
        self._write()

    def _append(self, chunks: list[LogChunk]) -> None:
        log_of_slave = self._service.log
        waiter = log_of_slave.copy.append(chunks)
        end = log_of_slave.end_offset_bytes
        if waiter.status is FlushStatus.FLUSHED:
            self.link.report(end)
        else:
            waiter.add_done_callback(partial(self._flushed, end))
        messages = size_bytes = 0
        for chunk in chunks:
            messages += chunk.messages
            size_bytes += chunk.messages_bytes
        self._service.on_appended(messages, size_bytes)

    def _flushed(self, end_offset_bytes: int, status: FlushStatus) -> None:
        """Report to the master that the log is on disk up to a physical offset. Called on the flush service's thread."""
        if status is FlushStatus.FLUSHED:
            with contextlib.suppress(RuntimeError):
                # call_soon_threadsafe() raises RuntimeError if the event loop has ended. In this case, no report is needed.
                self._loop.call_soon_threadsafe(self._report, end_offset_bytes)

    def _report(self, end_offset_bytes: int) -> None:
        if self.is_open:
            self.link.report(end_offset_bytes)
            self._write()

    def _write(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            out = self.link.output(self._service.clock.monotonic_s())
            if out:
                transport.writelines(out)

    def _give_up(self, reason: str, *, is_serious: bool = False) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._service.tell(reason, is_serious=is_serious)
        transport.writelines(self.link.farewell(reason))
        transport.close()

    def abort(self) -> None:
        """Close the connection to the master at once, without sending a reason."""
        if self._tick is not None:
            self._tick.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._transport = None
        if self._followed:
            self._service.tell(f"the connection to {self._address} ended{f': {error}' if error else ''}")
        if not self.closed.done():
            self.closed.set_result(None)
