"""The broker: assembles kernel, store, state, processors and sockets, and starts and stops them in order.

The steps of a start are: read the configuration → load plugins → lock the store → recover the store → dispatch the remaining
messages → listen → register with name servers. No port is open before recovery has ended. A stop reverses the steps. It removes
the ``abort`` file last, and only if everything is on disk.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.config import BrokerConfig, ConfigError, LoadedConfig
from flintmq.core.broker.address import BrokerAddress
from flintmq.core.broker.outlet import Empty, Found, Wanted
from flintmq.core.broker.state import BrokerState
from flintmq.core.errors import FlintError, RefusedError, RemotingConnectError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.failures import Failures
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode
from flintmq.core.running_loop import running_loop
from flintmq.programs.broker.assembly import Assembly
from flintmq.programs.broker.loading import as_loaded, load_plugins
from flintmq.programs.broker.loop_watchdog import LoopWatchdog
from flintmq.programs.broker.service import Service, Timers
from flintmq.remoting.client.transport import IN_PROCESS
from flintmq.remoting.server.addresses import REMINDER_S, broker_address, check_exposure, remind
from flintmq.remoting.server.descriptors import bind, bind_with_vip
from flintmq.remoting.server.secure_links import TLS_RELOAD_S, certificate_alarms, server_tls
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.wire.codes import PULLS

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.programs.broker.in_process import InProcessPut, PutBatch, Puttable
    from flintmq.programs.broker.in_process_clients import InProcessClients
    from flintmq.programs.broker.loading import PluginSettings
    from flintmq.remoting.client.broker_api import PullResult
    from flintmq.remoting.server.tls import ServerTls

log = event_log("flintmq.broker")


class Broker(Service):
    """A broker, embedded in a program or run by ``flintmq``.

    ::

        async with flintmq.Broker(config) as broker:
            await broker.put([flintmq.Message("T", b"hello")])

        with flintmq.Broker(config) as broker:          # in a separate thread
            broker.put([flintmq.Message("T", b"hello")])

    Args:
        config: a ``BrokerConfig``, a ``LoadedConfig``, a configuration file (YAML or RocketMQ's properties), or None for the
            defaults.
        plugins: plugin objects in addition to configured and installed plugins; they may replace built-in ones.
        clock: the clock. Tests use a :class:`~flintmq.testing.clock.VirtualClock` (docs/testing.md).
        disk: the disk that the store reads, writes and syncs.

    Raises (at the start):
        ConfigError, PluginError: the configuration or a plugin is not valid; the error names the place.
        StoreError: the store cannot be opened.
        RemotingError: a port is in use.
    """

    def __init__(
        self,
        config: BrokerConfig | LoadedConfig | Path | str | None = None,
        *,
        plugins: Iterable[object] = (),
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = OS_DISK,
    ) -> None:
        timers = Timers(clock, lambda name: self.kernel.calling(f"the timer '{name}'"))
        super().__init__(as_loaded(config), timers)
        self._plugins = tuple(plugins)
        self._clock = clock
        self._disk = disk
        self._put: InProcessPut | None = None
        self._clients: InProcessClients | None = None
        self._kernel: Kernel | None = None
        self._assembly: Assembly | None = None

    def _assembled(self) -> Assembly:
        if self._assembly is None:
            raise FlintError("the broker was not started")
        return self._assembly

    @property
    def config(self) -> BrokerConfig:
        """The broker's current settings; some settings may change at run time."""
        return self._assembly.state.config if self._assembly is not None else self.loaded.config

    @property
    def state(self) -> BrokerState:
        """The broker's tables, store and settings. Raises FlintError before the broker's start."""
        return self._assembled().state

    @property
    def api(self) -> BrokerApi:
        """The broker's interface for plugins. Raises FlintError before the broker's start. Use it only on the loop thread."""
        return self.state.api

    @property
    def kernel(self) -> Kernel:
        """The broker's plugins. Raises FlintError before the broker's start."""
        if self._kernel is None:
            raise FlintError("the broker was not started")
        return self._kernel

    @property
    def server(self) -> RemotingServer:
        """The server with the broker's sockets. Raises FlintError before the broker's start."""
        return self._assembled().served.server

    def runtime_info(self) -> dict[str, str]:
        """Return the figures that the broker sends as its answer to GET_BROKER_RUNTIME_INFO (request code 28). Before the
        broker's start there are none. Call this method only on the loop thread."""
        return self.state.figures.texts() if self._assembly is not None else {}

    @property
    def address(self) -> str:
        """The broker's address ``host:port``, which clients get from name servers."""
        return self.state.advertised_address

    @property
    def port(self) -> int:
        """The port at which the broker listens; 0 if the broker does not listen (``listen.enable: false``)."""
        return self.state.address.listening_port if self._assembly is not None else 0

    @property
    def ha_port(self) -> int:
        """The port from which slaves replicate, if the broker has slaves."""
        return self.state.ha_port

    @property
    def ready_words(self) -> dict[str, str]:
        """Values that services add to the line that ``flintmq`` prints when the broker is ready (READY line), keyed by name. An
        example is the key ``metrics`` with the value ``127.0.0.1:5557``."""
        return self._assembled().services.ready_words()

    @property
    def store_path(self) -> Path:
        return Path(self.config.store.path)

    # start

    async def _start(self) -> None:
        config = self.loaded.config
        kernel, settings = load_plugins(self.loaded, self._plugins, self._clock)
        listen = config.listen
        exposed, tls = _checked_door(config)
        sockets = self._bind() if listen.enable else []
        host, port = sockets[0].getsockname()[:2] if sockets else (listen.host, 0)
        made = self._assemble(kernel, settings, await broker_address(listen, host, port))
        in_loop = made.state.loop.call_soon_threadsafe
        # The event ``fenced`` can be published on the flush service's thread, but plugins are called on the loop thread.
        made.state.store.fenced.subscribe(lambda reason: in_loop(kernel.fenced, made.state.api, reason))
        made.state.alarms.add(self.timers.alarms)
        made.served.server.on_store_failed = partial(made.state.stats.faults.not_written, "configuration")
        self._watch_loop()
        await made.services.start()
        kernel.starting(made.state.api)
        for sock in sockets:
            await made.served.server.listen(sock, tls)
        if len(sockets) > 1:
            vip_port = sockets[1].getsockname()[1]
            made.served.server.table.exclude(vip_port, PULLS)
        if tls is not None:
            self.timers.every(TLS_RELOAD_S, tls.reload, "certificate")
            made.state.alarms.add(partial(certificate_alarms, tls, lambda: made.state.config, self._clock))
        if exposed:
            self.timers.every(REMINDER_S, lambda: remind(listen.host), "open door")
        self._held.push_async_callback(made.services.withdraw)
        await made.services.ready()
        log.info(
            "broker.listens",
            "broker %(broker)s listens on %(address)s, store %(store)s",
            broker=config.broker.name,
            address=self.address if sockets else "no port",
            store=self.store_path,
        )

    async def check(self, failures: Failures | None = None) -> None:
        """Create all objects that a start creates with plugins, and release them.

        ``flintmq config check`` and ``flintmq plugins --trace`` use this. The configured store is opened, so it should be in a
        temporary folder. No port is opened, and no start or stop hook is called.

        Args:
            failures: counts each call of a plugin and its errors, even if the check fails.

        Raises:
            ConfigError, PluginError, StoreError: a start would raise the same error.
        """
        try:
            kernel, settings = load_plugins(self.loaded, self._plugins, self._clock, failures)
            _checked_door(self.loaded.config)
            self._assemble(kernel, settings, await broker_address(self.loaded.config.listen, "127.0.0.1", 0))
        finally:
            await self._release()

    def _assemble(self, kernel: Kernel, settings: PluginSettings, address: BrokerAddress) -> Assembly:
        # ``_kernel`` is set before the Assembly is created, because the Assembly's timers may look up plugins in the kernel.
        self._kernel = kernel
        self._assembly = Assembly(
            kernel,
            settings,
            address,
            disk=self._disk,
            clock=self._clock,
            timers=self.timers,
            held=self._held,
        )
        self._assembly.add_parts()
        return self._assembly

    def _bind(self) -> list[socket.socket]:
        listen = self.loaded.config.listen
        bound = [*bind_with_vip(listen.host, listen.port)] if listen.vip else [bind(listen.host, listen.port)]
        for sock in bound:
            self._held.callback(sock.close)
        return bound

    def _watch_loop(self) -> None:
        warn_ms = self.loaded.config.listen.loop_blocked_warn_ms
        if warn_ms:
            shown_ms = self.loaded.config.alarms.slow_shown_ms
            watchdog = LoopWatchdog(warn_ms, self._clock, shown_ms)
            watchdog.start()
            self._held.callback(watchdog.stop)
            self.state.figures.add(watchdog.figures)
            self.state.alarms.add(watchdog.alarms)

    # --- methods for callers in the broker's own process ---

    def put(self, messages: Iterable[Puttable]) -> PutBatch:
        """Store messages without a socket, and return their results.

        On the broker's loop thread, the call returns after the messages are appended. Await the result to wait for the
        durability that the flush strategy promises. On any other thread, the call returns when the messages are durable.

        There is an exception if the broker was started with ``async with``, and the calling thread has a running event loop.
        This event loop must not wait for a disk, so the call returns after the append, and the result can be awaited. A message
        with ``wait_store=False`` is not waited for on any thread.

        Raises:
            RefusedError: a message is not acceptable, the store accepts none now, or this is a forked child process.
            FlintError: the broker or its event loop does not run.
        """
        batch = list(messages)
        self._check_running()
        if not self.is_elsewhere:
            return self._put_here(batch)
        waits = self.in_own_thread or running_loop() is None

        async def stored() -> PutBatch:
            made = self._put_here(batch)
            if waits:
                await made
            return made

        return self.call(stored)

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        group: str,
        max_messages: int = 32,
        expression: str = "*",
        expression_type: str = "TAG",
        commit_offset: int | None = None,
    ) -> PullResult:
        """Return the existing messages of a queue from an offset on, without a socket. Can be called from any thread.

        Use a consumer to wait for messages, to share queues, or to retry failed messages (docs/embedding.md).

        Args:
            topic, queue_id, queue_offset: the position of the first message.
            group: the consumer group; its offset changes only with ``commit_offset``.
            max_messages: maximum number of messages; the limits of an answer (``store.max_transfer_*``) apply too.
            expression, expression_type: a filter (``*``, ``A || B``, or SQL92).
            commit_offset: an offset to store for the group.

        Raises:
            RefusedError: the group may not read, the topic or queue does not exist, or the expression is not valid.
            FlintError: the broker or its event loop does not run.
        """
        # The import is deferred to the first call, because only an embedded broker has callers in its own process.
        from flintmq.programs.broker.in_process import Itself, pull_result

        self._check_running()
        state = self.state
        peer = Itself(state.store_host, state.advertised_address)
        wanted = Wanted(
            topic, queue_id, queue_offset, group, peer, max_messages, expression, expression_type, 0, commit_offset
        )

        async def found() -> Found | Empty:
            self._check_running()
            return state.outlet.pull(wanted)

        pulled = self.call(found) if self.is_elsewhere else state.outlet.pull(wanted)
        return pull_result(pulled, wanted, state.config.broker.name)

    def _check_running(self) -> None:
        if not self._started or self._assembled().is_closing:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now: the broker does not run",
                reason="broker.stopped",
            )
        self._check_process()

    def _put_here(self, batch: list[Puttable]) -> PutBatch:
        self._check_running()
        if self._put is None:
            # The import is deferred to the first call, because only an embedded broker has callers in its own process.
            from flintmq.programs.broker.in_process import InProcessPut

            self._put = InProcessPut(self.state)
        return self._put.put(batch)

    def connect(self, address: str) -> socket.socket:
        """Return a socket that is connected to this broker without the network.

        ``Producer("shop", broker)`` and other clients call this for each connection (docs/embedding.md). Requests over this
        socket are treated like all other requests. They must be signed if the broker requires signatures. Any thread; never
        waits.

        Args:
            address: an address of this broker from its routes, or :data:`~flintmq.remoting.client.transport.IN_PROCESS` for a
                connection that answers like a name server which knows only this broker.

        Raises:
            RemotingConnectError: the broker does not run or is stopping, this is a forked child process, or too many files are
                open.
        """
        # The import is deferred to the first call, because only an embedded broker has clients in its own process.
        from flintmq.programs.broker.in_process_clients import pair

        try:
            self._check_running()
        except RefusedError as refused:
            raise RemotingConnectError(refused.remark) from refused
        ours, theirs = pair()
        asks_for_routes = address == IN_PROCESS
        if not self.is_elsewhere:
            self._join(theirs, asks_for_routes)
            return ours
        try:
            self.state.loop.call_soon_threadsafe(self._join, theirs, asks_for_routes)
        except RuntimeError as error:
            ours.close()
            theirs.close()
            raise RemotingConnectError("the broker has stopped") from error
        return ours

    def _join(self, sock: socket.socket, asks_for_routes: bool) -> None:
        # A broker that is not running closes the client's connection at once.
        if not self._runs:
            sock.close()
            return
        if self._clients is None:
            from flintmq.programs.broker.in_process_clients import InProcessClients

            self._clients = InProcessClients(self.state, self.server)
            self._held.push_async_callback(self._clients.close)
        self._clients.join(sock, asks_for_routes=asks_for_routes)

    # stop

    async def stop(self) -> None:
        if self._runs:
            await super().stop()
            log.info("broker.stopped", "broker %(broker)s stopped", broker=self.loaded.config.broker.name)


def _checked_door(config: BrokerConfig) -> tuple[bool, ServerTls | None]:
    """Return whether the broker's port is open to other machines, and the TLS settings.

    Raises:
        ConfigError: the port must not be open, or a certificate cannot be used.
    """
    listen = config.listen
    _check_alone(config)
    if not listen.enable:
        return False, None
    exposed = check_exposure(
        listen.host,
        host_key="listen.host",
        acl_key="acl.enable",
        has_acl=bool(config.authenticators_in_force),
        insecure=listen.insecure,
    )
    return exposed, server_tls(config)


def _check_alone(config: BrokerConfig) -> None:
    """Raise ConfigError if a broker without a port is configured with name servers or replication."""
    if not config.listen.enable and (config.namesrv.addresses or config.replicates):
        raise ConfigError(
            "'listen.enable' is false, so only this process can use the broker: it cannot register with name servers "
            "(namesrv.addresses), nor replicate (ha.enable, broker.role)",
            key="listen.enable",
        )
