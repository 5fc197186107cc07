"""The name server: combines the routes of brokers, the key-value configuration, and the sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from flintmq.config import BrokerConfig, LoadedConfig, NamesrvConfig
from flintmq.core.broker.address import host_port
from flintmq.core.errors import FlintError, StoreError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import PERSIST_INTERVAL_S, JsonFile
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.log_events import event_log
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.plugins.builtin import BROKER_ONLY, name_server_plugins
from flintmq.programs.broker.authenticators import Authenticators
from flintmq.programs.broker.loading import PluginSettings, as_loaded, config_path, new_failures
from flintmq.programs.broker.plugin_server import PluginServer, Pools
from flintmq.programs.broker.service import Service, Timers
from flintmq.programs.broker.upkeep import NotedTables
from flintmq.remoting.processors.namesrv import NamesrvSettings
from flintmq.remoting.server.addresses import EVERY_INTERFACE, REMINDER_S, check_exposure, remind
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.descriptors import bind
from flintmq.remoting.server.secure_links import TLS_RELOAD_S, server_tls
from flintmq.remoting.server.server import RemotingServer

if TYPE_CHECKING:
    from flintmq.remoting.server.tls import ServerTls

log = event_log("flintmq.namesrv")


class NameServer(Service):
    """A name server, embedded in a program or run by ``flintmq``; used like :class:`flintmq.programs.broker.broker.Broker`.

    Args:
        config: as for a broker; the section ``nameserver`` applies.
        plugins: plugin objects in addition to configured and installed plugins. A name server uses only the authenticators in
            ``nameserver.authenticators``, and what plugins register with ``at="nameserver"``, such as request processors.
        clock: the clock.
    """

    def __init__(
        self,
        config: BrokerConfig | LoadedConfig | Path | str | None = None,
        *,
        plugins: Iterable[object] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(as_loaded(config, "namesrv"), Timers(clock=clock))
        self._plugins = tuple(plugins)
        self._clock = clock
        self._pools = Pools(self._held)
        self._served: PluginServer | None = None
        section = self.loaded.config.nameserver
        self.settings = NamesrvSettings(section, self._changed)
        self.routes = RouteInfoManager(clock, expiry_s=section.broker_expiry_ms / 1000)
        kv_file = Path(section.kv_path) if section.kv_path else None
        self.kv = (
            KVConfigManager(JsonFile(kv_file), ConfigJournal(kv_file.with_name(f"{kv_file.name}.notes")))
            if kv_file is not None
            else KVConfigManager()
        )
        self._noted = NotedTables(
            clock,
            lambda: (("the key-value configuration", self.kv),),
            lambda _, error: log.error(
                "table.kv_write_failed", "the key-value configuration is not written: %(error)s", error=error
            ),
        )
        self.host = section.host
        self.listeners: dict[str, str] = {}
        """``host:port`` of each listener of the setting ``nameserver.listeners``, keyed by the listener's name."""
        self.listener_names: dict[tuple[str, int], str] = {}
        """Names of the listeners of the setting ``nameserver.listeners``, keyed by (host, port). The host is empty if the
        listener accepts connections on any interface."""

    def _in_service(self) -> PluginServer:
        if self._served is None:
            raise FlintError("the name server was not started")
        return self._served

    @property
    def config(self) -> NamesrvConfig:
        """The name server's current settings; some settings may change at run time."""
        return self.settings.config

    @property
    def port(self) -> int:
        """The port at which the name server listens; before its start the configured port."""
        return self.config.port

    @property
    def address(self) -> str:
        """The name server's address ``host:port`` for clients and brokers."""
        return host_port(self.host, self.port)

    @property
    def kernel(self) -> Kernel:
        """The name server's plugins. Raises FlintError before the name server's start."""
        return self._in_service().kernel

    @property
    def server(self) -> RemotingServer:
        """The server with the name server's sockets. Raises FlintError before the name server's start."""
        return self._in_service().server

    @property
    def authenticators(self) -> tuple[Authenticator, ...]:
        """The active authenticators of the name server, in the order in which they are asked."""
        return self._in_service().authenticators.in_force

    async def _start(self) -> None:
        config = self.config
        exposed, tls = self._checked_doors()
        served = self._assemble()
        sockets = self._bind()
        self.kv.load()
        self._held.push_async_callback(self._end_writes)
        served.add_parts(self, self._pools)
        self._held.push_async_callback(served.server.close)
        for sock in sockets:
            await served.server.listen(sock, tls)
        self.timers.pace(config.scan_interval_ms / 1000, self._scan, "broker expiry")
        self.timers.every(PERSIST_INTERVAL_S, self._noted.look, "key-value configuration")
        served.authenticators.start(self.timers)
        if tls is not None:
            self.timers.every(TLS_RELOAD_S, tls.reload, "certificate")
        for host in exposed:
            self.timers.every(REMINDER_S, partial(remind, host), f"open door {host}")
        log.info("namesrv.listens", "name server listens on %(address)s", address=self.address)

    def _checked_doors(self) -> tuple[list[str], ServerTls | None]:
        """Return the listeners' hosts that other machines can reach, and the TLS settings of the listeners.

        Raises:
            ConfigError: other machines can reach a host that they must not reach, or a certificate cannot be used.
        """
        config, whole = self.config, self.loaded.config
        hosts = {config.host: "nameserver.host"}
        for entry in config.listeners:
            hosts.setdefault(_listener(entry, config.host)[1], "nameserver.listeners")
        exposed = [
            host
            for host, key in hosts.items()
            if check_exposure(
                host,
                host_key=key,
                acl_key="nameserver.acl_enable",
                has_acl=bool(whole.namesrv_authenticators_in_force),
                insecure=whole.listen.insecure,
            )
        ]
        return exposed, server_tls(whole)

    async def check(self) -> None:
        """Check that the name server could start: create all objects that a start would create with its plugins. The
        command ``flintmq config check`` calls this method.

        Raises:
            ConfigError, PluginError: a start would raise the same error.
        """
        async with self._held:
            self._checked_doors()
            self._assemble().add_parts(self, self._pools)

    def _assemble(self) -> PluginServer:
        whole = self.loaded.config
        kernel = Kernel.assemble(
            whole.plugins,
            name_server_plugins(),
            objects=self._plugins,
            disabled=whole.disabled_plugins,
            disabled_at=self.loaded.written("disabled_plugins"),
            elsewhere=BROKER_ONLY,
            config_path=config_path(self.loaded),
            clock=self._clock,
            failures=new_failures(self.loaded),
        )
        settings = PluginSettings(kernel, self.loaded, self._clock, flushes=False)
        # The plugins' sections of the configuration are checked only if the configuration lists plugins.
        # If no plugins are listed, unknown sections cause no error, because an embedded broker's plugin may use them.
        if whole.plugins:
            settings.check()
        names = whole.namesrv_authenticators_in_force
        self._served = PluginServer(
            kernel,
            "nameserver",
            whole.listen,
            idle_timeout_ms=self.config.idle_timeout_ms,
            clock=self._clock,
            authenticators=Authenticators(kernel, whole, names, acl_key="nameserver.acl_enable"),
            on_closed=self._channel_closed,
        )
        return self._served

    def _bind(self) -> list[socket.socket]:
        """Bind the sockets of the name server's main address and of the addresses in ``nameserver.listeners``, and store the
        names of the latter. Raises RemotingError."""
        config = self.config
        sockets = [self._bound(config.host, config.port, "nameserver.host, nameserver.port")]
        self.host, port = sockets[0].getsockname()[:2]
        self.settings.config = attrs.evolve(config, port=port)
        for entry in config.listeners:
            name, host, port = _listener(entry, config.host)
            sockets.append(self._bound(host, port, "nameserver.listeners"))
            bound_host, bound_port = sockets[-1].getsockname()[:2]
            self.listener_names["" if bound_host in EVERY_INTERFACE else bound_host, bound_port] = name
            self.listeners[name] = host_port(bound_host, bound_port)
        return sockets

    def _bound(self, host: str, port: int, keys: str) -> socket.socket:
        sock = bind(host, port, keys)
        self._held.callback(sock.close)
        return sock

    def _changed(self, config: NamesrvConfig) -> None:
        """Apply settings of the name server that a request has changed."""
        self.server.connections.idle_timeout_ms = config.idle_timeout_ms

    def _channel_closed(self, channel: ServerChannel) -> None:
        self.routes.close_channel(channel)

    async def _end_writes(self) -> None:
        await self._noted.stop()
        if self.kv.noted:
            try:
                self.kv.persist()
            except StoreError as error:
                # A failed write loses no change: the next start reads the key-value configuration's changes from the journal.
                log.error("table.kv_write_failed", "the key-value configuration is not written: %(error)s", error=error)

    def _scan(self) -> float:
        for channel in self.routes.remove_expired():
            channel.close("no registration for too long")
        return self.config.scan_interval_ms / 1000

    async def stop(self) -> None:
        if self._runs:
            await super().stop()
            log.info("namesrv.stopped", "name server %(address)s stopped", address=self.address)


def _listener(entry: str, default_host: str) -> tuple[str, str, int]:
    """Return name, host and port of an entry of ``nameserver.listeners``."""
    name, _, address = entry.partition("=")
    host, _, port = address.rpartition(":")
    return name, host or default_host, int(port)
