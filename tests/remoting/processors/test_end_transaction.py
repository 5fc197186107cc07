"""The ends of transactions as clients send them, and the administrator's request to ask again."""

from __future__ import annotations

from typing import Any

from flintmq.config.models import BrokerConfig
from flintmq.config.server_sections import BrokerSection
from flintmq.core.testing.transactions import TransactionBench
from flintmq.remoting.codes import RequestCode as Code
from flintmq.remoting.processors.end_transaction import EndTransactionProcessor, ResumeCheckProcessor


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
    bench.state.transactions = transactions.service
    bench.state.dispatch = lambda: None
    end, resume = EndTransactionProcessor(bench.state).handlers(), ResumeCheckProcessor(bench.state).handlers()
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


def test_a_slave_ends_nothing(bench: Any, ask: Any) -> None:
    bench.state.config = BrokerConfig(broker=BrokerSection(id=1))
    assert (
        ask(EndTransactionProcessor(bench.state).handlers(), bench.request(Code.END_TRANSACTION, fields(0, 0))).code
        == 11
    )
