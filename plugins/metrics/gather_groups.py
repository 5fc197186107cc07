"""Reads how far groups are: what they have not consumed, what they were given, and how old that is. Loop thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX
from flintmq.plugins.metrics.gather_topics import is_system

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.samples import Labels, Samples

_CLUSTERING: Final = "1"
"""The number of the message model in rocketmq-exporter's labels."""
_EACH: Final = 10
"""Groups in topics between two looks at the clock."""
_LAGS: Final = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_queueing_latency",
    "rocketmq_consumer_ready_messages",
)


class GroupGatherer:
    """Gathers the figures of groups in topics, those of groups that are not connected among them.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._times_ms: dict[tuple[str, int, int], int] = {}
        """(topic, queue, offset) → store time, of the last round: a group that stands still costs no look into the log."""

    def steps(self, samples: Samples, ends: Mapping[str, Sequence[int]]) -> Iterator[None]:
        """Fill in the figures of each group in each topic; other work of the loop may come at each step.

        Args:
            samples: filled in.
            ends: topic → the ends of its queues.
        """
        api, before = self._api, self._times_ms
        self._times_ms = {}
        offsets = {(topic, group): queues for topic, group, queues in api.offsets.all()}
        online = dict.fromkeys(
            (topic, info.group_name)
            for info in api.consumers
            if not info.is_broadcasting
            for topic in info.subscriptions
        )
        for number, key in enumerate(dict.fromkeys((*offsets, *online))):
            if number % _EACH == 0:
                yield
            if key[0] in ends:
                self._one(samples, before, key, ends[key[0]], offsets.get(key, {}))

    def _one(
        self,
        samples: Samples,
        before: Mapping[tuple[str, int, int], int],
        key: tuple[str, str],
        ends: Sequence[int],
        offsets: Mapping[int, int],
    ) -> None:
        (topic, group), api = key, self._api
        pulled_to = api.stats.figures.pulled.get(topic, {}) if api.stats.figures is not None else {}
        lag = ready = consumed = diff = 0
        oldest_ms = oldest_ready_ms = now_ms = api.clock.now_ms()
        for queue_id, end in enumerate(ends):
            offset = offsets.get(queue_id)
            if offset is None:  # it has not begun: where is its own affair
                diff += end
                continue
            diff += end - offset
            consumed += offset
            if offset >= end:
                continue
            pulled = min(end, max(offset, pulled_to.get((queue_id, group), offset)))
            lag += end - offset
            ready += end - pulled
            oldest_ms = min(oldest_ms, self._stored_ms(before, topic, queue_id, offset) or now_ms)
            if pulled < end:
                oldest_ready_ms = min(oldest_ready_ms, self._stored_ms(before, topic, queue_id, pulled) or now_ms)
        age_ms = now_ms - oldest_ms
        is_special = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        if not samples.takes(3 if is_special else 3 + len(_LAGS)):
            return
        info = api.consumers.find(group)
        labels: Labels = (group, topic, str(len(info.members) if info is not None else 0), _CLUSTERING)
        samples.rows(_diff_name(topic)).append((labels, diff))
        labels = topic, group
        samples.rows("rocketmq_consumer_offset").append((labels, consumed))
        samples.rows("rocketmq_group_get_latency_by_storetime").append((labels, age_ms))
        if not is_special:
            labels = group, topic, "false", is_system(api, topic, group)
            for name, figure in zip(_LAGS, (lag, age_ms, lag - ready, now_ms - oldest_ready_ms, ready), strict=True):
                samples.rows(name).append((labels, figure))

    def _stored_ms(self, before: Mapping[tuple[str, int, int], int], topic: str, queue_id: int, offset: int) -> int:
        """Return when the message at an offset was stored, or the oldest one where that is gone; 0 where nobody knows."""
        reader = self._api.store.reader
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
