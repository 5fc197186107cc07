"""The state of a broker, which request processors, timers and the assembly share. Used only on the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from flintmq.config import LoadedConfig
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.address import BrokerAddress, ha_port
from flintmq.core.broker.alarms import Alarms
from flintmq.core.broker.api import BrokerApi, PeriodicTimers
from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.figures import Figures
from flintmq.core.broker.followers import Followers
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.intake import MessageIntake
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.log_copy import LogCopy, MasterTables
from flintmq.core.broker.log_files import LogFiles
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.older import OlderMessages
from flintmq.core.broker.outlet import MessageOutlet
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.broker.queue_locks import RebalanceLockManager
from flintmq.core.broker.readers import Readers
from flintmq.core.broker.role import Role
from flintmq.core.broker.settings import Settings
from flintmq.core.broker.sink import MessageSink
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.topics import TopicConfigManager
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import MessageFilterFactory, Service
from flintmq.core.kernel.ports.replication import SupportsReplication
from flintmq.core.kernel.ports.server import ServerPort
from flintmq.core.store.message_store import MessageStore

T = TypeVar("T")


class BrokerState:
    """The tables, the store and the services of a broker; RocketMQ's BrokerController without its threads.

    Plugins and request processors get the state's :attr:`api` instead.

    Args:
        config: the settings; some change while the broker runs.
        clock: the clock of the broker.
        loop: the event loop of the broker.
        address: the addresses of the broker.
        store: the opened store.
        topics: the table of topics.
        groups: the table of subscription groups.
        offsets: the table of consumer offsets.
        stats: the counters.
        filters: factories of message filters, keyed by expression type.
        timers: runs periodic work.
        role: whether the broker is a master or a slave.
        server: the server, as features see it.
        figures: the sources of figures; None for the counters alone.
        loaded: the configuration of the start, with the origin of each value; None for ``config`` without origins.
        services: returns the services in the order of their registration. They are made after the state.
        intake_steps: steps that redirect or refuse messages before they are stored. They are added after the state is made.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        loop: asyncio.AbstractEventLoop,
        address: BrokerAddress,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStats,
        filters: Mapping[str, MessageFilterFactory],
        timers: PeriodicTimers,
        role: Role,
        server: ServerPort,
        figures: Figures | None = None,
        loaded: LoadedConfig | None = None,
        services: Callable[[], Iterable[Service]] = tuple,
        intake_steps: IntakeSteps | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.loop = loop
        self.store = store
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.stats = stats
        self.filters = filters
        self.timers = timers
        self.role = role
        self.services = services
        self.consumers = ConsumerTable(clock, notify_ids_changed=config.groups.notify_ids_changed)
        self.readers = Readers(offsets, groups, self.consumers)
        self.producers = ProducerTable(clock)
        self.locks = RebalanceLockManager(clock)
        self.outlet = MessageOutlet(self)
        self.address = address
        self.store_host = address.packed
        """Advertised address of the broker in the binary form that records and message ids contain."""
        self.store_host_hex = address.packed.hex().upper()
        self.advertised_address = address.host_port
        """Address as ``host:port`` under which the broker registers. A client gets this address unless :attr:`address` has
        another address for the client."""
        self.figures = figures if figures is not None else Figures(stats)
        """Figures of GET_BROKER_RUNTIME_INFO (request 28), and measurements for monitoring systems."""
        self.alarms = Alarms()
        """Sources of the broker's alarms."""
        self.settings = Settings(self)
        self.loaded = loaded if loaded is not None else LoadedConfig(config, {}, {})
        self.server = server
        self._dispatching = False
        self._closing = False
        self.followers = Followers()
        """Services that are called for each append, each answer to a send and each pull."""
        self.older = OlderMessages()
        """Services that can return messages which retention has deleted from the store."""
        self.sink = MessageSink(store, stats, self.dispatch, self.followers)
        self.intake_steps = intake_steps if intake_steps is not None else IntakeSteps()
        self.intake = MessageIntake(self, self.intake_steps)
        topics.deleted.subscribe(self.forget_topic)
        groups.deleted.subscribe(stats.forget_group)
        self.api = BrokerApi(self)
        """Interface of the broker for plugins and request processors."""

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a new configuration, which may differ only in settings that can change while the broker runs."""
        before, self.config = self.config, config
        self.store.update_config(config)
        self.groups.auto_create = config.groups.auto_create
        self.consumers.notify_ids_changed = config.groups.notify_ids_changed
        self.topics.allow_auto_create(config.topics.auto_create, config.topics.default_queue_nums)
        if config.topics.default_queue_nums != before.topics.default_queue_nums:
            self.topics.resize_template(config.topics.default_queue_nums)
        if config.broker.permission != before.broker.permission:
            self.topics.permission_changed()

    def forget_topic(self, topic: str) -> None:
        """Remove the consumer offsets and the counters of a deleted topic. The store deletes its queues.

        The method is called when a topic is removed from the table. It can also be called for data about a topic that is not in
        the table.
        """
        self.offsets.remove_topic(topic)
        self.stats.forget_topic(topic)

    def service(self, kind: type[T]) -> T:
        """Return the broker's first service, dispatcher or privileged interface that is an instance of a class.

        The privileged interfaces, such as :class:`LogCopy`, let features change the store's files. The method raises
        ``LookupError`` if the broker has no instance of the class.
        """
        for found in self._parts():
            if isinstance(found, kind):
                return found
        raise LookupError(f"the broker has no service, dispatcher or other component of type {kind.__name__}")

    def _parts(self) -> Iterator[object]:
        yield from self.services()
        yield MasterTables(self.topics, self.groups, self.offsets)
        yield LogCopy(self.store)
        yield LogFiles(self.store, self.api.log)
        for dispatcher in self.store.reput.dispatchers:
            yield getattr(dispatcher, "inner", dispatcher)

    def services_with(self, protocol: type[T]) -> Iterator[T]:
        """Return the broker's services that support a protocol, in the order of their registration."""
        return (service for service in self.services() if isinstance(service, protocol))

    @property
    def ha_port(self) -> int:
        """Port on which slaves replicate from this broker; for a broker without slaves, the port that slaves would use."""
        replication = next(self.services_with(SupportsReplication), None)  # type: ignore[type-abstract]
        return ha_port(replication, self.config.listen.ha_port, self.address)

    def has_master(self) -> bool:
        """Return whether this broker is a slave that is connected to its master."""
        return any(service.is_following for service in self.services_with(SupportsReplication))  # type: ignore[type-abstract]

    def dispatch(self) -> None:
        """Dispatch readable records to the queues and the index, and resume held pulls.

        One call dispatches a limited number of records. The other records follow in the loop's next iterations. Until all are
        dispatched, further calls do nothing.
        """
        if not self._dispatching:
            self._dispatch_some()

    def _dispatch_some(self) -> None:
        self._dispatching = False
        if not self._closing and self.store.dispatch():
            self.dispatch_soon()

    def hand_over_store(self) -> None:
        """Stop the dispatch of records permanently, because another thread is about to close the store."""
        self._closing = True

    def dispatch_soon(self) -> None:
        """Schedule the dispatch of readable records for the loop's next iteration."""
        if not self._dispatching:
            self._dispatching = True
            self.loop.call_soon(self._dispatch_some)

    def progressed(self) -> None:
        """Schedule the dispatch of records because a flush has made more records readable. Can be called from any thread."""
        self.loop.call_soon_threadsafe(self.dispatch_soon)
