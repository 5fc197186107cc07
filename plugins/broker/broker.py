"""The broker: kernel, store, state, processors and sockets put together, started and stopped in order.

Start: lock → configuration → plugins → recovery → dispatchers catch up → listen → register. Nothing listens before recovery
has ended. Stop: the reverse; the ``abort`` file goes last, and only when everything is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from flintmq.config import BrokerConfig, LoadedConfig, load_config
from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.hold import PullRequestHoldService
from flintmq.core.broker.intake import MessageIntake
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.broker.queue_locks import RebalanceLockManager
from flintmq.core.broker.readers import Readers
from flintmq.core.broker.sink import MessageSink
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.disk import Disk
from flintmq.core.io.json_file import JsonFile
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.hookspecs import DispatcherContext, DispatcherFactory
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.plugin_shapes import CONSUME_QUEUES, PROCESSOR
from flintmq.core.kernel.ports import (
    Authenticator,
    CommitLogDispatcher,
    ConsumeQueues,
    FlushStrategy,
    IndexBuilder,
    StoreFolder,
    tags_codes_of,
)
from flintmq.core.kernel.registry import ProcessorSpec, Registered
from flintmq.core.log.epochs import MASTER
from flintmq.core.record.host import pack_ip
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.advertised import CLIENT, Advertised
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.broker.authenticators import Authenticators
from flintmq.plugins.broker.exposure import REMINDER_S, check_exposure, remind
from flintmq.plugins.broker.loop_watchdog import LoopWatchdog
from flintmq.plugins.broker.periodic import Timers
from flintmq.plugins.broker.plugin_figures import plugin_figures
from flintmq.plugins.broker.plugin_settings import PluginSettings
from flintmq.plugins.broker.required import check_required
from flintmq.plugins.broker.secure_links import TLS_RELOAD_S, server_tls
from flintmq.plugins.broker.server_parts import ServerParts
from flintmq.plugins.broker.service import Service, tell_ignored
from flintmq.plugins.broker.services import Services
from flintmq.plugins.builtin import BUILTIN_PLUGINS, CONSUME_QUEUE, INDEX
from flintmq.remoting.server.bind import bind, bind_with_vip
from flintmq.remoting.server.handler_threads import HandlerThreads
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from flintmq.config.loading.schema import Role
    from flintmq.core.kernel.ports.processor import Request
    from flintmq.plugins.broker.in_process import InProcessPut, PutBatch, Puttable
    from flintmq.remoting.server.channel import ServerChannel

log = logging.getLogger("flintmq.broker")

FILTER_BITMAP: Final = "filter_bitmap"
"""The dispatcher that ``pull.calc_filter_bitmap`` puts before all others."""

THREADS_END_S: Final = 2.0
"""How long a stop waits for handlers that run in threads."""


def as_loaded(config: BrokerConfig | LoadedConfig | Path | str | None, role: Role = "broker") -> LoadedConfig:
    """A configuration in any of the forms an embedder may have it: a value, a loaded one, a file, or the defaults."""
    if isinstance(config, LoadedConfig):
        return config
    if isinstance(config, BrokerConfig):
        return LoadedConfig(config=config, origins={}, sections={})
    loaded = load_config(Path(config) if config is not None else None, environ={}, role=role)
    tell_ignored(loaded)
    return loaded


def config_path(loaded: LoadedConfig) -> Path | None:
    """The file that ``plugins`` stands in; None where it stands in none."""
    origin = loaded.origins.get("plugins")
    return Path(origin.file) if origin is not None and origin.file else None


class Broker(Service):
    """A broker, embedded or served.

    ::

        async with flintmq.Broker(config) as broker:
            await broker.put([flintmq.Message("T", b"hello")])

        with flintmq.Broker(config) as broker:          # its own thread
            broker.put([flintmq.Message("T", b"hello")])

    Args:
        config: a ``BrokerConfig``, what ``load_config`` returned, a file of either format, or None for the defaults.
        plugins: plugin objects beyond those of the configuration and the installed ones; they may replace built-ins.
        clock: time.
        disk: what the store reads, writes and syncs through.

    Raises (at the start):
        ConfigError, PluginError: the configuration or a plugin is wrong; says where.
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
        super().__init__()
        self.loaded = as_loaded(config)
        self._plugins = tuple(plugins)
        self._clock = clock
        self._disk = disk
        self.timers = Timers()
        self._sockets: list[socket.socket] = []
        self.pools: dict[str, Pool] = {}
        self.authenticators: tuple[Authenticator, ...] = ()
        """Those in force, in order."""
        self._handled_by: dict[int, Registered[ProcessorSpec]] = {}
        """Which processor answers a request code."""
        self._put: InProcessPut | None = None
        self._port = 0
        self._started = False
        self._stopped = False
        self._closed = True
        """Nothing is put before the start and after the stop."""
        self._held = contextlib.AsyncExitStack()
        """What the start has taken so far; given back in reverse order, whatever fails on the way."""
        self.state = BrokerState(self.loaded.config, clock)
        self.kernel: Kernel
        self._services: Services
        self._settings: PluginSettings
        self._parts: ServerParts
        self.server: RemotingServer

    @property
    def config(self) -> BrokerConfig:
        """The settings in force; some may change while running."""
        return self.state.config

    @property
    def loop_name(self) -> str:
        return self.loaded.config.listen.loop

    @property
    def address(self) -> str:
        """``host:port`` that clients are told."""
        return self.state.advertised_address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def ha_port(self) -> int:
        """The port that slaves replicate from, or would."""
        return self.state.ha_port

    @property
    def store_path(self) -> Path:
        return Path(self.config.store.path)

    # start

    async def start(self) -> None:
        self._lives_here()
        try:
            await self._start()
        except BaseException:
            await self._release()
            raise
        self._started = True
        self._closed = False

    async def _start(self) -> None:
        config = self.loaded.config
        self.kernel = self._assemble()
        exposed = check_exposure(
            config.listen.host,
            host_key="listen.host",
            acl_key="acl.enable",
            has_acl=bool(config.authenticators_in_force),
            insecure=config.listen.insecure,
        )
        tls = server_tls(config)
        host, port = self._bind()
        state = self.state
        state.loop = asyncio.get_running_loop()
        state.on_config = lambda _config: None
        await self._advertise(state, host, port)
        self._build(state)
        self._watch_loop()
        await self._services.start()
        self.kernel.starting(self)
        for sock in self._sockets:
            await self.server.listen(sock, tls)
        if len(self._sockets) > 1:
            vip_port = self._sockets[1].getsockname()[1]
            self.server.table.exclude(vip_port, frozenset({int(RequestCode.PULL_MESSAGE)}))
        if tls is not None:
            self.timers.every(TLS_RELOAD_S, tls.reload, "certificate")
        if exposed:
            self.timers.every(REMINDER_S, lambda: remind(config.listen.host), "open door")
        self._held.push_async_callback(self._services.withdraw)
        await self._services.ready()
        self.kernel.ready(self)
        log.info("broker %s listens on %s, store %s", config.broker.name, self.address, self.store_path)

    async def check(self) -> None:
        """Makes everything that a start makes of plugins, and releases it: for ``flintmq config check``.

        The store of the configuration is opened, so it should be one of a scratch folder. Nothing listens, no hook of the
        broker's life is called.

        Raises:
            ConfigError, PluginError, StoreError: as a start would.
        """
        state = self.state
        try:
            self.kernel = self._assemble()
            state.loop = asyncio.get_running_loop()
            state.on_config = lambda _config: None
            await self._advertise(state, "127.0.0.1", 0)
            self._build(state)
        finally:
            await self._release()

    def _build(self, state: BrokerState) -> None:
        """Store, tables, dispatchers, services and processors; whatever was made is released with :meth:`_release`."""
        config = self.loaded.config
        strategy = self._open_store(state)
        self._held.push_async_callback(self._close_store)
        self._fill(state)
        state.store.start(self._dispatchers(state))
        self._connect_store(state, strategy)
        if not (state.store.started_clean or config.broker.is_slave):
            state.offsets.cut(state.store.max_queue_offset)
        if not config.replicates:
            _begin_epoch_if_replicated(state)
        self._held.push_async_callback(self._end_writes)
        self._make_features(state)
        state.runtime_sources.append(partial(plugin_figures, self.kernel))
        self.server = self._make_server()
        self._held.push_async_callback(self.server.close, config.broker.shutdown_timeout_ms / 1000)

    def _make_features(self, state: BrokerState) -> None:
        """Services and intake steps, as plugins registered them."""
        self.timers.on_failed = self.kernel.blame_code
        state.timers = self.timers
        state.services = self._services.all
        self._services.make(state)
        self._held.push_async_callback(self._services.stop)
        state.runtime_sources.append(self._services.figures)
        state.intake_steps = IntakeSteps(
            [self.kernel.guarded(entry, entry.value)(state) for entry in self.kernel.registries.intake_steps.all()]
        )
        state.intake = MessageIntake(state, state.intake_steps)

    def _watch_loop(self) -> None:
        warn_ms = self.loaded.config.listen.loop_blocked_warn_ms
        if warn_ms:
            watchdog = LoopWatchdog(warn_ms, self.kernel.code.owner_of)
            watchdog.start()
            self._held.callback(watchdog.stop)
            self.state.runtime_sources.append(watchdog.figures)

    async def _advertise(self, state: BrokerState, host: str, port: int) -> None:
        """Says who the broker is: clients are told a name as it is, records carry the address behind it."""
        listen = state.config.listen
        self._port = state.port = port
        told = listen.advertised_host
        as_client = told == CLIENT and host in EVERY_INTERFACE
        if told is None or told == CLIENT:
            told = reachable_host(host)
        state.advertise(
            told,
            listen.advertised_port or port,
            await _ip_of(told) or reachable_host(host),
            Advertised.of(listen.advertised, as_client=as_client),
        )

    def _assemble(self) -> Kernel:
        from flintmq.plugins.broker.processors import ProcessorsPlugin

        config = self.loaded.config
        kernel = Kernel.assemble(
            config.plugins,
            (*BUILTIN_PLUGINS, ProcessorsPlugin()),
            objects=self._plugins,
            disabled=config.disabled_plugins,
            config_path=config_path(self.loaded),
            clock=self._clock,
        )
        self._services = Services(kernel, log)
        self._settings = PluginSettings(kernel, self.loaded, self._clock)
        self._settings.check()
        check_required(config, kernel)
        return kernel

    def _bind(self) -> tuple[str, int]:
        listen = self.loaded.config.listen
        if listen.vip:
            self._sockets += bind_with_vip(listen.host, listen.port)
        else:
            self._sockets.append(bind(listen.host, listen.port))
        for sock in self._sockets:
            self._held.callback(sock.close)
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    def _open_store(self, state: BrokerState) -> Registered[FlushStrategy]:
        config = state.config
        registered = self.kernel.registries.flush_strategies.pick(config.flush.strategy)
        strategy = registered.value
        strategy = attrs.evolve(strategy, factory=self.kernel.guarded(registered, strategy.factory))
        settings = self._settings.of_strategy(registered)
        pool = None
        if strategy.uses_pool:
            buffers = getattr(settings, "pool_size", config.flush.commit_real_time.pool_size)
            made_by = self.kernel.registries.pools.pick(config.flush.pool)
            pool = self.kernel.guarded(made_by, made_by.value)(buffers, config.store.commit_log_file_bytes)
        store = MessageStore(
            config,
            strategy,
            tags_codes_of(self.kernel.registries.features_topics()),
            settings=settings,
            pool=pool,
            disk=self._disk,
            clock=self._clock,
            make_queues=partial(self._make_queues, state),
            make_index=partial(self._make_index, state),
            indexes=any(entry.name == INDEX and entry.owner.built_in for entry in self._named_dispatchers(config)),
        )
        self._load_filters(state)
        state.store = store
        store.open()
        _persist("notes on tags codes", store.begin_tags_codes)
        return registered

    def _make_queues(self, state: BrokerState, _folder: StoreFolder) -> ConsumeQueues:
        """The dispatcher ``consume_queue`` of the configuration."""
        (entry,) = [entry for entry in self._named_dispatchers(state.config) if entry.name == CONSUME_QUEUE]
        made = self.kernel.guarded(entry, entry.value)(self._context(state, entry))
        CONSUME_QUEUES.check_made(entry.owner, entry.name, made)
        return cast("ConsumeQueues", made)

    def _make_index(self, state: BrokerState, _folder: StoreFolder) -> IndexBuilder:
        registered = self.kernel.registries.index_builders.pick(state.config.index.builder)
        return self.kernel.guarded(registered, registered.value)(self._context(state, registered))

    def _load_filters(self, state: BrokerState) -> None:
        self.kernel.probe_filters()
        state.filters = {kind: self.kernel.filter_factory(kind) for kind in self.kernel.registries.filters.names()}

    def _fill(self, state: BrokerState) -> None:
        """Tables, from the store's ``config`` folder."""
        config, clock = state.config, self._clock
        boot = boot_topics(
            cluster=config.broker.cluster,
            broker_name=config.broker.name,
            auto_create=config.topics.auto_create,
            default_queue_nums=config.topics.default_queue_nums,
            cluster_topic=config.topics.cluster_topic,
            broker_topic=config.topics.broker_topic,
            trace_topic=config.topics.trace_topic_name if config.topics.trace_topic_enable else None,
            features=self.kernel.registries.features_topics(),
        )
        state.topics = TopicConfigManager(
            self._file("topics.json"),
            clock,
            boot,
            auto_create=config.topics.auto_create,
            count_max=config.topics.count_max,
            journal=ConfigJournal(self.store_path / "flint" / "new-topics", self._disk),
            features=self.kernel.registries.features_topics(),
        )
        state.groups = SubscriptionGroupManager(
            self._file("subscriptionGroup.json"),
            clock,
            auto_create=config.groups.auto_create,
            count_max=config.groups.count_max,
            journal=ConfigJournal(self.store_path / "flint" / "new-groups", self._disk),
        )
        state.offsets = ConsumerOffsetManager(self._file("consumerOffset.json"), entries_max=config.offsets.entries_max)
        for table in (state.topics, state.groups, state.offsets):
            table.load()
        state.consumers = ConsumerTable(clock, notify_ids_changed=config.groups.notify_ids_changed)
        state.producers = ProducerTable(clock)
        state.locks = RebalanceLockManager(clock)
        state.hold = PullRequestHoldService(
            clock,
            state.store.max_queue_offset,
            held_max=config.pull.held_max,
            held_per_connection_max=config.pull.held_per_connection_max,
        )
        state.readers = Readers(state.offsets)
        counted = frozenset(topic.name for topic in self.kernel.registries.features_topics() if topic.counts_queues)
        state.stats = BrokerStats(clock, config.broker.cluster, counted)
        state.sink = MessageSink(state.store, state.stats, state.dispatch)

    def _file(self, name: str) -> JsonFile:
        return JsonFile(self.store_path / "config" / name, self._disk)

    def _context(self, state: BrokerState, registered: Registered[Any]) -> DispatcherContext:
        return DispatcherContext(
            store=state.store,
            folder=state.store.folder,
            settings=self._settings.of(registered),
            clock=self._clock,
            filters=state.filters,
        )

    def _named_dispatchers(self, config: BrokerConfig) -> tuple[Registered[DispatcherFactory], ...]:
        """Those of the configuration that are switched on, in its order."""
        self.kernel.registries.check_dispatchers(config.dispatchers)
        off = {
            name
            for name, on in ((INDEX, config.index.enable), (FILTER_BITMAP, config.pull.calc_filter_bitmap))
            if not on
        }
        plain = [name.rpartition("/")[2] for name in config.dispatchers]
        names = [full for full, name in zip(config.dispatchers, plain, strict=True) if name not in off]
        if FILTER_BITMAP not in (*off, *plain):
            names.insert(0, FILTER_BITMAP)
        return self.kernel.registries.dispatchers.pick_all(names)

    def _dispatchers(self, state: BrokerState) -> list[CommitLogDispatcher]:
        dispatchers: list[CommitLogDispatcher] = []
        for entry in self._named_dispatchers(state.config):
            made: CommitLogDispatcher = state.store.consume_queues
            if entry.name != CONSUME_QUEUE:
                made = self.kernel.guarded(entry, entry.value)(self._context(state, entry))
            essential = entry.essential or entry.name == CONSUME_QUEUE
            dispatchers.append(self.kernel.isolate(made, entry.owner, essential, entry.name))
        return dispatchers

    def _connect_store(self, state: BrokerState, strategy: Registered[FlushStrategy]) -> None:
        store = state.store
        store.reput.arrived.subscribe(state.hold.arrived)
        if strategy.value.synchronous or strategy.value.uses_pool:
            store.progressed.subscribe(state.progressed)
        store.fenced.subscribe(self._fenced)

    def _fenced(self, reason: str) -> None:
        """On the flush service's thread."""
        self.state.loop.call_soon_threadsafe(self.kernel.fenced, self, reason)

    # sockets

    def pool(self, name: str, threads: int = 0) -> Pool:
        """The bounded queue of a name; for request processors.

        Args:
            threads: how many run its plain handlers; 0 for the loop.
        """
        if name not in self.pools:
            admission = self.loaded.config.admission
            capacity = getattr(admission, f"{name}_queue", None)
            if capacity is not None:
                self.pools[name] = Pool(name, capacity)
            else:
                self.pools[name] = Pool(name, admission.admin_queue, key="admission.admin_queue")
        pool = self.pools[name]
        if threads:
            if pool.threads is None:
                pool.threads = HandlerThreads(name, threads)
                self._held.push_async_callback(pool.threads.close, THREADS_END_S)
            pool.threads.grow(threads)
        return pool

    def _pool_of(self, entry: Registered[ProcessorSpec], name: str) -> Pool:
        return self.pool(name, entry.value.threads[name])

    def _request_failed(self, request: Request, error: BaseException) -> None:
        entry = self._handled_by.get(request.code)
        if entry is not None:
            self.kernel.blame(entry, f"request {request.code}", error)
        elif self._parts.default is not None:
            self.kernel.blame(self._parts.default, "handle", error)

    def _make_server(self) -> RemotingServer:
        config = self.loaded.config
        authenticators = Authenticators(
            self.kernel, self._settings, config, config.authenticators_in_force, acl_key="acl.enable"
        )
        self.authenticators = authenticators.in_force
        authenticators.start(self.timers)
        self.server = RemotingServer(
            self._clock,
            max_frame_bytes=config.listen.max_frame_bytes,
            max_connections=config.listen.max_connections,
            max_connections_per_address=config.listen.max_connections_per_address,
            max_buffered_bytes=config.listen.max_buffered_bytes,
            idle_timeout_ms=config.listen.idle_timeout_ms,
            backlog=config.listen.backlog,
            authenticators=self.authenticators,
            on_closed=self._channel_closed,
            on_failed=self._request_failed,
            on_authenticator_failed=authenticators.failed,
        )
        for entry in self.kernel.registries.processors_of("broker"):
            made = self.kernel.guarded(entry, entry.value.factory)(self)
            where = PROCESSOR.where(entry.owner, entry.name)
            self.server.table.add_processor(made, entry.value.declarations, partial(self._pool_of, entry), where)
            self._handled_by.update(dict.fromkeys(entry.value.codes, entry))
        self._parts = ServerParts(self.kernel, "broker", self)
        self._parts.attach(self.server, self.pool)
        self.state.answers_as_bytes = not self._parts.hooks.after
        return self.server

    def _channel_closed(self, channel: ServerChannel) -> None:
        state = self.state
        state.hold.close_channel(channel)
        state.consumers.close_channel(channel)
        state.producers.close_channel(channel)

    # in-process

    def put(self, messages: Iterable[Puttable]) -> PutBatch:
        """Stores messages without a socket.

        From the thread of the broker's loop: they are appended at once; ``await`` what is returned to know that they are as
        durable as the flush strategy promises. From any other thread: the loop appends them, and this returns when they are
        durable. Where that thread runs a loop of its own, which must not wait for a disk, and the broker was started with
        ``async with``, this returns when they are appended, and what is returned is awaited there. Messages with
        ``wait_store=False`` are waited for nowhere.

        Raises:
            RefusedError: a message is not acceptable, or the store takes none now.
            FlintError: the broker does not run, or nobody runs its loop.
        """
        batch = list(messages)
        self._check_running()
        if not self.is_elsewhere:
            return self._put_here(batch)
        waits = self.in_own_thread or not _in_a_loop()

        async def stored() -> PutBatch:
            made = self._put_here(batch)
            if waits:
                await made
            return made

        return self.call(stored)

    def _check_running(self) -> None:
        if self._closed:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now: the broker does not run",
                reason="broker.stopped",
            )

    def _put_here(self, batch: list[Puttable]) -> PutBatch:
        self._check_running()
        if self._put is None:
            from flintmq.plugins.broker.in_process import InProcessPut  # a broker that is served has no such callers

            self._put = InProcessPut(self.state)
        return self._put.put(batch)

    # stop

    async def stop(self) -> None:
        if not self._started or self._stopped:
            return
        self._stopped = True
        self.kernel.stopping(self)
        await self._release()
        log.info("broker %s stopped", self.loaded.config.broker.name)

    async def _release(self) -> None:
        """Gives everything back, however far the start came."""
        self.timers.cancel()
        await self._held.aclose()

    async def _end_writes(self) -> None:
        """Makes the log durable, then writes the positions that stand for it: no delivered message comes again."""
        self._closed = True
        self.state.hand_over_store()
        try:
            await asyncio.to_thread(self.state.store.end_writes)
        except StoreError as error:  # positions that stand for more than is on disk are not written then
            log.error("the log could not be made durable: %s", error)
        self._services.persist()

    async def _close_store(self) -> None:
        self._closed = True
        self.state.hand_over_store()
        # Every file is synced here; the loop goes on meanwhile.
        await asyncio.to_thread(self.state.store.close)


