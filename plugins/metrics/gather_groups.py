"""Reads how far groups are: what they have not consumed, what they were given, and how old that is. Loop thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX
from flintmq.plugins.metrics.gather_topics import is_system

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.samples import Samples

_CLUSTERING: Final = "1"
"""The number of the message model in rocketmq-exporter's labels."""


class GroupGatherer:
    """Gathers the figures of groups in topics, those of groups that are not connected among them.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._times_ms: dict[tuple[str, int, int], int] = {}
        """(topic, queue, offset) → store time, of the last round: a group that stands still costs no look into the log."""

    def steps(self, samples: Samples) -> Iterator[None]:
        """Fill in the figures of each group in each topic; other work of the loop may come at each step."""
        api, before = self._api, self._times_ms
        self._times_ms = {}
        offsets = {(topic, group): queues for topic, group, queues in api.offsets.all()}
        online = dict.fromkeys(
            (topic, info.group_name)
            for info in api.consumers
            if not info.is_broadcasting
            for topic in info.subscriptions
        )
        for topic, group in dict.fromkeys((*offsets, *online)):
            yield
            config = api.topics.select(topic)
            if config is not None:
                queue_nums = max(config.read_queue_nums, config.write_queue_nums)
                self._one(samples, before, (topic, group), queue_nums, offsets.get((topic, group), {}))

    def _one(
        self,
        samples: Samples,
        before: Mapping[tuple[str, int, int], int],
        key: tuple[str, str],
        queue_nums: int,
        offsets: Mapping[int, int],
    ) -> None:
        (topic, group), api = key, self._api
        figures, reader = api.stats.figures, api.store.reader
        lag = ready = consumed = diff = 0
        oldest_ms = oldest_ready_ms = now_ms = api.clock.now_ms()
        for queue_id in range(queue_nums):
            end = reader.max_queue_offset(topic, queue_id)
            offset = offsets.get(queue_id)
            diff += end - (offset or 0)
            if offset is None:  # it has not begun: where is its own affair
                continue
            consumed += offset
            behind = max(0, end - offset)
            pulled = offset
            if figures is not None:
                pulled = min(end, max(offset, figures.pulled.get((queue_id, topic, group), offset)))
            lag += behind
            ready += max(0, end - pulled)
            if behind:
                oldest_ms = min(oldest_ms, self._stored_ms(before, topic, queue_id, offset) or now_ms)
            if pulled < end:
                oldest_ready_ms = min(oldest_ready_ms, self._stored_ms(before, topic, queue_id, pulled) or now_ms)
        age_ms = now_ms - oldest_ms
        self._tell_exporters(samples, topic, group, consumed, diff, age_ms)
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return
        labels = group, topic, "false", is_system(api, topic, group)
        samples.add("rocketmq_consumer_lag_messages", lag, *labels)
        samples.add("rocketmq_consumer_lag_latency", age_ms, *labels)
        samples.add("rocketmq_consumer_inflight_messages", lag - ready, *labels)
        samples.add("rocketmq_consumer_queueing_latency", now_ms - oldest_ready_ms, *labels)
        samples.add("rocketmq_consumer_ready_messages", ready, *labels)

    def _tell_exporters(self, samples: Samples, topic: str, group: str, consumed: int, diff: int, age_ms: int) -> None:
        info = self._api.consumers.find(group)
        labels = group, topic, str(len(info.members) if info is not None else 0), _CLUSTERING
        name = "rocketmq_group_diff"
        if topic.startswith(RETRY_PREFIX):
            name = "rocketmq_group_retrydiff"
        elif topic.startswith(DLQ_PREFIX):
            name = "rocketmq_group_dlqdiff"
        samples.add(name, diff, *labels)
        samples.add("rocketmq_consumer_offset", consumed, topic, group)
        samples.add("rocketmq_group_get_latency_by_storetime", age_ms, topic, group)

    def _stored_ms(self, before: Mapping[tuple[str, int, int], int], topic: str, queue_id: int, offset: int) -> int:
        """Return when the message at an offset was stored, or the oldest one where that is gone; 0 where nobody knows."""
        reader = self._api.store.reader
        key = topic, queue_id, max(offset, reader.min_queue_offset(topic, queue_id))
        known = before.get(key)
        if known is None:
            known = max(0, reader.message_store_time(*key))
        self._times_ms[key] = known
        return known
