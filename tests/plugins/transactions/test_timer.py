"""A committed message that names its time comes then, across a restart: half topic, timer topic, wheel, real topic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.broker.redirected_message import RedirectedMessageStore
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.properties import properties_to_string
from flintmq.plugins.delay.plugin import DelayStep
from flintmq.plugins.timer.plugin import TimerStep
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.timer.timer_service import TimerMessageService, TimerPositions
from flintmq.plugins.timer.timer_wheel import TimerWheel
from flintmq.plugins.transactions.plugin import TransactionStep
from flintmq.plugins.transactions.store import TransactionStore
from flintmq.plugins.transactions.transactional_messages import TransactionalMessageService
from flintmq.remoting.wire.headers_message import EndTransactionRequestHeader
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import open_store
from flintmq.tests.support.state import state_of

HOUR_MS = 3_600_000
SENDER = SimpleNamespace(packed_host=b"\x7f\0\0\1\0\0\x9c\x40", remote_address="127.0.0.1:40000")


class Bench:
    """A store with transactions and timers, on a clock moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.open()

    def open(self) -> None:
        config = BrokerConfig()
        offsets = ConsumerOffsetManager(JsonFile(self.folder / "config" / "consumerOffset.json"))
        offsets.load()
        self.store = open_store(self.folder, clock=self.clock)
        self.state = state = state_of(config, self.clock, store=self.store, offsets=offsets)
        redirect = TimerRedirect(self.clock, lambda: (72 * HOUR_MS, "the.key"), lambda _due_ms: True)
        for step in (TransactionStep(state.api), DelayStep(state.api), TimerStep(redirect, lambda: config)):
            state.intake_steps.add(step)
        self.intake = state.intake
        self.transactions = TransactionalMessageService(
            TransactionStore(state.api),
            ProducerTable(self.clock),
            state.intake_steps.take,
            lambda: config,
            self.clock,
        )
        self.transactions.load()
        timer = self.folder / "flint" / "timer"
        adapter = RedirectedMessageStore(state.api.log, state.stats, state.sink.append)
        saved = TimerPositions(adapter, JsonFile(timer / "position.json"))
        self.timer = TimerMessageService(adapter, TimerWheel(timer), saved)
        self.timer.load()

    def close(self) -> None:
        self.timer.persist()
        self.transactions.save()
        self.state.offsets.persist()
        self.store.close()

    def send(self, **properties: str) -> DispatchRequest:
        header = SimpleNamespace(
            topic="T",
            queue_id=2,
            properties=properties_to_string({"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "A", **properties}),
            default_topic="TBW102",
            default_topic_queue_nums=4,
            sys_flag=4,
            born_timestamp_ms=self.clock.now_ms(),
            flag=0,
            reconsume_times=0,
            max_reconsume_times=None,
            unit_mode=False,
        )
        (half,) = self.store.put([self.intake.single(header, b"body", SENDER, 407)]).records
        self.store.dispatch()
        return half

    def commit(self, half: DispatchRequest) -> None:
        self.transactions.end(
            EndTransactionRequestHeader(
                producer_group="pg",
                tran_state_table_offset=half.queue_offset,
                commit_log_offset_bytes=half.commit_log_offset_bytes,
                commit_or_rollback=8,
                msg_id="A",
            )
        )
        self.store.dispatch()

    def turn_to(self, at_ms: int) -> None:
        self.clock.advance_ms(at_ms - self.clock.now_ms())
        while self.timer.run(at_ms) <= at_ms:
            self.store.dispatch()
        self.store.dispatch()

    def delivered(self) -> int:
        return self.store.reader.max_queue_offset("T", 2)


@pytest.mark.parametrize("restart", [False, True])
def test_the_delay_of_a_timer_message_in_a_transaction_begins_at_the_commit(tmp_path: Path, restart: bool) -> None:
    bench = Bench(tmp_path)
    try:
        half = bench.send(TIMER_DELAY_SEC="7200")
        bench.turn_to(bench.clock.now_ms() + 5 * HOUR_MS)  # long after the delay, had it counted from the send
        assert bench.delivered() == 0
        bench.commit(half)
        due_ms = bench.clock.now_ms() + 2 * HOUR_MS
        bench.turn_to(due_ms - HOUR_MS)
        if restart:
            bench.close()
            bench.open()
        bench.turn_to(due_ms - 1)
        assert bench.delivered() == 0
        bench.turn_to(due_ms)
        assert bench.delivered() == 1
        unit = bench.store.consume_queues.find("T", 2)
        assert unit is not None
        found = unit.unit(0)
        assert found is not None
        record = bench.store.commit_log.record(found[0])
        assert record is not None
        assert (record.body, record.sys_flag) == (b"body", 8)
    finally:
        bench.close()
