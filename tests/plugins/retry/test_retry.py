"""A refused message must come again later, and end in the dead letter queue: neither lost nor delivered for ever."""

from __future__ import annotations

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.record import properties as props
from flintmq.core.record.record import Record
from flintmq.plugins.retry.retry import (
    SendBackPlan,
    is_dead_on_send,
    max_reconsume_times,
    plan_send_back,
)

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
GROUP = SubscriptionGroupConfig(group_name="g", retry_queue_nums=4)


def record(reconsume_times: int = 0, topic: str = "T", **properties: str) -> Record:
    raw = props.properties_to_string(properties).encode()
    return Record(topic, 0, 0, 0, 100, 7, 1, 0, 5, HOST, 6, HOST, reconsume_times, 0, b"body", raw)


def plan(stored: Record, delay_level: int = 0, group: SubscriptionGroupConfig = GROUP, **more: object) -> SendBackPlan:
    settings: dict[str, object] = {"requested_max": None, "version": 407, "choose_queue": lambda nums: nums - 1, **more}
    return plan_send_back(stored, "ID", group, delay_level=delay_level, **settings)  # type: ignore[arg-type]


def test_the_first_retry_of_a_message_has_delay_level_3() -> None:
    made = plan(record(UNIQ_KEY="u", TAGS="A"))
    assert (made.topic, made.queue_id, made.queue_nums) == ("%RETRY%g", 3, 4)
    assert not made.is_dead_letter
    assert made.properties == {
        "UNIQ_KEY": "u",
        "TAGS": "A",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "ID",
        "WAIT": "false",
        "DELAY": "3",
    }
    inner = made.message(record(UNIQ_KEY="u"), HOST)
    assert (inner.topic, inner.queue_id, inner.reconsume_times, inner.flag, inner.sys_flag) == ("%RETRY%g", 3, 1, 7, 1)
    assert (inner.body, inner.born_timestamp_ms, inner.wait) == (b"body", 5, False)
    assert props.string_to_properties(inner.properties_bytes.decode()) == made.properties


def test_later_retries_have_higher_delay_levels_and_keep_the_original_topic_and_id() -> None:
    made = plan(record(2, "%RETRY%g", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="FIRST", DELAY="4"))
    assert made.properties["DELAY"] == "5"
    assert made.properties["RETRY_TOPIC"] == "T"
    assert made.properties["ORIGIN_MESSAGE_ID"] == "FIRST"
    assert made.reconsume_times == 3
    assert plan(record(2), delay_level=1).properties["DELAY"] == "1"


def test_too_many_retries_or_a_negative_delay_level_make_a_message_a_dead_letter() -> None:
    for made in (plan(record(16)), plan(record(0), delay_level=-1), plan(record(1), requested_max=1)):
        assert made.is_dead_letter
        assert (made.topic, made.queue_nums, made.queue_id) == ("%DLQ%g", 1, 0)
        assert made.properties["DELAY"] == "0", "as the real broker stores it"


def test_max_reconsume_times_in_a_request_is_ignored_if_the_client_is_older_than_rocketmq_3_4_9() -> None:
    assert max_reconsume_times(GROUP, 3, 121) == 3
    assert max_reconsume_times(GROUP, 3, 120) == 16
    assert max_reconsume_times(GROUP, None, 407) == 16
    assert max_reconsume_times(GROUP, -1, 407) == 16


def test_messages_sent_to_a_retry_topic_become_dead_letters_after_too_many_retries() -> None:
    assert is_dead_on_send(GROUP, 1, 1, 407)
    assert not is_dead_on_send(GROUP, None, 1, 407)
    assert not is_dead_on_send(GROUP, 1, 1, 100)
