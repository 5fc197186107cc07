"""Decides where a message that a consumer sent back is stored (docs/internals/algorithms.md, Retry and dead letters).

A consumer that refuses a message sends it back. The message waits for delivery to the group's retry topic, longer each time.
After too many attempts it is stored in the group's dead letter topic. All functions here are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.redirected_message import moved
from flintmq.core.broker.topic_name import DLQ_QUEUE_NUMS, dlq_topic, retry_topic
from flintmq.core.record import properties as props
from flintmq.core.record.record import MessageExtBrokerInner, Record

MAX_RECONSUME_TIMES_VERSION: Final = 121
"""Ordinal number of RocketMQ's client version V3_4_9. From this client version on, ``maxReconsumeTimes`` in a request overrides
the setting of the consumer group."""
FIRST_RETRY_LEVEL: Final = 3
"""Delay level of the first retry if the consumer requests no level. Level 3 is a delay of 10 s by default."""


class SendBackPlan(msgspec.Struct, frozen=True):
    """The topic, queue and properties under which a message that was sent back is stored."""

    topic: str
    """Topic of the message: ``%RETRY%group`` or ``%DLQ%group``. If the topic is missing, it is created with :attr:`queue_nums`
    queues."""
    queue_id: int
    queue_nums: int
    reconsume_times: int
    properties: dict[str, str]
    """The properties to store with a message that was sent back. The properties include DELAY, whose value is 0 for a dead
    letter."""
    is_dead_letter: bool

    def message(self, record: Record, store_host: bytes) -> MessageExtBrokerInner:
        """Return the message to store: the body, flags and origin of the record that was sent back, with the topic, queue and
        properties of this object.

        The caller then redirects the message to its delay level with :func:`flintmq.plugins.delay.plugin.redirect_to_schedule`.
        """
        stored = props.properties_to_string(self.properties).encode("utf-8", "replace")
        message = moved(record, self.topic, self.queue_id, dict(self.properties), stored)
        message.store_host, message.reconsume_times = store_host, self.reconsume_times
        return message


def max_reconsume_times(group: SubscriptionGroupConfig, requested: int | None, version: int) -> int:
    """Return how many times a message may be delivered again. The value is the request's ``maxReconsumeTimes`` if the request
    has this field and the client's version supports it. Otherwise the value comes from the group's configuration."""
    if version >= MAX_RECONSUME_TIMES_VERSION and requested is not None and requested >= 0:
        return requested
    return group.retry_max_times


def plan_send_back(
    record: Record,
    offset_msg_id: str,
    group: SubscriptionGroupConfig,
    *,
    delay_level: int,
    requested_max: int | None,
    version: int,
    choose_queue: Callable[[int], int],
) -> SendBackPlan:
    """Return where CONSUMER_SEND_MSG_BACK stores a message.

    Args:
        record: the message as stored, in its topic or in the retry topic.
        offset_msg_id: the message's offset id, stored as the origin of every further attempt.
        group: the group that refuses the message. The group must have retry queues.
        delay_level: the delay level that the consumer requests. 0 selects a longer delay after each attempt; a negative number
            makes the message a dead letter at once.
        requested_max: the request's ``maxReconsumeTimes``; None if the request lacks this field.
        version: ordinal of the client's version.
        choose_queue: returns a queue id less than the number of queues; the broker chooses at random.
    """
    properties = record.properties
    properties.setdefault(props.RETRY_TOPIC, record.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, offset_msg_id)
    properties[props.WAIT] = "false"
    dead = delay_level < 0 or record.reconsume_times >= max_reconsume_times(group, requested_max, version)
    if dead:
        topic, queue_nums, level = dlq_topic(group.group_name), DLQ_QUEUE_NUMS, 0
    else:
        topic, queue_nums = retry_topic(group.group_name), group.retry_queue_nums
        level = delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
    properties[props.DELAY] = str(level)
    return SendBackPlan(
        topic=topic,
        queue_id=choose_queue(queue_nums),
        queue_nums=queue_nums,
        reconsume_times=record.reconsume_times + 1,
        properties=properties,
        is_dead_letter=dead,
    )


def is_dead_on_send(
    group: SubscriptionGroupConfig, reconsume_times: int | None, requested_max: int | None, version: int
) -> bool:
    """Return whether a message that a client sends to its retry topic must become a dead letter.

    Args:
        group: the group of the retry topic, not of the producer.
        reconsume_times: the request's ``reconsumeTimes``; None counts as 0.
        requested_max: the request's ``maxReconsumeTimes``.
        version: ordinal of the client's version.
    """
    return (reconsume_times or 0) >= max_reconsume_times(group, requested_max, version)
