"""The store as the delivery of waiting messages sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from flintmq.core.broker.sink import MessageSink
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.broker.topic_name import DLQ_QUEUE_NUMS
from flintmq.core.broker.waiting import UNDELIVERED_TOPIC, PutOutcome
from flintmq.core.errors import RefusedError
from flintmq.core.record.queue_unit import is_address
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.message_store import MessageStore


class WaitingStoreAdapter:
    """Implements :class:`flintmq.core.broker.waiting.WaitingStore` with a message store. Loop thread."""

    def __init__(
        self, store: MessageStore, stats: BrokerStats, ensure_topic: Callable[[str, int], object] | None = None
    ) -> None:
        self._store = store
        self._stats = stats
        self._sink = MessageSink(store, stats, store.dispatch)
        self._ensure_topic = ensure_topic
        """Makes the topic of dead letters, with so many queues, where it is missing."""

    @property
    def wrote_offset_bytes(self) -> int:
        return self._store.watermarks.wrote

    @property
    def flushed_offset_bytes(self) -> int:
        return self._store.watermarks.flushed

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self._store.reader.min_queue_offset(topic, queue_id)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return self._store.reader.max_queue_offset(topic, queue_id)

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, max_units: int
    ) -> Iterable[tuple[int, int, int]]:
        queue = self._store.consume_queues.find(topic, queue_id)
        if queue is None:
            return ()
        return self._with_times(queue.units(queue_offset, max_units))

    def _with_times(self, units: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """Where the delivery time was in an ext file that is lost, it is computed again from the record."""
        for physical, size, due_ms in units:
            if is_address(due_ms):
                for request in self._store.commit_log.requests(physical, physical + size):
                    due_ms = request.tags_code
            yield physical, size, due_ms

    def look_message(self, commit_log_offset_bytes: int, size_bytes: int) -> Record | None:
        return self._store.commit_log.record(commit_log_offset_bytes, size_bytes)

    def put_messages(
        self, messages: Sequence[MessageExtBrokerInner], topic: str, queue_id: int
    ) -> Sequence[PutOutcome]:
        if self._ensure_topic is not None and messages[0].topic == UNDELIVERED_TOPIC:
            self._ensure_topic(UNDELIVERED_TOPIC, DLQ_QUEUE_NUMS)
        try:
            stored = self._sink.append(messages)
        except RefusedError:
            return [PutOutcome.LATER] * len(messages)
        self._stats.delivered(topic, queue_id, stored.units)
        return [_outcome(result) for result in stored.results]


def _outcome(result: object) -> PutOutcome:
    if isinstance(result, RefusedError) and result.code == ResponseCode.MESSAGE_ILLEGAL:
        return PutOutcome.ILLEGAL
    return PutOutcome.LATER if isinstance(result, Exception) else PutOutcome.STORED
