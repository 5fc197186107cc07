"""What a plugin may touch of a broker.

The factories of services and intake steps are given a :class:`BrokerApi`. The built-in
features and request processors use it, too. Everything here belongs to the thread of the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from flintmq.core.broker.feature_folder import FeatureFolder
from flintmq.core.broker.hold import HeldPull
from flintmq.core.broker.intake import NewMessage
from flintmq.core.broker.log_view import LogView
from flintmq.core.broker.outlet import Empty, Found, Wanted
from flintmq.core.broker.sink import Incoming, Stored
from flintmq.core.broker.tables import Clients, Groups, Offsets, Topics
from flintmq.core.broker.work import Work

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.io.clock import Scheduled
    from flintmq.core.kernel.ports.service import Service
    from flintmq.core.record.record import MessageExtBrokerInner

__all__ = [
    "BrokerApi",
    "Empty",
    "Found",
    "HeldPull",
    "NewMessage",
    "PeriodicTimers",
    "ServiceFactory",
    "Stored",
    "Wanted",
]

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


class BrokerApi:
    """The surface of a broker for plugins and for request processors.

    A member is the same object as long as the broker runs. Nothing here is thread-safe unless it says so, and nobody assigns
    to it. ``tests/core/broker/test_api.py`` bounds how many names it has.
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
        """The settings in force, and those of the start. Some change while the broker runs: read them when they are needed."""
        self.clock: Final = state.clock
        """The time. Tests turn it."""
        self.role: Final = state.role
        """Whether the broker is a master or a slave now. It may change while the broker runs; the configuration has the role
        of the start."""
        self.work: Final = Work(state)
        """Work that is done again and again, on the loop's thread from another one, and in a thread."""
        self.address: Final = state.address
        """How the broker is reached: the address that clients get, and the one that records have."""
        self.intake: Final = state.intake
        """Makes messages to be stored of what clients send, and has the steps that each passes."""
        self.outlet: Final = state.outlet
        """The one way to read messages: for groups with all checks, for features without; and to wait for messages."""
        self.topics: Final = Topics(state)
        """The table of topics. A feature that remembers something by topic subscribes to its ``deleted``; so with groups."""
        self.groups: Final = Groups(state)
        """The table of subscription groups."""
        self.offsets: Final = Offsets(state)
        """How far each group has consumed each queue, and what else retention waits for."""
        self.clients: Final = Clients(state)
        """The consumers and producers that are connected, their locks and filters."""
        self.log: Final = LogView(state)
        """The log and its queues, to be read."""
        self.figures: Final = state.figures
        """The figures of request 28, the measurements for monitoring systems, and what is counted; a feature adds sources."""
        self.alarms: Final = state.alarms
        """What is wrong now by all that the broker knows (docs/alarms.md); a feature adds sources of its own."""
        self.folder: Final = FeatureFolder(state)
        """Where features keep files."""
        self.server: Final = state.server
        """The server: its pools of requests, its turns, its authenticators."""

    def put(self, messages: Sequence[Incoming], *, together: bool = False, dispatch: bool = True) -> Stored:
        """Append messages with one append and one promise of durability, then dispatch what is readable.

        Args:
            messages: made by :attr:`intake`, or of :class:`~flintmq.core.record.record.MessageExtBrokerInner`.
            together: whether they must follow one another in one file of the log: all of them are stored or none.
            dispatch: whether to dispatch; False if the caller does later, with ``log.dispatch``.

        Raises:
            RefusedError: the store takes no messages now. A message that it refuses by itself is in the results.
        """
        sink = self._state.sink
        if not together:
            return sink.put(messages) if dispatch else sink.append(messages)
        stored = sink.append_together(cast("Sequence[MessageExtBrokerInner]", messages))
        if dispatch:
            self._state.dispatch()
        return stored

    def part(self, kind: type[T]) -> T:
        """Return the service or the dispatcher of a class, or a privileged part of the broker.

        Raises:
            LookupError: there is none.
        """
        return self._state.service(kind)

    def parts(self, protocol: type[T]) -> Iterator[T]:
        """Return the services that support a protocol of :mod:`flintmq.core.kernel.ports`, in the order of registration."""
        return self._state.services_with(protocol)


ServiceFactory = Callable[..., "Service | None"]
"""Makes a service of a :class:`flintmq.core.kernel.hookspecs.ApiContext`; None where the configuration asks for none. The
store is recovered and the tables are loaded; nothing listens, and no other service has started."""
