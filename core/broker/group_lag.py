"""Computes the lag of consumer groups at a broker.

The lag is used in the answers to GET_CONSUME_STATS (request 208) and GET_BROKER_CONSUME_STATS (request 317), in metrics and in
alarms.

A group reads a topic if the group has an offset in any queue of the topic, or if the group is online and subscribes to the
topic. The lag includes all queues of the topic. A queue without an offset counts from queue offset 0, like in RocketMQ. Tools
for a whole cluster add up the answers to these requests (programs/cluster_view).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from flintmq.core.broker.lag_watch import lag_messages
from flintmq.core.broker.unread_queues import NOBODY, waiting_messages

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi


class QueuePosition(NamedTuple):
    """The position of a consumer group in a queue, and the queue's end."""

    queue_id: int
    consumer_offset: int
    """Queue offset of the next message that the group will get; 0 if the group has no offset for the queue."""
    max_queue_offset: int
    """Queue offset that the queue's next message will have."""

    @property
    def lag(self) -> int:
        """Return the number of messages in the queue that the group has not consumed."""
        return lag_messages(self.max_queue_offset, self.consumer_offset)


def positions(api: BrokerApi, group: str, topic: str) -> Iterator[QueuePosition]:
    """Yield the position of a group in each queue of a topic; nothing if the topic does not exist. Called only on the event
    loop's thread.

    Consumers cannot read a queue whose id is not below the topic's number of read queues. Such a queue is included only if it
    has messages, and only in one of two cases: the group has a consumer offset before the queue's end, or no group has an
    offset in the queue.
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
    """Return whether a group is online and does not subscribe to a topic. The group may still have offsets in the topic."""
    info = api.clients.consumers.find(group)
    return info is not None and bool(info.subscriptions) and topic not in info.subscriptions


def read_topics(api: BrokerApi) -> Iterator[tuple[str, str]]:
    """Yield (topic, group) for each topic that a group reads. Changes during the iteration may be missed. Called only on the
    event loop's thread.

    Broadcasting groups are left out, because their offsets are stored on the clients.
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
    """Return the number of connected members of a group; members with the same client id count once."""
    info = api.clients.consumers.find(group)
    return len({member.client_id for member in info.members.values()}) if info is not None else 0
