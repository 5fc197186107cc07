"""Heartbeats, farewells, member lists and offsets: without them no unmodified consumer gets a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RefusedError
from flintmq.core.io import fastjson
from flintmq.remoting.processors.clients import ClientManageProcessor, ConsumerManageProcessor
from flintmq.remoting.wire.codes import RequestCode as Code


def heartbeat(client_id: str, group: str, topic: str, **more: object) -> dict[str, object]:
    return {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": topic, "subString": "*", "subVersion": 1, "codeSet": [], "tagsSet": []}
                ],
                **more,
            }
        ],
        "producerDataSet": [{"groupName": "pg"}],
    }


def test_a_heartbeat_registers_a_member_and_creates_the_retry_topic(bench: Any, ask: Any) -> None:
    handlers = ClientManageProcessor(bench.state.api).handlers()
    assert ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("a", "g", "T"))).code == 0
    config = bench.state.topics.select("%RETRY%g")
    assert (config.read_queue_nums, config.perm) == (1, 6)
    assert bench.channel.sent == [(40, {"consumerGroup": "g"}, b"")]
    assert [member.client_id for member in bench.state.producers.members("pg")] == ["a"]
    info = bench.state.consumers.find("g")
    assert info.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert set(info.subscriptions) == {"T"}
    ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("a", "g", "T")))
    assert len(bench.channel.sent) == 1


def test_a_heartbeat_creates_the_retry_topic_of_a_group_with_a_long_name(bench: Any, ask: Any) -> None:
    """Tools find a group's brokers by the route of its retry topic, also where that name is too long for a message."""
    handlers = ClientManageProcessor(bench.state.api).handlers()
    ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("a", "g", "T", unitMode=True)))
    assert bench.state.topics.select("%RETRY%g").topic_sys_flag == 2
    assert ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("a", "x" * 200, "T"))).code == 0
    assert bench.state.topics.select("%RETRY%" + "x" * 200).read_queue_nums == 1
    assert ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("a", "x" * 256, "T"))).code == 1


def test_members_of_a_group_are_notified_when_another_member_unregisters(
    bench: Any, ask: Any, new_channel: Any
) -> None:
    handlers = ClientManageProcessor(bench.state.api).handlers()
    other = new_channel()
    ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("a", "g", "T")))
    ask(handlers, bench.request(Code.HEART_BEAT, None, heartbeat("b", "g", "T"), channel=other))
    bench.channel.sent.clear()
    farewell = bench.request(
        Code.UNREGISTER_CLIENT, {"clientID": "b", "producerGroup": "pg", "consumerGroup": "g"}, channel=other
    )
    assert ask(handlers, farewell).code == 0
    assert bench.channel.sent == [(40, {"consumerGroup": "g"}, b"")]
    assert len(bench.state.producers.members("pg")) == 1


def test_a_client_configuration_with_an_invalid_or_unsupported_filter_is_refused(bench: Any, ask: Any) -> None:
    def broken(expression: str, codes: frozenset[int]) -> Any:
        raise RefusedError(23, f"no SQL: {expression}", reason="filter.syntax")

    def check(kind: str) -> int:
        body: Mapping[str, object] = {"subscriptionData": {"topic": "T", "expressionType": kind, "subString": "x"}}
        answer = ask(
            ClientManageProcessor(bench.state.api).handlers(), bench.request(Code.CHECK_CLIENT_CONFIG, None, body)
        )
        return int(answer.code)

    assert check("TAG") == 0
    assert check("SQL92") == check("UNKNOWN") == 1
    bench.state.filters = {**bench.state.filters, "MINE": lambda expression, codes: None, "BROKEN": broken}
    assert check("MINE") == 0  # the setting is about SQL92
    assert check("BROKEN") == 23
    bench.state.config = attrs.evolve(
        bench.state.config, pull=attrs.evolve(bench.state.config.pull, property_filter=True)
    )
    assert check("UNKNOWN") == 23
    bench.state.filters = {"SQL92": broken}
    assert check("SQL92") == 23
    bench.state.filters = {"SQL92": lambda expression, codes: None}
    assert check("SQL92") == 0
    assert (
        ask(ClientManageProcessor(bench.state.api).handlers(), bench.request(Code.CHECK_CLIENT_CONFIG, None, {})).code
        == 0
    )


def test_listing_the_members_of_an_empty_group_is_an_error(bench: Any, ask: Any) -> None:
    handlers = ConsumerManageProcessor(bench.state.api).handlers()
    empty = ask(handlers, bench.request(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}))
    assert (empty.code, empty.remark) == (1, "no consumer for this group, g [group.not_online]")
    ask(
        ClientManageProcessor(bench.state.api).handlers(),
        bench.request(Code.HEART_BEAT, None, heartbeat("a", "g", "T")),
    )
    answer = ask(handlers, bench.request(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}))
    assert fastjson.loads(answer.body) == {"consumerIdList": ["a"]}


def test_the_offset_query_of_a_new_consumer_group_returns_0_if_the_queue_is_fully_in_memory(
    bench: Any, ask: Any
) -> None:
    handlers = ConsumerManageProcessor(bench.state.api).handlers()
    queue = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    assert ask(handlers, bench.request(Code.QUERY_CONSUMER_OFFSET, queue)).ext_fields == {"offset": "0"}
    bench.store.in_memory = False
    assert ask(handlers, bench.request(Code.QUERY_CONSUMER_OFFSET, queue)).code == 22
    commit = queue | {"commitOffset": "7"}
    assert ask(handlers, bench.request(Code.UPDATE_CONSUMER_OFFSET, commit)).code == 17, "nothing is kept of no topic"
    bench.state.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=4))
    for unknown in ("-1", "4"):
        assert ask(handlers, bench.request(Code.UPDATE_CONSUMER_OFFSET, commit | {"queueId": unknown})).code == 1
    assert ask(handlers, bench.request(Code.UPDATE_CONSUMER_OFFSET, commit | {"consumerGroup": "a b"})).code == 26
    assert bench.state.offsets.entries == 0
    assert ask(handlers, bench.request(Code.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    assert ask(handlers, bench.request(Code.QUERY_CONSUMER_OFFSET, queue)).ext_fields == {"offset": "7"}
    assert ask(handlers, bench.request(Code.UPDATE_CONSUMER_OFFSET, queue | {"commitOffset": "-1"})).code == 1
    assert ask(handlers, bench.request(Code.UPDATE_CONSUMER_OFFSET, {"topic": "T"})).code == 1
