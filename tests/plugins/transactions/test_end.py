"""A transaction ends once, at the half message its producer means and no other, whatever comes late, twice or early."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions import half_message as half
from flintmq.plugins.transactions.table import TransactionTable

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def ops(bench: Any) -> list[bytes]:
    return [record.body for record in bench.store.queues[TRANS_OP_HALF_TOPIC, 0]]


def test_a_commit_delivers_the_half_message_and_writes_an_op_record(bench: Any) -> None:
    made = bench.send("A", TAGS="t")
    assert (made.topic, made.queue_id, made.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    bench.end(made)
    (final,) = bench.delivered
    assert (final.sys_flag, final.prepared_transaction_offset_bytes) == (8, made.commit_log_offset_bytes)
    assert final.properties_bytes == made.properties_bytes
    (op,) = bench.store.queues[TRANS_OP_HALF_TOPIC, 0]
    assert (op.body, op.properties, op.born_host) == (b"0", {"TAGS": "d", "WAIT": "true"}, bench.store.store_host)
    assert bench.positions == (1, 1)


def test_a_rollback_writes_an_op_record_but_does_not_deliver_the_half_message(bench: Any) -> None:
    first, second = bench.send("A"), bench.send("B")
    bench.end(first, UNKNOWN)
    bench.end(second, ROLLBACK)
    assert not bench.delivered
    assert ops(bench) == [b"1"]
    assert bench.positions == (0, 0)
    bench.end(first, ROLLBACK)
    assert bench.positions == (2, 2)


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("restart", [False, True])
def test_a_second_commit_or_rollback_of_a_transaction_is_refused(
    bench: Any, first: int, second: int, restart: bool
) -> None:
    bench.send("in front, open")
    made = bench.send("A")
    bench.end(made, first)
    if restart:
        bench.restart()
    with pytest.raises(RefusedError, match="has ended"):
        bench.end(made, second)
    assert len(bench.delivered) == (first == COMMIT)
    assert ops(bench) == [b"1"]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_transaction_can_be_ended_only_once_even_if_its_half_message_is_stored_twice(
    bench: Any, newest_first: bool, decision: int
) -> None:
    made = bench.send("A")
    bench.round()
    copy = bench.halves[1]
    ends = [copy, made] if newest_first else [made, copy]
    bench.end(ends[0], decision)
    with pytest.raises(RefusedError, match="has ended"):
        bench.end(ends[1], COMMIT)
    assert len(bench.delivered) == (decision == COMMIT)
    assert b"1" in ops(bench), "the next broker must not ask about the copy"
    assert not bench.round()
    bench.restart()
    assert not bench.round()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"producer_group": "other"}, "transaction.group"),
        ({"tran_state_table_offset": 7}, "transaction.queue_offset"),
        ({"commit_log_offset_bytes": 3}, "transaction.gone"),
        ({"msg_id": "ANOTHER"}, "transaction.id"),
        ({"msg_id": "ANOTHER", "transaction_id": "THIRD"}, "transaction.id"),
    ],
)
def test_an_end_transaction_request_with_wrong_fields_is_refused(
    bench: Any, changes: dict[str, Any], reason: str
) -> None:
    made = bench.send("A")
    with pytest.raises(RefusedError) as refused:
        bench.end(made, **changes)
    assert (refused.value.code, refused.value.reason) == (ResponseCode.SYSTEM_ERROR, reason)
    bench.end(made)


def test_an_end_transaction_request_is_accepted_with_an_offset_id_or_a_transaction_id_or_no_id(bench: Any) -> None:
    place = "7F00000100002A9F0000000000000000"
    for key, names in (
        ("A", {"msg_id": place}),
        ("B", {"msg_id": "", "transaction_id": ""}),
        ("C", {"msg_id": "x", "transaction_id": "C"}),
    ):
        made = bench.send(key)
        bench.end(made, **names)
    assert len(bench.delivered) == 3


def test_a_message_that_is_not_a_half_message_cannot_be_committed(bench: Any) -> None:
    bench.end(bench.send("A"))
    (final,) = bench.delivered
    with pytest.raises(RefusedError) as refused:
        bench.end(final)
    assert refused.value.reason == "transaction.gone"


def test_a_message_sent_again_after_a_rollback_is_a_new_transaction(bench: Any) -> None:
    bench.end(bench.send("A"), ROLLBACK)
    bench.clock.advance_ms(1)
    bench.end(bench.send("A"), COMMIT)
    assert len(bench.delivered) == 1


def test_two_half_messages_without_a_unique_key_can_be_ended_separately(bench: Any) -> None:
    first, second = bench.send(""), bench.send("")
    bench.end(first, ROLLBACK)
    bench.end(second, COMMIT)
    assert len(bench.delivered) == 1


def test_the_delay_of_a_half_message_with_a_delay_level_begins_at_the_commit(bench: Any) -> None:
    bench.end(bench.send("A", DELAY="3"))
    (waiting,) = bench.store.queues[SCHEDULE_TOPIC, 2]
    assert waiting.properties["REAL_TOPIC"] == "T"
    assert not bench.delivered


@pytest.mark.parametrize(
    ("named", "due_after_commit_ms"),
    [
        ({"TIMER_DELAY_SEC": "7200"}, 7_200_000),
        ({"TIMER_DELAY_MS": "1500"}, 1_500),
        ({"TIMER_DELIVER_MS": "+9000"}, 5_000),
    ],
)
def test_timer_properties_of_a_half_message_are_applied_at_the_commit(
    bench: Any, named: dict[str, str], due_after_commit_ms: int
) -> None:
    """A delay counts from the commit as a level's does; a time is a time. The commit comes 4 s after the half message."""
    sent_ms = bench.clock.now_ms()
    named = {name: str(sent_ms + int(text)) if text[0] == "+" else text for name, text in named.items()}
    made = bench.send("A", **named)
    bench.clock.advance_ms(4_000)
    bench.end(made)
    (waiting,) = bench.store.queues[TIMER_TOPIC, 0]
    assert not bench.delivered
    assert waiting.sys_flag == 8
    assert waiting.prepared_transaction_offset_bytes == made.commit_log_offset_bytes
    assert {name: waiting.properties[name] for name in ("REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS")} == {
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
        "TIMER_OUT_MS": str(bench.clock.now_ms() + due_after_commit_ms),
    }


