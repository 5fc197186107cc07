"""Every question of the administration client is put to RocketMQ's own broker, and its answer is read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, Producer
from flintmq.remoting.client.admin_messages import delay_positions, move_group, move_queue, plan_moves
from flintmq.remoting.client.broker_api import BrokerApi

from .conftest import Peer

LIMIT_S = 90.0
STORE = ("mappedFileSizeCommitLog=67108864", "mappedFileSizeConsumeQueue=20000", "flushConsumerOffsetInterval=500")
FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.5, commit_interval_s=0.5)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(400)
def test_every_admin_answer_of_a_java_broker_is_decoded(peer: Peer, tmp_path: Path) -> None:
    async def run() -> None:
        async with AdminClient(peer.namesrv) as admin, asyncio.timeout(LIMIT_S):
            await until_registered(admin)
            await ask_everything(admin, f"127.0.0.1:{peer.port}")

    with peer.name_server(), peer.broker(tmp_path / "store", *STORE):
        asyncio.run(run())


async def until_registered(admin: AdminClient) -> None:
    while not await admin.masters():  # noqa: ASYNC110 - another process, which tells nobody
        await asyncio.sleep(0.1)


async def ask_everything(admin: AdminClient, address: str) -> None:
    await admin.create_topic("T", queues=2)
    await admin.create_topic("T", perm=4)
    changed = await admin.topic_config("T", address)
    assert changed is not None
    assert (changed.read_queue_nums, changed.write_queue_nums, changed.perm) == (2, 2, 4)
    await admin.create_topic("T", perm=6)
    assert await admin.topic_config("Never", address) is None
    off = SubscriptionGroupConfig(group_name="12", consume_broadcast_enable=False, retry_max_times=3)
    await admin.create_group(off)
    assert await admin.group_config("12", address) == off
    assert await admin.group_config("Never", address) is None
    got = asyncio.Event()

    async def listen(_message: Any) -> None:
        got.set()

    namesrv = admin.client.routes.name_servers
    async with Producer("producers", namesrv) as producer, Consumer("12", namesrv, listen, settings=FIRST) as consumer:
        while "T" not in await admin.topic_list():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for number in range(4):
            await producer.send(Message("T", b"x", keys="k"), queue=MessageQueue("broker-a", number % 2, "T"))
        await producer.send(Message("T", b"soon", delay_level=1))
        await producer.send(Message("T", b"later", delay_level=18))
        await consumer.subscribe("T")
        await got.wait()
        while not (positions := await delay_positions(admin, address)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert positions[1] == 1, "of level 1 one message was delivered"
        api = BrokerApi(admin.client, "12")
        queues = [MessageQueue("broker-a", number, "T") for number in (0, 1)]
        while sum([await api.committed(queue) or 0 for queue in queues]) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert (await admin.broker_stats("TOPIC_PUT_NUMS", "T", address)).stats_minute is not None
        await producer.client.send_heartbeats()
        assert isinstance((await admin.producers(address)).data, dict), "who is in it depends on the last heartbeats"
        members, _ = await admin.connected_group("12", address)
        (member,) = members.connection_set
        info = await admin.consumer_running_info("12", member.client_id, address)
        assert {queue.topic for queue in info.mq_table} >= {"T"}
    assert (await admin.topic_route("T")).queue_datas[0].read_queue_nums == 2
    assert (await admin.cluster_info()).broker_addr_table["broker-a"].broker_addrs[0] == address
    assert (await admin.runtime_info(address))["msgPutTotalTodayNow"]
    assert (await admin.broker_config(address))["brokerName"] == "broker-a"
    assert (await admin.topic_configs(address)).topic_config_table["T"] == await admin.topic_config("T", address)
    assert (await admin.group_configs(address))["12"] == off
    assert sum(end.max_queue_offset for end in (await admin.topic_stats("T")).values()) == 5
    assert await admin.topic_groups("T", address) == ["12"]
    assert sum(one.consumer_offset for one in (await admin.consume_stats("12", "T")).offset_table.values()) == 5
    everything = await admin.all_consume_stats(address)
    assert [group for entry in everything.consume_stats_list for group, stats in entry.items() if stats] == ["12"]
    assert len(await admin.query_by_key("T", "k")) == 4
    moves, errors = await plan_moves(admin, "T", "12", 0)
    assert (sum(move.again for move in moves), errors) == (5, ())
    moved = await move_group(admin, "T", "12", 0)
    assert (sorted(moved.offsets.values()), moved.errors) == ([0, 0], ())
    assert await move_queue(admin, "12", queues[0], 1) == 0
    assert [await api.committed(queue) for queue in queues] == [1, 0]
