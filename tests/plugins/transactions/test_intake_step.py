"""What makes a send a half message, and what keeps it out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.service import TransactionsSection
from flintmq.core.broker.intake import MessageIntake
from flintmq.core.errors import RefusedError
from flintmq.core.record.host import pack_host
from flintmq.core.record.properties import properties_to_string, string_to_properties
from flintmq.core.testing.clock import ManualClock
from flintmq.plugins.delay.intake_step import DelayStep
from flintmq.plugins.timer.intake_step import TimerStep
from flintmq.plugins.timer.timer_message import TimerRedirect
from flintmq.plugins.transactions.intake_step import TransactionStep
from flintmq.tests.support.state import state_of

HOST = pack_host("127.0.0.1", 10911)


def make_intake(redirect: TimerRedirect | None = None, **settings: Any) -> MessageIntake:
    state = state_of(BrokerConfig(transactions=TransactionsSection(**settings)))
    state.intake_steps.add(TransactionStep(state))
    state.intake_steps.add(DelayStep(state))
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


SENT = {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "A", "WAIT": "true"}


@pytest.mark.parametrize("delay", [{}, {"DELAY": "3"}])
def test_a_half_message_is_stored_as_the_reference_stores_it(delay: dict[str, str]) -> None:
    intake = make_intake()
    made = send(intake, SENT | delay)
    assert (made.topic, made.queue_id, made.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    stored = string_to_properties(made.properties_bytes.decode())
    assert stored == SENT | delay | {"REAL_TOPIC": "T", "REAL_QID": "2", "CLUSTER": "DefaultCluster"}
    config = intake._state.topics.select("RMQ_SYS_TRANS_HALF_TOPIC")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_a_consumer_that_sends_a_committed_message_again_begins_nothing() -> None:
    assert send(make_intake(), SENT, reconsume_times=1, sys_flag=0).topic == "T"


def test_transactions_can_be_switched_off() -> None:
    with pytest.raises(RefusedError) as refused:
        send(make_intake(reject=True), SENT)
    assert (refused.value.code, refused.value.key) == (16, "transactions.reject (rejectTransactionMessage)")


@pytest.mark.parametrize(
    ("named", "reason"),
    [({"TIMER_DELAY_SEC": "61"}, "timer.too_far"), ({"TIMER_DELIVER_MS": "soon"}, "timer.malformed")],
)
def test_a_time_that_can_never_be_kept_is_refused_at_the_send(named: dict[str, str], reason: str) -> None:
    """Its producer does not wait for the answer to the commit: there nobody would hear of it."""
    intake = make_intake(TimerRedirect(ManualClock(), lambda: (60_000, "the.key"), lambda _due_ms: False))
    with pytest.raises(RefusedError) as refused:
        send(intake, SENT | named)
    assert (refused.value.code, refused.value.reason) == (13, reason)
    send(intake, SENT | named | {"DELAY": "1"})
    assert send(intake, SENT | {"TIMER_DELAY_SEC": "60"}).topic == "RMQ_SYS_TRANS_HALF_TOPIC"


def test_properties_leave_room_for_what_copies_add() -> None:
    with pytest.raises(RefusedError) as refused:
        send(make_intake(), SENT | {"long": "x" * 32_600})
    assert refused.value.code == 13
