"""Transactions are one folder: a broker has them by its plugin, and runs without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flintmq
from flintmq.config.rocketmq.system_topics import TRANS_OP_HALF_TOPIC
from flintmq.config.sections.models import BrokerConfig, ListenSection, StoreSection
from flintmq.config.sections.service import TransactionsSection
from flintmq.core.broker.intake import MessageIntake
from flintmq.core.broker.role import SLAVE
from flintmq.core.broker.state import BrokerState
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.record.host import pack_host
from flintmq.core.record.properties import properties_to_string, string_to_properties
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.delay.plugin import DelayStep
from flintmq.plugins.timer.plugin import TimerStep
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.transactions.plugin import EndTransactionProcessor, ResumeCheckProcessor, TransactionStep
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.command import request
from flintmq.testing.clock import ManualClock, VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.testing.processor_kit import RecordingChannel
from flintmq.tests.remoting.processors.conftest import Bench, ask, ask_later
from flintmq.tests.support.roles import become_master, become_slave, is_timed, on_loop
from flintmq.tests.support.state import state_of
from flintmq.tests.support.transactions import TransactionBench

HOST = pack_host("127.0.0.1", 10911)
SENT = {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "A", "WAIT": "true"}


def test_a_broker_without_the_transactions_plugin_refuses_half_messages(tmp_path: Path) -> None:
    """Stored as any other, a half message would never be delivered, and its producer would not hear of that."""
    config = BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(tmp_path)),
        disabled_plugins=("transactions",),
    )

    async def live() -> None:
        async with flintmq.Broker(config) as broker:
            committed = flintmq.Message("T", b"plain", properties={"TRAN_MSG": "false"})
            for put in await broker.put([committed]):
                record = broker.state.store.reader.message_at(put.commit_log_offset_bytes)
                assert record is not None
                assert record.topic == "T"
            with pytest.raises(RefusedError) as refused:
                await broker.put([flintmq.Message("T", b"half", properties={"TRAN_MSG": "true"})])
            assert (refused.value.code, refused.value.reason) == (
                ResponseCode.NO_PERMISSION,
                "transaction.unsupported",
            )
            client = RemotingClient()
            try:
                for code in (RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE):
                    answer = await client.invoke(broker.address, request(code, {}), 5_000)
                    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            finally:
                await client.close()

    asyncio.run(live())


def make_intake(redirect: TimerRedirect | None = None, **settings: Any) -> MessageIntake:
    state = state_of(BrokerConfig(transactions=TransactionsSection(**settings)))
    state.intake_steps.add(TransactionStep(state.api))
    state.intake_steps.add(DelayStep(state.api))
    if redirect is not None:
        state.intake_steps.add(TimerStep(redirect, lambda: state.config))
    return state.intake


def send(intake: MessageIntake, properties: dict[str, str], **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "topic": "T",
        "queue_id": 2,
        "properties": properties_to_string(properties),
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "sys_flag": 5,
        "born_timestamp_ms": 1,
        "flag": 0,
        "reconsume_times": 0,
        "max_reconsume_times": None,
        "unit_mode": False,
        **changes,
    }
    sender = SimpleNamespace(packed_host=HOST, remote_address="127.0.0.1:1")
    return intake.single(SimpleNamespace(**fields), b"x", sender, 407)


@pytest.mark.parametrize("delay", [{}, {"DELAY": "3"}])
def test_a_half_message_is_stored_as_in_rocketmq(delay: dict[str, str]) -> None:
    intake = make_intake()
    made = send(intake, SENT | delay)
    assert (made.topic, made.queue_id, made.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    stored = string_to_properties(made.properties_bytes.decode())
    assert stored == SENT | delay | {"REAL_TOPIC": "T", "REAL_QID": "2", "CLUSTER": "DefaultCluster"}
    config = intake._state.topics.select("RMQ_SYS_TRANS_HALF_TOPIC")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_a_send_with_reconsume_times_above_0_begins_no_transaction() -> None:
    assert send(make_intake(), SENT, reconsume_times=1, sys_flag=0).topic == "T"


def test_half_messages_are_refused_if_the_setting_transactions_reject_is_true() -> None:
    with pytest.raises(RefusedError) as refused:
        send(make_intake(reject=True), SENT)
    assert (refused.value.code, refused.value.key) == (16, "transactions.reject (rejectTransactionMessage)")


@pytest.mark.parametrize(
    ("named", "reason"),
    [({"TIMER_DELAY_SEC": "61"}, "timer.too_far"), ({"TIMER_DELIVER_MS": "soon"}, "timer.malformed")],
)
def test_a_half_message_with_an_invalid_timer_is_refused_when_it_is_sent(named: dict[str, str], reason: str) -> None:
    """Its producer does not wait for the answer to the commit: there nobody would hear of it."""
    intake = make_intake(TimerRedirect(ManualClock(), lambda: (60_000, "the.key"), lambda _due_ms: False))
    with pytest.raises(RefusedError) as refused:
        send(intake, SENT | named)
    assert (refused.value.code, refused.value.reason) == (13, reason)
    send(intake, SENT | named | {"DELAY": "1"})
    assert send(intake, SENT | {"TIMER_DELAY_SEC": "60"}).topic == "RMQ_SYS_TRANS_HALF_TOPIC"


def test_half_messages_with_too_long_properties_are_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        send(make_intake(), SENT | {"long": "x" * 32_600})
    assert refused.value.code == 13


class Promise:
    """A flush waiter that a test ends."""

    def __init__(self) -> None:
        self.status: FlushStatus | None = None
        self._callbacks: list[Callable[[FlushStatus], None]] = []

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        self._callbacks.append(callback)

    def end(self, status: FlushStatus) -> None:
        self.status = status
        for callback in self._callbacks:
            callback(status)


KEPT = Promise()
KEPT.end(FlushStatus.FLUSHED)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(name="ask")
def ask_fixture() -> Any:
    return ask


@pytest.fixture(name="ask_later")
def ask_later_fixture() -> Any:
    return ask_later


def fields(place: int, offset: int, decision: int = 8, group: str = "pg") -> dict[str, str]:
    return {
        "producerGroup": group,
        "tranStateTableOffset": str(offset),
        "commitLogOffset": str(place),
        "commitOrRollback": str(decision),
        "fromTransactionCheck": "false",
        "msgId": "A",
    }


def test_requests_of_clients_can_end_a_transaction_or_resume_its_checks(bench: Any, ask: Any) -> None:
    transactions = TransactionBench()
    bench.state.store.writer = SimpleNamespace(promise=lambda: KEPT)
    end, resume = (
        EndTransactionProcessor(bench.state.api, transactions.service).handlers(),
        ResumeCheckProcessor(bench.state.api, transactions.service).handlers(),
    )
    made = transactions.send("A")
    refused = ask(end, bench.request(Code.END_TRANSACTION, fields(0, 0, group="other")))
    assert refused.code == 1
    assert "producer group wrong" in refused.remark
    assert (
        ask(resume, bench.request(Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": "7F00000100002A9F0000000000000000"})).code
        == 0
    )
    assert len(transactions.halves) == 2
    assert ask(end, bench.request(Code.END_TRANSACTION, fields(made.commit_log_offset_bytes, 0))).code == 0
    assert len(transactions.delivered) == 1
    for message_id in ("7F00000100002A9F0000000000000000", "x", ""):
        assert ask(resume, bench.request(Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})).code == 1


@pytest.mark.parametrize(
    ("status", "compat", "code"),
    [
        (FlushStatus.FLUSHED, "safe", 0),
        (FlushStatus.TIMEOUT, "safe", 10),
        (FlushStatus.SLAVE_TIMEOUT, "safe", 12),
        (FlushStatus.SLAVE_NOT_AVAILABLE, "safe", 11),
        (FlushStatus.FENCED, "safe", 14),
        (FlushStatus.TIMEOUT, "strict", 0),
        (FlushStatus.SLAVE_NOT_AVAILABLE, "strict", 0),
        (FlushStatus.FENCED, "strict", 14),
    ],
)
def test_an_end_transaction_request_is_answered_after_its_flush_status_is_known(
    bench: Any, ask_later: Any, status: FlushStatus, compat: str, code: int
) -> None:
    """Not before it is on disk, and where there is to be one, at a slave: a power cut must not undo what was answered."""
    transactions = TransactionBench()
    bench.state.config = BrokerConfig(store=StoreSection(compat=compat))
    promise = Promise()
    bench.state.store.writer = SimpleNamespace(promise=lambda: promise)
    made = transactions.send("A")
    end = EndTransactionProcessor(bench.state.api, transactions.service).handlers()

    async def ended() -> Any:
        asked = bench.request(Code.END_TRANSACTION, fields(made.commit_log_offset_bytes, 0))
        answer = asyncio.ensure_future(ask_later(end, asked))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done(), "the promise is open"
        promise.end(status)
        return await answer

    answer = asyncio.run(ended())
    assert answer.code == code
    assert len(transactions.delivered) == 1


def test_a_slave_refuses_to_end_transactions(bench: Any, ask: Any) -> None:
    bench.state.role.change(SLAVE, 1)
    assert (
        ask(
            EndTransactionProcessor(bench.state.api, TransactionBench().service).handlers(),
            bench.request(Code.END_TRANSACTION, fields(0, 0)),
        ).code
        == 11
    )


def test_transactions_are_checked_and_ended_only_on_a_master(tmp_path: Path) -> None:
    """A slave asks no producer and ends nothing; the former slave does both again, once for each transaction."""
    clock, channel = VirtualClock(), RecordingChannel()
    settings = ("transactions.check_interval_ms=10s", "transactions.timeout_ms=1s")
    with EmbeddedBroker(tmp_path, clock=clock, settings=settings) as broker:
        on_loop(broker, lambda state: state.producers.register("pg", channel, "client"))
        first, second = (half(broker, body) for body in (b"1", b"2"))

        def end(place: int, offset: int) -> int:
            return ended(broker, fields(place, offset) | {"msgId": ""})

        assert end(*first) == 0
        clock.advance("11s")
        assert len(channel.sent) == 1
        become_slave(broker)
        assert not is_timed(broker, "transaction checks")
        clock.advance("1m")
        assert len(channel.sent) == 1
        assert end(*second) == ResponseCode.SLAVE_NOT_AVAILABLE
        become_master(broker)
        clock.advance("11s")
        assert len(channel.sent) == 2
        assert end(*second) == 0
        assert end(*first) == end(*second) == 1, "each has ended"
        become_slave(broker)
        become_master(broker)
        assert end(*first) == end(*second) == 1, "the former slave knows it from the queues"
        clock.advance("1m")
        assert len(channel.sent) == 2
        assert sorted(one.body for one in broker.messages("T")) == [b"1", b"2"]


def test_a_promoted_slave_writes_the_missing_op_record_of_a_committed_transaction(tmp_path: Path) -> None:
    """A slave appends nothing itself: the op record comes from its master, or is written when the slave becomes one."""
    with EmbeddedBroker(tmp_path) as broker:
        place, offset = half(broker, b"1")
        assert ended(broker, fields(place, offset) | {"msgId": ""}) == 0

        def cut(state: BrokerState) -> None:
            (op,) = list(state.store.consume_queues.find(TRANS_OP_HALF_TOPIC, 0).units(0, 9))
            state.store.truncate(op[0])

        on_loop(broker, cut)
        broker.abandon()
    with EmbeddedBroker(tmp_path, settings=("broker.role=slave", "broker.id=1", "ha.compat=rocketmq")) as broker:
        assert on_loop(broker, lambda state: state.store.reader.max_queue_offset(TRANS_OP_HALF_TOPIC, 0)) == 0
        become_master(broker)
        on_loop(broker, lambda state: state.dispatch())
        assert on_loop(broker, lambda state: state.store.reader.max_queue_offset(TRANS_OP_HALF_TOPIC, 0)) == 1
        assert [one.body for one in broker.messages("T")] == [b"1"]


def half(broker: EmbeddedBroker, body: bytes) -> tuple[int, int]:
    """Store a half message; return its place in the log and its queue offset."""
    begun = flintmq.Message("T", body, properties={"TRAN_MSG": "true", "PGROUP": "pg"})
    (put,) = broker.put([begun])
    return put.commit_log_offset_bytes, put.queue_offset


def ended(broker: EmbeddedBroker, end: dict[str, str]) -> int:
    """Ask the broker to end a transaction; return the code of its answer."""

    async def ask_broker() -> int:
        client = RemotingClient()
        try:
            return (await client.invoke(broker.address, request(RequestCode.END_TRANSACTION, end), 5_000)).code
        finally:
            await client.close()

    return asyncio.run(ask_broker())
