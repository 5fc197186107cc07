"""The name server: routes, key-values and their sockets put together."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import attrs

from flintmq.config import BrokerConfig, LoadedConfig, NamesrvConfig
from flintmq.core.broker.advertised import host_port
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.json_file import JsonFile
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import PROCESSOR
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.kernel.registry import ProcessorSpec, Registered
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.plugins.broker.addresses import EVERY_INTERFACE
from flintmq.plugins.broker.authenticators import Authenticators
from flintmq.plugins.broker.exposure import REMINDER_S, check_exposure, remind
from flintmq.plugins.broker.loading import as_loaded, config_path
from flintmq.plugins.broker.periodic import Timers
from flintmq.plugins.broker.plugin_settings import PluginSettings
from flintmq.plugins.broker.pools import THREADS_END_S
from flintmq.plugins.broker.secure_links import TLS_RELOAD_S, server_tls
from flintmq.plugins.broker.server_parts import ServerParts
from flintmq.plugins.broker.service import Service
from flintmq.plugins.builtin import BROKER_ONLY, NAME_SERVER_PLUGINS
from flintmq.remoting.processors.namesrv import NamesrvSettings
from flintmq.remoting.server.bind import bind
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.handler_threads import HandlerThreads
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.server import RemotingServer

log = logging.getLogger("flintmq.namesrv")

_QUEUE_CAPACITY = 10_000


class NameServer(Service):
    """A name server, embedded or served; used like :class:`flintmq.plugins.broker.broker.Broker`.

    Args:
        config: as for a broker; the section ``nameserver`` counts.
        plugins: plugin objects beyond those of the configuration and the installed ones. Of a plugin a name server has the
            authenticators that ``nameserver.authenticators`` names, and what is registered with ``at="nameserver"``,
            request processors among it.
        clock: time.
    """

    def __init__(
        self,
        config: BrokerConfig | LoadedConfig | Path | str | None = None,
        *,
        plugins: Iterable[object] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__()
        self._plugins = tuple(plugins)
        self.loaded = as_loaded(config, "namesrv")
        self.config: NamesrvConfig = self.loaded.config.nameserver
        self._clock = clock
        self._timers = Timers()
        self._sockets: list[socket.socket] = []
        self.listeners: dict[str, str] = {}
        """``host:port`` of each further listener, by its name."""
        self.authenticators: tuple[Authenticator, ...] = ()
        """Those in force, in order."""
        self._kernel: Kernel
        self._settings: PluginSettings
        self._parts: ServerParts
        self._pools: dict[str, Pool] = {}
        self._handled_by: dict[int, Registered[ProcessorSpec]] = {}
        """The processor that answers a request code."""
        self.listener_names: dict[tuple[str, int], str] = {}
        """The names of the further listeners, by host (empty: any) and port."""
        self._running = False
        self.host = self.config.host
        self.port = 0
        self.settings: NamesrvSettings
        self.routes: RouteInfoManager
        self.kv: KVConfigManager
        self.server: RemotingServer

    @property
    def address(self) -> str:
        """``host:port`` for clients and brokers."""
        return host_port(self.host, self.port)

    @property
    def loop_name(self) -> str:
        return self.loaded.config.listen.loop

    async def start(self) -> None:
        config = self.config
        whole = self.loaded.config
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
        self._kernel = self._assemble()
        authenticators = self._make_authenticators()
        self.authenticators = authenticators.in_force
        tls = server_tls(whole)
        try:
            self._bind()
            self.routes = RouteInfoManager(self._clock, expiry_s=config.broker_expiry_ms / 1000)
            self.kv = KVConfigManager(JsonFile(Path(config.kv_path)) if config.kv_path else None)
            self.kv.load()
            listen = self.loaded.config.listen
            self.server = RemotingServer(
                self._clock,
                max_frame_bytes=listen.max_frame_bytes,
                max_connections=listen.max_connections,
                max_connections_per_address=listen.max_connections_per_address,
                max_buffered_bytes=listen.max_buffered_bytes,
                idle_timeout_ms=config.idle_timeout_ms,
                backlog=listen.backlog,
                authenticators=self.authenticators,
                on_closed=self._channel_closed,
                on_failed=self._request_failed,
                on_authenticator_failed=authenticators.failed,
            )
            self.settings = NamesrvSettings(attrs.evolve(config, port=self.port), self._changed)
            self._add_processors()
            self._parts = ServerParts(self._kernel, "nameserver", self)
            self._parts.attach(self.server, self._pool)
            for sock in self._sockets:
                await self.server.listen(sock, tls)
        except BaseException:
            for sock in self._sockets:
                sock.close()
            raise
        self._timers.pace(config.scan_interval_ms / 1000, self._scan, "broker expiry")
        authenticators.start(self._timers)
        if tls is not None:
            self._timers.every(TLS_RELOAD_S, tls.reload, "certificate")
        for host in exposed:
            self._timers.every(REMINDER_S, partial(remind, host), f"open door {host}")
        self._running = True
        log.info("name server listens on %s", self.address)

    def check(self) -> None:
        """Makes what a start makes of plugins: for ``flintmq config check``. Raises ConfigError, PluginError."""
        self._kernel = self._assemble()
        self._make_authenticators()
        ServerParts(self._kernel, "nameserver", self)

    def _add_processors(self) -> None:
        for entry in self._kernel.registries.processors_of("nameserver"):
            made = self._kernel.guarded(entry, entry.value.factory)(self)
            where = PROCESSOR.where(entry.owner, entry.name)
            self.server.table.add_processor(made, entry.value.declarations, partial(self._pool_of, entry), where)
            self._handled_by.update(dict.fromkeys(entry.value.codes, entry))

    def _assemble(self) -> Kernel:
        whole = self.loaded.config
        kernel = Kernel.assemble(
            whole.plugins,
            NAME_SERVER_PLUGINS,
            objects=self._plugins,
            disabled=[name for name in whole.disabled_plugins if name not in BROKER_ONLY],
            config_path=config_path(self.loaded),
            clock=self._clock,
        )
        self._settings = PluginSettings(kernel, self.loaded, self._clock, flushes=False)
        if whole.plugins:  # else a section may be of a plugin that a program gives to its broker alone
            self._settings.check()
        return kernel

    def _make_authenticators(self) -> Authenticators:
        whole = self.loaded.config
        names = whole.namesrv_authenticators_in_force
        return Authenticators(self._kernel, self._settings, whole, names, acl_key="nameserver.acl_enable")

    def _pool(self, name: str, threads: int) -> Pool:
        """Return the bounded queue of a name, with threads for its plain handlers where it has some."""
        pool = self._pools.setdefault(name, Pool(name, _QUEUE_CAPACITY))
        if threads:
            if pool.threads is None:
                pool.threads = HandlerThreads(name, threads)
            pool.threads.grow(threads)
        return pool

    def _pool_of(self, entry: Registered[ProcessorSpec], name: str) -> Pool:
        return self._pool(name, entry.value.threads[name])

    def _request_failed(self, request: Request, error: BaseException) -> None:
        entry = self._handled_by.get(request.code)
        if entry is not None:
            self._kernel.blame(entry, f"request {request.code}", error)
        elif self._parts.default is not None:
            self._kernel.blame(self._parts.default, "handle", error)

    def _bind(self) -> None:
        """Bind every socket and note the names of the further listeners. Raises RemotingError."""
        config = self.config
        self._sockets.append(bind(config.host, config.port))
        self.host, self.port = self._sockets[0].getsockname()[:2]
        for entry in config.listeners:
            name, host, port = _listener(entry, config.host)
            sock = bind(host, port)
            self._sockets.append(sock)
            bound_host, bound_port = sock.getsockname()[:2]
            self.listener_names["" if bound_host in EVERY_INTERFACE else bound_host, bound_port] = name
            self.listeners[name] = host_port(bound_host, bound_port)

    def _changed(self, config: NamesrvConfig) -> None:
        """Settings were changed over the wire."""
        self.config = config
        self.server.connections.idle_timeout_ms = config.idle_timeout_ms

    def _channel_closed(self, channel: ServerChannel) -> None:
        self.routes.close_channel(channel)

    def _scan(self) -> float:
        for channel in self.routes.remove_expired():
            channel.close("no registration for too long")
        return self.config.scan_interval_ms / 1000

    async def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        self._timers.cancel()
        await self.server.close()
        for pool in self._pools.values():
            if pool.threads is not None:
                await pool.threads.close(THREADS_END_S)
        log.info("name server %s stopped", self.address)


def _listener(entry: str, default_host: str) -> tuple[str, str, int]:
    """Name, host and port of an entry of ``nameserver.listeners``."""
    name, _, address = entry.partition("=")
    host, _, port = address.rpartition(":")
    return name, host or default_host, int(port)
