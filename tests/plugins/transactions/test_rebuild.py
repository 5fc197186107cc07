"""After a restart the queues alone tell what is open, whoever wrote them and however the broker ended."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.config.rocketmq.system_topics import TRANS_OP_HALF_TOPIC
from flintmq.core.errors import RefusedError
from flintmq.plugins.transactions import half_message as half

COMMIT, ROLLBACK = 8, 12


def put_op(bench: Any, body: bytes) -> None:
    op = half.op_of(0, bench.clock.now_ms(), bench.store.store_host)
    op.body = body
    bench.store.append([op])


def test_an_op_record_with_several_offsets_is_read(bench: Any) -> None:
    for number in range(4):
        bench.send(str(number))
    put_op(bench, b"0,2,x,")
    bench.restart()
    assert {header["msgId"] for _, header, _ in bench.round()} == {"1", "3"}
    assert bench.positions == (4, 1)


def test_the_copy_of_a_half_message_is_not_checked_after_the_transaction_has_ended(bench: Any) -> None:
    """RocketMQ forgets this, and asks again."""
    made = bench.send("A")
    bench.round()
    put_op(bench, b"0")
    bench.restart()
    assert not bench.round()
    for place in (made, bench.halves[1]):
        with pytest.raises(RefusedError, match="has ended"):
            bench.end(place)


def test_a_copied_half_message_is_not_checked_if_its_original_belongs_to_an_ended_transaction(bench: Any) -> None:
    made = bench.send("A")
    copy = half.copy_of(made, {"TRAN_PREPARED_QUEUE_OFFSET": "0", "UNIQ_KEY": "changed"})
    bench.store.append([copy])
    put_op(bench, b"0")
    bench.restart()
    assert not bench.round()


def test_an_op_record_lost_in_a_crash_is_written_again(bench: Any) -> None:
    made = bench.send("A")
    bench.end(made)
    bench.store.cut(len(bench.store.log) - 1)
    bench.restart()
    assert [op.body for op in bench.store.queues[TRANS_OP_HALF_TOPIC, 0]] == [b"0"]
    with pytest.raises(RefusedError, match="has ended"):
        bench.end(made)
    assert len(bench.delivered) == 1


@pytest.mark.parametrize("checks_before", [0, 1, 3])
@pytest.mark.parametrize("lost_answers", [0, 1, 3])
@pytest.mark.parametrize("decided", ["at the half message", "at the newest copy", "never"])
def test_a_transactional_message_is_delivered_exactly_once_despite_a_broker_crash(
    bench: Any, checks_before: int, lost_answers: int, decided: str
) -> None:
    """Whatever of half, copies, message and op records is kept, and however many answers to checks are lost, also that to
    the first check behind the crash: the message is delivered once."""
    made = bench.send("A")
    for _ in range(checks_before):
        assert len(bench.round()) == 1
    if decided != "never":
        bench.end(made if decided == "at the half message" else bench.halves[-1])
    log, positions = list(bench.store.log), bench.store.saved
    for kept in range(1, len(log) + 1):
        bench.store.log = list(log)
        bench.store.cut(kept)
        bench.store.saved = positions if kept == len(log) else (-1, -1)
        bench.restart()
        for _ in range(lost_answers):
            bench.round()
        for _, header, _ in bench.round():
            bench.end(bench.store.by_place[int(header["commitLogOffset"])])
        assert len(bench.delivered) == 1, f"the crash kept {kept} records"
        assert not bench.round()
        with pytest.raises(RefusedError, match="has ended"):
            bench.end(bench.halves[0])
        bench.restart()
        assert not bench.round()
        assert len(bench.delivered) == 1


def test_an_op_record_stored_before_a_half_message_does_not_end_this_half_message(bench: Any) -> None:
    put_op(bench, b"0")
    bench.send("A")
    bench.restart()
    assert len(bench.round()) == 1


def test_malformed_op_records_are_skipped(bench: Any) -> None:
    bench.send("A")
    for body in (b"", b"x", b"99", b"9" * 50):
        put_op(bench, body)
    bench.restart()
    assert bench.positions == (0, 4)
    assert len(bench.round()) == 1


@pytest.mark.parametrize("saved", [(-1, -1), (0, 0), (99, 99)])
def test_saved_offsets_of_the_half_and_op_queues_are_corrected_if_too_low_or_too_high(
    bench: Any, saved: tuple[int, int]
) -> None:
    bench.end(bench.send("A"), ROLLBACK)
    bench.store.saved = saved
    bench.restart()
    assert bench.positions == (1, 1)
    assert bench.store.saved == (1, 1)


def test_offsets_of_the_half_and_op_queues_are_saved_only_after_the_log_is_flushed(bench: Any) -> None:
    bench.send("A")
    bench.store.flushed = bench.store.wrote_offset_bytes
    bench.round()
    assert bench.positions[0] == 1
    assert bench.store.saved == (-1, -1)
    bench.store.flushed = None
    bench.run()
    assert bench.store.saved == (1, 0)


def test_a_half_message_that_was_rolled_back_cannot_be_committed_after_a_restart(make_bench: Any) -> None:
    bench = make_bench(check_max=1)
    made = bench.send("A")
    bench.round()
    bench.round()
    bench.end(made, ROLLBACK)
    bench.restart()
    with pytest.raises(RefusedError, match="has ended"):
        bench.end(made, COMMIT)