def _in_a_loop() -> bool:
    """Whether an event loop runs in the caller's thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _persist(what: str, persist: Callable[[], object]) -> None:
    try:
        persist()
    except StoreError as error:  # a full disk: what was written last still counts
        log.error("the newest %s are lost: %s", what, error)


def _begin_epoch_if_replicated(state: BrokerState) -> None:
    """A store that once was a master's stays one while nobody may follow: what is written is of an epoch of its own."""
    if any(epoch.cause == MASTER for epoch in state.store.epochs.epochs.entries):
        state.store.become_master()


async def _ip_of(name: str) -> str | None:
    """The address of a host; None, with a warning, where its name is not known here (outside of a container it may be)."""
    with contextlib.suppress(ValueError):
        pack_ip(name)
        return name  # as it stands: to ask the system would take a thread, and Python's tables of international names
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        log.warning(
            "the address of listen.advertised_host %s is not known here: %s; message ids hold another", name, error
        )
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


EVERY_INTERFACE: Final = ("0.0.0.0", "::")


def reachable_host(host: str) -> str:
    """What clients are told when the broker listens on every address: one of this machine's that is not the loopback."""
    if host not in EVERY_INTERFACE:
        return host
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    addresses = [str(entry[4][0]) for entry in found]
    return next((address for address in addresses if not address.startswith("127.")), "127.0.0.1")
