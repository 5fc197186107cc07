"""Run a broker's transactions over a log in memory that can crash, and a clock that is moved by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import attrs

from flintmq.config.rocketmq.system_topics import TRANS_HALF_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.service import TransactionsSection
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.host import pack_host
from flintmq.core.record.properties import properties_to_string
from flintmq.core.record.record import MessageExtBrokerInner, Record, decode_record, encode_record, record_size
from flintmq.plugins.delay.plugin import DelayStep
from flintmq.plugins.timer.plugin import TimerStep
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.transactions.half_message import redirect_to_half
from flintmq.plugins.transactions.transactional_messages import TransactionalMessageService
from flintmq.remoting.wire.headers_message import EndTransactionRequestHeader
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel

HOST = pack_host("127.0.0.1", 10911)
CLIENT = pack_host("127.0.0.1", 40000)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "pg"


class MemoryTransactionStore:
    """Stands in for a TransactionStore. What is behind ``flushed`` may be lost in a crash; ``refuse`` keeps messages out."""

    store_host = HOST

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.log: list[Record] = []
        self.by_place: dict[int, Record] = {}
        self.queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.min: dict[str, int] = {}
        self.flushed: int | None = None
        self.unreadable_from: int | None = None
        self.refuse: dict[str, RefusedError] = {}
        self.saved = (-1, -1)
        self.topics: set[str] = set()

    @property
    def wrote_offset_bytes(self) -> int:
        return self.log[-1].commit_log_offset_bytes + self.log[-1].size_bytes if self.log else 0

    @property
    def readable_offset_bytes(self) -> int:
        return self.wrote_offset_bytes if self.unreadable_from is None else self.unreadable_from

    @property
    def flushed_offset_bytes(self) -> int:
        return self.wrote_offset_bytes if self.flushed is None else self.flushed

    def min_queue_offset(self, topic: str) -> int:
        return self.min.get(topic, 0)

    def max_queue_offset(self, topic: str) -> int:
        return len(self.queues.get((topic, 0), ()))

    def record(self, topic: str, queue_offset: int) -> Record | None:
        queue = self.queues.get((topic, 0), [])
        return queue[queue_offset] if self.min_queue_offset(topic) <= queue_offset < len(queue) else None

    def record_at(self, commit_log_offset_bytes: int) -> Record | None:
        return (
            self.by_place.get(commit_log_offset_bytes) if commit_log_offset_bytes < self.readable_offset_bytes else None
        )

    def last_record(self) -> Record | None:
        return self.log[-1] if self.log else None

    def append(self, messages: Sequence[MessageExtBrokerInner]) -> list[DispatchRequest]:
        for message in messages:
            if message.topic in self.refuse:
                raise self.refuse[message.topic]
        return [self._append(message) for message in messages]

    def _append(self, message: MessageExtBrokerInner) -> DispatchRequest:
        queue = self.queues[message.topic, message.queue_id]
        place, size = self.wrote_offset_bytes, record_size(message)
        record = decode_record(b"".join(encode_record(message, size, len(queue), place, self.clock.now_ms())))
        self._add(record)
        get = record.properties.get
        return DispatchRequest(
            record.topic,
            record.queue_id,
            place,
            size,
            0,
            record.store_timestamp_ms,
            record.queue_offset,
            get("KEYS", ""),
            get("UNIQ_KEY", ""),
            record.sys_flag,
            record.prepared_transaction_offset_bytes,
            record.properties,
        )

    def _add(self, record: Record) -> None:
        self.queues[record.topic, record.queue_id].append(record)
        self.log.append(record)
        self.by_place[record.commit_log_offset_bytes] = record

    def cut(self, records: int) -> None:
        """Keep the log's first records only."""
        kept = self.log[:records]
        self.log, self.by_place, self.queues = [], {}, defaultdict(list)
        for record in kept:
            self._add(record)

    def ensure_topic(self, topic: str) -> None:
        self.topics.add(topic)

    def load_positions(self) -> tuple[int, int]:
        return self.saved

    def save_positions(self, half_queue_offset: int, op_queue_offset: int) -> None:
        self.saved = (half_queue_offset, op_queue_offset)


class TransactionBench:
    """The service with everything around it; ``restart`` makes another one from the store."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = MemoryTransactionStore(self.clock)
        self.producers = ProducerTable(self.clock)
        self.channel = RecordingChannel()
        self.producers.register(GROUP, self.channel, "client")
        self.config = BrokerConfig(transactions=TransactionsSection(**settings))
        self.longest_delay_ms = 3 * 86_400_000
        self.room = True
        """Return whether another message may be due at a time."""
        redirect = TimerRedirect(
            self.clock, lambda: (self.longest_delay_ms, "delay.timer_max_delay_ms"), lambda _due_ms: self.room
        )
        api: Any = SimpleNamespace(settings=SimpleNamespace(current=self.config))
        self.steps = IntakeSteps([DelayStep(api), TimerStep(redirect, lambda: self.config)])
        self.restart()

    def restart(self) -> None:
        self.service = TransactionalMessageService(
            cast("Any", self.store), self.producers, self.steps.take, lambda: self.config, self.clock
        )
        self.service.load()

    def configure(self, **settings: Any) -> None:
        self.config = attrs.evolve(self.config, transactions=attrs.evolve(self.config.transactions, **settings))

    def send(self, uniq_key: str, body: bytes = b"body", **properties: str) -> Record:
        named = {"UNIQ_KEY": uniq_key, "PGROUP": GROUP, "TRAN_MSG": "true", "WAIT": "true", **properties}
        named = {name: value for name, value in named.items() if value}
        raw = properties_to_string(named).encode()
        message = MessageExtBrokerInner("T", 1, body, named, raw, self.clock.now_ms(), CLIENT, HOST, 0, 4)
        redirect_to_half(message)
        (put,) = self.store.append([message])
        return self.store.by_place[put.commit_log_offset_bytes]

    def end(self, half: Record, decision: int = COMMIT, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "producer_group": GROUP,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset_bytes": half.commit_log_offset_bytes,
            "commit_or_rollback": decision,
            "msg_id": half.properties.get("UNIQ_KEY", ""),
            **changes,
        }
        self.service.end(EndTransactionRequestHeader(**fields))

    def run(self) -> None:
        """Do slices until nothing is left of a round."""
        while self.service.run() == 0.0:
            pass

    def round(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Let an interval pass and do the round; return what producers were asked in it."""
        self.clock.advance_ms(self.config.transactions.check_interval_ms)
        before = len(self.channel.sent)
        self.run()
        return self.channel.sent[before:]

    @property
    def delivered(self) -> list[Record]:
        return self.store.queues["T", 1]

    @property
    def halves(self) -> list[Record]:
        return self.store.queues[TRANS_HALF_TOPIC, 0]

    @property
    def positions(self) -> tuple[int, int]:
        return self.service.table.position, self.service.table.op_position
