"""Administration speaks to the right brokers and finds what was asked for, not what shares a hash with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue, TopicConfigSerializeWrapper
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.route.route_data import BrokerData, ClusterInfo
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.admin_messages import move_queue
from flintmq.remoting.wire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    KVTable,
    OffsetWrapper,
    ResetOffsetBody,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import response
from flintmq.remoting.wire.json_body import decode_body, dumps

Q0 = MessageQueue("broker-a", 0, "T")


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any, AdminClient], Awaitable[None]]) -> None:
    async def with_admin() -> None:
        async with fake_peer() as peer, AdminClient(peer.address) as admin:
            await test(fake_broker(peer), admin)

    asyncio.run(with_admin())


def test_topics_and_groups_are_created_and_deleted_at_all_master_brokers(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, admin: AdminClient) -> None:
        await admin.create_topic("new", queues=4, cluster="C")
        await admin.create_group(SubscriptionGroupConfig(group_name="g"))
        await admin.delete_group("g", remove_offset=True)
        await admin.delete_topic("new", cluster="C")
        (created,) = broker.peer.of_code(17)
        assert created.ext_fields == {
            "topic": "new",
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        assert decode_body(broker.peer.of_code(200)[0].body, SubscriptionGroupConfig).group_name == "g"
        assert broker.peer.of_code(207)[0].ext_fields["removeOffset"] == "true"
        deleted = [[asked.ext_fields["topic"] for asked in broker.peer.of_code(code)] for code in (215, 216)]
        assert deleted == [["%RETRY%g", "%DLQ%g", "new"]] * 2, "a group's topics go with it, as with mqadmin"
        await admin.delete_group("g", address=broker.peer.address)
        assert [len(broker.peer.of_code(code)) for code in (207, 215, 216)] == [2, 3, 3]
        with pytest.raises(RefusedError, match="no cluster X"):
            await admin.create_topic("new", cluster="X")

    run(fake_peer, fake_broker, test)


def test_an_admin_client_decodes_the_answers_of_brokers_to_its_queries(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, admin: AdminClient) -> None:
        bodies = {
            206: TopicList(topic_list=["T"]),
            28: KVTable({"putTps": "1"}),
            202: TopicStatsTable({Q0: TopicOffset(1, 3, 0)}),
            208: ConsumeStats(1.5, {Q0: OffsetWrapper(3, 1, 0)}),
            203: ConsumerConnection(message_model="CLUSTERING"),
            222: ResetOffsetBody({Q0: 7}),
            21: TopicConfigSerializeWrapper(),
        }
        for code, body in bodies.items():
            broker.peer.answers[code] = lambda asked, body=body: response(asked, 0, body=dumps(body))
        broker.peer.answers[26] = lambda asked: response(asked, 0, body=b"# comment\na=1\nb = x=y\n")
        address = broker.peer.address
        assert await admin.topic_list() == ["T"]
        assert (await admin.topic_route("T")).queue_datas[0].read_queue_nums == 2
        assert (await admin.cluster_info()).cluster_addr_table == {"C": ["broker-a"]}
        assert await admin.runtime_info(address) == {"putTps": "1"}
        assert await admin.broker_config(address) == {"a": "1", "b": "x=y"}
        assert (await admin.topic_stats("T"))[Q0].max_queue_offset == 3
        assert (await admin.consume_stats("g", "T")).offset_table[Q0].consumer_offset == 1
        assert (await admin.consumer_connections("g", address)).message_model == "CLUSTERING"
        assert await admin.reset_offset("T", "g", -1) == {Q0: 7}
        assert (await admin.topic_configs(address)).topic_config_table == {}
        assert (await admin.min_offset(Q0), await admin.max_offset(Q0), await admin.search_offset(Q0, 1)) == (0, 0, 1)

    run(fake_peer, fake_broker, test)


def test_an_admin_client_finds_messages_by_key_and_by_id(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, admin: AdminClient) -> None:
        assert await admin.query_by_key("T", "k1") == []
        broker.put("T", 0, b"one", "KEYS\x01k1 k2\x02UNIQ_KEY\x01u1")
        msg_id = broker.put("T", 1, b"two", "KEYS\x01k3\x02UNIQ_KEY\x01u2")
        assert [message.body for message in await admin.query_by_key("T", "k2")] == [b"one"]
        assert [message.body for message in await admin.query_by_key("T", "u2", unique=True)] == [b"two"]
        assert broker.peer.of_code(12)[-1].ext_fields["_UNIQUE_KEY_QUERY"] == "true"
        with pytest.raises(ValueError, match="hex digits"):
            await admin.view_message("nonsense")
        broker.peer.answers[RequestCode.VIEW_MESSAGE_BY_ID] = lambda asked: response(asked, 1, "can not find message")
        with pytest.raises(RefusedError, match="can not find message"):
            await admin.view_message(f"7F000001{broker.peer.port:08X}{0:016X}")
        broker.peer.answers[RequestCode.VIEW_MESSAGE_BY_ID] = broker.view
        found = await admin.view_message(f"7F000001{broker.peer.port:08X}{msg_id[-16:]}")
        assert (found.body, found.offset_msg_id) == (b"two", msg_id)

    run(fake_peer, fake_broker, test)


def test_an_offset_reset_is_refused_if_group_members_have_not_registered_since_the_broker_restart(
    fake_peer: Any, fake_broker: Any
) -> None:
    """After a restart of their broker: they are not online yet, and would write their old offsets over the new ones."""

    async def test(broker: Any, admin: AdminClient) -> None:
        away = "the consumer group[g] not online: 2 members have not registered again [group.returning]"
        broker.peer.answers[RequestCode.GET_CONSUMER_CONNECTION_LIST] = lambda asked: response(asked, 206, away)
        with pytest.raises(RefusedError, match="have not registered again"):
            await move_queue(admin, "g", Q0, 3)
        assert not broker.peer.of_code(RequestCode.UPDATE_CONSUMER_OFFSET)

    run(fake_peer, fake_broker, test)


def test_a_topic_is_created_on_valid_brokers_if_the_name_server_also_lists_malformed_addresses(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ's name server takes any address; the masters that have one get the topic."""

    async def test(broker: Any, admin: AdminClient) -> None:
        good = BrokerData(cluster="C", broker_name="broker-a", broker_addrs={0: broker.peer.address})
        odd = {"aaa": "nonsense", "zzz": "h:99999", "mmm": "x y:1"}
        table = {name: BrokerData(cluster="C", broker_name=name, broker_addrs={0: at}) for name, at in odd.items()}
        info = ClusterInfo(broker_addr_table=table | {"broker-a": good}, cluster_addr_table={"C": [*odd, "broker-a"]})
        broker.peer.answers[106] = lambda asked: response(asked, 0, body=dumps(info))
        await admin.create_topic("new", queues=4, cluster="C")
        await admin.create_group(SubscriptionGroupConfig(group_name="g"))
        assert [len(broker.peer.of_code(code)) for code in (17, 200)] == [1, 1]
        assert await admin.masters() == {"broker-a": broker.peer.address}
        assert "'nonsense', which is not HOST:PORT" in caplog.text
        table["aaa"] = BrokerData(cluster="C", broker_name="aaa", broker_addrs={0: "127.0.0.1:1"})
        info = ClusterInfo(broker_addr_table=table | {"broker-a": good}, cluster_addr_table={"C": ["aaa", "broker-a"]})
        with pytest.raises(RemotingError, match="1 of 2 servers failed, the others succeeded: "):
            await admin.create_topic("other", queues=4, cluster="C")
        assert len(broker.peer.of_code(17)) == 2

    run(fake_peer, fake_broker, test)
