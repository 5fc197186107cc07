"""The queues that a read is about, with their first and last offsets, and the offsets that options name in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Literal

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.decoder.rows import is_system_topic
from flintmq.plugins.spark.errors import OptionError, OutOfRangeError, UnknownTopicError
from flintmq.plugins.spark.option_values import EARLIEST_QUEUE_OFFSET, LATEST_QUEUE_OFFSET, Place
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Range
from flintmq.plugins.spark.wire.client import WireClient, again
from flintmq.plugins.spark.wire.offsets import Edges
from flintmq.plugins.spark.wire.pulling import Puller, batches
from flintmq.plugins.spark.wire.ranges import QueueRange
from flintmq.remoting.wire.bodies import TopicOffset

log = logging.getLogger("flintmq.spark")


class QueueEdges:
    """Asks brokers for the edges of queues. Not to be used by two threads at once."""

    def __init__(self, options: ReadOptions, client: Callable[[], WireClient]) -> None:
        self._options = options
        self._client = client

    def edges(self, topics: Sequence[str] | None = None) -> Edges:
        """Return the queues that are read, with their first and last offsets.

        Args:
            topics: the topics, of which missing ones are skipped; None for those that the options name.

        Raises:
            UnknownTopicError: a topic that the options name is missing.
        """
        client = self._client()
        wanted = self._topics() if topics is None else topics

        async def ask() -> list[Edges | RefusedError]:
            return await asyncio.gather(*(one(topic) for topic in wanted))

        async def one(topic: str) -> Edges | RefusedError:
            try:
                return await client.bounds(topic)
            except RefusedError as refused:
                if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return refused

        edges: dict[MessageQueue, TopicOffset] = {}
        for topic, found in zip(wanted, client.run(ask()), strict=True):
            if not isinstance(found, RefusedError):
                edges.update({queue: edge for queue, edge in found.items() if self._wants(queue)})
            elif topics is None:
                raise UnknownTopicError(f"{client.where}: there is no topic {topic}; see the option subscribe")
        return edges

    def _topics(self) -> Sequence[str]:
        options = self._options
        if options.subscribe is not None:
            return options.subscribe
        pattern = options.subscribe_pattern
        assert pattern is not None
        client = self._client()
        known = client.run(client.topics())
        found = [topic for topic in sorted(known) if self._reads_topic(topic)]
        if not found:
            log.debug("%s: no topic fits the option subscribePattern %r yet", client.where, pattern.pattern)
        return found

    def check_names(self, known: Container[str]) -> None:
        """Check that every topic exists that the option subscribe names, but for those that were known once.

        Raises:
            UnknownTopicError: one does not.
        """
        new = [topic for topic in self._options.subscribe or () if topic not in known]
        if not new:
            return
        client = self._client()
        there = set(client.run(client.topics()))
        for topic in new:
            if topic not in there:
                raise UnknownTopicError(f"{client.where}: there is no topic {topic}; see the option subscribe")

    def read_of(self, topics: Iterable[str]) -> list[str]:
        """Return those of some topics that the options name."""
        return sorted(topic for topic in topics if self._reads_topic(topic))

    def reads(self, queue: MessageQueue) -> bool:
        """Return whether the options name a queue."""
        return self._reads_topic(queue.topic) and self._wants(queue)

    def _reads_topic(self, topic: str) -> bool:
        options = self._options
        if options.subscribe is not None:
            return topic in options.subscribe
        pattern = options.subscribe_pattern
        fits = pattern is None or pattern.fullmatch(topic) is not None
        return fits and (options.include_system_topics or not is_system_topic(topic))

    def _wants(self, queue: MessageQueue) -> bool:
        chosen = self._options.queues
        return chosen is None or queue.queue_id in chosen.get(queue.topic, ())

    def since(self, edges: Edges, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the first offsets of messages stored since a time; the decoder drops earlier ones that may be among them.

        Brokers answer with the nearest message, and with any of several that were stored in the same millisecond. For the
        millisecond before, they answer with a message before all those wanted, or with the first of these.

        Raises:
            OptionError: nothing was stored since then, and the option says that this is an error.
        """
        found = self._searched(edges, timestamp_ms - 1)
        if any(found[queue] < edges[queue].max_queue_offset - 1 for queue in edges):
            return found
        if self._options.starting_offsets_by_timestamp_strategy == "latest" or self._any_since(edges, timestamp_ms):
            return found
        raise OptionError(
            f"nothing was stored since startingTimestamp {timestamp_ms}; "
            "with startingOffsetsByTimestampStrategy=latest the read begins with what comes next"
        )

    def _any_since(self, edges: Edges, timestamp_ms: int) -> bool:
        """Return whether the last message of one of the queues was stored since a time."""
        last = [
            QueueRange(queue, edge.max_queue_offset - 1, edge.max_queue_offset)
            for queue, edge in edges.items()
            if edge.max_queue_offset > edge.min_queue_offset
        ]
        decoder = Decoder(("queueOffset",), RowFilter(store_timestamp_ms=Range(low=timestamp_ms)))
        puller = Puller(self._client(), fail_on_data_loss=False)
        return any(batch.num_rows for batch in batches(puller.pull(last), decoder, 1_000, 1 << 20))

    def before(self, edges: Edges, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the offsets behind messages stored before a time; the decoder drops a later one that may be among them."""
        found = self._searched(edges, timestamp_ms)
        return {queue: min(place + 1, edges[queue].max_queue_offset) for queue, place in found.items()}

    def _searched(self, edges: Edges, timestamp_ms: int) -> dict[MessageQueue, int]:
        client = self._client()
        queues = [queue for queue in edges if edges[queue].max_queue_offset > edges[queue].min_queue_offset]

        async def search(queue: MessageQueue) -> int:
            return await again(lambda: client.api.search_offset(queue, timestamp_ms))

        async def ask() -> list[int]:
            return await asyncio.gather(*(search(queue) for queue in queues))

        found = dict(zip(queues, client.run(ask()), strict=True))
        return {
            queue: min(max(found.get(queue, edge.min_queue_offset), edge.min_queue_offset), edge.max_queue_offset)
            for queue, edge in edges.items()
        }


def placed(
    option: str, place: Place, edges: Edges, options: ReadOptions, *, unnamed: Literal["earliest", "latest"]
) -> dict[MessageQueue, int]:
    """Return the queue offsets that an option names; other queues are at ``unnamed``.

    Raises:
        OptionError: it names a queue that is not read.
        OutOfRangeError: it names an offset that a queue does not hold; with ``failOnDataLoss`` switched off the nearest one
            counts.
    """
    if place.kind == "physical":
        raise OptionError(f"option {option}: places in the commit log only go with load('/data/store')")
    named = {MessageQueue(broker, queue_id, topic): at for (topic, broker, queue_id), at in place.queue_offsets.items()}
    for queue in named:
        if queue not in edges:
            raise OptionError(f"option {option}: {queue_name(queue)} is not there, or is not read")
    kind = unnamed if place.kind == "queues" else place.kind
    found = {}
    for queue, edge in edges.items():
        first, last = edge.min_queue_offset, edge.max_queue_offset
        at = named.get(queue, EARLIEST_QUEUE_OFFSET if kind == "earliest" else LATEST_QUEUE_OFFSET)
        at = {EARLIEST_QUEUE_OFFSET: first, LATEST_QUEUE_OFFSET: last}.get(at, at)
        if not first <= at <= last:
            options.lost(f"option {option}: {queue_name(queue)} has {first} to {last}, not {at}", OutOfRangeError)
        found[queue] = min(max(at, first), last)
    return found


def queue_name(queue: MessageQueue) -> str:
    """Return the name of a queue in errors."""
    return f"queue {queue.queue_id} of topic {queue.topic} at broker {queue.broker_name}"
