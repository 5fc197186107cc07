"""The progress of all groups is read the fast way, and means the same as when it is read the lenient way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from flintmq.remoting.wire.json_body import decode_body, dumps

NAMES = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8) | st.sampled_from(
    ["a b", '"', "\\", '{"brokerName":"x","queueId":1,"topic":"y"}:', "%RETRY%g", ""]
)
QUEUES = st.builds(MessageQueue, NAMES, st.integers(0, 2**31 - 1), NAMES)
STATS = st.builds(
    ConsumeStats,
    st.floats(0, 1e6),
    st.dictionaries(QUEUES, st.builds(OffsetWrapper, st.integers(0), st.integers(-1), st.integers(0)), max_size=4),
)
LISTS = st.builds(
    ConsumeStatsList, NAMES, st.lists(st.dictionaries(NAMES, st.lists(STATS, max_size=3), max_size=2)), st.integers(0)
)
LONG = 2**63


@given(LISTS)
def test_the_fast_decoder_of_consume_stats_lists_returns_the_same_value_as_the_general_decoder(
    value: ConsumeStatsList,
) -> None:
    """Whatever names of brokers, topics and groups are."""
    in_range = [one for entry in value.consume_stats_list for stats in entry.values() for one in stats]
    for one in in_range:
        for queue, figures in one.offset_table.items():
            one.offset_table[queue] = OffsetWrapper(
                figures.broker_queue_offset % LONG, figures.consumer_offset % LONG, figures.last_timestamp_ms % LONG
            )
    value.total_diff %= LONG
    separate = [{group: stats} for entry in value.consume_stats_list for group, stats in entry.items()]
    body = dumps(ConsumeStatsList(value.broker_addr, separate, value.total_diff))
    assert ConsumeStatsList.decode(body) == decode_body(body, ConsumeStatsList)


def test_rocketmqs_consume_stats_list_is_read_by_the_fast_decoder() -> None:
    """The lenient reader takes a microsecond a character: too long for thousands of queues while a page waits."""
    body = (
        b'{"brokerAddr":"127.0.0.1:10911","consumeStatsList":[{"TOOLS_CONSUMER":[]},{"g":[{"consumeTps":0.5,"offsetTable":'
        b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"brokerOffset":5,"consumerOffset":2,"lastTimestamp":7}}}]}],'
        b'"totalDiff":3}'
    )
    plain = bodies._QUEUE_KEY.sub(b'"key":', body)
    assert plain.count(b'"key":{"brokerOffset"') == 1
    found = ConsumeStatsList.decode(body)
    queue = MessageQueue("broker-a", 0, "T")
    assert found.consume_stats_list == [
        {"TOOLS_CONSUMER": []},
        {"g": [ConsumeStats(0.5, {queue: OffsetWrapper(5, 2, 7)})]},
    ]
    assert (found.broker_addr, found.total_diff) == ("127.0.0.1:10911", 3)
