"""The ends of transactions as clients send them, and the administrator's request to ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.server import BrokerSection
from flintmq.config.sections.store import StoreSection
from flintmq.core.kernel.ports import FlushStatus
from flintmq.plugins.transactions.processor import EndTransactionProcessor, ResumeCheckProcessor
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.tests.remoting.processors.conftest import Bench, ask, ask_later
from flintmq.tests.support.transactions import TransactionBench


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


def test_ends_and_resumes(bench: Any, ask: Any) -> None:
    transactions = TransactionBench()
    bench.state.dispatch = lambda: None
    bench.state.store.writer = SimpleNamespace(promise=lambda: KEPT)
    end, resume = (
        EndTransactionProcessor(bench.state, transactions.service).handlers(),
        ResumeCheckProcessor(bench.state, transactions.service).handlers(),
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
def test_an_end_is_acknowledged_as_a_send_is(
    bench: Any, ask_later: Any, status: FlushStatus, compat: str, code: int
) -> None:
    """Not before it is on disk, and where there is to be one, at a slave: a power cut must not undo what was answered."""
    transactions = TransactionBench()
    bench.state.dispatch = lambda: None
    bench.state.config = BrokerConfig(store=StoreSection(compat=compat))
    promise = Promise()
    bench.state.store.writer = SimpleNamespace(promise=lambda: promise)
    made = transactions.send("A")
    end = EndTransactionProcessor(bench.state, transactions.service).handlers()

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


def test_a_slave_ends_nothing(bench: Any, ask: Any) -> None:
    bench.state.config = BrokerConfig(broker=BrokerSection(id=1))
    assert (
        ask(
            EndTransactionProcessor(bench.state, TransactionBench().service).handlers(),
            bench.request(Code.END_TRANSACTION, fields(0, 0)),
        ).code
        == 11
    )
