"""A request must get its own reply, within its time, whoever else asks; over real sockets with FlintMQ's broker."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.server import ListenSection, NamesrvConfig, NamesrvSection
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import RefusedError, RemotingTimeoutError
from flintmq.programs.broker.broker import Broker
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client import Consumer, ConsumerSettings, Message, MessageExt, Producer, PullConsumer, make_reply
from flintmq.remoting.client.compression import UnreadableError
from flintmq.remoting.client.instance import ClientInstance
from flintmq.tests.support.damage import UNKNOWN_METHOD, send_flagged
from flintmq.tests.support.fake_cluster import pushed_reply

Work = Callable[[str, Broker], Coroutine[Any, Any, None]]


def with_broker(folder: Path, work: Work) -> None:
    async def run() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as name_server:
            config = BrokerConfig(
                listen=ListenSection(port=0, vip=False),
                namesrv=NamesrvSection(addresses=(name_server.address,)),
                store=StoreSection(path=str(folder / "store"), commit_log_file_bytes=1 << 20),
            )
            async with asyncio.timeout(20), Broker(config) as broker:
                await work(name_server.address, broker)

    asyncio.run(run())


def answering(name_server: str, replies: Producer) -> Consumer:
    async def listen(message: MessageExt) -> None:
        await replies.reply(message, b"re: " + message.body, {"p": "ü"})

    settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.05)
    return Consumer("answerers", name_server, listen, settings=settings)


def test_each_request_gets_its_reply(tmp_path: Path) -> None:
    """Eight at once, to a topic that the first of them creates, with a long reply among them."""

    async def work(name_server: str, _broker: Broker) -> None:
        async with (
            Producer("askers", name_server) as asker,
            Producer("repliers", name_server, compress_over_bytes=500) as replies,
            answering(name_server, replies) as consumer,
        ):
            await consumer.subscribe("Q")
            bodies = [b"%d" % number for number in range(7)] + [b"x" * 2_000]
            first = asyncio.create_task(asker.request(Message("Q", b"first"), timeout_ms=10_000))
            answers = await asyncio.gather(*(asker.request(Message("Q", body), timeout_ms=10_000) for body in bodies))
            assert [answer.body for answer in answers] == [b"re: " + body for body in bodies]
            answer = await first
            assert answer.properties["p"] == "ü"
            assert {"CORRELATION_ID", "PUSH_REPLY_TIME", "ARRIVE_TIME"} <= answer.properties.keys()
            assert len(asker.client.requests) == 0
        async with PullConsumer("by-hand", name_server) as by_hand:
            (queue,) = await by_hand.queues("DefaultCluster_REPLY_TOPIC")
            assert await by_hand.max_offset(queue) == 9

    with_broker(tmp_path, work)


def test_a_request_without_a_reply_times_out(tmp_path: Path) -> None:
    """The request times out, is stored all the same, and a reply that comes then is refused to nobody's harm."""

    async def work(name_server: str, broker: Broker) -> None:
        broker.state.topics.create_in_send("Q", "TBW102", "test", 1)
        async with Producer("askers", name_server) as asker, Producer("repliers", name_server) as replies:
            with pytest.raises(RemotingTimeoutError, match="no reply to a request to Q within 100 ms"):
                await asker.request(Message("Q", b"anyone?"), timeout_ms=100)
            assert len(asker.client.requests) == 0
            async with PullConsumer("by-hand", name_server) as by_hand:
                (queue,) = await by_hand.queues("Q")
                (request,) = (await by_hand.pull(queue, 0)).messages
            await replies.reply(request, b"late")
        async with Producer("repliers", name_server) as replies:
            with pytest.raises(RefusedError, match=r"reply\.offline"):
                await replies.reply(request, b"too late")

    with_broker(tmp_path, work)


def test_a_requester_gets_replies_after_it_lost_its_connection(tmp_path: Path) -> None:
    """Brokers forget clients with their connections: the next request introduces the client anew."""

    async def work(name_server: str, broker: Broker) -> None:
        broker.state.topics.create_in_send("Q", "TBW102", "test", 1)
        async with (
            Producer("askers", name_server) as asker,
            Producer("repliers", name_server) as replies,
            answering(name_server, replies) as consumer,
        ):
            await consumer.subscribe("Q")
            await asker.request(Message("Q", b"1"), timeout_ms=10_000)
            channel: Any = broker.state.producers.find_channel(asker.client.client_id)
            channel.close("test")
            while not asker.client.remoting.connections_lost:  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0)
            assert (await asker.request(Message("Q", b"2"), timeout_ms=10_000)).body == b"re: 2"

    with_broker(tmp_path, work)


def test_make_reply_refuses_a_message_that_is_not_a_request() -> None:
    """Said before anything is sent."""
    made: dict[str, Any] = dict.fromkeys(MessageExt.__annotations__, 0)
    message = MessageExt(**{**made, "properties_bytes": b"UNIQ_KEY\x01K\x02CLUSTER\x01C"})
    with pytest.raises(ValueError, match="K is not a request: it lacks CORRELATION_ID, REPLY_TO_CLIENT"):
        make_reply(message, b"")


def test_a_reply_that_matches_no_waiting_request_is_acknowledged_to_the_broker(fake_peer: Any) -> None:
    """The broker gets an answer, or it would wait ten seconds."""

    async def run() -> None:
        async with fake_peer() as peer:
            client = ClientInstance(peer.address)
            asked, future = client.requests.stamped(Message("T", b""), 100)
            client.requests.forget(asked)
            client.producer_groups.add("p")
            await client.send_heartbeats([peer.address])
            peer.push(pushed_reply("unknown", b"x"))
            await peer.until(lambda: bool(peer.responses))
            assert peer.responses[0].code == 0
            assert not future.done()
            await client.close()

    asyncio.run(run())


def test_an_unreadable_reply_fails_its_request(tmp_path: Path) -> None:
    """At once and with the reason: it is nothing that the caller could use, and no other reply comes."""

    async def work(name_server: str, _broker: Broker) -> None:
        async with Producer("askers", name_server) as asker, Producer("repliers", name_server) as replies:

            async def listen(message: MessageExt) -> None:
                await send_flagged(replies, make_reply(message, b"x"), UNKNOWN_METHOD)

            settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.05)
            async with Consumer("answerers", name_server, listen, settings=settings) as consumer:
                await consumer.subscribe("Q")
                with pytest.raises(UnreadableError, match="unknown compression method 0x700"):
                    await asker.request(Message("Q", b"?"), timeout_ms=15_000)
            assert len(asker.client.requests) == 0

    with_broker(tmp_path, work)


def test_a_long_reply_is_decompressed_in_a_thread(tmp_path: Path) -> None:
    """It comes whole, however well it is compressed."""

    async def work(name_server: str, _broker: Broker) -> None:
        async with Producer("askers", name_server) as asker, Producer("repliers", name_server) as replies:

            async def listen(message: MessageExt) -> None:
                await send_flagged(replies, make_reply(message, zlib.compress(bytes(20_000_000))), 0x301)

            settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.05)
            async with Consumer("answerers", name_server, listen, settings=settings) as consumer:
                await consumer.subscribe("Q")
                reply = await asker.request(Message("Q", b"?"), timeout_ms=15_000)
            assert reply.body == bytes(20_000_000)

    with_broker(tmp_path, work)
