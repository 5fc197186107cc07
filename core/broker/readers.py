"""Everybody who still wants to read something: the groups, and the broker itself (docs/store.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.schedule import ScheduleMessageService

DELAYED_DELIVERY: Final = "(delayed delivery)"
"""Stands for a group: the broker reads topics of its own. No group can be called so."""


class Readers:
    """Who has read what, for the cleaner (see :class:`flintmq.plugins.retention.cleaner.ConsumerOffsets`). Loop thread.

    Groups that broadcast keep their offsets themselves, and are not seen here.
    """

    def __init__(self, offsets: ConsumerOffsetManager, schedule: ScheduleMessageService) -> None:
        self._offsets = offsets
        self._own: dict[str, Callable[[int], int]] = {SCHEDULE_TOPIC: lambda queue_id: schedule.offset(queue_id + 1)}

    def add(self, topic: str, next_offset: Callable[[int], int]) -> None:
        """The broker itself reads a topic: ``next_offset(queue_id)`` is what it still wants first."""
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
