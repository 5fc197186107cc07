"""Counts the messages and requests of a broker (docs/internals/protocol.md, Runtime figures). Used only on the event loop's
thread.

The send and pull paths add to plain integers, once per batch and topic. Reading the statistics adds these integers to the
table of counters with history. No string is formatted and no key is built for a message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from flintmq.core.broker.batch_figures import BatchFigures
from flintmq.core.broker.faults import BrokerFaults
from flintmq.core.broker.stats_table import GROUP_GET_LATENCY, StatsTable
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import AppendUnit, DispatchRequest, count_messages

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
DEAD_LETTERS: Final = "DLQ_PUT_NUMS"
"""Name of the counters of dead letters, keyed by the message's original topic and the group. RocketMQ counts dead letters only
in its metrics."""
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"

SCHEDULE_CONSUMER: Final = "SCHEDULE_CONSUMER"
"""Name of the group for which deliveries of delayed messages are counted."""

_EDGES_S: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
_BOUNDS_MS: Final = (0.0, *(edge_s * 1000 for edge_s in _EDGES_S), 20_000.0)
"""Bounds of the time spans into which the durations of appends are divided, in ms. Span ``i``, with the name
``_EDGE_NAMES[i]``, lies between bounds ``i`` and ``i + 1``."""
_EDGE_NAMES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)


class BrokerStats:
    """Totals since the start, and counters with history for VIEW_BROKER_STATS_DATA (request 315); RocketMQ's
    BrokerStatsManager.

    Args:
        clock: gives the time of the start and of the table's snapshots.
        cluster: name of the cluster, the key of counters for the whole broker.
        counted_topics: topics for which sends are counted for each queue, too.
    """

    def __init__(
        self, clock: Clock, cluster: str = "DefaultCluster", counted_topics: Collection[str] = frozenset()
    ) -> None:
        self._counted_topics = counted_topics
        self.boot_timestamp_ms = clock.now_ms()
        self.put_messages = 0
        """Number of messages stored since the start."""
        self.put_bytes = 0
        """Number of record bytes stored since the start."""
        self.put_failed = 0
        """Number of messages refused after their request had been decoded, since the start."""
        self.dropped = 0
        """Number of delayed messages that were dropped at their due time because their topic had been deleted, since the
        start."""
        self.not_durable: dict[str, int] = {}
        """Number of sends that were answered as stored, but not flushed or replicated in time; keyed by the reason in the
        answer."""
        self.faults = BrokerFaults(clock)
        """Requests that were refused because of a fault of the broker."""
        self.get_found = 0
        """Number of pulls that returned messages, since the start."""
        self.get_missed = 0
        """Number of pulls that returned no message, since the start."""
        self.get_messages = 0
        """Number of messages that pulls returned, since the start."""
        self.get_bytes = 0
        self._get_s = 0.0
        self.put_time_max_s = 0.0
        """Longest time to append a batch, in seconds. The time includes the wait for durability if the sender waits for it."""
        self.get_time_max_s = 0.0
        """Longest time to read the messages of a pull, in seconds."""
        self._cluster = cluster
        self._folded_put = 0
        self._folded_get = 0
        self._puts: dict[str, list[int]] = {}
        """Numbers of stored messages and bytes that are not added to :attr:`table` yet, keyed by topic."""
        self._queue_puts: dict[tuple[str, int], list[int]] = {}
        """Numbers of stored messages and bytes that are not added to :attr:`table` yet, keyed by topic and queue id."""
        self._gets: dict[tuple[int, str, str], list[float]] = {}
        """Totals of a group's pulls that are not added to :attr:`table` yet: numbers of messages and bytes, duration in
        seconds, and number of pulls. The last element is the queue offset of the group's next pull. The key is (queue id,
        topic, group)."""
        self.figures: BatchFigures | None = None
        """Histograms and other additional figures about appends, which the metrics plugin switches on; None until
        :meth:`measure` is called."""
        self._put_times = [0] * len(_EDGE_NAMES)
        self._last_put_times: list[int] | None = None
        self.table = StatsTable(clock, self._fold)

    # hot paths

    def stored(self, records: Sequence[AppendUnit], took_s: float = 0.0, messages: int | None = None) -> None:
        """Count an append of messages.

        Args:
            records: the records and batches that were appended.
            took_s: duration of the append, in seconds.
            messages: number of messages in ``records``; None to count the messages in ``records``.
        """
        count = len(records)
        if count == 1:
            first, size = records[0].topic, records[0].message_size_bytes
        elif count:
            topics = [record.topic for record in records]
            size = sum([record.message_size_bytes for record in records])
            first = topics[0]
            if topics.count(first) != count:
                before = self._counted(topics) if self.figures is not None else {}
                self._stored_in_many(records)
                self._note_sizes(before)
                first = ""
        else:
            return
        count = count_messages(records) if messages is None else messages
        self.put_messages += count
        self.put_bytes += size
        if took_s < _EDGES_S[0]:
            self._put_times[0] += count
        else:
            self._put_times[bisect_left(_EDGES_S, took_s)] += count
        if took_s > self.put_time_max_s:
            self.put_time_max_s = took_s
        if self.figures is not None:
            self.figures.note(count, took_s, first, size)
        if not first:
            return
        entry = self._puts.get(first)
        if entry is None:
            entry = self._puts[first] = [0, 0]
        entry[0] += count
        entry[1] += size
        if first in self._counted_topics:
            self._stored_in_queues(records)

    def _counted(self, topics: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the messages and bytes of topics that are counted, but not added to the table yet, keyed by topic."""
        return {topic: (found[0], found[1]) if (found := self._puts.get(topic)) else (0, 0) for topic in set(topics)}

    def _note_sizes(self, before: Mapping[str, tuple[int, int]]) -> None:
        """Add the sizes of the messages of an append to the histograms of message sizes, one histogram for each topic.

        Args:
            before: numbers of messages and bytes of each topic before the append, keyed by topic. The difference between the
                present numbers and these numbers is the topic's share of the append.
        """
        for topic, (messages, size_bytes) in before.items():
            if self.figures is not None:
                now_messages, now_bytes = self._puts[topic]
                self.figures.sized(topic, now_messages - messages, now_bytes - size_bytes)

    def measure(self, figures: BatchFigures) -> None:
        """Add every later append and pull also to the histograms in ``figures``."""
        self.figures = figures

    def undelivered(self) -> None:
        """Count a delayed message that cannot be delivered, because its topic was deleted."""
        self.dropped += 1

    def missed(self) -> None:
        """Count a pull that returned no message."""
        self.get_missed += 1

    def refused(self) -> None:
        """Count a send whose message is not stored."""
        self.put_failed += 1

    def undurable(self, reason: str) -> None:
        """Count a send whose message is stored, but whose answer reports that the message is not flushed or replicated.

        Args:
            reason: the key in :attr:`not_durable`.
        """
        self.not_durable[reason] = self.not_durable.get(reason, 0) + 1

    def waited(self, took_s: float) -> None:
        """Record the duration of an append and of the wait for its durability, in seconds."""
        if self.figures is not None:
            self.figures.durable_s.add(took_s)
        if took_s > self.put_time_max_s:
            self.put_time_max_s = took_s

    def replicated(self, messages: int, size_bytes: int) -> None:
        """Count records that a slave received from its master.

        The records count as stored messages and bytes in the answer to GET_BROKER_RUNTIME_INFO (request 28). Like in RocketMQ's
        ReputMessageService, they do not count as sends of a topic.
        """
        self.put_messages += messages
        self.put_bytes += size_bytes
        self._folded_put += messages

    def _stored_in_many(self, records: Sequence[AppendUnit]) -> None:
        puts = self._puts
        for record in records:
            entry = puts.get(record.topic)
            if entry is None:
                entry = puts[record.topic] = [0, 0]
            entry[0] += 1 if type(record) is DispatchRequest else count_messages((record,))
            entry[1] += record.message_size_bytes
        delayed = [record for record in records if record.topic in self._counted_topics]
        if delayed:
            self._stored_in_queues(delayed)

    def _stored_in_queues(self, records: Sequence[AppendUnit]) -> None:
        """Count stored messages by queue. RocketMQ does this only for the queues of its delay levels."""
        for record in records:
            entry = self._queue_puts.setdefault((record.topic, record.queue_id), [0, 0])
            entry[0] += count_messages((record,))
            entry[1] += record.message_size_bytes

    def handed_out(
        self,
        topic: str,
        group: str,
        queue_id: int,
        messages: int,
        size_bytes: int,
        took_s: float = 0.0,
        next_offset: int = 0,
    ) -> None:
        """Count a pull that returned messages.

        Args:
            topic: the topic.
            group: the group that pulled.
            queue_id: the queue.
            messages: number of messages returned.
            size_bytes: size of the messages' records.
            took_s: duration of the read, in seconds.
            next_offset: queue offset of the group's next pull.
        """
        self.get_found += 1
        self.get_messages += messages
        self.get_bytes += size_bytes
        if took_s > self.get_time_max_s:
            self.get_time_max_s = took_s
        key = (queue_id, topic, group)
        entry = self._gets.get(key)
        if entry is None:
            entry = self._gets[key] = [0, 0, 0.0, 0, 0]
        entry[0] += messages
        entry[1] += size_bytes
        entry[2] += took_s
        entry[3] += 1
        entry[4] = next_offset

    def found_pulls(self) -> tuple[int, float]:
        """Return the number of pulls that returned messages, and the total duration of their reads in seconds."""
        return self.get_found, self._get_s + sum([entry[2] for entry in self._gets.values()])

    def delivered(self, topic: str, queue_id: int, records: Sequence[AppendUnit]) -> None:
        """Count delayed messages that were due and have been appended to their own topics.

        Args:
            topic: the topic in which the messages waited.
            queue_id: the queue in which the messages waited.
            records: the messages' records in their own topics.
        """
        count, size = count_messages(records), sum([record.message_size_bytes for record in records])
        add = self.table.add
        add(QUEUE_GET_NUMS, f"{topic}@{queue_id}@{SCHEDULE_CONSUMER}", count, count)
        add(QUEUE_GET_SIZE, f"{topic}@{queue_id}@{SCHEDULE_CONSUMER}", size, count)
        add(GROUP_GET_NUMS, f"{topic}@{SCHEDULE_CONSUMER}", count, count)
        add(GROUP_GET_SIZE, f"{topic}@{SCHEDULE_CONSUMER}", size, count)

    # rare

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message that a group sent back to be retried; ``topic`` is the message's original topic."""
        self.table.add(SNDBCK_PUT_NUMS, f"{topic}@{group}")

    def consume_tps(self, group: str, topic: str) -> float:
        """Return the messages per second that a group has pulled of a topic in the last minute."""
        return self.table.tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def forget_topic(self, topic: str) -> None:
        """Delete the counters of a deleted topic and of all groups that consume it. If the broker keeps histograms, delete the
        topic's histogram of message sizes and the recorded offsets of its pulls as well."""
        self._fold()
        if self.figures is not None:
            self.figures.forget_topic(topic)
        self.table.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Delete the statistics of a group."""
        self._fold()
        topics = self.table.forget_group(group)
        if self.figures is not None:
            self.figures.forget_group(group, topics)

    def sample(self) -> None:
        """Take snapshots of the counters with history. The broker calls this every ``SAMPLE_INTERVAL_S`` seconds."""
        self.table.sample()

    def roll_put_times(self) -> None:
        """Begin to collect the append times of a new minute. Afterwards, :meth:`put_times_text` reports the minute that
        ended."""
        self._last_put_times, self._put_times = self._put_times, [0] * len(_EDGE_NAMES)

    def put_times_text(self) -> str:
        """Return the number of messages for each span of append time in the last whole minute, as a text in RocketMQ's format.

        The text is ``null`` in the first minute, like in RocketMQ.
        """
        if self._last_put_times is None:
            return "null"
        pairs = zip(_EDGE_NAMES, self._last_put_times, strict=True)
        return "".join(f"{name}:{count} " for name, count in pairs)

    def put_latency_ms(self, share: float) -> float:
        """Return a quantile of the append times in the last whole minute, in ms; 0 in the first minute.

        The value is interpolated in the spans of :meth:`put_times_text`.

        Args:
            share: the quantile, for example 0.99.
        """
        counts = self._last_put_times or []
        wanted = sum(counts) * share
        for number, count in enumerate(counts):
            if count and wanted <= count:
                start_ms, end_ms = _BOUNDS_MS[number : number + 2]
                return start_ms + (end_ms - start_ms) * wanted / count
            wanted -= count
        return 0.0

    def _fold(self) -> None:
        add = self.table.add
        if self.put_messages != self._folded_put:
            count = self.put_messages - self._folded_put
            add(BROKER_PUT_NUMS, self._cluster, count, count)
            self._folded_put = self.put_messages
        if self.get_messages != self._folded_get:
            count = self.get_messages - self._folded_get
            add(BROKER_GET_NUMS, self._cluster, count, count)
            self._folded_get = self.get_messages
        for topic, (count, size) in self._puts.items():
            add(TOPIC_PUT_NUMS, topic, count, count)
            add(TOPIC_PUT_SIZE, topic, size, count)
        for (topic, queue_id), (count, size) in self._queue_puts.items():
            add(QUEUE_PUT_NUMS, f"{topic}@{queue_id}", count, count)
            add(QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size, count)
        figures = self.figures
        if figures is not None:
            figures.fold()
        for key, (messages, size_bytes, seconds, answers, next_offset) in self._gets.items():
            (queue_id, topic, group), pulls = key, int(answers)
            self._get_s += seconds
            if figures is not None:
                figures.pulled.setdefault(topic, {})[queue_id, group] = int(next_offset)
            both = f"{topic}@{group}"
            add(GROUP_GET_NUMS, both, int(messages), pulls)
            add(GROUP_GET_SIZE, both, int(size_bytes), pulls)
            add(GROUP_GET_LATENCY, f"{queue_id}@{topic}@{group}", round(seconds * 1000), pulls)
        for waiting in (self._puts, self._queue_puts, self._gets):
            waiting.clear()
