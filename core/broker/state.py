"""The broker's state in one place: what processors, timers and the composition root share. Loop thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.api import PeriodicTimers
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
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.subscription import SQL92
from flintmq.core.broker.topics import TopicConfigManager
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.io.json_file import JsonFile
from flintmq.core.kernel.ports import MessageFilterFactory, Service
from flintmq.core.kernel.ports.replication import SupportsReplication
from flintmq.core.record.host import pack_host
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.advertised import Advertised, host_port
from flintmq.core.store.message_store import MessageStore

T = TypeVar("T")


class BrokerState:
    """Everything a broker knows, without sockets. Built by :class:`flintmq.plugins.broker.broker.Broker`; what plugins are
    given as their :class:`~flintmq.core.broker.api.BrokerApi`."""

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    readers: Readers
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerTable
    producers: ProducerTable
    locks: RebalanceLockManager
    hold: PullRequestHoldService
    intake_steps: IntakeSteps
    intake: MessageIntake
    timers: PeriodicTimers
    stats: BrokerStats
    sink: MessageSink
    filters: Mapping[str, MessageFilterFactory]
    """By expression type."""
    loop: asyncio.AbstractEventLoop
    store_host: bytes
    """The advertised address, packed; part of every record and message id."""
    store_host_hex: str
    advertised_address: str
    """``host:port`` that the broker registers under, and that clients are told as far as :attr:`advertised` says no other."""
    port: int
    """The port that the broker listens on."""
    advertised: Advertised
    on_config: Callable[[BrokerConfig], None]
    """Told when settings changed while running."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.services: Callable[[], Iterable[Service]] = tuple
        """The services, in the order of their registration."""
        self.runtime_sources: list[Callable[[], Mapping[str, str]]] = []
        """Further figures for request 28."""
        self.answers_as_bytes = True
        """Whether ordinary answers may be written as they are sent: no plugin's hook wants to see them."""
        self._dispatching = False
        self._closing = False

    def advertise(self, host: str, port: int, ip: str | None = None, advertised: Advertised = Advertised()) -> None:
        """Sets the address that clients are told and that records carry.

        Args:
            host: a name or an address.
            ip: its address, where it is a name.
            advertised: what else clients are told.
        """
        self.store_host = pack_host(ip or host, port)
        self.store_host_hex = self.store_host.hex().upper()
        self.advertised_address = host_port(host, port)
        self.advertised = advertised

    def update_config(self, config: BrokerConfig) -> None:
        """Takes settings that may change while running."""
        before, self.config = self.config, config
        self.store.update_config(config)
        self.groups.auto_create = config.groups.auto_create
        self.consumers.notify_ids_changed = config.groups.notify_ids_changed
        self.topics.allow_auto_create(config.topics.auto_create, config.topics.default_queue_nums)
        if config.broker.permission != before.broker.permission:
            self.topics.changed.publish()  # name servers are told what clients may do
        self.on_config(config)

    def filter_factory(self, expression_type: str) -> MessageFilterFactory:
        """Makes filters of a type: tags, SQL92 where it is switched on, or what a plugin registered.

        Raises:
            RefusedError: SQL92 is switched off, or nobody registered the type.
        """
        factory = self.filters.get(expression_type)
        allowed = self.config.pull.property_filter
        if factory is not None and (allowed or expression_type != SQL92):
            return factory
        if expression_type == SQL92 and not allowed:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
                reason="filter.off",
                key="pull.property_filter (enablePropertyFilter)",
            )
        known = f"types that have a filter: {', '.join(sorted(self.filters))}"
        if allowed:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"there is no filter of type {expression_type[:80]}",
                reason="filter.unknown",
                measured=known,
            )
        raise RefusedError(  # as RocketMQ, which looks at its setting first
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type[:80]}",
            reason="filter.unknown",
            measured=known,
        )

    def file(self, name: str) -> JsonFile:
        """Return the table ``config/<name>`` of the store's folder."""
        return JsonFile(Path(self.config.store.path) / "config" / name, self.store.disk)

    def service(self, kind: type[T]) -> T:
        """Return the service of a class. Raises ``LookupError`` where there is none."""
        for service in self.services():
            if isinstance(service, kind):
                return service
        raise LookupError(f"there is no service {kind.__name__}")

    def services_with(self, protocol: type[T]) -> Iterator[T]:
        """Return the services that support a protocol, in the order of their registration."""
        return (service for service in self.services() if isinstance(service, protocol))

    @property
    def ha_port(self) -> int:
        """The port that slaves replicate from, or would if this broker were a master that has some."""
        found = next(self.services_with(SupportsReplication), None)  # type: ignore[type-abstract]
        return (found.ha_port if found is not None else 0) or self.config.listen.ha_port or self.port + 1

    def has_master(self) -> bool:
        """Return whether this is a slave whose master can be reached."""
        return any(service.is_following for service in self.services_with(SupportsReplication))  # type: ignore[type-abstract]

    def dispatch(self) -> None:
        """Makes what is readable visible: queues, index, held pulls. Goes on with the loop's next turn while more is left;
        until then whoever calls this does not take another share of this one."""
        if not self._dispatching:
            self._dispatch_some()

    def _dispatch_some(self) -> None:
        self._dispatching = False
        if not self._closing and self.store.dispatch():
            self.dispatch_soon()

    def hand_over_store(self) -> None:
        """From now on another thread closes the store: nothing is dispatched here, whatever a flush still makes readable."""
        self._closing = True

    def dispatch_soon(self) -> None:
        """Likewise, with the loop's next turn."""
        if not self._dispatching:
            self._dispatching = True
            self.loop.call_soon(self._dispatch_some)

    def progressed(self) -> None:
        """A flush made more readable. Any thread."""
        self.loop.call_soon_threadsafe(self.dispatch_soon)
