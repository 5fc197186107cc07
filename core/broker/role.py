"""The role of a broker: a master stores messages, a slave copies its master's log.

The role may change while the broker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flintmq.core.event import Event

ASYNC_MASTER: Final = "async_master"
"""Role of a master that acknowledges a message without waiting for a slave."""
SYNC_MASTER: Final = "sync_master"
"""Role of a master that acknowledges a message after a slave has a copy."""
SLAVE: Final = "slave"
"""Role of a broker that copies a master and accepts no messages from clients."""
MASTER_ID: Final = 0
"""Broker id of a master. The master delivers delayed messages and ends transactions for all brokers with its name."""
_KINDS: Final = (ASYNC_MASTER, SYNC_MASTER, SLAVE)


class Role:
    """The current role of a broker. Used only on the event loop's thread.

    The configuration sets only the role at the start of the broker; :meth:`change` changes the role later. A feature that only
    masters or only slaves need is started and stopped by :meth:`run_while`, or subscribes to :attr:`changed`.

    Args:
        kind: :data:`ASYNC_MASTER`, :data:`SYNC_MASTER` or :data:`SLAVE`.
        broker_id: id of the broker, unique among the brokers with the same name.

    Raises:
        ValueError: ``kind`` is none of these three values, or a slave has the id of the master.
    """

    def __init__(self, kind: str = ASYNC_MASTER, broker_id: int = MASTER_ID) -> None:
        self.changed: Event[[]] = Event()
        """Event published on the loop thread after a change of the role. The attributes of the role already have the new
        values."""
        self.epoch = 0
        """Number that grows with each change of the broker's role; 0 at the start."""
        self._take(kind, broker_id)

    def _take(self, kind: str, broker_id: int) -> None:
        if kind not in _KINDS:
            raise ValueError(f"a role is one of {', '.join(_KINDS)}; found {kind!r}")
        if kind == SLAVE and broker_id == MASTER_ID:
            raise ValueError(f"broker_id is {MASTER_ID}, which is the id of the master: give a slave another id")
        self.kind = kind
        """Kind of the role: :data:`ASYNC_MASTER`, :data:`SYNC_MASTER` or :data:`SLAVE`."""
        self.broker_id = broker_id
        """Id of the broker, unique among the brokers with the same name; :data:`MASTER_ID` for the master."""
        self.takes_writes = kind != SLAVE
        """Whether this broker may store messages of clients. The value is False on a slave, and after a failed change of the
        role."""

    def change(self, kind: str, broker_id: int, epoch: int | None = None) -> None:
        """Change the role and publish :attr:`changed`.

        The log is not changed. The caller ensures that a slave which becomes a master has copied all acknowledged messages, and
        that the former master accepts no more messages.

        Args:
            kind: the new kind.
            broker_id: the new id.
            epoch: number of the new role; None adds 1 to the current number.

        Raises:
            ValueError: the new role is not valid, or the epoch is not greater than the current one; nothing has changed.
            Exception: the error of a subscriber of :attr:`changed`. Later subscribers are not called, and the broker accepts no
                messages until another change succeeds.
        """
        number = self.epoch + 1 if epoch is None else epoch
        if number <= self.epoch:
            raise ValueError(
                f"the epoch of a new role must be greater than the present epoch, {self.epoch}; found {number}"
            )
        self._take(kind, broker_id)
        self.epoch = number
        try:
            self.changed.publish()
        except BaseException:
            self.takes_writes = False
            raise

    def run_while(self, holds: Callable[[], bool], start: Callable[[], Callable[[], object]]) -> None:
        """Start a feature when a condition on the role becomes true, and stop the feature when the condition becomes false.

        Args:
            holds: returns the condition. It is called now and after each change of the role.
            start: starts the feature, now if the condition is true. It returns the function that stops the feature.
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
