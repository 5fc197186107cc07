"""The interfaces that services implement. A service is a part of a broker that is started and stopped with the broker."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

from flintmq.core.kernel.ports.alarm import Alarm

READY_WORDS: Final = frozenset({"namesrv", "broker", "brokers", "store", "pid"})
"""Names of the values that the broker itself writes into the READY line, which it prints when it accepts requests. Services
must not use these names for their values."""
_WORD_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORD: Final = re.compile(r"\S{1,1000}")


class Service(Protocol):
    """A part of a broker that works independently of requests: it delivers due messages, checks producers or deletes files.

    A service is created after the store was recovered and its dispatchers have caught up. Services are started in the order of
    their registration, before the broker listens. They are stopped in the reverse order, after the broker has stopped
    listening. ``start`` schedules periodic work with :attr:`flintmq.core.broker.api.BrokerApi.work`; this work ends before
    ``stop`` is called. Used only on the event loop's thread.
    """

    def start(self) -> Awaitable[None] | None:
        """Start the service. A plain method or ``async def``. If a built-in service raises, the broker does not start."""
        ...

    def stop(self) -> Awaitable[None] | None:
        """Stop the service and release the resources that ``start`` acquired. Called once, even if ``start`` raised."""
        ...


@runtime_checkable
class SupportsReady(Protocol):
    """A service that starts some work only when the broker listens and is registered at its name servers."""

    def ready(self) -> Awaitable[None] | None:
        """Start the service's work that needs a reachable broker. A plain method or ``async def``."""
        ...


@runtime_checkable
class SupportsWithdraw(Protocol):
    """A service that has work to end at the beginning of the broker's stop, while the broker still listens. Examples are a
    registration at name servers, connections to slaves, and other work that :meth:`SupportsReady.ready` started."""

    def withdraw(self) -> Awaitable[None] | None:
        """Unregister the service from name servers, and disconnect it from slaves and other peers.

        A plain method or ``async def``.

        Called first at the stop of the broker, in the reverse order of registration."""
        ...


@runtime_checkable
class SupportsPersist(Protocol):
    """A service that records its progress on disk, such as the queue offset up to which it has delivered delayed messages."""

    def persist(self) -> object:
        """Write the service's positions to disk.

        Called when the broker stops, after the log is on disk and before the store is closed. The service that was registered
        last is called first.

        Raises:
            StoreError: the positions could not be written. The positions that were written before remain valid.
        """
        ...


@runtime_checkable
class SupportsFigures(Protocol):
    """A service that returns figures for ``flintmq status`` and for the answer to request GET_BROKER_RUNTIME_INFO (28)."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the service's figures, keyed by name. A figure that RocketMQ has too has RocketMQ's name."""
        ...


@runtime_checkable
class SupportsHealth(Protocol):
    """A service that reports whether it works."""

    def health(self) -> str:
        """Return the service's current problem in one line; empty if the service works.

        The answer to GET_BROKER_RUNTIME_INFO (28) contains the problem as ``serviceTrouble_<name>``.
        """
        ...


@runtime_checkable
class SupportsAlarms(Protocol):
    """A service that reports problems as alarms."""

    def alarms(self) -> Iterable[Alarm]:
        """Return the service's current alarms.

        Called on the loop's thread for each request GET_BROKER_RUNTIME_INFO (28), perhaps once a second. The method must be
        quick: it returns results that periodic work of the service has measured before. At most
        :data:`~flintmq.core.broker.alarms.ALARMS_MAX` alarms of all services together are shown, critical alarms first.
        """
        ...


@runtime_checkable
class SupportsReadyWords(Protocol):
    """A service that listens at an address. ``flintmq run`` and ``flintmq broker`` print the address in their READY line."""

    def ready_words(self) -> Mapping[str, str]:
        """Return the words that the service adds to the broker's READY line, keyed by name: ``metrics`` → ``127.0.0.1:5557``.

        The words contain no blanks. Called after ``ready``, on the loop thread. A name consists of lowercase letters, digits
        and underscores. The names ``namesrv``, ``broker``, ``brokers``, ``store`` and ``pid`` are reserved for the broker.
        """
        ...


@runtime_checkable
class SupportsFollowing(Protocol):
    """A service whose positions are copied to slaves. A slave that becomes the master continues from them."""

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return the service's positions as members of the JSON object in a master's answer to GET_ALL_DELAY_OFFSET (45)."""
        ...

    def follow(self, positions: Mapping[str, object]) -> None:
        """Adopt the positions of the same service on the master, and write them to disk. Called on a slave whose log has
        reached these positions.

        Args:
            positions: the whole answer of the master; members of other services are ignored.

        Raises:
            JsonTypeError: a member has a wrong type; nothing was changed.
            StoreError: the positions could not be written.
        """
        ...


def wrong_word(name: object, word: object) -> str:
    """Return why a service may not add ``name=word`` to the line ``READY …``, which the process prints when it accepts
    requests. The result is empty if the service may add it."""
    if not (isinstance(name, str) and isinstance(word, str)):
        return f"{name!r}: {word!r}, which are not both text"
    if _WORD_NAME.fullmatch(name) is None or name in READY_WORDS:
        return f"the name {name[:80]!r}"
    return "" if _WORD.fullmatch(word) is not None else f"the word {word[:80]!r}, which is empty, long or has blanks"
