"""Producers are asked about what they left open, in time, not too often, and nothing is asked twice because a round failed."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.errors import RefusedError
from flintmq.core.record.record import decode_record
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.processor_kit import RecordingChannel

COMMIT, ROLLBACK = 8, 12
DAY_MS = 86_400_000


def test_a_transaction_check_stores_a_copy_of_the_half_message_and_asks_the_producer_about_the_copy(bench: Any) -> None:
    made = bench.send("A", body=b"text")
    ((code, header, body),) = bench.round()
    copy = bench.halves[1]
    assert code == RequestCode.CHECK_TRANSACTION_STATE
    assert header == {
        "commitLogOffset": str(copy.commit_log_offset_bytes),
        "offsetMsgId": f"7F00000100002A9F{copy.commit_log_offset_bytes:016X}",
        "tranStateTableOffset": "1",
        "msgId": "A",
        "transactionId": "A",
    }
    shown = decode_record(body)
    assert (shown.topic, shown.queue_id, shown.queue_offset, shown.body) == ("T", 1, 1, b"text")
    assert shown.commit_log_offset_bytes == copy.commit_log_offset_bytes
    assert copy.properties == made.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert (copy.born_timestamp_ms, copy.born_host) == (made.born_timestamp_ms, made.born_host)
    bench.end(copy)
    assert len(bench.delivered) == 1
    assert not bench.round()


def test_a_half_message_is_not_checked_before_its_timeout(make_bench: Any) -> None:
    bench = make_bench(check_interval_ms=1000, timeout_ms=6000)
    bench.send("A")
    assert [len(bench.round()) for _ in range(7)] == [0, 0, 0, 0, 0, 1, 1]


def test_the_broker_checks_only_half_messages_whose_transactions_have_not_ended(bench: Any) -> None:
    made = [bench.send(str(number)) for number in range(5)]
    for number in (1, 3):
        bench.end(made[number])
    assert {header["msgId"] for _, header, _ in bench.round()} == {"0", "2", "4"}
    assert bench.positions == (5, 2)
    assert bench.store.saved == (5, 2)


def test_members_of_a_producer_group_are_asked_in_turn_about_half_messages(bench: Any) -> None:
    other = RecordingChannel()
    bench.producers.register("pg", other, "other")
    for number in range(4):
        bench.send(str(number))
    bench.round()
    assert (len(bench.channel.sent), len(other.sent)) == (2, 2)


def test_a_transaction_check_waits_while_no_producer_is_connected(bench: Any) -> None:
    bench.send("A")
    bench.channel.is_open = False
    assert not bench.round()
    bench.channel.is_open = True
    assert len(bench.round()) == 1


def test_a_half_message_is_checked_at_most_as_often_as_the_setting_check_max_allows(make_bench: Any) -> None:
    bench = make_bench(check_max=3)
    made = bench.send("A")
    assert [len(bench.round()) for _ in range(5)] == [1, 1, 1, 0, 0]
    (given_up,) = bench.store.queues[TRANS_CHECK_MAX_TIME_TOPIC, 0]
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert given_up.body == made.body
    assert bench.store.topics == {TRANS_CHECK_MAX_TIME_TOPIC}


@pytest.mark.parametrize("restart", [False, True])
def test_a_half_message_that_is_no_longer_checked_can_still_be_committed_or_rolled_back(
    make_bench: Any, restart: bool
) -> None:
    bench = make_bench(check_max=1)
    made = bench.send("A")
    other = bench.send("B")
    bench.round()
    bench.round()
    assert len(bench.store.queues[TRANS_CHECK_MAX_TIME_TOPIC, 0]) == 2
    bench.end(other, ROLLBACK)
    if restart:
        bench.restart()
    bench.end(made)
    with pytest.raises(RefusedError, match="has ended"):
        bench.end(bench.halves[2])
    with pytest.raises(RefusedError, match="has ended"):
        bench.end(other)
    assert len(bench.delivered) == 1


def test_a_half_message_older_than_the_log_retention_is_no_longer_checked(bench: Any) -> None:
    bench.send("A")
    bench.clock.advance_ms(3 * DAY_MS)
    assert not bench.round()
    assert len(bench.store.queues[TRANS_CHECK_MAX_TIME_TOPIC, 0]) == 1


def test_a_half_message_checked_for_a_day_can_be_committed(bench: Any) -> None:
    bench.configure(check_max=10_000)
    bench.send("A")
    asked = sum(len(bench.round()) for _ in range(24 * 60))
    assert asked == 24 * 60
    assert len(bench.halves) == asked + 1
    assert bench.positions[0] == asked
    bench.end(bench.halves[0])
    assert len(bench.delivered) == 1
    assert not bench.round()


def test_half_messages_within_their_immunity_time_are_not_checked_or_counted(make_bench: Any) -> None:
    bench = make_bench(check_interval_ms=1000, timeout_ms=1000, check_max=2)
    bench.send("A", CHECK_IMMUNITY_TIME_IN_SECONDS="5")
    assert [len(bench.round()) for _ in range(7)] == [0, 0, 0, 0, 1, 1, 0]
    assert [copy.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for copy in bench.halves[1:5]] == ["0"] * 4
    assert "TRANSACTION_CHECK_TIMES" not in bench.halves[4].properties


def test_a_half_message_copied_during_its_immunity_time_can_be_committed_by_its_original_offset(
    make_bench: Any,
) -> None:
    bench = make_bench(check_interval_ms=1000, timeout_ms=1000)
    made = bench.send("A", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(5):
        bench.round()
    bench.restart()
    bench.end(made)
    assert len(bench.delivered) == 1
    bench.clock.advance_ms(3_600_000)
    assert not bench.round()


@pytest.mark.parametrize("text", ["-1", "x", "", "9" * 30])
def test_an_invalid_immunity_time_is_replaced_by_the_transaction_timeout(make_bench: Any, text: str) -> None:
    bench = make_bench(check_interval_ms=1000, timeout_ms=3000)
    bench.send("A", CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    assert [len(bench.round()) for _ in range(3)] == [0, 0, 1]


def test_a_half_message_with_a_born_time_in_the_future_is_not_checked_early(make_bench: Any) -> None:
    bench = make_bench(check_interval_ms=1000, timeout_ms=3000)
    made = bench.send("A")
    made.born_timestamp_ms += DAY_MS
    assert [len(bench.round()) for _ in range(3)] == [0, 0, 1]


def test_a_wall_clock_set_back_does_not_stop_transaction_checks(bench: Any) -> None:
    bench.send("A")
    bench.clock.set_wall_clock(bench.clock.now_ms() - DAY_MS)
    assert len(bench.round()) == 1


def test_a_check_round_after_a_failed_round_continues_at_the_first_unchecked_half_message(bench: Any) -> None:
    for number in range(3):
        bench.send(str(number))
    append, calls = bench.store.append, []

    def fail_at_the_second(messages: Any) -> Any:
        calls.append(messages)
        if len(calls) == 2:
            raise RuntimeError("a defect")
        return append(messages)

    bench.store.append = fail_at_the_second
    with pytest.raises(RuntimeError):
        bench.round()
    bench.store.append = append
    assert bench.positions[0] == 1
    assert bench.store.saved[0] == 1
    asked = [header["msgId"] for _, header, _ in [*bench.channel.sent, *bench.round()]]
    assert asked == ["0", "1", "2", "0"]
    assert len(bench.halves) == 3 + 4


def test_the_check_of_half_messages_pauses_while_the_store_is_full(bench: Any) -> None:
    bench.send("A")
    bench.store.refuse[TRANS_HALF_TOPIC] = RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE, "full", reason="store.disk_full"
    )
    assert not bench.round()
    bench.store.refuse.clear()
    assert len(bench.round()) == 1


def test_a_half_message_that_cannot_be_copied_is_no_longer_checked(bench: Any) -> None:
    bench.send("A")
    bench.store.refuse[TRANS_HALF_TOPIC] = RefusedError(
        ResponseCode.MESSAGE_ILLEGAL, "too large", reason="message.larger_than_file"
    )
    assert not bench.round()
    assert len(bench.store.queues[TRANS_CHECK_MAX_TIME_TOPIC, 0]) == 1
    bench.store.refuse.clear()
    bench.send("B")
    assert len(bench.round()) == 1


def test_deleted_half_messages_are_skipped(bench: Any) -> None:
    for number in range(4):
        bench.send(str(number))
    bench.store.min[TRANS_HALF_TOPIC] = 3
    assert [header["msgId"] for _, header, _ in bench.round()] == ["3"]


def test_no_transaction_check_is_sent_while_the_new_copy_of_the_half_message_is_unreadable(bench: Any) -> None:
    bench.send("A")
    bench.store.unreadable_from = bench.store.wrote_offset_bytes
    assert not bench.round()
    bench.store.unreadable_from = None
    bench.run()
    assert len(bench.channel.sent) == 1


def test_a_long_check_round_is_split_into_several_event_loop_iterations(bench: Any) -> None:
    for number in range(600):
        bench.send(str(number))
    bench.clock.advance_ms(60_000)
    assert bench.service.run() == 0.0
    assert len(bench.channel.sent) == 256
    bench.run()
    assert len(bench.channel.sent) == 600


def test_a_check_round_pauses_after_a_limited_number_of_bytes_of_half_messages(bench: Any) -> None:
    for number in range(4):
        bench.send(str(number), body=bytes(600_000))
    bench.clock.advance_ms(60_000)
    assert bench.service.run() > 0
    assert len(bench.channel.sent) == 2


def test_checks_of_a_half_message_can_be_resumed_after_the_maximum_number_of_checks(make_bench: Any) -> None:
    bench = make_bench(check_max=1)
    made = bench.send("A")
    bench.round()
    bench.round()
    (given_up,) = bench.store.queues[TRANS_CHECK_MAX_TIME_TOPIC, 0]
    bench.service.resume(given_up.commit_log_offset_bytes)
    ((_, header, body),) = bench.round()
    assert decode_record(body).properties["TRANSACTION_CHECK_TIMES"] == "1"
    bench.end(bench.halves[int(header["tranStateTableOffset"])])
    for place in (made, given_up, bench.halves[1]):
        with pytest.raises(RefusedError, match="has ended"):
            bench.service.resume(place.commit_log_offset_bytes)
    with pytest.raises(RefusedError, match="no half message"):
        bench.service.resume(bench.delivered[0].commit_log_offset_bytes)
    with pytest.raises(RefusedError, match="no half message"):
        bench.service.resume(1)
    assert len(bench.delivered) == 1


def test_an_unneeded_request_to_resume_transaction_checks_causes_no_extra_check(bench: Any) -> None:
    made = bench.send("A")
    bench.round()
    bench.service.resume(made.commit_log_offset_bytes)
    assert len(bench.round()) == 1
    assert len(bench.round()) == 1
    bench.end(made)
    assert not bench.round()
