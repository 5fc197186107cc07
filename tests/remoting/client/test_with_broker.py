"""The client library and FlintMQ's own broker and name server understand one another over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.server import ListenSection, NamesrvConfig, NamesrvSection
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import RefusedError
from flintmq.programs.broker.broker import Broker
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer, PullConsumer

FROM_FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")


def test_a_client_can_create_a_topic_and_send_and_consume_and_query_messages_with_a_real_broker(tmp_path: Path) -> None:
    async def run() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as name_server:
            config = BrokerConfig(
                listen=ListenSection(port=0, vip=False),
                namesrv=NamesrvSection(addresses=(name_server.address,)),
                store=StoreSection(path=str(tmp_path / "store"), commit_log_file_bytes=1 << 20),
            )
            async with Broker(config) as broker, AdminClient(name_server.address) as admin:
                await admin.create_topic("T", queues=4)
                await exchange(name_server.address)
                (found,) = await admin.query_by_key("T", "k3")
                assert found.body == b"3"
                assert await admin.view_message(found.offset_msg_id) == found
                stats = await admin.topic_stats("T")
                assert sum(offset.max_queue_offset for offset in stats.values()) == 12
                assert (await admin.runtime_info(broker.address))["brokerVersionDesc"] == "V4_9_7"
                await admin.delete_topic("T")
                assert "T" not in await admin.topic_list()
                with pytest.raises(RefusedError, match="No topic route"):
                    await admin.topic_stats("T")

    asyncio.run(run())


async def exchange(name_server: str) -> None:
    """Single sends, a batch and a compressed body are consumed by a group, in order by another, and by hand."""
    async with Producer("p", name_server, compress_over_bytes=500) as producer:
        sent = [await producer.send(Message("T", b"%d" % number, tags="A", keys=f"k{number}")) for number in range(8)]
        batch = await producer.send_batch([Message("T", b"b%d" % number, tags="B") for number in range(3)])
        await producer.send(Message("T", b"x" * 1000, tags="B"))
    assert len({result.queue for result in sent}) == 4
    assert len(batch.offset_msg_id.split(",")) == 3

    everything = sorted([*(b"%d" % number for number in range(8)), b"b0", b"b1", b"b2", b"x" * 1000])
    for orderly in (False, True):
        done, seen = asyncio.Event(), []

        async def listen(message: MessageExt, seen: list[bytes] = seen, done: asyncio.Event = done) -> None:
            seen.append(message.body)
            if len(seen) == len(everything):
                done.set()

        settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", orderly=orderly)
        async with Consumer(f"g-{orderly}", name_server, listen, settings=settings) as consumer:
            await consumer.subscribe("T")
            await asyncio.wait_for(done.wait(), 10)
        assert sorted(seen) == everything

    tagged: list[bytes] = []
    async with asyncio.timeout(10), Consumer("g-tagged", name_server, settings=FROM_FIRST) as consumer:
        await consumer.subscribe("T", "A")
        async for message in consumer:
            tagged.append(message.body)
            if len(tagged) == 8:
                break
    assert sorted(tagged) == everything[:8]

    async with PullConsumer("by-hand", name_server) as by_hand:
        queue = batch.queue
        pulled = await by_hand.pull(queue, await by_hand.min_offset(queue))
        assert [message.queue_offset for message in pulled.messages] == list(range(await by_hand.max_offset(queue)))
        await by_hand.commit(queue, 2)
        assert await by_hand.committed(queue) == 2