def test_a_message_whose_timer_passed_before_the_commit_is_delivered_at_once(bench: Any) -> None:
    made = bench.send("A", TIMER_DELIVER_MS=str(bench.clock.now_ms() + 1_000))
    bench.clock.advance_ms(1_001)
    bench.end(made)
    assert len(bench.delivered) == 1


def test_a_half_message_with_a_delay_level_and_a_timer_property_is_delivered_by_its_delay_level(bench: Any) -> None:
    bench.end(bench.send("A", DELAY="1", TIMER_DELAY_SEC="60"))
    assert len(bench.store.queues[SCHEDULE_TOPIC, 0]) == 1
    assert not bench.store.queues[TIMER_TOPIC, 0]


@pytest.mark.parametrize(
    ("changes", "reason"), [({"room": False}, "timer.crowded"), ({"longest_delay_ms": 9_999}, "timer.too_far")]
)
def test_a_commit_leaves_the_transaction_open_if_the_timer_of_the_message_is_refused(
    bench: Any, changes: dict[str, Any], reason: str
) -> None:
    """It was acknowledged and committed: it must neither come early nor be lost."""
    made = bench.send("A", TIMER_DELAY_MS="10000")
    before = {name: getattr(bench, name) for name in changes}
    vars(bench).update(changes)
    with pytest.raises(RefusedError) as refused:
        bench.end(made)
    assert refused.value.reason == reason
    assert not bench.delivered
    ((_, header, _),) = bench.round()
    vars(bench).update(before)
    bench.end(bench.halves[int(header["tranStateTableOffset"])])
    assert len(bench.store.queues[TIMER_TOPIC, 0]) == 1
    assert not bench.round()


def test_an_end_transaction_request_waits_until_its_half_message_is_readable(bench: Any) -> None:
    made = bench.send("A")
    bench.store.unreadable_from = 0
    bench.end(made)
    bench.run()
    assert not bench.delivered
    bench.store.unreadable_from = None
    bench.run()
    assert len(bench.delivered) == 1
    assert bench.run() is None


def test_a_commit_on_a_full_store_leaves_the_transaction_open(bench: Any) -> None:
    made = bench.send("A")
    bench.store.refuse["T"] = RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "full", reason="store.disk_full")
    with pytest.raises(RefusedError, match="full"):
        bench.end(made)
    bench.store.refuse.clear()
    bench.end(made)
    assert len(bench.delivered) == 1


def test_a_half_message_whose_original_queue_id_is_not_a_number_cannot_be_committed(bench: Any) -> None:
    made = bench.send("A")
    made.properties_bytes = made.properties_bytes.replace(b"REAL_QID\x011", b"REAL_QID\x01x")
    with pytest.raises(RefusedError) as refused:
        bench.end(made)
    assert refused.value.reason == "transaction.no_topic"
    bench.end(made, ROLLBACK)


def test_a_message_sent_back_by_a_consumer_begins_no_transaction() -> None:
    assert half.asks_for_transaction({"TRAN_MSG": "true"}, 0)
    assert half.asks_for_transaction({"TRAN_MSG": "True"}, 0)
    assert not half.asks_for_transaction({"TRAN_MSG": "true"}, 1)
    assert not half.asks_for_transaction({"TRAN_MSG": "false"}, 0)


def test_the_number_of_ended_transactions_kept_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.plugins.transactions.table.REMEMBERED_MAX", 3)
    table = TransactionTable()
    for offset in range(10):
        table.ended((str(offset), 0, b""), offset)
    assert table.position == 10
    assert [table.was_ended((str(offset), 0, b"")) for offset in (6, 7)] == [False, True]
    assert not table.is_open(("0", 0, b""), 0)
