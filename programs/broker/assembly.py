"""Assembles a broker: store, tables, state, dispatchers, services, server, and the steps that check or redirect a message
before it is stored (intake steps)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.broker.alarm_figures import alarm_figures
from flintmq.core.broker.figures import Figures
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.role import Role
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import StoreError, store_errors
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.hookspecs import ApiContext
from flintmq.core.kernel.ports import Measurement
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.core.log.epochs import MASTER
from flintmq.core.log_events import event_log
from flintmq.core.recovery.small_files import TOPICS, check_small_files
from flintmq.programs.broker.authenticators import Authenticators
from flintmq.programs.broker.plugin_figures import plugin_alarms, plugin_figures, plugin_measurements
from flintmq.programs.broker.plugin_server import PluginServer, Pools
from flintmq.programs.broker.running import in_thread_to_its_end
from flintmq.programs.broker.services import Services
from flintmq.programs.broker.store_assembly import StoreAssembly
from flintmq.remoting.server.broker_server import BrokerServer

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.broker.address import BrokerAddress
    from flintmq.core.io.clock import Clock
    from flintmq.core.io.disk import Disk
    from flintmq.core.kernel.kernel import Kernel
    from flintmq.core.kernel.ports import SystemTopic
    from flintmq.core.store.message_store import MessageStore
    from flintmq.programs.broker.loading import PluginSettings
    from flintmq.programs.broker.service import Timers
    from flintmq.remoting.server.channel import ServerChannel

log = event_log("flintmq.broker")


class Assembly:
    """All objects of one broker that plugins and configuration determine. For the loop thread only.

    Created objects are released through ``held`` in reverse order, even if the assembly fails midway.

    Args:
        kernel: the registry of plugins, with the objects that they registered.
        settings: the configuration, with the plugins' sections.
        address: the addresses of the broker.
        disk: the disk that the store reads, writes and syncs.
        clock: the clock.
        timers: runs periodic work.
        held: releases the created objects.

    Raises:
        ConfigError, PluginError: the configuration or a plugin is not valid; the error names the place.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: PluginSettings,
        address: BrokerAddress,
        *,
        disk: Disk,
        clock: Clock,
        timers: Timers,
        held: AsyncExitStack,
    ) -> None:
        self.kernel = kernel
        self.config = config = settings.loaded.config
        self._pools = pools = Pools(held, config.admission)
        self.is_closing = False
        """Whether the broker's stop has begun, so that the store accepts no more messages."""
        self.services = Services(kernel, log)
        features = kernel.registries.features_topics()
        role = Role(config.broker.role, config.broker.id)
        stores = StoreAssembly(config, kernel, settings, disk, clock, role)
        store = stores.open()
        # Closing the store syncs every file, so it runs in a thread and does not block the event loop.
        held.push_async_callback(in_thread_to_its_end, store.close)
        counted = frozenset(topic.name for topic in features if topic.counts_queues)
        lacking = _check_small_files(store)
        authenticators = Authenticators(kernel, config, config.authenticators_in_force, acl_key="acl.enable")
        authenticators.start(timers)
        self.served = self._server(clock, authenticators)
        self._port = BrokerServer(self.served.server, pools.get, authenticators.in_force)
        stats = BrokerStats(clock, config.broker.cluster, counted)
        self.state = state = BrokerState(
            config,
            clock,
            loop=asyncio.get_running_loop(),
            address=address,
            store=store,
            topics=_load_topics(config, features, disk, clock),
            groups=_load_groups(config, disk, clock),
            offsets=_load_offsets(config, disk),
            stats=stats,
            filters=stores.filters,
            timers=timers,
            role=role,
            server=self._port,
            figures=Figures(stats, lambda: kernel.calling("a source of runtime figures")),
            loaded=settings.loaded,
            services=self.services.all,
            intake_steps=IntakeSteps(),
        )
        _prepare_tables(state, is_incomplete=TOPICS in lacking)
        held.callback(self._hand_over)
        store.reput.arrived.subscribe(state.outlet.held.arrived)
        if stores.waits_for_flushes:
            store.progressed.subscribe(state.progressed)
        if not config.replicates:
            _begin_epoch_if_replicated(state)
        role.changed.subscribe(self._role_changed)
        held.push_async_callback(self._end_writes)
        self.services.make(state)
        held.push_async_callback(self.services.stop)
        for entry in kernel.registries.intake_steps.all():
            step = kernel.make(entry, entry.value, kernel.context(entry, ApiContext, api=state.api))
            if step is not None:
                state.intake_steps.add(step)
        self._publish()
        held.push_async_callback(self.served.server.close, config.broker.shutdown_timeout_ms / 1000)

    def _server(self, clock: Clock, authenticators: Authenticators) -> PluginServer:
        listen = self.config.listen
        return PluginServer(
            self.kernel,
            "broker",
            listen,
            idle_timeout_ms=listen.idle_timeout_ms,
            clock=clock,
            authenticators=authenticators,
            on_closed=self._channel_closed,
        )

    def _publish(self) -> None:
        """Connect the figures and alarms of all parts with the broker's figures and alarms."""
        kernel, state, pools, figures = self.kernel, self.state, self._pools, self.state.figures
        for texts in (self.services.figures, partial(plugin_figures, kernel), partial(alarm_figures, state.alarms)):
            figures.add(texts)
        figures.add(pools.figures, first=True)
        for measured in (
            partial(self.served.measurements, state.stats.not_durable),
            pools.measurements,
            lambda: (Measurement("flintmq_held_pulls", len(state.outlet.held)),),
            partial(plugin_measurements, kernel),
            self.services.metrics,
        ):
            figures.add_measurements(measured)
        for alarmed in (self.services.alarms, partial(plugin_alarms, kernel), partial(_mended, state.store)):
            state.alarms.add(alarmed)

    def add_parts(self) -> None:
        """Create the request processors, and the connection listeners and RPC hooks of plugins.

        Raises:
            ConfigError, PluginError: a plugin is at fault; the error names the plugin.
        """
        self.served.add_parts(self.state.api, self._pools)
        self._port.answers_as_bytes = not self.served.server.hooks.after

    def _channel_closed(self, channel: ServerChannel) -> None:
        state = self.state
        state.outlet.held.close_channel(channel)
        state.consumers.close_channel(channel)
        state.producers.close_channel(channel)

    def _role_changed(self) -> None:
        """Prepare the store of a slave that becomes a master. This method is called before the services are notified of the new
        role, so no service has appended a message yet."""
        if self.state.role.takes_writes:
            self.state.store.number_messages()
            _begin_epoch_if_replicated(self.state)

    def _hand_over(self) -> None:
        self.is_closing = True
        self.state.hand_over_store()

    async def _end_writes(self) -> None:
        """Sync the log, and then write the consumer offsets that refer to the log, so that no consumed message is delivered
        again."""
        self._hand_over()
        try:
            await in_thread_to_its_end(self.state.store.end_writes)
        except StoreError as error:
            # If the log cannot be synced, the broker still stops.
            # The broker's tables are saved without the consumer offsets that are past the end of the synced log.
            log.error("store.not_durable", "the log could not be made durable: %(error)s", error=error)
        self.services.persist()


