"""The ports of services: parts of a broker that have a life of their own."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

from flintmq.core.kernel.ports.alarm import Alarm

READY_WORDS: Final = frozenset({"namesrv", "broker", "brokers", "store", "pid"})
"""What a READY line says by itself."""
_WORD_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORD: Final = re.compile(r"\S{1,1000}")


class Service(Protocol):
    """Something that works beside the requests: delivers what is due, asks producers, deletes files, listens elsewhere.

    A service is made after the store was recovered and its dispatchers have caught up. Services are started in the order of
    their registration, before the broker listens, and stopped in the reverse order, when it no longer does. Periodic work is
    asked for in ``start`` (:attr:`flintmq.core.broker.api.BrokerApi.work`); it ends before ``stop`` is called. Loop thread.
    """

    def start(self) -> Awaitable[None] | None:
        """Begin. A plain method or ``async def``. What a built-in raises stops the start of the broker."""
        ...

    def stop(self) -> Awaitable[None] | None:
        """End, and give back what ``start`` took. Called once, also after a ``start`` that raised."""
        ...


@runtime_checkable
class SupportsReady(Protocol):
    """A service that has something to do once the broker listens and is registered at its name servers."""

    def ready(self) -> Awaitable[None] | None:
        """Begin what needs a broker that can be reached. A plain method or ``async def``."""
        ...


@runtime_checkable
class SupportsWithdraw(Protocol):
    """A service that undoes what it did in ``ready`` while the broker still listens."""

    def withdraw(self) -> Awaitable[None] | None:
        """Leave name servers, slaves and others that know of the broker. A plain method or ``async def``.

        Called first at the stop of the broker, in the reverse order of registration."""
        ...


@runtime_checkable
class SupportsPersist(Protocol):
    """A service with positions that stand for copies in the log, such as "delivered up to here"."""

    def persist(self) -> object:
        """Write the positions. Called at the stop of the broker, after the log is on disk and before the store is closed; of
        the service that was registered last first.

        Raises:
            StoreError: they could not be written; those that were written last still count.
        """
        ...


@runtime_checkable
class SupportsFigures(Protocol):
    """A service with figures for request 28 and ``flintmq status``."""

    def runtime_info(self) -> Mapping[str, str]:
        """Return the figures by name. A name is the service's own, or that of RocketMQ where it has the same figure."""
        ...


@runtime_checkable
class SupportsHealth(Protocol):
    """A service that can tell whether it works."""

    def health(self) -> str:
        """Return what is wrong in one line; an empty text when nothing is. Request 28 shows it as ``serviceTrouble_<name>``."""
        ...


@runtime_checkable
class SupportsAlarms(Protocol):
    """A service that knows of things that need somebody's attention."""

    def alarms(self) -> Iterable[Alarm]:
        """Return what is wrong now; nothing when all is well.

        Called on the loop's thread with each request 28, which may be once a second: measure with a timer, and return what was
        found. At most :data:`~flintmq.core.broker.alarms.ALARMS_MAX` of all services together are shown, critical ones first.
        """
        ...


@runtime_checkable
class SupportsReadyWords(Protocol):
    """A service that listens somewhere by itself, and says where in the READY line of ``flintmq run`` and ``broker``."""

    def ready_words(self) -> Mapping[str, str]:
        """Return words by name, such as ``metrics`` → ``127.0.0.1:5557``; without blanks. Asked after ``ready``. Loop thread.

        A name consists of small letters, digits and underscores, and is none of those that the line has by itself:
        ``namesrv``, ``broker``, ``brokers``, ``store``, ``pid``.
        """
        ...


@runtime_checkable
class SupportsFollowing(Protocol):
    """A service whose positions a slave takes over, so that it continues from them once it is the master."""

    def positions_for_slaves(self) -> Mapping[str, object]:
        """Return the positions as members of the JSON object that a master answers to GET_ALL_DELAY_OFFSET (45)."""
        ...

    def follow(self, positions: Mapping[str, object]) -> None:
        """Take over the positions of a master, on a slave whose log holds what they stand for. Writes them.

        Args:
            positions: the whole answer of the master; members of other services are left alone.

        Raises:
            JsonTypeError: a member is not of the type it must have; nothing was changed.
            StoreError: they could not be written.
        """
        ...


def wrong_word(name: object, word: object) -> str:
    """Return what keeps ``name=word`` from being a word that a service adds to a READY line; empty where nothing does."""
    if not (isinstance(name, str) and isinstance(word, str)):
        return f"{name!r}: {word!r}, which are not both text"
    if _WORD_NAME.fullmatch(name) is None or name in READY_WORDS:
        return f"the name {name[:80]!r}"
    return "" if _WORD.fullmatch(word) is not None else f"the word {word[:80]!r}, which is empty, long or has blanks"
