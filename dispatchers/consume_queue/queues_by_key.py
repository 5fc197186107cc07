"""A dictionary of a store's consume queues, keyed by topic and queue id."""

from __future__ import annotations

from collections.abc import Set

from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue


class QueuesByKey(dict[tuple[str, int], ConsumeQueue]):
    """A dictionary of queues, keyed by (topic, queue id), with fast access to the queue ids of a topic."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[str, set[int]] = {}

    def __setitem__(self, key: tuple[str, int], queue: ConsumeQueue) -> None:
        super().__setitem__(key, queue)
        self._ids.setdefault(key[0], set()).add(key[1])

    def __delitem__(self, key: tuple[str, int]) -> None:
        super().__delitem__(key)
        ids = self._ids[key[0]]
        ids.discard(key[1])
        if not ids:
            del self._ids[key[0]]

    def clear(self) -> None:
        super().clear()
        self._ids.clear()

    def ids_of(self, topic: str) -> Set[int]:
        """Return the queue ids of a topic; empty if the topic has no queues."""
        return self._ids.get(topic, frozenset())
