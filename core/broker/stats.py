"""What the broker counts (docs/internals/protocol.md, Runtime figures). Loop thread.

The hot paths add once per batch and topic, to plain integers; they are folded into the table of counters with a past when
they are read. Nothing is formatted, and no key is built, per message.
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
"""Messages that became dead letters, by the topic that they came from and the group. RocketMQ has it in its metrics only."""
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"

SCHEDULE_CONSUMER: Final = "SCHEDULE_CONSUMER"
"""The group under which deliveries of delayed messages are counted."""

_EDGES_S: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
_BOUNDS_MS: Final = (0.0, *(edge_s * 1000 for edge_s in _EDGES_S), 20_000.0)
"""Where each of the spans below begins and, followed by the next, ends."""
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
    """Totals since the start, and the counters of 315 with their past.

    Args:
        clock: stamps the start; the table's snapshots.
        cluster: the key of what is counted for the whole broker.
        counted_topics: topics of which puts are counted for each queue.
    """

    def __init__(
        self, clock: Clock, cluster: str = "DefaultCluster", counted_topics: Collection[str] = frozenset()
    ) -> None:
        self._counted_topics = counted_topics
        self.boot_timestamp_ms = clock.now_ms()
        self.put_messages = 0
        """Messages stored."""
        self.put_bytes = 0
        """Their records' bytes."""
        self.put_failed = 0
        """Messages refused after their request was understood."""
        self.dropped = 0
        """Messages that waited for a topic, and were dropped when they were due because it had been deleted."""
        self.not_durable: dict[str, int] = {}
        """Sends whose message is stored, but not kept as promised, by the reason that they were told."""
        self.faults = BrokerFaults(clock)
        """What is refused through the broker's fault."""
        self.get_found = 0
        """Pulls that found messages."""
        self.get_missed = 0
        """Pulls that found none."""
        self.get_messages = 0
        """Messages handed out."""
        self.get_bytes = 0
        self._get_s = 0.0
        self.put_time_max_s = 0.0
        """The longest append of a batch, with the wait for its durability where senders wait for it."""
        self.get_time_max_s = 0.0
        """The longest reading of an answer to a pull."""
        self._cluster = cluster
        self._folded_put = 0
        self._folded_get = 0
        self._puts: dict[str, list[int]] = {}
        """Topic → messages and bytes not folded yet; likewise below."""
        self._queue_puts: dict[tuple[str, int], list[int]] = {}
        self._gets: dict[tuple[int, str, str], list[float]] = {}
        """(queue, topic, group) → messages, bytes, seconds, answers, where the next pull goes on."""
        self.figures: BatchFigures | None = None
        """Counts more, per batch; None until :meth:`measure`."""
        self._put_times = [0] * len(_EDGE_NAMES)
        self._last_put_times: list[int] | None = None
        self.table = StatsTable(clock, self._fold)

    # hot paths

    def stored(self, records: Sequence[AppendUnit], took_s: float = 0.0, messages: int | None = None) -> None:
        """Count an append.

        Args:
            records: what became of its messages.
            took_s: how long it took.
            messages: how many there are, where the caller knows; those of a batch are counted one by one.
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
        """Return messages and bytes of topics that are not folded yet."""
        return {topic: (found[0], found[1]) if (found := self._puts.get(topic)) else (0, 0) for topic in set(topics)}

    def _note_sizes(self, before: Mapping[str, tuple[int, int]]) -> None:
        """Count the sizes of what came since these figures were taken."""
        for topic, (messages, size_bytes) in before.items():
            if self.figures is not None:
                now_messages, now_bytes = self._puts[topic]
                self.figures.sized(topic, now_messages - messages, now_bytes - size_bytes)

    def measure(self, figures: BatchFigures) -> None:
        """Count more from now on, per batch."""
        self.figures = figures

    def undelivered(self) -> None:
        """Count a message that waited and can be delivered no more."""
        self.dropped += 1

    def missed(self) -> None:
        """Count a pull that found nothing."""
        self.get_missed += 1

    def refused(self) -> None:
        """Count a send whose message is not stored."""
        self.put_failed += 1

    def undurable(self, reason: str) -> None:
        """Count a send whose message is stored, and whose answer says that it is not as durable as promised."""
        self.not_durable[reason] = self.not_durable.get(reason, 0) + 1

    def waited(self, took_s: float) -> None:
        """Note how long an append and the wait for its durability took."""
        if self.figures is not None:
            self.figures.durable_s.add(took_s)
        if took_s > self.put_time_max_s:
            self.put_time_max_s = took_s

    def replicated(self, messages: int, size_bytes: int) -> None:
        """Count records that a slave took over from its master: they are its messages and bytes put (request 28), and,
        as in RocketMQ's ReputMessageService, of no topic's sends."""
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
        """Count puts by queue: RocketMQ does so for the queues of its delay levels only."""
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
        """Count a pull that found something, and after which the group goes on at ``next_offset``."""
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
        """Return how many pulls found messages, and for how many seconds these were read."""
        return self.get_found, self._get_s + sum([entry[2] for entry in self._gets.values()])

    def delivered(self, topic: str, queue_id: int, records: Sequence[AppendUnit]) -> None:
        """Count messages that were due and have been put where they belong.

        Args:
            topic: where they waited, with ``queue_id``.
            records: what became of them.
        """
        count, size = count_messages(records), sum([record.message_size_bytes for record in records])
        add = self.table.add
        add(QUEUE_GET_NUMS, f"{topic}@{queue_id}@{SCHEDULE_CONSUMER}", count, count)
        add(QUEUE_GET_SIZE, f"{topic}@{queue_id}@{SCHEDULE_CONSUMER}", size, count)
        add(GROUP_GET_NUMS, f"{topic}@{SCHEDULE_CONSUMER}", count, count)
        add(GROUP_GET_SIZE, f"{topic}@{SCHEDULE_CONSUMER}", size, count)

    # rare

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message that a group refused; ``topic`` is where it came from at first."""
        self.table.add(SNDBCK_PUT_NUMS, f"{topic}@{group}")

    def consume_tps(self, group: str, topic: str) -> float:
        """Messages a second that a group was lately given of a topic."""
        return self.table.tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def forget_topic(self, topic: str) -> None:
        """Its counters go with a topic."""
        self._fold()
        if self.figures is not None:
            self.figures.forget_topic(topic)
        self.table.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Its counters go with a group."""
        self._fold()
        topics = self.table.forget_group(group)
        if self.figures is not None:
            self.figures.forget_group(group, topics)

    def sample(self) -> None:
        """Take the table's snapshots; call it every ``SAMPLE_INTERVAL_S``."""
        self.table.sample()

    def roll_put_times(self) -> None:
        """End a minute of :meth:`put_times_text`."""
        self._last_put_times, self._put_times = self._put_times, [0] * len(_EDGE_NAMES)

    def put_times_text(self) -> str:
        """Return how many messages of the last whole minute took how long to append; ``null`` in the first, as in
        RocketMQ."""
        if self._last_put_times is None:
            return "null"
        pairs = zip(_EDGE_NAMES, self._last_put_times, strict=True)
        return "".join(f"{name}:{count} " for name, count in pairs)

    def put_latency_ms(self, share: float) -> float:
        """Return the time within which a share (0.99) of the last whole minute's messages were appended, estimated from
        :meth:`put_times_text`'s spans; 0 in the first minute."""
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