def _check_small_files(store: MessageStore) -> list[str]:
    """Check the files of the tables before they are read, and return the tables that may lack entries. Raises StoreError."""
    noted = store.noted
    with store_errors(store.root):
        is_outdated = noted is not None and noted.is_stop and store.watermarks.wrote > noted.log_end
        lacking = check_small_files(
            store.disk,
            store.root,
            noted,
            store.changed,
            is_outdated=is_outdated,
            is_unused=store.watermarks.wrote == 0,
        )
    store.mended += lacking
    return lacking


def _prepare_tables(state: BrokerState, *, is_incomplete: bool) -> None:
    """Adapt the tables to the messages that the store has after its recovery.

    Add topics that are missing in the table of topics. After an unclean stop, lower the consumer offsets that are past the end
    of their queue. A slave does neither, because it copies these tables from its master. Record the queues of the store.
    """
    store = state.store
    if state.role.takes_writes:
        _complete_topics(state, is_incomplete=is_incomplete)
        if not store.started_clean:
            state.offsets.cut(store.reader.max_queue_offset)
    state.topics.widths.note_queues(store.consume_queues.queues)


def _mended(store: MessageStore) -> list[Alarm]:
    if not store.mended:
        return []
    text = (
        f"this start found parts of the store lost, damaged or not as they were noted: {', '.join(store.mended)}; the log "
        "describes each repair; find out why the disk or the files changed, then restart"
    )
    return [Alarm("store.mended", WARNING, "", text, len(store.mended), "parts", key="store.path")]


