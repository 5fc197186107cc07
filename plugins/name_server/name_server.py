"""The name server: routes, key-values and their sockets put together."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import attrs

from flintmq.config import BrokerConfig, LoadedConfig, NamesrvConfig
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.json_file import JsonFile
from flintmq.core.kernel.finder import may_have_entry_points
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports import Authenticator
from flintmq.core.route.advertised import host_port
from flintmq.core.route.kv_config import KVConfigManager
from flintmq.core.route.route_manager import RouteInfoManager
from flintmq.plugins.broker.authenticators import Authenticators
from flintmq.plugins.broker.broker import EVERY_INTERFACE, THREADS_END_S, as_loaded, config_path
from flintmq.plugins.broker.exposure import REMINDER_S, check_exposure, remind
from flintmq.plugins.broker.periodic import Timers
from flintmq.plugins.broker.plugin_settings import PluginSettings
from flintmq.plugins.broker.secure_links import TLS_RELOAD_S, server_tls
from flintmq.plugins.broker.server_parts import ServerParts
from flintmq.plugins.broker.service import Service
from flintmq.plugins.builtin import NAME_SERVER_PLUGINS
from flintmq.remoting.processors.namesrv import NamesrvRouteProcessor
from flintmq.remoting.processors.namesrv_config import NamesrvConfigProcessor, NamesrvSettings
from flintmq.remoting.server.audit import AUDITED, RefusalAudit, audited
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.handler_threads import HandlerThreads
from flintmq.remoting.server.request import Request
from flintmq.remoting.server.server import Pool, RemotingServer, bind

log = logging.getLogger("flintmq.namesrv")

_QUEUE_CAPACITY = 10_000


class NameServer(Service):
    """A name server, embedded or served; used like :class:`flintmq.plugins.broker.broker.Broker`.

    Args:
        config: as for a broker; the section ``nameserver`` counts.
        plugins: plugin objects beyond those of the configuration and the installed ones. Of a plugin a name server has the
            authenticators that ``nameserver.authenticators`` names, and what is registered with ``at="nameserver"``.
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
        self._kernel: Kernel | None = None
        self._settings: PluginSettings
        self._parts: ServerParts | None = None
        self._threads: HandlerThreads | None = None
        """Of the default processor, where it has some."""
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
        self.authenticators = authenticators.in_force if authenticators is not None else ()
        tls = server_tls(whole)
        try:
            names = self._bind()
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
                on_closed=self._channel_closed,
            )
            settings = self.settings = NamesrvSettings(attrs.evolve(config, port=self.port), self._changed)
            pool = Pool("admin", _QUEUE_CAPACITY)
            for processor in (
                NamesrvRouteProcessor(self.routes, self.kv, lambda: settings.config.order_message_enable, names),
                NamesrvConfigProcessor(self.kv, settings),
            ):
                self.server.add_processor(processor, tuple(processor.handlers()), pool)
            self.server.wrap(AUDITED, audited)
            self.server.on_refused = RefusalAudit(self._clock, AUDITED)
            self.server.authenticate_with(self.authenticators)
            if authenticators is not None:
                self.server.on_authenticator_failed = authenticators.failed
            if self._kernel is not None:
                self._parts = ServerParts(self._kernel, "nameserver", self)
                self._parts.attach(self.server, self._pool)
                self.server.on_failed = self._request_failed
            for sock in self._sockets:
                await self.server.listen(sock, tls)
        except BaseException:
            for sock in self._sockets:
                sock.close()
            raise
        self._timers.pace(config.scan_interval_ms / 1000, self._scan, "broker expiry")
        if authenticators is not None:
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
        if self._kernel is not None:
            ServerParts(self._kernel, "nameserver", self)

    def _assemble(self) -> Kernel | None:
        """The plugins; None where nobody may have any, as with most name servers, which so have nothing of it in memory."""
        whole = self.loaded.config
        named = whole.plugins or self._plugins or whole.namesrv_authenticators_in_force
        if not named and not may_have_entry_points():
            return None
        kernel = Kernel.assemble(
            whole.plugins,
            NAME_SERVER_PLUGINS,
            objects=self._plugins,
            disabled=whole.disabled_plugins,
            config_path=config_path(self.loaded),
            clock=self._clock,
        )
        self._settings = PluginSettings(kernel, self.loaded, self._clock, flushes=False)
        if whole.plugins:  # else a section may be of a plugin that a program gives to its broker alone
            self._settings.check()
        return kernel

    def _make_authenticators(self) -> Authenticators | None:
        """Make those of the configuration; None without any plugin."""
        if self._kernel is None:
            return None
        whole = self.loaded.config
        names = whole.namesrv_authenticators_in_force
        return Authenticators(self._kernel, self._settings, whole, names, acl_key="nameserver.acl_enable")

    def _pool(self, name: str, threads: int) -> Pool:
        """A queue for a plugin's default processor, with threads where it has some."""
        pool = Pool(name, _QUEUE_CAPACITY)
        if threads:
            pool.threads = self._threads = HandlerThreads(name, threads)
        return pool

    def _request_failed(self, request: Request, error: BaseException) -> None:
        default = self._parts.default if self._parts is not None else None
        if default is not None and self._kernel is not None and request.code not in self.server.codes:
            self._kernel.blame(default, "handle", error)
        else:
            log.error("request %d of %s failed", request.code, request.channel.remote_address, exc_info=error)

    def _bind(self) -> dict[tuple[str, int], str]:
        """Takes every socket. Returns the names of the further ones by host (empty: any) and port. Raises RemotingError."""
        config = self.config
        self._sockets.append(bind(config.host, config.port))
        self.host, self.port = self._sockets[0].getsockname()[:2]
        names: dict[tuple[str, int], str] = {}
        for entry in config.listeners:
            name, host, port = _listener(entry, config.host)
            sock = bind(host, port)
            self._sockets.append(sock)
            bound_host, bound_port = sock.getsockname()[:2]
            names["" if bound_host in EVERY_INTERFACE else bound_host, bound_port] = name
            self.listeners[name] = host_port(bound_host, bound_port)
        return names

    def _changed(self, config: NamesrvConfig) -> None:
        """Settings were changed over the wire."""
        self.config = config
        self.server.idle_timeout_ms = config.idle_timeout_ms

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
        if self._threads is not None:
            await self._threads.close(THREADS_END_S)
        log.info("name server %s stopped", self.address)


def _listener(entry: str, default_host: str) -> tuple[str, str, int]:
    """Name, host and port of an entry of ``nameserver.listeners``."""
    name, _, address = entry.partition("=")
    host, _, port = address.rpartition(":")
    return name, host or default_host, int(port)
