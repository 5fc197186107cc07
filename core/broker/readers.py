"""What still has to be read, by consumer groups and by features of the broker (docs/store.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flintmq.core.broker.offsets import ConsumerOffsetManager

DELAYED_DELIVERY: Final = "(delayed delivery)"
"""Stands for a group: the broker reads topics of its own. No group can be called so."""


class Readers:
    """Which groups have read how far, for the cleaner (see :class:`flintmq.plugins.retention.cleaner.ConsumerOffsets`).
    Loop thread.

    Groups that broadcast keep their offsets themselves, and are not seen here.
    """

    def __init__(self, offsets: ConsumerOffsetManager) -> None:
        self._offsets = offsets
        self._own: dict[str, Callable[[int], int]] = {}

    def add(self, topic: str, next_offset: Callable[[int], int]) -> None:
        """Take note that a feature of the broker reads a topic.

        Args:
            next_offset: returns for a queue id the queue offset of the first message that it still needs.
        """
        self._own[topic] = next_offset

    def which_group_by_topic(self, topic: str) -> set[str]:
        if topic in self._own:
            return self._offsets.which_group_by_topic(topic) | {DELAYED_DELIVERY}
        return self._offsets.which_group_by_topic(topic)

    def query(self, topic: str, group: str, queue_id: int) -> int:
        """The queue offset of the next message a group will read; -1 when it has not said so."""
        if group == DELAYED_DELIVERY:
            return self._own[topic](queue_id)
        return self._offsets.query(topic, group, queue_id)