def _complete_topics(state: BrokerState, *, is_incomplete: bool) -> None:
    """Find topics that are missing in the table of topics although their queues have messages. If the table is known to be
    incomplete, recreate these topics; otherwise log their names.

    After an orderly stop of the broker the table has the topics of all queues. After a kill the table's last changes may be
    missing.
    """
    store, topics = state.store, state.topics
    if not is_incomplete and (store.started_clean or store.noted is None):
        return
    numbers: dict[str, int] = {}
    for (topic, queue_id), queue in store.consume_queues.queues.items():
        is_own = topics.is_system_topic(topic) or topic in topics.holding_topics or topic in topics.forbidden_topics
        if topic not in topics and not is_own and queue.max_queue_offset > queue.min_queue_offset:
            numbers[topic] = max(numbers.get(topic, 0), queue_id + 1)
    if not numbers:
        return
    names = ", ".join(f"{topic} ({count} queues)" for topic, count in sorted(numbers.items())[:10])
    if is_incomplete:
        log.warning(
            "store.topics_made_again",
            "%(count)d topics are made again, as wide as their queues with messages: %(topics)s",
            count=len(numbers),
            topics=names,
        )
        for topic, count in sorted(numbers.items()):
            topics.create_in_send_back(topic, count)
    else:
        log.warning(
            "store.topics_unknown",
            "%(count)d topics have messages and are not in the table of topics; make them, or delete them: %(topics)s",
            count=len(numbers),
            topics=names,
        )
    store.mended.append(f"{len(numbers)} topics")


def _begin_epoch_if_replicated(state: BrokerState) -> None:
    """Begin a new epoch of the log if the store once belonged to a master with slaves. Another broker may then continue a copy
    of the same log, and different epochs distinguish the two logs."""
    if any(epoch.cause == MASTER for epoch in state.store.epochs.epochs.entries):
        state.store.become_master()


def _load_topics(
    config: BrokerConfig, features: tuple[SystemTopic, ...], disk: Disk, clock: Clock
) -> TopicConfigManager:
    """Return the table of a store's topics, including RocketMQ's system topics and those of plugins' features."""
    root = Path(config.store.path)
    boot = boot_topics(
        cluster=config.broker.cluster,
        broker_name=config.broker.name,
        auto_create=config.topics.auto_create,
        default_queue_nums=config.topics.default_queue_nums,
        cluster_topic=config.topics.cluster_topic,
        broker_topic=config.topics.broker_topic,
        trace_topic=config.topics.trace_topic_name if config.topics.trace_topic_enable else None,
        features=features,
    )
    topics = TopicConfigManager(
        JsonFile(root / "config" / "topics.json", disk),
        clock,
        boot,
        auto_create=config.topics.auto_create,
        count_max=config.topics.count_max,
        journal=ConfigJournal(root / "flint" / "new-topics", disk),
        features=features,
    )
    topics.load()
    return topics


def _load_groups(config: BrokerConfig, disk: Disk, clock: Clock) -> SubscriptionGroupManager:
    root = Path(config.store.path)
    groups = SubscriptionGroupManager(
        JsonFile(root / "config" / "subscriptionGroup.json", disk),
        clock,
        auto_create=config.groups.auto_create,
        count_max=config.groups.count_max,
        journal=ConfigJournal(root / "flint" / "new-groups", disk),
    )
    groups.load()
    return groups


def _load_offsets(config: BrokerConfig, disk: Disk) -> ConsumerOffsetManager:
    file = JsonFile(Path(config.store.path) / "config" / "consumerOffset.json", disk)
    journal = ConfigJournal(Path(config.store.path) / "flint" / "gone-offsets", disk)
    offsets = ConsumerOffsetManager(file, entries_max=config.offsets.entries_max, journal=journal)
    offsets.load()
    return offsets
