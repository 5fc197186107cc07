"""The first and last offsets of the queues that a read uses, and the queue offsets that options name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, Literal

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError, RefusedError, RemotingError
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.decoder.rows import is_system_topic
from flintmq.plugins.spark.errors import OptionError, OutOfRangeError, SparkPluginError, UnknownTopicError
from flintmq.plugins.spark.option_values import EARLIEST_QUEUE_OFFSET, LATEST_QUEUE_OFFSET, Place
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Range
from flintmq.plugins.spark.wire.client import TopicBounds, WireClient, again
from flintmq.plugins.spark.wire.contacts import Contacts
from flintmq.plugins.spark.wire.offsets import Edges
from flintmq.plugins.spark.wire.pulling import Puller, batches
from flintmq.plugins.spark.wire.ranges import QueueRange
from flintmq.remoting.wire.bodies import TopicOffset

log = event_log("flintmq.spark")

SETTLE_PAUSE_S: Final = 1.0
"""Pause in seconds between two requests to brokers that do not answer, while a query waits for the last offsets of the brokers'
queues."""
LOOKED_AT_ROWS: Final = 256
"""Number of messages that are read from a queue at a time in the search for the first message that was stored at or after a
given time. Many messages may have the same store time in ms."""


class QueueEdges:
    """Asks brokers for the first and last offsets of the queues that a Spark read uses. Not thread-safe."""

    def __init__(self, options: ReadOptions, client: Callable[[], WireClient]) -> None:
        self._options = options
        self._client = client
        self.contacts = Contacts(options)
        self._last: dict[MessageQueue, TopicOffset] = {}
        """The last known first and last offset of each queue, keyed by queue."""

    def edges(self, topics: Sequence[str] | None = None, *, remembered: bool = False) -> Edges:
        """Ask brokers for the first and last offsets of the queues to read, and return these offsets.

        Args:
            topics: the topics; None for the topics of the options. Given topics that do not exist are skipped.
            remembered: whether queues of brokers that are away are returned with their last known offsets. If not set, these
                queues are left out.

        Raises:
            UnknownTopicError: a topic of the options does not exist.
            BrokerAwayError: a broker has not answered for longer than the option ``maxBrokerAway`` allows.
        """
        return self._edges(topics, remembered=remembered, is_second_look=False)

    def _edges(self, topics: Sequence[str] | None, *, remembered: bool, is_second_look: bool) -> Edges:
        client = self._client()
        wanted = self._topics() if topics is None else topics
        contacts = self.contacts

        async def ask() -> list[TopicBounds | FlintError]:
            return await asyncio.gather(*(one(topic) for topic in wanted))

        async def one(topic: str) -> TopicBounds | FlintError:
            try:
                return await client.bounds(topic, contacts.away)
            except RefusedError as refused:
                if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return refused
            except RemotingError as error:
                if not contacts.brokers_of(topic):
                    raise
                return error

        edges: dict[MessageQueue, TopicOffset] = {}
        silent: dict[str, str] = {}
        unknown: list[str] = []
        missing: dict[str, frozenset[str]] = {}
        for topic, found in zip(wanted, client.run(ask()), strict=True):
            if isinstance(found, TopicBounds):
                edges.update({queue: edge for queue, edge in found.queues.items() if self._wants(queue)})
                contacts.answered(found.answered)
                silent |= found.silent
                missing[topic] = contacts.brokers_of(topic) - found.answered - found.silent.keys()
            elif isinstance(found, RefusedError):
                missing[topic] = contacts.brokers_of(topic)
                unknown.append(topic)
            else:
                silent |= dict.fromkeys(contacts.brokers_of(topic), str(found))
        unregistered = self._unregistered(missing, is_second_look=is_second_look)
        if unregistered is None:
            return self._edges(topics, remembered=remembered, is_second_look=True)
        silent |= unregistered
        contacts.know(edges)
        if topics is None:
            lost = next((topic for topic in unknown if not contacts.brokers_of(topic) & silent.keys()), None)
            if lost is not None:
                left = client.run(client.left(lost))
                away = f"; {', '.join(left)} had it and left" if left else ""
                raise UnknownTopicError(f"{client.where}: there is no topic {lost}; see the option 'subscribe'{away}")
        contacts.silent(silent)
        self._last |= edges
        if remembered:
            names = set(wanted)
            kept = {
                queue: edge
                for queue, edge in self._last.items()
                if queue.topic in names and queue.broker_name in silent
            }
            return {**kept, **edges}
        return edges

    def complete(self) -> Edges:
        """Return the first and last offsets of all queues that the options choose, for a read that ends at the last offsets. If
        a broker does not answer, wait for the broker up to the time in the option ``maxBrokerAway``. Raises UnknownTopicError,
        BrokerAwayError.
        """
        edges = self.edges()
        client = self._client()
        topics = sorted({queue.topic for queue in edges})

        async def left() -> list[list[str]]:
            return await asyncio.gather(*map(client.left, topics))

        found = dict(zip(topics, client.run(left()), strict=True))
        for topic, names in found.items():
            self.contacts.know_brokers(topic, names)
        edges = self.edges() if any(found.values()) else edges
        while self.contacts.is_waited_for():
            time.sleep(SETTLE_PAUSE_S)
            edges = self.edges()
        return edges

    def _unregistered(self, missing: Mapping[str, frozenset[str]], *, is_second_look: bool) -> dict[str, str] | None:
        """Return the brokers that are not registered at the name server, each with this reason as text, keyed by broker name.
        Return None if the caller must fetch the topics' routes again and then call this method a second time.

        A broker in ``missing`` had a topic, but is not in the topic's current route. There are three possible reasons:

        * The broker is not registered at the name server. Then the result contains the broker.
        * The broker registered after the routes were fetched. Then the broker is in the routes that are fetched next.
        * The broker has deleted the topic.

        The first call cannot distinguish the last two reasons, so it returns None if a broker in ``missing`` is registered. The
        second call assumes that each registered broker has deleted the topic. If the name server does not answer, the result
        contains all brokers in ``missing`` with the error as reason.

        Args:
            missing: names of brokers, keyed by topic.
            is_second_look: whether the routes were already fetched again.
        """
        if not any(missing.values()):
            return {}
        client = self._client()
        try:
            here = client.run(client.registered())
        except SparkPluginError as error:
            return {name: str(error) for names in missing.values() for name in names}
        if not is_second_look and any(names & here for names in missing.values()):
            return None
        for topic, names in missing.items():
            self.contacts.forget(topic, names & here)
        return {name: "it is not registered" for names in missing.values() for name in names - here}

    def _topics(self) -> Sequence[str]:
        options = self._options
        if options.subscribe is not None:
            return options.subscribe
        pattern = options.subscribe_pattern
        assert pattern is not None
        client = self._client()
        known = set(self.contacts.topics)
        try:
            known.update(client.run(client.topics()))
        except SparkPluginError:
            if not known:
                raise
        found = [topic for topic in sorted(known) if self._reads_topic(topic)]
        if not found:
            log.debug(
                "spark.no_topic_yet",
                "%(place)s: no topic fits the option subscribePattern %(pattern)r yet",
                place=client.where,
                pattern=pattern.pattern,
            )
        return found

    def check_names(self, known: Container[str]) -> None:
        """Check that each topic in the option ``subscribe`` exists. Topics that the query already knows are not checked.

        Raises:
            UnknownTopicError: a topic does not exist.
        """
        new = [topic for topic in self._options.subscribe or () if topic not in known]
        if not new:
            return
        client = self._client()
        there = set(client.run(client.topics()))
        for topic in new:
            if topic not in there:
                raise UnknownTopicError(f"{client.where}: there is no topic {topic}; see the option 'subscribe'")

    def read_of(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that the options of a read choose, sorted."""
        return sorted(topic for topic in topics if self._reads_topic(topic))

    def reads(self, queue: MessageQueue) -> bool:
        """Return whether the options of a read choose a queue."""
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
        """Return, for each queue, the queue offset from which to read the messages that were stored since a time. Some earlier
        messages may come first; the decoder leaves these messages out.

        A broker answers with the message nearest to a time, and with any of several messages of the same millisecond. The
        request therefore names the millisecond before the time. The answer is then a message before the wanted messages, or the
        first wanted message.

        Raises:
            OptionError: no message was stored since the time, and the options make this an error.
        """
        found = self._searched(edges, timestamp_ms - 1)
        if any(found[queue] < edges[queue].max_queue_offset - 1 for queue in edges):
            return found
        if self._options.starting_offsets_by_timestamp_strategy == "latest" or self._any_since(edges, timestamp_ms):
            return found
        raise OptionError(
            f"no message was stored since startingTimestamp {timestamp_ms}; with startingOffsetsByTimestampStrategy=latest "
            "the read begins with the next message that is stored"
        )

    def _any_since(self, edges: Edges, timestamp_ms: int) -> bool:
        """Return whether the last message of any queue was stored at or after a time."""
        last = [
            QueueRange(queue, edge.max_queue_offset - 1, edge.max_queue_offset)
            for queue, edge in edges.items()
            if edge.max_queue_offset > edge.min_queue_offset
        ]
        decoder = Decoder(("queueOffset",), RowFilter(store_timestamp_ms=Range(low=timestamp_ms)))
        puller = Puller(self._client(), fail_on_data_loss=False)
        return any(batch.num_rows for batch in batches(puller.pull(last), decoder, 1_000, 1 << 20))

    def first_since(self, edges: Edges, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return, for each queue, the exact queue offset of the first message that was stored since a time. Reads need the
        exact offset if their decoder does not leave out earlier messages."""
        found = self._searched(edges, timestamp_ms - 1)
        decoder = Decoder(
            ("topic", "brokerName", "queueId", "queueOffset"),
            RowFilter(store_timestamp_ms=Range(high=timestamp_ms - 1)),
        )
        puller = Puller(self._client(), fail_on_data_loss=False)
        open_queues = set(found)
        while open_queues:
            looked_at = [
                QueueRange(queue, found[queue], min(found[queue] + LOOKED_AT_ROWS, edges[queue].max_queue_offset))
                for queue in open_queues
            ]
            before = dict(found)
            for batch in batches(puller.pull([one for one in looked_at if one.rows > 0]), decoder, 1_000, 1 << 20):
                for row in batch.to_pylist():
                    queue = MessageQueue(row["brokerName"], row["queueId"], row["topic"])
                    found[queue] = max(found[queue], row["queueOffset"] + 1)
            open_queues = {one.queue for one in looked_at if one.rows > 0 and found[one.queue] == one.end}
            open_queues = {queue for queue in open_queues if found[queue] > before[queue]}
        return found

    def before(self, edges: Edges, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return, for each queue, the queue offset just past the messages that were stored before a time. One later message may
        be included; the decoder leaves this message out."""
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
    """Return the queue offsets that an option of a read names, keyed by queue. A queue that the option does not name gets its
    first or last offset, as ``unnamed`` says.

    Raises:
        OptionError: the option names a queue that is not read.
        OutOfRangeError: the option names an offset outside a queue. With ``failOnDataLoss`` off the nearest offset is used.
    """
    if place.kind == "physical":
        raise OptionError(f"option {option}: positions in the commit log are only for reads with load('/data/store')")
    named = {MessageQueue(broker, queue_id, topic): at for (topic, broker, queue_id), at in place.queue_offsets.items()}
    for queue in named:
        if queue not in edges:
            raise OptionError(f"option {option}: {queue_name(queue)} does not exist, or is not subscribed to")
    kind = unnamed if place.kind == "queues" else place.kind
    found = {}
    for queue, edge in edges.items():
        first, last = edge.min_queue_offset, edge.max_queue_offset
        if place.kind == "rows":
            found[queue] = max(first, last - place.rows)
            continue
        at = named.get(queue, EARLIEST_QUEUE_OFFSET if kind == "earliest" else LATEST_QUEUE_OFFSET)
        at = {EARLIEST_QUEUE_OFFSET: first, LATEST_QUEUE_OFFSET: last}.get(at, at)
        if not first <= at <= last:
            options.lost(f"option {option}: {queue_name(queue)} has {first} to {last}, not {at}", OutOfRangeError)
        found[queue] = min(max(at, first), last)
    return found


def queue_name(queue: MessageQueue) -> str:
    """Return the description of a queue for error texts."""
    return f"queue {queue.queue_id} of topic {queue.topic} at broker {queue.broker_name}"
