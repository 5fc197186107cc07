"""Replication put together: the master's port for slaves, or the slave's connection to its master."""

from __future__ import annotations

import logging
import os
import socket
import stat
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from flintmq.config.errors import ConfigError
from flintmq.config.sections.replication import SECRET_MIN_LENGTH
from flintmq.plugins.broker.exposure import is_loopback
from flintmq.plugins.broker.secure_links import name_server_client, replication_client_tls
from flintmq.plugins.replication.group_transfer import GroupTransferService
from flintmq.plugins.replication.link import LinkSettings
from flintmq.plugins.replication.master_service import HaMasterService
from flintmq.plugins.replication.slave_service import HaSlaveService
from flintmq.plugins.replication.slave_synchronize import SlaveSynchronize
from flintmq.plugins.replication.store_log import SlaveStoreLog, StoreLog
from flintmq.remoting.server.server import bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flintmq.config import BrokerConfig
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.io.clock import Clock
    from flintmq.core.kernel.ports import RecordBatch
    from flintmq.plugins.broker.periodic import Timers
    from flintmq.plugins.broker.registration import Registration
    from flintmq.plugins.replication.agreement import Truncate
    from flintmq.remoting.server.tls import ServerTls

log = logging.getLogger("flintmq.ha")

_EXPIRE_S: Final = 0.1


def load_secret(config: BrokerConfig) -> bytes | None:
    """What both ends must know; None with ``ha.compat: rocketmq``, whose stream has no place for it.

    Raises:
        ConfigError: there is none, it is too short, or others may read its file.
    """
    ha = config.ha
    if ha.compat == "rocketmq":
        return None
    if ha.secret is not None:
        return ha.secret.reveal().encode("utf-8")
    if ha.secret_file is None:
        raise ConfigError(
            "replication needs a secret that both ends know: ha.secret_file (a file of mode 0600), or ha.secret. A RocketMQ "
            "broker at the other end knows none: ha.compat: rocketmq, and then whoever reaches the port reads the whole log",
            key="ha.secret_file",
        )
    path = Path(ha.secret_file)
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"'ha.secret_file' {path}: {error.strerror}", key="ha.secret_file") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise ConfigError(f"'ha.secret_file' {path} is open to others than its owner: chmod 600", key="ha.secret_file")
    if len(secret) < SECRET_MIN_LENGTH:
        raise ConfigError(f"'ha.secret_file' {path} must hold at least {SECRET_MIN_LENGTH} bytes", key="ha.secret_file")
    return secret


