"""Locks of queues, which orderly consumers hold while they consume (docs/internals/algorithms.md, Groups and offsets)."""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.limits import QUEUE_LOCKS_MAX
from flintmq.core.response_code import ResponseCode

LOCK_MAX_LIVE_S = 60.0
"""Seconds without renewal after which the lock of a queue expires. Clients renew their locks every 20 s."""


class RebalanceLockManager:
    """The locks of queues, each held by one client of a group; RocketMQ's RebalanceLockManager. Used only on the event loop's
    thread."""

    def __init__(self, clock: Clock, *, count_max: int = QUEUE_LOCKS_MAX) -> None:
        self._clock = clock
        self._count_max = count_max
        self._count = 0
        self._locks: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self.changes = 0
        """Number of times that a queue's lock got another owner or lost its owner."""

    def lock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock free queues for a client, or renew the client's locks; return the requested queues that the client holds now.

        Raises:
            RefusedError: SYSTEM_BUSY; too many queues are locked.
        """
        now_s = self._clock.monotonic_s()
        wanted = dict.fromkeys(queues)
        known = self._locks.get(group, {})
        self._check_room(sum(queue not in known for queue in wanted))
        locks = self._locks.setdefault(group, {})
        held = []
        for queue in wanted:
            owner = locks.get(queue)
            self._count += owner is None
            if owner is None or owner[0] == client_id or now_s - owner[1] > LOCK_MAX_LIVE_S:
                self.changes += owner is None or owner[0] != client_id
                locks[queue] = (client_id, now_s)
                held.append(queue)
        if not locks:
            del self._locks[group]
        return held

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the locks of a client on the given queues. Locks of other clients are not changed."""
        locks = self._locks.get(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is not None and owner[0] == client_id:
                del locks[queue]
                self._count -= 1
                self.changes += 1
        if not locks:
            self._locks.pop(group, None)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the id of the client that holds the lock of a queue; None if the queue is free or the lock has expired."""
        found = self._locks.get(group, {}).get(queue)
        if found is None or self._clock.monotonic_s() - found[1] > LOCK_MAX_LIVE_S:
            return None
        return found[0]

    def remove_expired(self) -> int:
        """Remove expired locks of queues to free their memory; return the number of removed locks. Called periodically."""
        oldest_s = self._clock.monotonic_s() - LOCK_MAX_LIVE_S
        removed = 0
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, (_, renewed_s) in locks.items() if renewed_s < oldest_s]:
                del locks[queue]
                removed += 1
            if not locks:
                del self._locks[group]
        self._count -= removed
        self.changes += removed
        return removed

    def keep(self, group: str, client_id: str, queues: Iterable[MessageQueue], live_s: float) -> None:
        """Restore the locks that a client held before the broker's start.

        Args:
            group: the consumer group.
            client_id: id of the client.
            queues: the queues that the client had locked.
            live_s: seconds until the locks expire, unless the client renews them.

        Raises:
            RefusedError: SYSTEM_BUSY; too many queues are locked.
        """
        renewed_s = self._clock.monotonic_s() + live_s - LOCK_MAX_LIVE_S
        wanted = dict.fromkeys(queues)
        self._check_room(len(wanted))
        locks = self._locks.setdefault(group, {})
        for queue in wanted:
            self._count += queue not in locks
            locks[queue] = (client_id, renewed_s)
        if not locks:
            del self._locks[group]

    def held(self) -> dict[str, dict[str, list[MessageQueue]]]:
        """Return the locked queues, keyed by group and client id. Can be called from any thread."""
        found: dict[str, dict[str, list[MessageQueue]]] = {}
        for group, locks in list(self._locks.items()):
            for queue, (client_id, _) in list(locks.items()):
                found.setdefault(group, {}).setdefault(client_id, []).append(queue)
        return found

    def _check_room(self, more: int) -> None:
        if self._count + more > self._count_max:
            self.remove_expired()
        if self._count + more > self._count_max:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                "too many queues are locked",
                reason="locks.full",
                measured=f"{self._count} locks",
            )
