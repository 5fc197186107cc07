"""Gathers the figures of topics, and counts of the messages delivered to groups, step by step. Used only on the event loop's
thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.broker.stats import (
    DEAD_LETTERS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.samples import Samples

_EACH: Final = 50
"""Number of topics or counters whose figures the event loop gathers without a pause."""
_TYPES: Final = {SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay", TRANS_HALF_TOPIC: "transaction"}
_PUT: Final = {
    TOPIC_PUT_NUMS: ("rocketmq_messages_in_total", "rocketmq_producer_tps"),
    TOPIC_PUT_SIZE: ("rocketmq_throughput_in_total", "rocketmq_producer_message_size"),
}
_GET: Final = {
    GROUP_GET_NUMS: ("rocketmq_messages_out_total", "rocketmq_consumer_tps"),
    GROUP_GET_SIZE: ("rocketmq_throughput_out_total", "rocketmq_consumer_message_size"),
}


def gather_topics(api: BrokerApi, samples: Samples) -> Iterator[None]:
    """Add the counts of messages stored and delivered, and the maximum offsets of each topic's queues, to ``samples``.

    Args:
        api: the broker.
        samples: the figures are added to this object, a part with each step of the returned iterator. The event loop may do
            other work between two steps.
    """
    for number, (name, key, total, per_s) in enumerate(api.figures.counts.table.rows()):
        if number % _EACH == 0:
            yield
        if name in _PUT:
            _put(api, samples, name, key, total, per_s)
        elif name in _GET:
            _get(api, samples, name, key, total, per_s)
        elif name == SNDBCK_PUT_NUMS:
            topic, _, group = key.partition("@")
            samples.add("rocketmq_send_back_nums", round(per_s * 60), topic, group)
        elif name == DEAD_LETTERS:
            topic, _, group = key.partition("@")
            samples.add("rocketmq_send_to_dlq_messages_total", total, group, topic, is_system(api, topic, group))
    end = api.log.reader.max_queue_offset
    for number, config in enumerate(api.topics):
        if number % _EACH == 0:
            yield
        topic, queue_nums = config.topic_name, config.write_queue_nums
        total = sum(end(topic, queue_id) for queue_id in range(queue_nums))
        if topic.startswith(DLQ_PREFIX):
            samples.add("rocketmq_topic_dlq_offset", total, topic.removeprefix(DLQ_PREFIX))
        else:
            is_retry = topic.startswith(RETRY_PREFIX)
            samples.add("rocketmq_topic_retry_offset" if is_retry else "rocketmq_producer_offset", total, topic)


def is_system(api: BrokerApi, topic: str, group: str = "") -> str:
    """Return the value of the label ``is_system``: "true" if the broker itself uses the topic or the group, else "false"."""
    is_own = api.topics.is_system_topic(topic) or group.upper().startswith(SYSTEM_GROUP_PREFIX)
    return "true" if is_own else "false"


def _put(api: BrokerApi, samples: Samples, name: str, topic: str, total: int, per_s: float) -> None:
    counter, rate = _PUT[name]
    samples.add(rate, per_s, topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return
    labels = topic, _TYPES.get(topic, "normal"), is_system(api, topic)
    samples.add(counter, total, *labels)
    figures = api.figures.counts.figures
    if name == TOPIC_PUT_NUMS and figures is not None and topic in figures.sizes:
        samples.add_histogram("rocketmq_message_size", figures.sizes[topic], *labels)


def _get(api: BrokerApi, samples: Samples, name: str, key: str, total: int, per_s: float) -> None:
    topic, _, group = key.partition("@")
    counter, rate = _GET[name]
    samples.add(rate, per_s, topic, group)
    if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        samples.add(counter, total, topic, group, is_system(api, topic, group))
