"""Bodies must be read whichever client wrote them, and be readable by every one of them."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue, TopicConfig, TopicConfigSerializeWrapper
from flintmq.core.errors import JsonSyntaxError, RefusedError
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.limits import JSON_BODY_MAX_BYTES
from flintmq.core.route.route_data import BrokerData, QueueData, TopicRouteData
from flintmq.remoting.wire.bodies import (
    ConsumeStats,
    HeartbeatData,
    KVTable,
    OffsetWrapper,
    RegisterBrokerBody,
    ResetOffsetBody,
    TopicList,
    TopicStatsTable,
)
from flintmq.remoting.wire.codes import MQ_VERSION
from flintmq.remoting.wire.headers_route import (
    body_crc32,
    decode_register_broker_body,
    encode_register_broker_body,
)
from flintmq.remoting.wire.json_body import decode_answer, decode_body, dumps
from flintmq.tests.support.costs import turns

ROUTE = TopicRouteData(
    broker_datas=[BrokerData(broker_addrs={1: "b:2", 0: "a:1"}, broker_name="broker-ä", cluster="C")],
    queue_datas=[QueueData(broker_name="broker-ä", perm=6, read_queue_nums=4, topic_sys_flag=0, write_queue_nums=4)],
)


def test_fastjson_style_leaves_numeric_keys_unquoted() -> None:
    assert (
        dumps(ROUTE)
        == (
            '{"brokerDatas":[{"brokerAddrs":{1:"b:2",0:"a:1"},"brokerName":"broker-ä","cluster":"C"}],'
            '"filterServerTable":{},"queueDatas":[{"brokerName":"broker-ä","perm":6,"readQueueNums":4,"topicSysFlag":0,'
            '"writeQueueNums":4}]}'
        ).encode()
    )


def test_the_standard_json_style_writes_ascii_json_with_quoted_and_sorted_keys() -> None:
    encoded = dumps(ROUTE, "standard")
    assert encoded.isascii()
    assert list(json.loads(encoded)["brokerDatas"][0]["brokerAddrs"]) == ["0", "1"]


@pytest.mark.parametrize("style", ["fastjson", "standard"])
def test_routes_are_decoded_from_fastjson_and_from_standard_json(style: str) -> None:
    assert decode_body(dumps(ROUTE, style), TopicRouteData) == ROUTE  # type: ignore[arg-type]


def test_a_body_with_message_queues_as_json_keys_is_encoded_and_decoded() -> None:
    queue = MessageQueue("a", 0, "T")
    encoded = ResetOffsetBody({queue: 5}).encode()
    assert encoded == b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}'
    assert ResetOffsetBody.decode(encoded).offset_table == {queue: 5}


def test_fastjson_references_in_a_body_are_followed() -> None:
    """RocketMQ writes an object it has written before as a path to it."""
    text = (
        b'{"consumeTps":1.0,"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"brokerOffset":3,'
        b'"consumerOffset":1,"lastTimestamp":0},{"brokerName":"a","queueId":1,"topic":"T"}:'
        b'{"brokerOffset":4,"consumerOffset":{"$ref":"$.consumeTps"},"lastTimestamp":0}}}'
    )
    stats = ConsumeStats.decode(text)
    assert stats.offset_table[MessageQueue("a", 1, "T")] == OffsetWrapper(4, 1, 0)


def test_heartbeats_of_clients_in_other_languages_are_decoded() -> None:
    """C++ clients send enums as ordinals, Go clients numbers as texts, and any may send null or what we do not know."""
    body = (
        b'{clientID:\'c@1\', "consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
        b'"messageModel":0,"subscriptionDataSet":[{"codeSet":["65"],"subString":"A","subVersion":"17","tagsSet":["A"],'
        b'"topic":"T","classFilterMode":false,"novel":{}}],"unitMode":null,}],"producerDataSet":null}'
    )
    (consumer,) = HeartbeatData.decode(body).consumer_data_set
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "BROADCASTING"
    assert consumer.subscription_data_set[0].code_set == {65}
    assert consumer.subscription_data_set[0].sub_version == 17
    assert consumer.subscription_data_set[0].expression_type == "TAG"


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"clientID":[]}', b"\xff", b'{"consumerDataSet":{}}', b"[" * 100_000, b'{"a":' * 200 + b"'x'"],
)
def test_a_malformed_heartbeat_raises_a_syntax_error(body: bytes) -> None:
    with pytest.raises(JsonSyntaxError):
        HeartbeatData.decode(body)


def test_a_json_body_longer_than_the_maximum_length_is_refused() -> None:
    with pytest.raises(JsonSyntaxError, match="at most"):
        fastjson.loads(b"'" + b" " * JSON_BODY_MAX_BYTES)


def test_fields_of_a_json_body_are_omitted_if_their_value_is_none() -> None:
    assert TopicList(topic_list=["T"]).encode() == b'{"topicList":["T"]}'
    assert TopicList("a:1", ["T"]).encode() == b'{"brokerAddr":"a:1","topicList":["T"]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_numbers_are_encoded_as_null(value: float) -> None:
    """A rate that was divided by nothing must not make an answer that no client can read."""
    assert dumps({"x": [value]}) == b'{"x":[null]}'
    assert json.loads(dumps({"x": [value]}, "standard")) == {"x": [None]}


json_values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(0, 99) | st.text("abc_é", max_size=4), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(json_values)
def test_encoded_json_is_decoded_unchanged(value: object) -> None:
    assert fastjson.loads(dumps(value)) == value


@given(st.dictionaries(st.text("abc é\x01", max_size=5), st.text("xyz%\x7f", max_size=5), max_size=4))
def test_a_key_value_table_is_decoded_unchanged_from_fastjson_and_from_standard_json(table: dict[str, str]) -> None:
    body = KVTable(table)
    assert KVTable.decode(body.encode()) == body
    assert json.loads(body.encode("standard"))["table"] == table


TABLE = TopicConfigSerializeWrapper(
    DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
    {"T": TopicConfig(topic_name="T", perm=6, read_queue_nums=4, write_queue_nums=8)},
)


@pytest.mark.parametrize("compressed", [False, True])
def test_an_encoded_broker_registration_is_decoded_unchanged(compressed: bool) -> None:
    body = RegisterBrokerBody(["f:1"], TABLE)
    data = encode_register_broker_body(body, compressed=compressed)
    crc32 = body_crc32(data)
    assert decode_register_broker_body(data, compressed=compressed, version=MQ_VERSION, crc32=crc32) == body


def test_broker_registrations_of_older_rocketmq_versions_are_decoded() -> None:
    assert decode_register_broker_body(b"", compressed=False, version=MQ_VERSION) == RegisterBrokerBody()
    assert decode_register_broker_body(dumps(TABLE), compressed=False, version=36) == RegisterBrokerBody([], TABLE)


def test_a_damaged_broker_registration_is_refused() -> None:
    with pytest.raises(RefusedError, match="crc32 not match"):
        decode_register_broker_body(b"{}", compressed=False, version=MQ_VERSION, crc32=1)
    for plain in (b"", struct.pack(">i", -1), struct.pack(">i", 99), struct.pack(">i2si", 2, b"{}", 2**31 - 1)):
        with pytest.raises(ValueError, match=r"malformed|part of|cut off"):
            decode_register_broker_body(zlib.compress(plain), compressed=True, version=MQ_VERSION)
    with pytest.raises(ValueError, match="malformed"):
        decode_register_broker_body(b"no zlib", compressed=True, version=MQ_VERSION)
    with pytest.raises(ValueError, match="longer than"):
        decode_register_broker_body(zlib.compress(bytes(JSON_BODY_MAX_BYTES + 1)), compressed=True, version=MQ_VERSION)


@pytest.mark.parametrize("depth", [65, 900, 3_000, 8_000, 20_000])
@pytest.mark.parametrize("begin", ["", '{"topicList":["T"],"unknown":', "{topicList:['T'],unknown:", '{"topicList":'])
def test_a_too_deeply_nested_body_is_refused(begin: str, depth: int) -> None:
    """The decoder in C follows 900 objects on one interpreter and 8,000 on another, and then the lenient reader fell over."""
    text = begin + "[" * depth + "]" * depth + "}" * bool(begin)
    with pytest.raises(JsonSyntaxError, match="nests deeper than 64"):
        decode_body(text.encode(), TopicList)


def test_decoding_a_long_json_answer_does_not_block_the_event_loop() -> None:
    """Positions of thousands of queues have keys that are objects, which only the slow reader takes."""
    queue = '{"brokerName":"b","queueId":%d,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":2,"minOffset":1}'
    text = f'{{"offsetTable":{{{",".join(queue % at for at in range(3_000))}}}}}'.encode()

    async def run() -> TopicStatsTable:
        with turns() as cost:
            found = await decode_answer(text, TopicStatsTable)
        assert cost.turn_ms < 20
        return found

    assert asyncio.run(run()) == TopicStatsTable.decode(text)
    short = b'{"offsetTable":{}}'
    assert asyncio.run(decode_answer(short, TopicStatsTable)) == TopicStatsTable.decode(short)
