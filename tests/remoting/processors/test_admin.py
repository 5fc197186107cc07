"""Administration tools and slaves read and change a broker through these codes; their answers are parsed by Java."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.subscription import build_subscription
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RemotingTimeoutError
from flintmq.core.io import fastjson
from flintmq.core.io.fastjson import ObjectKey
from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.waiters import DONE, CompletedWaiter
from flintmq.remoting.processors.admin_broker import AdminBrokerProcessor
from flintmq.remoting.processors.admin_clients import AdminClientProcessor
from flintmq.remoting.processors.admin_groups import AdminGroupProcessor
from flintmq.remoting.processors.admin_topics import AdminTopicProcessor
from flintmq.remoting.processors.answers import format_properties, read_properties
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.command import RemotingCommand

NOW = 1_700_000_000_000


def mq(queue_id: int = 0, topic: str = "T") -> ObjectKey:
    return ObjectKey({"brokerName": "broker-a", "queueId": queue_id, "topic": topic})


def new_topic(topic: str, **more: str) -> dict[str, str]:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "5", "perm": "6"}
    return fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"} | more


@pytest.fixture
def with_topic(bench: Any) -> Any:
    """Topic T with two queues, three messages in queue 0, and group g at offset 2 of it."""
    bench.state.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    bench.store.queues["T", 0] = [(NOW - 300, 65), (NOW - 200, 66), (NOW - 100, 65)]
    bench.state.offsets.commit("T", "g", 0, 2)
    return bench


def test_admin_requests_create_and_delete_topics(bench: Any, ask: Any) -> None:
    handlers = AdminTopicProcessor(bench.state.api).handlers()
    assert ask(handlers, bench.request(Code.UPDATE_AND_CREATE_TOPIC, new_topic("T", order="true"))).code == 0
    assert bench.state.topics.select("T") == TopicConfig(
        topic_name="T", read_queue_nums=3, write_queue_nums=5, order=True
    )
    for bad in ("bad topic", "TBW102", "broker-a", ""):
        refused = ask(handlers, bench.request(Code.UPDATE_AND_CREATE_TOPIC, new_topic(bad)))
        assert refused.code == 1
        assert "topic" in (refused.remark or "")
    table = fastjson.loads(ask(handlers, bench.request(Code.GET_ALL_TOPIC_CONFIG)).body)
    assert table["topicConfigTable"]["T"]["writeQueueNums"] == 5
    assert table["dataVersion"]["counter"] == 1
    bench.store.queues["T", 0] = [(NOW, 0)]
    bench.state.offsets.commit("T", "g", 0, 1)
    assert ask(handlers, bench.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
    assert bench.state.topics.select("T") is None
    assert bench.store.reader.topics() == set()
    assert bench.state.offsets.query("T", "g", 0) == -1
    assert ask(handlers, bench.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})).remark == (
        "The topic[TBW102] is conflict with system topic. [topic.system]"
    )
    assert (
        "TBW102"
        in fastjson.loads(ask(handlers, bench.request(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body)["topicList"]
    )


def test_the_returned_configuration_of_a_topic_has_the_json_form_of_rocketmq_5(with_topic: Any, ask: Any) -> None:
    """Its mqadmin does not ask for all topics to see one."""
    bench = with_topic
    handlers = AdminTopicProcessor(bench.state.api).handlers()
    asked = {"topic": "T", "lo": "true", "bname": "broker-a"}
    assert fastjson.loads(ask(handlers, bench.request(Code.GET_TOPIC_CONFIG, asked)).body) == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    missing = ask(handlers, bench.request(Code.GET_TOPIC_CONFIG, {"topic": "none"}))
    assert (missing.code, missing.remark) == (17, "topic[none] not exist [topic.missing]")


def test_the_returned_configuration_of_a_group_has_the_json_form_of_rocketmq_5(bench: Any, ask: Any) -> None:
    """To ask for a group must not make one."""
    handlers = AdminGroupProcessor(bench.state.api).handlers()
    missing = ask(handlers, bench.request(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}))
    assert missing.code == 26
    assert bench.state.groups.find("g") is None
    bench.state.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=3))
    assert fastjson.loads(ask(handlers, bench.request(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})).body) == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "g",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def test_the_answer_to_a_topic_deletion_is_an_error_if_the_deletion_is_not_durable(bench: Any, ask: Any) -> None:
    """If it cannot be made durable, the answer says so, and the topic is still deleted at this broker."""
    handlers = AdminTopicProcessor(bench.state.api).handlers()
    bench.state.topics.put(TopicConfig(topic_name="T"))
    bench.store.promised = CompletedWaiter(FlushStatus.SLAVE_TIMEOUT)
    assert ask(handlers, bench.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 12
    assert bench.state.topics.select("T") is None
    bench.store.promised = DONE
    assert ask(handlers, bench.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0, "it can be repeated"


def test_queue_offsets_and_topic_statistics_are_returned(with_topic: Any, ask: Any) -> None:
    bench = with_topic
    handlers = AdminTopicProcessor(bench.state.api).handlers()
    queue = {"topic": "T", "queueId": "0"}
    assert ask(handlers, bench.request(Code.GET_MAX_OFFSET, queue)).ext_fields == {"offset": "3"}
    assert ask(handlers, bench.request(Code.GET_MIN_OFFSET, queue)).ext_fields == {"offset": "0"}
    assert ask(handlers, bench.request(Code.GET_EARLIEST_MSG_STORETIME, queue)).ext_fields == {
        "timestamp": str(NOW - 300)
    }
    assert ask(
        handlers, bench.request(Code.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": str(NOW - 190)})
    ).ext_fields == {"offset": "1"}
    assert ask(handlers, bench.request(Code.GET_MAX_OFFSET, {"topic": "T"})).code == 1
    stats = fastjson.loads(ask(handlers, bench.request(Code.GET_TOPIC_STATS_INFO, {"topic": "T"})).body)["offsetTable"]
    assert stats == {
        mq(0): {"lastUpdateTimestamp": NOW - 100, "maxOffset": 3, "minOffset": 0},
        mq(1): {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
    }
    assert ask(handlers, bench.request(Code.GET_TOPIC_STATS_INFO, {"topic": "none"})).code == 17
    entries = fastjson.loads(
        ask(handlers, bench.request(Code.QUERY_CONSUME_QUEUE, queue | {"index": "1", "count": "10"})).body
    )
    assert (entries["minQueueIndex"], entries["maxQueueIndex"]) == (0, 3)
    assert [(e["physicOffset"], e["physicSize"], e["tagsCode"]) for e in entries["queueData"]] == [
        (100, 90, 66),
        (200, 90, 65),
    ]
    assert ask(handlers, bench.request(Code.QUERY_CONSUME_QUEUE, queue | {"index": "3", "count": "1"})).code == 1
    assert ask(handlers, bench.request(Code.QUERY_CONSUME_QUEUE, {"topic": "x", "queueId": "0"})).code == 1


def test_an_admin_request_returns_the_consumer_groups_of_a_topic(with_topic: Any, ask: Any) -> None:
    bench = with_topic
    handlers = AdminTopicProcessor(bench.state.api).handlers()
    bench.state.consumers.register("online", bench.channel, "c", [build_subscription("T", "A")])
    assert fastjson.loads(ask(handlers, bench.request(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})).body) == {
        "groupList": ["g", "online"]
    }
    seen = fastjson.loads(
        ask(
            handlers,
            bench.request(
                Code.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": "0", "count": "3", "consumerGroup": "online"}
            ),
        ).body
    )
    assert [entry["eval"] for entry in seen["queueData"]] == [True, False, True]
    assert seen["subscriptionData"]["tagsSet"] == ["A"]
    bench.store.queues["unknown", 0] = []
    bench.store.queues["SCHEDULE_TOPIC_XXXX", 0] = []
    assert ask(handlers, bench.request(Code.CLEAN_UNUSED_TOPIC)).code == 0
    assert bench.store.reader.topics() == {"T", "SCHEDULE_TOPIC_XXXX"}


def test_admin_requests_create_and_delete_subscription_groups(with_topic: Any, ask: Any) -> None:
    bench = with_topic
    handlers = AdminGroupProcessor(bench.state.api).handlers()
    body = {"groupName": "g", "retryMaxTimes": 3, "retryQueueNums": 0, "consumeBroadcastEnable": False}
    assert ask(handlers, bench.request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0
    table = fastjson.loads(ask(handlers, bench.request(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)[
        "subscriptionGroupTable"
    ]
    assert table["g"]["retryMaxTimes"] == 3
    assert ask(handlers, bench.request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, {"groupName": "a b"})).code == 1
    assert fastjson.loads(ask(handlers, bench.request(Code.GET_ALL_CONSUMER_OFFSET)).body) == {
        "offsetTable": {"T@g": {0: 2}}
    }
    assert (
        ask(handlers, bench.request(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "removeOffset": "true"})).code
        == 0
    )
    assert bench.state.groups.find("g") is None
    assert bench.state.offsets.query("T", "g", 0) == -1


def test_a_client_gets_a_queue_lock_only_while_no_other_client_holds_the_lock(bench: Any, ask: Any) -> None:
    handlers = AdminGroupProcessor(bench.state.api).handlers()
    q0 = {"brokerName": "b", "queueId": 0, "topic": "T"}

    def lock(client: str) -> Any:
        body = {"clientId": client, "consumerGroup": "g", "mqSet": [q0]}
        return fastjson.loads(ask(handlers, bench.request(Code.LOCK_BATCH_MQ, None, body)).body)["lockOKMQSet"]

    assert lock("a") == [q0]
    assert lock("b") == []
    assert (
        ask(
            handlers,
            bench.request(Code.UNLOCK_BATCH_MQ, None, {"clientId": "a", "consumerGroup": "g", "mqSet": [q0]}),
        ).code
        == 0
    )
    assert lock("b") == [q0]
    for other in ({"topic": "T" * 128}, {"brokerName": "b" * 300}):
        body = {"clientId": "a", "consumerGroup": "g", "mqSet": [q0 | other]}
        answer = ask(handlers, bench.request(Code.LOCK_BATCH_MQ, None, body))
        assert fastjson.loads(answer.body)["lockOKMQSet"] == [], "names too long for a queue fill no memory"
    for named in ({"clientId": "c" * 1025}, {"consumerGroup": "g" * 256}):
        body = {"clientId": "a", "consumerGroup": "g", "mqSet": [q0]} | named
        assert ask(handlers, bench.request(Code.LOCK_BATCH_MQ, None, body)).code == 1


def test_consume_statistics_of_a_group_have_the_broker_offset_and_consumer_offset_of_each_queue(
    with_topic: Any, ask: Any
) -> None:
    bench = with_topic
    bench.state.stats.consume_tps = lambda group, topic: 1.5
    handlers = AdminGroupProcessor(bench.state.api).handlers()
    expected = {
        mq(0): {"brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": NOW - 200},
        mq(1): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
    }
    for fields in ({"consumerGroup": "g"}, {"consumerGroup": "g", "topic": "T"}):
        stats = fastjson.loads(ask(handlers, bench.request(Code.GET_CONSUME_STATS, fields)).body)
        assert stats == {"consumeTps": 1.5, "offsetTable": expected}
    bench.state.groups.select("g")
    everything = fastjson.loads(ask(handlers, bench.request(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})).body)
    assert everything["brokerAddr"] == "127.0.0.1:10911"
    assert everything["totalDiff"] == 1
    assert {"g": [stats]} in everything["consumeStatsList"]
    ordered = fastjson.loads(ask(handlers, bench.request(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})).body)
    assert {"g": []} in ordered["consumeStatsList"]
    bench.state.consumers.register("g", bench.channel, "c", [build_subscription("U", "*")])
    left = fastjson.loads(ask(handlers, bench.request(Code.GET_CONSUME_STATS, {"consumerGroup": "g"})).body)
    assert left["offsetTable"] == {}, "a group that is online no longer counts topics it left"


def test_an_admin_request_copies_consumer_offsets_from_one_group_to_another_group(with_topic: Any, ask: Any) -> None:
    bench = with_topic
    handlers = AdminGroupProcessor(bench.state.api).handlers()
    clone = {"srcGroup": "g", "destGroup": "h", "topic": "T", "offline": "true"}
    assert ask(handlers, bench.request(Code.CLONE_GROUP_OFFSET, clone)).code == 0
    assert bench.state.offsets.query("T", "h", 0) == 2
    bench.state.offsets.commit("T", "h", 0, 1)
    compare = {"compareGroup": "h", "topic": "T", "filterGroups": "h"}
    found = fastjson.loads(ask(handlers, bench.request(Code.QUERY_CORRECTION_OFFSET, compare)).body)
    assert found == {"correctionOffsets": {0: 2**63 - 1}}
    assert bench.state.offsets.query("T", "h", 0) == 1, "asking must not drop the filtered group's offsets"
    spans = fastjson.loads(
        ask(handlers, bench.request(Code.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "g"})).body
    )["consumeTimeSpanSet"]
    first = spans[0]
    assert (first["minTimeStamp"], first["maxTimeStamp"], first["consumeTimeStamp"]) == (
        NOW - 300,
        NOW - 100,
        NOW - 200,
    )
    assert first["delayTime"] == 100
    assert re.fullmatch(r"\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}", first["minTimeStampStr"])
    assert spans[1]["minTimeStamp"] == -1
    assert ask(handlers, bench.request(Code.QUERY_CONSUME_TIME_SPAN, {"topic": "none", "group": "g"})).code == 17


def test_numeric_json_keys_are_quoted_if_a_request_asks_for_standard_json(with_topic: Any, ask: Any) -> None:
    """RocketMQ writes numbers that are keys without quotes, which no JSON parser but its own takes."""
    bench = with_topic
    bench.state.offsets.commit("T", "g", 0, 5)
    groups = AdminGroupProcessor(bench.state.api).handlers()
    fields = {"topic": "T", "compareGroup": "g"}
    for handlers, code, wanted in (
        (groups, Code.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@g": {"0": 5}}}),
        (groups, Code.QUERY_CORRECTION_OFFSET, {"correctionOffsets": {"0": 5}}),
    ):
        standard = ask(handlers, bench.request(code, fields | {"acceptStandardJsonOnly": "true"})).body
        assert json.loads(standard) == wanted
        with pytest.raises(ValueError, match="property name"):
            json.loads(ask(handlers, bench.request(code, fields)).body)


def test_connections_of_consumers_and_producers_are_listed(bench: Any, ask: Any) -> None:
    handlers = AdminClientProcessor(bench.state.api).handlers()
    offline = ask(handlers, bench.request(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}))
    assert (offline.code, offline.remark) == (206, "the consumer group[g] not online [group.not_online]")
    assert ask(handlers, bench.request(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "pg"})).code == 1
    bench.state.consumers.register("g", bench.channel, "c", [build_subscription("T", "A || B")], version=407)
    bench.state.producers.register("pg", bench.channel, "p", "GO", 317)
    info = fastjson.loads(ask(handlers, bench.request(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})).body)
    assert info["connectionSet"] == [
        {"clientAddr": "127.0.0.1:40000", "clientId": "c", "language": "JAVA", "version": 407}
    ]
    assert info["subscriptionTable"]["T"]["codeSet"] == [65, 66]
    producers = fastjson.loads(
        ask(handlers, bench.request(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "pg"})).body
    )
    assert producers["connectionSet"][0]["language"] == "GO"
    table = fastjson.loads(ask(handlers, bench.request(Code.GET_ALL_PRODUCER_INFO)).body)
    assert table["data"]["pg"][0]["remoteIP"] == "/127.0.0.1:40000"


def test_an_offset_reset_is_pushed_to_the_consumers(with_topic: Any, ask: Any) -> None:
    bench = with_topic
    handlers = AdminClientProcessor(bench.state.api).handlers()
    reset = {"topic": "T", "group": "g", "timestamp": str(NOW - 300), "isForce": "true"}
    assert ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset | {"topic": "none"})).code == 1
    assert ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 1, "queue 1 has no offset"
    bench.state.offsets.commit("T", "g", 1, 0)
    assert ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 206
    bench.state.consumers.register("g", bench.channel, "c", [build_subscription("T", "*")], version=407)
    bench.channel.sent.clear()
    answer = ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset))
    assert fastjson.loads(answer.body) == {"offsetTable": {mq(0): 0, mq(1): 0}}
    code, header, body = bench.channel.sent[0]
    assert (code, header) == (Code.RESET_CONSUMER_CLIENT_OFFSET, reset)
    assert body == answer.body
    assert bench.state.offsets.query("T", "g", 0) == 2
    ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset, language="CPP"))
    assert fastjson.loads(bench.channel.sent[1][2])["offsetTable"][0] == {
        "brokerName": "broker-a",
        "offset": 0,
        "queueId": 0,
        "topic": "T",
    }
    end = reset | {"timestamp": "-1"}
    assert (
        fastjson.loads(ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, end)).body)["offsetTable"][mq(0)]
        == 3
    )
    gentle = end | {"isForce": "false"}
    assert (
        fastjson.loads(ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, gentle)).body)["offsetTable"][
            mq(0)
        ]
        == 2
    )
    bench.state.consumers.register("g", bench.channel, "old", [build_subscription("T", "*")], version=20)
    assert ask(handlers, bench.request(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 1


def test_requests_of_admin_tools_are_forwarded_to_the_clients_of_a_group(
    bench: Any, ask_later: Any, new_channel: Any
) -> None:
    handlers = AdminClientProcessor(bench.state.api).handlers()
    silent = new_channel()
    bench.state.consumers.register("g", bench.channel, "c", [], version=407)
    bench.state.consumers.register("g", silent, "silent", [], version=407)
    bench.state.consumers.register("old", silent, "old", [], version=30)

    async def play() -> None:
        status = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'
        bench.channel.answers = [RemotingCommand(code=0, body=status)]
        silent.answers = [RemotingTimeoutError("no answer")]
        answer = await ask_later(
            handlers,
            bench.request(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "g", "clientAddr": ""}),
        )
        assert fastjson.loads(answer.body)["consumerTable"] == {"c": {mq(0): 5}}
        assert bench.channel.asked == [(Code.GET_CONSUMER_STATUS_FROM_CLIENT, {"group": "g", "topic": "T"}, b"")]
        assert (
            await ask_later(
                handlers, bench.request(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "x"})
            )
        ).code == 1

        bench.channel.answers = [RemotingCommand(code=0, body=b"{}", ext_fields={"a": "b"}, remark="r")]
        running = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}
        answer = await ask_later(handlers, bench.request(Code.GET_CONSUMER_RUNNING_INFO, running))
        assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, "r", {"a": "b"}, b"{}")
        assert bench.channel.asked[1] == (Code.GET_CONSUMER_RUNNING_INFO, running, b"")
        silent.answers = [RemotingTimeoutError("no answer")]
        assert (
            await ask_later(handlers, bench.request(Code.GET_CONSUMER_RUNNING_INFO, running | {"clientId": "silent"}))
        ).code == 207
        assert (
            await ask_later(handlers, bench.request(Code.GET_CONSUMER_RUNNING_INFO, running | {"clientId": "nobody"}))
        ).code == 1
        old = {"consumerGroup": "old", "clientId": "old"}
        assert "too low" in (await ask_later(handlers, bench.request(Code.GET_CONSUMER_RUNNING_INFO, old))).remark

        bench.channel.answers = [RemotingCommand(code=0, body=b"{}")]
        direct = {"consumerGroup": "g", "clientId": "c", "msgId": "7F00000100002A9F" + f"{100:016X}"}
        assert (await ask_later(handlers, bench.request(Code.CONSUME_MESSAGE_DIRECTLY, direct))).code == 0
        code, header, body = bench.channel.asked[2]
        assert (code, body, header["brokerName"]) == (Code.CONSUME_MESSAGE_DIRECTLY, b"xxx", "broker-a")
        for wrong in ("zz", "7F00000100002A9F" + f"{999:016X}"):
            assert (
                await ask_later(handlers, bench.request(Code.CONSUME_MESSAGE_DIRECTLY, direct | {"msgId": wrong}))
            ).code == 1

    asyncio.run(play())


def test_broker_settings_are_returned_and_only_settings_on_an_allow_list_can_be_changed(bench: Any, ask: Any) -> None:
    handlers = AdminBrokerProcessor(bench.state.api).handlers()
    before = ask(handlers, bench.request(Code.GET_BROKER_CONFIG))
    assert fastjson.loads(before.ext_fields["version"])["counter"] == 0
    settings = read_properties(before.body)
    assert settings["brokerName"] == "broker-a"
    assert {"listenPort", "brokerIP1", "fileReservedTime", "messageDelayLevel"} <= settings.keys()
    assert settings["bitMapLengthConsumeQueueExt"] == "112", "of 32 groups and 20 percent, as RocketMQ computes it"
    assert list(settings) == sorted(settings)
    assert ask(handlers, bench.request(Code.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=71\n")).code == 0
    changed = bench.state.config
    assert bench.store.config is bench.state.config
    after = ask(handlers, bench.request(Code.GET_BROKER_CONFIG))
    assert read_properties(after.body)["fileReservedTime"] == "71"
    assert fastjson.loads(after.ext_fields["version"])["counter"] == 1
    for refused, code in (
        (b"brokerConfigPath=/tmp/x", 16),
        (b"storePathRootDir=/", 16),
        (b"fileReservedTime=71\nnonsense=1", 16),
        (b"fileReservedTime=soon", 1),
    ):
        assert ask(handlers, bench.request(Code.UPDATE_BROKER_CONFIG, None, refused)).code == code
    assert bench.state.config is changed


def test_settings_are_unchanged_after_they_are_formatted_and_parsed_as_java_properties() -> None:
    values = {"a": "b=c:d", "path": "C:\\x", "text": " ü\n中\t", "empty": ""}
    raw = format_properties(values)
    assert raw.isascii()
    assert read_properties(raw) == values


def test_a_broker_statistic_has_the_sum_and_average_and_rate_of_the_last_minute(bench: Any, ask: Any) -> None:
    stats = bench.state.stats.table
    handlers = AdminBrokerProcessor(bench.state.api).handlers()
    ask_for = bench.request(Code.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})
    assert ask(handlers, ask_for).code == 1
    stats.add("TOPIC_PUT_NUMS", "T", 0, 0)
    for _ in range(6):
        stats.add("TOPIC_PUT_NUMS", "T", 20, 2)
        bench.clock.advance_ms(10_000)
        stats.sample()
    found = fastjson.loads(ask(handlers, ask_for).body)
    assert found["statsMinute"] == {"avgpt": 10.0, "sum": 120, "tps": 2.0}
    assert found["statsDay"] == {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    assert stats.tps("TOPIC_PUT_NUMS", "T") == 2.0
    for _ in range(7):
        bench.clock.advance_ms(10_000)
        stats.sample()
    assert stats.tps("TOPIC_PUT_NUMS", "T") == 0.0
    stats.forget_topic("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.tps("TOPIC_PUT_NUMS", "T") == 0.0


def test_the_runtime_info_of_a_broker_has_every_key_that_admin_tools_read(bench: Any, ask: Any) -> None:
    handlers = AdminBrokerProcessor(bench.state.api).handlers()
    for _ in range(7):
        bench.state.stats.put_messages += 100
        bench.clock.advance_ms(10_000)
        bench.state.timers.turn()
    runtime = bench.state.figures.texts
    table = fastjson.loads(ask(handlers, bench.request(Code.GET_BROKER_RUNTIME_INFO)).body)["table"]
    for key in [
        "brokerVersion",
        "brokerVersionDesc",
        "bootTimestamp",
        "runtime",
        "putTps",
        "getTransferedTps",
        "getTotalTps",
        "getFoundTps",
        "getMissTps",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgPutTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "putMessageTimesTotal",
        "putMessageDistributeTime",
        "putMessageAverageSize",
        "putMessageSizeTotal",
        "putMessageEntireTimeMax",
        "getMessageEntireTimeMax",
        "commitLogMinOffset",
        "commitLogMaxOffset",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "commitLogDirCapacity",
        "dispatchMaxBuffer",
        "dispatchBehindBytes",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "startAcceptSendRequestTimeStamp",
        "remainHowManyDataToFlush",
        "remainTransientStoreBufferNumbs",
        "putLatency99",
        "putLatency999",
    ]:
        assert key in table, key
    assert table["putTps"] == "10.0 10.0"
    assert re.fullmatch(r"[0-9.E-]+( [0-9.E-]+){0,2}", table["getMissTps"])
    assert table["remainHowManyDataToFlush"] == "899 B"
    assert table["remainTransientStoreBufferNumbs"] == "2147483647", "what RocketMQ shows without a pool"
    bench.store.free_pool_buffers = 3
    assert runtime()["remainTransientStoreBufferNumbs"] == "3"
    assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 10 seconds ]"
    bench.clock.advance_ms(86_400_000)
    bench.state.timers.turn()
    assert runtime()["msgPutTotalTodayMorning"] == "700"
