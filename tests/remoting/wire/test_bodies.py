"""Tables with queues as keys are written by hand, because no JSON library writes them: RocketMQ's tools must read them."""

from __future__ import annotations

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.io import fastjson
from flintmq.remoting.wire.bodies import (
    OffsetTable,
    OffsetWrapper,
    TopicOffset,
    consume_stats,
    consume_stats_list,
    topic_stats,
)

QUEUE = MessageQueue('broker "a"', 3, "T")


def table() -> OffsetTable:
    """One queue's figures of a group."""
    made = OffsetTable()
    made.add(QUEUE, OffsetWrapper(broker_queue_offset=9, consumer_offset=7, last_timestamp_ms=5))
    return made


def test_decoded_offset_tables_have_message_queues_as_keys() -> None:
    """fastjson writes maps whose keys are beans in this way, and quotes their names as in JSON."""
    made = table()
    assert len(made) == 1
    assert made.json().startswith(b'{{"')
    (key,) = fastjson.loads(made.json())
    assert "broker" in str(key)
    assert OffsetTable().json() == b"{}"


def test_topic_statistics_and_consumer_statistics_are_unchanged_after_encoding_and_decoding() -> None:
    """All FlintMQ clients read such bodies with this function."""
    made = OffsetTable()
    made.add(QUEUE, TopicOffset(min_queue_offset=1, max_queue_offset=9, last_update_timestamp_ms=5))
    made.add(MessageQueue("b", 0, "T"), TopicOffset())
    found = fastjson.loads(topic_stats(made))
    assert len(found["offsetTable"]) == 2
    found = fastjson.loads(consume_stats(1.5, table()))
    assert found["consumeTps"] == 1.5
    assert [one["consumerOffset"] for one in found["offsetTable"].values()] == [7]


def test_a_list_of_consume_statistics_contains_all_statistics_tables_of_each_group() -> None:
    """The answer to 345, from which consoles draw how far behind all groups are."""
    stats = consume_stats(0.0, table())
    found = fastjson.loads(consume_stats_list("127.0.0.1:10911", [("g", [stats, stats]), ("h", [])], 12))
    assert found["brokerAddr"] == "127.0.0.1:10911"
    assert found["totalDiff"] == 12
    groups = [(group, len(tables)) for one in found["consumeStatsList"] for group, tables in one.items()]
    assert groups == [("g", 2), ("h", 0)]
