"""What a plugin may touch of a broker.

The factories of services and intake steps are given a :class:`BrokerApi`. The tables behind it are those that the built-in
features use; each is documented where it is defined. Everything here belongs to the thread of the broker's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.broker.address import BrokerAddress
    from flintmq.core.broker.consumers import ConsumerTable
    from flintmq.core.broker.followers import Followers
    from flintmq.core.broker.groups import SubscriptionGroupManager
    from flintmq.core.broker.intake_steps import IntakeSteps
    from flintmq.core.broker.offsets import ConsumerOffsetManager
    from flintmq.core.broker.outlet import MessageOutlet
    from flintmq.core.broker.producers import ProducerTable
    from flintmq.core.broker.queue_locks import RebalanceLockManager
    from flintmq.core.broker.readers import Readers
    from flintmq.core.broker.role import Role
    from flintmq.core.broker.sink import MessageSink
    from flintmq.core.broker.stats import BrokerStats
    from flintmq.core.broker.topics import TopicConfigManager
    from flintmq.core.io.clock import Clock, Scheduled
    from flintmq.core.io.config_manager import JsonFile
    from flintmq.core.kernel.ports.alarm import Alarm
    from flintmq.core.kernel.ports.auth import Authenticator
    from flintmq.core.kernel.ports.filter import MessageFilterFactory
    from flintmq.core.kernel.ports.service import Service
    from flintmq.core.store.message_store import MessageStore

T = TypeVar("T")


class PeriodicTimers(Protocol):
    """Work that is done again and again on the loop's thread. What it raises is counted for its plugin; it is called again."""

    def every(
        self, interval_s: float, work: Callable[[], object], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Call ``work`` every so many seconds, first after one interval, until what is returned is cancelled.

        Args:
            name: what the work is, for the log and for the figures of failures.
            rest_s: of work that merely looks whether something has come; see :meth:`flintmq.core.io.clock.Clock.call_later`.
        """
        ...

    def pace(
        self, first_s: float, work: Callable[[], float], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Call ``work`` after so many seconds; it returns after how many seconds it wants to be called again.

        That goes on until what is returned is cancelled."""
        ...


class BrokerApi(Protocol):
    """The surface of a broker for plugins: its settings, its tables, its store, its time.

    A property that is a table is the same object as long as the broker runs. Nothing here may be called from another thread
    except through ``loop.call_soon_threadsafe``.
    """

    role: Role
    """Whether the broker is a master or a slave now. It may change while the broker runs; the configuration has the role of the
    start."""

    @property
    def config(self) -> BrokerConfig:
        """The settings in force. Some change while the broker runs: read them when they are needed."""
        ...

    @property
    def clock(self) -> Clock:
        """The time. Tests turn it."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop on whose thread the broker works."""
        ...

    @property
    def store(self) -> MessageStore:
        """The store: ``reader`` reads queues and messages, ``watermarks`` has every position. Messages are put through
        :attr:`sink`."""
        ...

    @property
    def sink(self) -> MessageSink:
        """The one way to put messages: it appends, asks for durability, counts, and makes visible what was stored."""
        ...

    @property
    def outlet(self) -> MessageOutlet:
        """The one way to read messages: for groups with all checks, for features without; and to wait for messages."""
        ...

    @property
    def topics(self) -> TopicConfigManager:
        """The table of topics. A feature that remembers something by topic subscribes to its ``deleted``; so with groups."""
        ...

    @property
    def filters(self) -> Mapping[str, MessageFilterFactory]:
        """The factories of message filters, by expression type."""
        ...

    @property
    def groups(self) -> SubscriptionGroupManager:
        """The table of subscription groups."""
        ...

    @property
    def offsets(self) -> ConsumerOffsetManager:
        """How far each group has consumed each queue."""
        ...

    @property
    def consumers(self) -> ConsumerTable:
        """The consumers that are connected."""
        ...

    @property
    def producers(self) -> ProducerTable:
        """The producers that are connected, and can be asked about their transactions."""
        ...

    @property
    def locks(self) -> RebalanceLockManager:
        """The queues that clients of ordered groups have locked."""
        ...

    @property
    def stats(self) -> BrokerStats:
        """The counters behind requests 28 and 315."""
        ...

    @property
    def followers(self) -> Followers:
        """What is told of each append, answer and pull: the services that are
        :class:`~flintmq.core.kernel.ports.FollowsMessages`."""
        ...

    @property
    def readers(self) -> Readers:
        """What retention waits for: the groups, and features that read topics of their own."""
        ...

    @property
    def intake_steps(self) -> IntakeSteps:
        """The steps that a message passes before it is stored, for a feature that puts messages on behalf of clients."""
        ...

    @property
    def timers(self) -> PeriodicTimers:
        """Work that is done again and again, from the start of the services to the stop of the broker."""
        ...

    @property
    def address(self) -> BrokerAddress:
        """How the broker is reached: the address that clients get, and the one that records carry."""
        ...

    @property
    def ha_port(self) -> int:
        """The port that slaves replicate from, or would if this broker were a master that has some."""
        ...

    def dispatch(self) -> None:
        """Make what was appended visible as far as it is durable: queues, index, held pulls."""
        ...

    def alarms(self) -> list[Alarm]:
        """Return what is wrong now by all that the broker knows, critical alarms first (docs/alarms.md)."""
        ...

    def file(self, name: str) -> JsonFile:
        """Return the table ``config/<name>`` of the store's folder, which is written through the broker's disk."""
        ...

    def service(self, kind: type[T]) -> T:
        """Return the service of a class, for another part of the feature that registered it.

        Raises:
            LookupError: the service is not registered.
        """
        ...

    def services_with(self, protocol: type[T]) -> Iterator[T]:
        """Return the services that support a protocol of :mod:`flintmq.core.kernel.ports`, in the order of registration."""
        ...


class BrokerHandle(Protocol):
    """The running broker, as the hooks of its life are given it."""

    @property
    def state(self) -> BrokerApi:
        """What a plugin may touch."""
        ...

    @property
    def authenticators(self) -> tuple[Authenticator, ...]:
        """The authenticators in force, in the order in which they are asked."""
        ...

    @property
    def address(self) -> str:
        """The address that clients get, ``host:port``."""
        ...

    @property
    def port(self) -> int:
        """The port that the broker listens on."""
        ...


ServiceFactory = Callable[..., "Service | None"]
"""Makes a service of the :class:`BrokerApi`, and of a plugin's context where it has an argument for it; or None where the
configuration asks for none. The store is recovered and the tables are loaded; nothing listens, and no other service has
started."""