class Replication:
    """One broker's part in replication. Loop thread.

    ``bind`` → the store is opened → ``attach`` → the broker listens → ``start``. What is taken is given back through ``held``.

    Args:
        config: says which part.
        clock: time.

    Raises:
        ConfigError: no secret, or a port that other machines reach and nobody guards.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        ha = config.ha
        self.settings = LinkSettings(
            heartbeat_s=ha.send_heartbeat_interval_ms / 1000,
            housekeeping_s=ha.housekeeping_interval_ms / 1000,
            batch_bytes=ha.transfer_batch_bytes,
            secret=load_secret(config),
            truncate=cast("Truncate", ha.truncate),
        )
        self.is_slave = config.broker.is_slave
        self._socket: socket.socket | None = None
        self.master: HaMasterService | None = None
        """The master's port; None on a slave."""
        self.slave: HaSlaveService | None = None
        """The slave's connection; None on a master."""
        self.synchronize: SlaveSynchronize | None = None
        self.gate: GroupTransferService | None = None
        """A sync master's."""
        self._registration: Registration | None = None
        self._state: BrokerState

    @property
    def wants_tls(self) -> bool:
        """Whether the stream is encrypted."""
        ha = self._config.ha
        if ha.compat == "rocketmq":
            return False
        return ha.tls if ha.tls is not None else self._config.listen.tls.mode_in_force == "required"

    def bind(self, broker_port: int, held: AsyncExitStack) -> int:
        """Takes a master's port for slaves; returns it (a slave's: the one it would have)."""
        listen = self._config.listen
        port = listen.ha_port
        if port is None:
            port = broker_port + 1 if listen.port else 0
        if self.is_slave:
            return port or broker_port + 1
        host = self._config.ha.host or listen.host
        if self.settings.secret is None and not is_loopback(host) and not listen.insecure:
            raise ConfigError(
                f"'ha.host' {host} can be reached from other machines, and with ha.compat: rocketmq anyone there could read "
                "the whole log: choose 127.0.0.1, or accept it with listen.insecure: true",
                key="ha.host",
            )
        self._socket = bind(host, port)
        held.callback(self._socket.close)
        return int(self._socket.getsockname()[1])

    def attach(self, state: BrokerState) -> None:
        """Takes its place at a store that was opened and started, before anybody appends to it."""
        self._state = state
        store, config = state.store, self._config
        name, address = config.broker.name, state.advertised_address
        if self.is_slave:
            self.slave = HaSlaveService(
                SlaveStoreLog(store, name, address),
                self.settings,
                self._clock,
                find_master=self._find_master,
                reconnect_s=config.ha.reconnect_interval_ms / 1000,
                on_appended=self._appended,
                make_context=partial(replication_client_tls, config) if self.wants_tls else None,
            )
            store.reput.on_arrival = partial(self._arrived, store.reput.on_arrival)
            state.has_master = lambda: self.slave is not None and self.slave.is_following
            state.runtime_sources.append(self.slave.runtime_info)
            return
        store.become_master()
        if config.broker.role == "sync_master":
            self.gate = GroupTransferService(
                store.watermarks,
                self._clock,
                timeout_ms=config.ha.slave_timeout_ms,
                fallbehind_max_bytes=config.ha.slave_fallbehind_max_bytes,
            )
            store.wait_for_slaves(self.gate)
        self.master = HaMasterService(
            StoreLog(store, name, address),
            self.settings,
            self._clock,
            gate=self.gate,
            max_slaves=config.ha.max_slaves,
            on_progress=state.dispatch,
        )
        state.runtime_sources.append(self.master.runtime_info)

    async def start(self, tls: ServerTls | None, timers: Timers, held: AsyncExitStack) -> None:
        """Listens for slaves, or begins to follow."""
        state = self._state
        if self.master is not None:
            assert self._socket is not None
            if self.wants_tls and tls is None:
                raise ConfigError("'ha.tls' needs 'listen.tls.certificate'", key="ha.tls")
            await self.master.start(self._socket, tls if self.wants_tls else None)
            held.push_async_callback(self.master.stop)
            state.store.appended.subscribe(self.master.wake)
            state.store.progressed.subscribe(self.master.wake_from_thread)
            if self.gate is not None:
                held.callback(self.gate.close)
                timers.pace(_EXPIRE_S, self.gate.expire, "promises of slaves")
            return
        assert self.slave is not None
        client = name_server_client(self._config)
        held.push_async_callback(client.close)
        interval_s = self._config.ha.sync_interval_ms / 1000
        self.synchronize = SlaveSynchronize(state, client, self._master_client_address, interval_s)
        self.slave.start()
        held.push_async_callback(self.slave.stop)
        self.synchronize.start()
        held.push_async_callback(self.synchronize.stop)

    def _appended(self, messages: int, size_bytes: int) -> None:
        self._state.stats.replicated(messages, size_bytes)
        self._state.dispatch()

    def _arrived(self, before: Callable[[RecordBatch], object], batch: RecordBatch) -> None:
        self._learn(batch.queues())
        before(batch)

    def _learn(self, queues: Iterable[tuple[str, int]]) -> None:
        """A slave sees messages of a topic before its master's table says that there is one."""
        topics = self._state.topics
        seen: dict[str, int] = {}
        for topic, queue_id in queues:
            if topic not in topics or topic in topics.learned:
                seen[topic] = max(seen.get(topic, 0), queue_id + 1)
        news = [topics.learn(topic, queue_nums) for topic, queue_nums in seen.items()]
        if any(news) and self.synchronize is not None:
            self.synchronize.wake()

    def registered_with(self, registration: Registration) -> None:
        """Whom to ask for the master."""
        self._registration = registration

    def _master_client_address(self) -> str:
        told = self._registration.master_address if self._registration is not None else ""
        return told or (self.slave.master_client_address if self.slave is not None else "")

    async def _find_master(self) -> str | None:
        configured = self._config.ha.master_address
        if configured is not None or self._registration is None:
            return configured
        await self._registration.register_all()  # it may have come, or moved, since the last time
        return self._registration.master_ha_address or None
