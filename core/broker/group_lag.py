"""How far a consumer group is behind at a broker: the one rule of requests 208 and 317, of the metrics and of the alarms.

A group reads a topic in which it has an offset in some queue, or to which its members subscribe while it is online. Every queue
of such a topic counts: one without an offset from its beginning, as RocketMQ counts it. What reads a cluster from outside adds
up what these requests answer (programs/cluster_view).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from flintmq.core.broker.lag_watch import lag_messages
from flintmq.core.broker.unread_queues import NOBODY, waiting_messages

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class QueuePosition(NamedTuple):
    """How far a group has come in a queue."""

    queue_id: int
    consumer_offset: int
    """Of the next message that it gets; 0 where it has none."""
    max_queue_offset: int

    @property
    def lag(self) -> int:
        """Return how many messages of the queue wait for the group."""
        return lag_messages(self.max_queue_offset, self.consumer_offset)


def positions(api: BrokerApi, group: str, topic: str) -> Iterator[QueuePosition]:
    """Iterate over the queues of a topic, with how far a group has come in them; over none where the topic is not there.

    A queue that is not read any more counts while messages of it wait for the group, or none has ever read it. Loop thread.
    """
    config = api.topics.select(topic)
    if config is None:
        return
    reader, offsets = api.log.reader, api.offsets
    for queue_id in api.topics.widths.queue_ids(topic):
        consumer_offset = max(0, offsets.query(topic, group, queue_id))
        if queue_id >= config.read_queue_nums:
            waiting = waiting_messages(api, topic, queue_id)
            if group not in waiting and NOBODY not in waiting:
                continue
            consumer_offset = max(consumer_offset, reader.min_queue_offset(topic, queue_id))
        yield QueuePosition(queue_id, consumer_offset, max(0, reader.max_queue_offset(topic, queue_id)))


def has_left(api: BrokerApi, group: str, topic: str) -> bool:
    """Return whether a group is online and no longer subscribes to a topic in which it may still have offsets."""
    info = api.clients.consumers.find(group)
    return info is not None and bool(info.subscriptions) and topic not in info.subscriptions


def read_topics(api: BrokerApi) -> Iterator[tuple[str, str]]:
    """Iterate over (topic, group) for each group and topic that it reads. Loop thread; what changes meanwhile may be missed.

    Broadcasting members keep their offsets themselves: what such a group has read is not known here, and it is left out.
    """
    online: dict[str, list[str]] = {}
    for info in api.clients.consumers:
        for topic in info.subscriptions:
            online.setdefault(topic, []).append(info.group_name)
    for topic in api.offsets.topics():
        for group in api.offsets.which_group_by_topic(topic).union(online.pop(topic, ())):
            if _reads(api, group, topic):
                yield topic, group
    for topic, groups in online.items():
        for group in groups:
            if _reads(api, group, topic):
                yield topic, group


def _reads(api: BrokerApi, group: str, topic: str) -> bool:
    info = api.clients.consumers.find(group)
    if info is not None and info.is_broadcasting:
        return False
    return topic in api.topics and not has_left(api, group, topic)


def member_count(api: BrokerApi, group: str) -> int:
    """Return how many members of a group are connected."""
    info = api.clients.consumers.find(group)
    return len({member.client_id for member in info.members.values()}) if info is not None else 0
