"""Messages that nobody gets because their queue is not read: a topic has fewer read queues than it had, or than are written.

A pull of such a queue is refused, and clients do not even try: the route names no queue beyond ``readQueueNums``. So what waits
there is in no lag that RocketMQ tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintmq.core.broker.alarms import unread_queues
from flintmq.core.broker.groups import is_system_group

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports.alarm import Alarm

NOBODY = ""
"""Stands for the groups of a queue in which no group has an offset."""


def waiting_messages(api: BrokerApi, topic: str, queue_id: int) -> dict[str, int]:
    """Return how many messages of a queue wait, by group: those with an offset in the queue that are not at its end.

    Where no group has ever read the queue, all of them wait for :data:`NOBODY`.
    """
    reader, offsets = api.log.reader, api.offsets
    first, end = reader.min_queue_offset(topic, queue_id), reader.max_queue_offset(topic, queue_id)
    if end <= max(0, first):
        return {}
    groups = (group for group in offsets.which_group_by_topic(topic) if not is_system_group(group))
    known = {group: offsets.query(topic, group, queue_id) for group in groups}
    known = {group: consumer_offset for group, consumer_offset in known.items() if consumer_offset >= 0} or {NOBODY: 0}
    return {group: end - max(first, begin) for group, begin in known.items() if begin < end}


def unread_alarms(api: BrokerApi) -> Iterator[Alarm]:
    """Return an alarm for each topic of users in which messages wait in queues that are not read."""
    for config, unread in api.topics.widths:
        topic = config.topic_name
        if api.topics.is_system_topic(topic) or topic in api.topics.holding_topics:
            continue
        waiting: dict[int, int] = {}
        behind: dict[str, int] = {}
        for queue_id in unread:
            by_group = waiting_messages(api, topic, queue_id)
            if by_group:
                waiting[queue_id] = max(by_group.values())
            for group, messages in by_group.items():
                behind[group] = behind.get(group, 0) + messages
        if waiting:
            worst = max(behind, key=lambda group: (behind[group], group))
            yield unread_queues(topic, waiting, worst, read_queues=config.read_queue_nums)
