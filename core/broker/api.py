"""The interface of a broker for plugins.

The factories with which a plugin creates services or intake steps get a :class:`BrokerApi`. An intake step is an object that
changes, redirects or refuses messages before they are stored. The built-in features and request processors use
:class:`BrokerApi`, too. A :class:`BrokerApi` must be used on the thread of the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from flintmq.core.broker.feature_folder import FeatureFolder
from flintmq.core.broker.hold import HeldPull
from flintmq.core.broker.intake import NewMessage, Sender
from flintmq.core.broker.log_view import LogView
from flintmq.core.broker.outlet import Empty, Found, Peer, Wanted
from flintmq.core.broker.role import ASYNC_MASTER, MASTER_ID, SLAVE, SYNC_MASTER
from flintmq.core.broker.sink import Incoming, Stored
from flintmq.core.broker.tables import Clients, Groups, Offsets, Topics
from flintmq.core.broker.work import Work

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.io.clock import Scheduled
    from flintmq.core.kernel.ports.service import Service
    from flintmq.core.record.record import MessageExtBrokerInner

__all__ = [
    "ASYNC_MASTER",
    "MASTER_ID",
    "SLAVE",
    "SYNC_MASTER",
    "BrokerApi",
    "Empty",
    "Found",
    "HeldPull",
    "NewMessage",
    "Peer",
    "PeriodicTimers",
    "Sender",
    "ServiceFactory",
    "Stored",
    "Wanted",
]

T = TypeVar("T")


class PeriodicTimers(Protocol):
    """Runs periodic work on the loop's thread.

    If the work fails, the failure is counted for the plugin that started the work, and the work is run again at its next time.
    """

    def every(
        self, interval_s: float, work: Callable[[], object], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Call a function at an interval, first after one interval; return the timer, whose ``cancel`` ends the calls.

        Args:
            interval_s: the interval in seconds.
            work: the function to call.
            name: name of the work, for the log and for the figures of failures.
            rest_s: function for work that only polls. It returns the number of seconds for which polling will find nothing, so
                that a test's clock can skip these polls; see :meth:`flintmq.core.io.clock.Clock.call_later`.
        """
        ...

    def pace(
        self, first_s: float, work: Callable[[], float], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Call a function repeatedly, at intervals that it returns; return the timer, whose ``cancel`` ends the calls.

        Args:
            first_s: seconds until the first call.
            work: the function to call. It returns the seconds until its next call.
            name: name of the work, for the log and for the figures of failures.
            rest_s: has the same meaning as for :meth:`every`.
        """
        ...


class BrokerApi:
    """The interface of a broker for plugins and for request processors.

    Each attribute is the same object while the broker runs, and must not be assigned to. Methods are not thread-safe unless
    they say so. ``tests/core/broker/test_api.py`` limits the number of attributes and methods.
    """

    __slots__ = (
        "__weakref__",
        "_state",
        "address",
        "alarms",
        "clients",
        "clock",
        "figures",
        "folder",
        "groups",
        "intake",
        "log",
        "offsets",
        "outlet",
        "role",
        "server",
        "settings",
        "topics",
        "work",
    )

    def __init__(self, state: BrokerState) -> None:
        self._state: Final = state
        self.settings: Final = state.settings
        """Current settings of the broker, and its settings at the start. Some settings change while the broker runs, so read a
        setting each time it is used."""
        self.clock: Final = state.clock
        """Clock of the broker, which tests can set."""
        self.role: Final = state.role
        """Current role of the broker: master or slave. The role may change while the broker runs; the configuration contains
        only the role at the start."""
        self.work: Final = Work(state)
        """Scheduler of periodic work, of calls from other threads and of blocking calls."""
        self.address: Final = state.address
        """Addresses of the broker, which clients get and records contain."""
        self.intake: Final = state.intake
        """Component that makes the message to append from each send. It checks the message, creates its topic, and calls the
        intake steps that change, redirect or refuse messages."""
        self.outlet: Final = state.outlet
        """Reader of messages. The reader checks the pulls of consumer groups, and lets features of the broker read without
        checks. It also holds pulls that wait for messages."""
        self.topics: Final = Topics(state)
        """Table of topics. A feature that stores data by topic subscribes to the table's event ``deleted``."""
        self.groups: Final = Groups(state)
        """Table of subscription groups. A feature that stores data by group subscribes to the table's event ``deleted``."""
        self.offsets: Final = Offsets(state)
        """Table of consumer offsets, and the list of readers; retention keeps messages that a reader has not read."""
        self.clients: Final = Clients(state)
        """Connected consumers and producers, their queue locks and message filters."""
        self.log: Final = LogView(state)
        """Read access to the log and its queues."""
        self.figures: Final = state.figures
        """Figures of GET_BROKER_RUNTIME_INFO (request 28), measurements for monitoring systems, and counters. Features add
        sources of figures."""
        self.alarms: Final = state.alarms
        """Current alarms of the broker (docs/alarms.md). Features add sources of alarms."""
        self.folder: Final = FeatureFolder(state)
        """Folder of the store, in which features keep files."""
        self.server: Final = state.server
        """Server of the broker, with its queues of waiting requests, the scheduling of requests, and the authenticators."""

    def put(self, messages: Sequence[Incoming], *, together: bool = False, dispatch: bool = True) -> Stored:
        """Append messages together, then dispatch the records that may be read. The result contains one waiter for the
        durability of all messages.

        Args:
            messages: messages and batches that :attr:`intake` made, or
                :class:`~flintmq.core.record.record.MessageExtBrokerInner` objects.
            together: whether all messages or none are stored, one directly after the other in the same file of the log.
            dispatch: whether to dispatch; with False the caller calls ``log.dispatch`` later.

        Raises:
            RefusedError: the store takes no messages now. The error about a single refused message is not raised, but is in the
                results.
        """
        sink = self._state.sink
        if not together:
            return sink.put(messages) if dispatch else sink.append(messages)
        stored = sink.append_together(cast("Sequence[MessageExtBrokerInner]", messages))
        if dispatch:
            self._state.dispatch()
        return stored

    def part(self, kind: type[T]) -> T:
        """Return the service, the dispatcher or another component of the broker that is an instance of a class.

        Raises:
            LookupError: the broker has no component of this class.
        """
        return self._state.service(kind)

    def parts(self, protocol: type[T]) -> Iterator[T]:
        """Return the services that support a protocol of :mod:`flintmq.core.kernel.ports`, in the order of registration."""
        return self._state.services_with(protocol)


ServiceFactory = Callable[..., "Service | None"]
"""Factory of a service, called with a :class:`flintmq.core.kernel.hookspecs.ApiContext`. The factory returns None if the
configuration asks for no service. When the factory is called, the store is recovered and the tables are loaded, but no port is
open and no service has started."""
