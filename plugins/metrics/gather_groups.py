"""Gathers the lags of consumer groups: messages not consumed, messages in flight, and their ages. Used only on the event loop's
thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.group_lag import member_count, positions, read_topics
from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX
from flintmq.plugins.metrics.gather_topics import is_system

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.samples import Labels, Samples

_CLUSTERING: Final = "1"
"""The number of the message model CLUSTERING in rocketmq-exporter's labels."""
_EACH: Final = 10
"""Number of pairs of a consumer group and a topic whose figures the event loop gathers without a pause."""
_LAGS: Final = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_queueing_latency",
    "rocketmq_consumer_ready_messages",
)


class GroupGatherer:
    """Gathers the figures of each group in each topic, also of groups that are not connected.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._times_ms: dict[tuple[str, int, int], int] = {}
        """Store times, in ms since 1970, of the next message of each group in each queue, keyed by topic, queue id and queue
        offset. They are kept from one gathering of the figures to the next one. If a group has consumed nothing meanwhile,
        its next message is the same, and need not be read again."""

    def steps(self, samples: Samples) -> Iterator[None]:
        """Add the figures of each group in each topic to ``samples``, a part with each step of the returned iterator. The event
        loop may do other work between two steps."""
        before, self._times_ms = self._times_ms, {}
        for number, (topic, group) in enumerate(read_topics(self._api)):
            if number % _EACH == 0:
                yield
            self._one(samples, before, topic, group)

    def _one(self, samples: Samples, before: Mapping[tuple[str, int, int], int], topic: str, group: str) -> None:
        api = self._api
        pulled_to = api.figures.counts.figures.pulled.get(topic, {}) if api.figures.counts.figures is not None else {}
        lag = ready = consumed = 0
        oldest_ms = oldest_ready_ms = now_ms = api.clock.now_ms()
        for position in positions(api, group, topic):
            queue_id, offset, end = position
            consumed += offset
            if not position.lag:
                continue
            pulled = min(end, max(offset, pulled_to.get((queue_id, group), offset)))
            lag += position.lag
            ready += end - pulled
            oldest_ms = min(oldest_ms, self._stored_ms(before, topic, queue_id, offset) or now_ms)
            if pulled < end:
                oldest_ready_ms = min(oldest_ready_ms, self._stored_ms(before, topic, queue_id, pulled) or now_ms)
        age_ms = now_ms - oldest_ms
        is_special = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        if not samples.takes(3 if is_special else 3 + len(_LAGS)):
            return
        labels: Labels = (group, topic, str(member_count(api, group)), _CLUSTERING)
        samples.rows(_diff_name(topic)).append((labels, lag))
        labels = topic, group
        samples.rows("rocketmq_consumer_offset").append((labels, consumed))
        samples.rows("rocketmq_group_get_latency_by_storetime").append((labels, age_ms))
        if not is_special:
            labels = group, topic, "false", is_system(api, topic, group)
            for name, figure in zip(_LAGS, (lag, age_ms, lag - ready, now_ms - oldest_ready_ms, ready), strict=True):
                samples.rows(name).append((labels, figure))

    def _stored_ms(self, before: Mapping[tuple[str, int, int], int], topic: str, queue_id: int, offset: int) -> int:
        """Return the store time, in ms, of the message at a queue offset.

        If that message is deleted, return the store time of the queue's oldest message. 0 means that the time is not known.
        """
        reader = self._api.log.reader
        key = topic, queue_id, max(offset, reader.min_queue_offset(topic, queue_id))
        known = before.get(key)
        if known is None:
            known = max(0, reader.message_store_time(*key))
        self._times_ms[key] = known
        return known


def _diff_name(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        return "rocketmq_group_retrydiff"
    return "rocketmq_group_dlqdiff" if topic.startswith(DLQ_PREFIX) else "rocketmq_group_diff"
