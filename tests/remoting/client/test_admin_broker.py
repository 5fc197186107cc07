"""Questions to one broker ask that broker, with RocketMQ's codes, and say what it said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.wire.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    OffsetWrapper,
    ProcessQueueInfo,
    ProducerInfo,
    ProducerTableInfo,
    TopicOffset,
    TopicStatsTable,
)
from flintmq.remoting.wire.command import response
from flintmq.remoting.wire.json_body import dumps

Q0 = MessageQueue("broker-a", 0, "T")


def test_admin_queries_to_a_broker_use_rocketmqs_request_codes_and_decode_the_answers(
    fake_peer: Any, fake_broker: Any
) -> None:
    bodies = {
        201: SubscriptionGroupWrapper(subscription_group_table={"g": SubscriptionGroupConfig(group_name="g")}),
        202: TopicStatsTable({Q0: TopicOffset(1, 3, 0)}),
        203: ConsumerConnection(message_model="CLUSTERING"),
        208: ConsumeStats(1.5, {Q0: OffsetWrapper(3, 1, 0)}),
        300: GroupList(["g"]),
        307: ConsumerRunningInfo(mq_table={Q0: ProcessQueueInfo(locked=True)}),
        315: BrokerStatsData(stats_minute=BrokerStatsItem(1.0, 60, 1.0)),
        317: ConsumeStatsList("127.0.0.1:1", [{"g": [ConsumeStats(1.5, {Q0: OffsetWrapper(3, 1, 0)})]}], 2),
        328: ProducerTableInfo({"p": [ProducerInfo("c")]}),
    }

    async def run() -> None:
        async with fake_peer() as peer, AdminClient("127.0.0.1:1") as admin:
            broker = fake_broker(peer)
            for code, body in bodies.items():
                peer.answers[code] = lambda asked, body=body: response(asked, 0, "words", body=dumps(body))
            address = broker.peer.address
            assert list(await admin.group_configs(address)) == ["g"]
            assert await admin.topic_stats_at("T", address) == {Q0: TopicOffset(1, 3, 0)}
            assert (await admin.consume_stats_at("g", address)).offset_table[Q0].consumer_offset == 1
            assert await admin.topic_groups("T", address) == ["g"]
            assert (await admin.all_consume_stats(address)) == bodies[317]
            assert (await admin.broker_stats("TOPIC_PUT_NUMS", "T", address)).stats_minute.sum == 60
            assert (await admin.producers(address)).data["p"][0].client_id == "c"
            assert (await admin.connected_group("g", address))[1] == "words"
            assert (await admin.contradictions("g", address)) == "words"
            info = await admin.consumer_running_info("g", "c", address)
            assert info.mq_table[Q0].locked
            (asked,) = peer.of_code(307)
            assert asked.ext_fields == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "false"}
            assert peer.of_code(317)[0].ext_fields == {"isOrder": "false"}
            peer.answers[307] = lambda asked: response(asked, 1, "not online")
            with pytest.raises(RefusedError, match="not online"):
                await admin.consumer_running_info("g", "c", address)

    asyncio.run(run())
