"""The role of a broker: a master takes messages, a slave copies the log of its master. It may change while the broker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flintmq.core.event import Event

ASYNC_MASTER: Final = "async_master"
"""A master that acknowledges what it has stored."""
SYNC_MASTER: Final = "sync_master"
"""A master that acknowledges what a slave holds."""
SLAVE: Final = "slave"
"""A copy of a master, which takes no messages."""
MASTER_ID: Final = 0
"""The id of the broker that delivers delayed messages and ends transactions for the brokers of its name."""
_KINDS: Final = (ASYNC_MASTER, SYNC_MASTER, SLAVE)


class Role:
    """The role that a broker has now. Loop thread.

    The configuration says which role a broker starts with. A feature for masters or for slaves starts and stops with
    :meth:`run_while`, or subscribes to :attr:`changed`.

    Args:
        kind: :data:`ASYNC_MASTER`, :data:`SYNC_MASTER` or :data:`SLAVE`.
        broker_id: the id among the brokers of one name.

    Raises:
        ValueError: there is no such kind, or a slave has the id of the master.
    """

    def __init__(self, kind: str = ASYNC_MASTER, broker_id: int = MASTER_ID) -> None:
        self.changed: Event[[]] = Event()
        """The role has changed; :class:`Role` has the new values. Published on the loop thread."""
        self.epoch = 0
        """The number of the role: 0 at the start, greater with each change."""
        self._take(kind, broker_id)

    def _take(self, kind: str, broker_id: int) -> None:
        if kind not in _KINDS:
            raise ValueError(f"a role is one of {', '.join(_KINDS)}; found {kind!r}")
        if kind == SLAVE and broker_id == MASTER_ID:
            raise ValueError(f"a slave needs a broker_id other than the master's, {MASTER_ID}")
        self.kind = kind
        """:data:`ASYNC_MASTER`, :data:`SYNC_MASTER` or :data:`SLAVE`."""
        self.broker_id = broker_id
        """The id among the brokers of one name; :data:`MASTER_ID` is the master's."""
        self.takes_writes = kind != SLAVE
        """Whether messages may be stored by this broker itself; false on a slave, and after a change that failed."""

    def change(self, kind: str, broker_id: int, epoch: int | None = None) -> None:
        """Take another role and publish :attr:`changed`.

        Nothing is done for the log here: a slave that becomes a master must have copied what its master acknowledged, and the
        former master must take no more messages. The caller makes sure of both.

        Args:
            kind: the new kind.
            broker_id: the new id.
            epoch: the number of the new role; None adds 1 to the present one.

        Raises:
            ValueError: the arguments make no role, or the epoch is not greater than the present one; nothing has changed.
            Exception: what a subscriber raises. Subscribers after it are not called, and the broker takes no writes until
                another change succeeds.
        """
        number = self.epoch + 1 if epoch is None else epoch
        if number <= self.epoch:
            raise ValueError(
                f"the epoch of a role must be greater than that of the present one, {self.epoch}; found {number}"
            )
        self._take(kind, broker_id)
        self.epoch = number
        try:
            self.changed.publish()
        except BaseException:
            self.takes_writes = False
            raise

    def run_while(self, holds: Callable[[], bool], start: Callable[[], Callable[[], object]]) -> None:
        """Have something run while a condition holds: start it now if it does; from now on start and stop it with the role.

        Args:
            holds: the condition; asked now and after each change of the role.
            start: called when the condition begins to hold; returns the function that is called when it no longer holds.
        """
        stop: Callable[[], object] | None = None

        def follow() -> None:
            nonlocal stop
            if stop is None and holds():
                stop = start()
            elif stop is not None and not holds():
                ended, stop = stop, None
                ended()

        follow()
        self.changed.subscribe(follow)
