"""A client that a program forgets is closed, and named; the process of a program that ends, ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.core.errors import RemotingConnectError
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.handlers import Consumers
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster


async def used_producer(address: str) -> None:
    producer = Producer("shop", address)
    await producer.start()
    await producer.send(Message("T", b"x"))


async def used_pull_consumer(address: str) -> None:
    consumer = PullConsumer("audit", address)
    await consumer.assign("T")


async def used_admin(address: str) -> None:
    await AdminClient(address).topic_route("T")


async def started_consumer(address: str) -> None:
    consumer = Consumer("bills", address, lambda message: None)
    await consumer.start()
    await consumer.subscribe("T")
    await consumer.rebalance()
    assert consumer.process_queues


async def started_consumer_of_a_shared_client(address: str) -> None:
    async with Producer("shop", address) as producer:
        consumer = Consumer("bills", batch_listener=lambda messages: None, client=producer.client)
        await consumer.start()
        await consumer.subscribe("T")
        await consumer.rebalance()
        del consumer
        gc.collect()
        await asyncio.sleep(0)  # its close begins
        while producer.client.consumers:  # noqa: ASYNC110 - that close ends it
            await asyncio.sleep(0.001)


async def left_loop(address: str) -> None:
    consumer = Consumer("bills", address, settings=ConsumerSettings(orderly=True))
    await consumer.start()
    messages = consumer.messages(timeout_ms=50)
    del consumer
    gc.collect()

    async def iterate(messages: Any) -> None:
        async for _ in messages:
            pass

    await asyncio.create_task(iterate(messages))  # who iterates has the consumer
    assert len(asyncio.all_tasks()) > 2


async def started_consumers(address: str) -> None:
    consumers = Consumers(address)
    consumers.handler("T", group="bills")(lambda message: None)
    await consumers.start()
    await consumers._consumers[0].rebalance()


async def failing(address: str) -> None:
    producer = Producer("shop", address)
    await producer.send(Message("T", b"x"))
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (used_producer, "Producer of group shop"),
        (used_pull_consumer, "PullConsumer of group audit"),
        (used_admin, "AdminClient"),
        (failing, "Producer of group shop"),
        (started_consumer, "Consumer of group bills"),
        (started_consumer_of_a_shared_client, "Consumer of group bills"),
        (left_loop, "Consumer of group bills"),
        (started_consumers, "Consumers"),
    ],
)
def test_an_unclosed_client_warns_and_is_closed_when_it_is_garbage_collected(
    fake_peer: Any, fake_broker: Any, use: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would keep two connections and two tasks until the process ends."""

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)

            async def dropped() -> None:
                with contextlib.suppress(ZeroDivisionError):
                    await use(peer.address)
                gc.collect()

            with pytest.warns(ResourceWarning, match=rf"{name} \(.*@.*\) was dropped without close\(\)"):
                await dropped()
            await peer.until(lambda: not peer.transports)
            await peer.until(lambda: len(asyncio.all_tasks()) == 1)
            assert re.search(rf"{name} \(.*@.*\) was dropped without close\(\), and is closed now", caplog.text)
            left = [asked.ext_fields for asked in peer.of_code(35)]
            if "onsumer" in name and use not in (left_loop, used_pull_consumer):  # that knows a broker, and has a group
                assert "bills" in str(left), "the group's other members learn that it left"

    asyncio.run(run())


@pytest.mark.parametrize(
    "kind", ["producer", "lingering", "transactions", "consumer", "orderly", "pulls", "admin", "consumers"]
)
def test_a_closed_client_can_be_started_again(kind: str) -> None:
    """Otherwise it would report that it is started, but have no connection."""
    cluster = FakeCluster(Choices(3), brokers=1)
    got: list[bytes] = []
    at: Any = {"name_servers": cluster.address, "clock": cluster.clock}

    async def run() -> None:
        await cluster.start()
        at["name_servers"] = cluster.address
        client = await made(kind)
        for number in range(3):
            await use(client, b"%d" % number)
            await asyncio.gather(client.close(), client.close())
            await asyncio.sleep(1)
            assert len(asyncio.all_tasks()) == 1
            await asyncio.gather(client.start(), client.start())
        closing = asyncio.create_task(client.close())
        for _ in range(4):
            await asyncio.sleep(0)
        await client.start()  # waits for the close, then starts
        await closing
        await use(client, b"again")
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await client.start()
        await use(client, b"at last")
        await client.close()
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 1

    async def made(kind: str) -> Any:
        settings = ConsumerSettings(consume_from="first", orderly=kind == "orderly", commit_interval_s=1)
        clients: dict[str, Callable[[], Any]] = {
            "producer": lambda: Producer("p", **at),
            "lingering": lambda: Producer("p", linger_ms=5, **at),
            "transactions": lambda: TransactionProducer("p", check=lambda message: TransactionState.COMMIT, **at),
            "consumer": lambda: Consumer(
                "g", listener=lambda message: got.append(message.body), settings=settings, **at
            ),
            "orderly": lambda: Consumer(
                "g", listener=lambda message: got.append(message.body), settings=settings, **at
            ),
            "pulls": lambda: PullConsumer("g", **at),
            "admin": lambda: AdminClient(**at),
            "consumers": lambda: Consumers(**at),
        }
        client = clients[kind]()
        if kind == "consumers":
            client.handler("T", group="g", settings=settings)(lambda message: got.append(message.body))
        await client.start()
        if kind in ("consumer", "orderly"):
            await client.subscribe("T")
        return client

    async def use(client: Any, body: bytes) -> None:
        if kind in ("producer", "lingering"):
            await client.send(Message("T", body))
        elif kind == "transactions":
            await client.send_half(Message("T", body))
            await asyncio.sleep(10)
            assert not cluster.brokers["broker-0"].half, "its check was not asked"
        elif kind == "pulls":
            await client.assign("T")
            cluster.put(cluster.queues("T")[0], body)
            assert [message.body for message in await client.poll()] == [body]
            await client.commit()
        elif kind == "admin":
            assert await client.masters()
        else:
            cluster.put(cluster.queues("T")[0], body)
            async with asyncio.timeout(90):
                while body not in got:  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(0.1)

    cluster.loop.run(run())
    assert not cluster.loop.errors, cluster.loop.errors


@pytest.mark.parametrize("kind", [Producer, Consumer, PullConsumer])
def test_a_producer_or_consumer_does_not_start_if_the_client_that_it_shares_is_closed(
    fake_peer: Any, fake_broker: Any, kind: Any
) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            owner = Producer("shop", peer.address)
            shared = kind("g", client=owner.client)
            await owner.close()
            with pytest.raises(RemotingConnectError, match=f"the client that this {kind.__name__} shares is closed"):
                await shared.start()
            assert not getattr(shared, "is_started", False)
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_failed_heartbeats_to_a_broker_are_logged_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(Choices(3), brokers=2)

    async def run() -> None:
        await cluster.start()
        async with Producer("p", cluster.address, clock=cluster.clock) as producer:
            await producer.send(Message("T", b"x"))
            cut = cluster.addresses[1]
            cluster.network.refusing.add(cut)
            cluster.network.cut(cut)
            for _ in range(600):
                await producer.client.send_heartbeats()  # as each request does, and each transaction
                await asyncio.sleep(1)
            lines = [one.getMessage() for one in caplog.records if "no heartbeat to" in one.getMessage()]
            assert 2 <= len(lines) <= 5
            assert len({line.split(":")[1] for line in lines}) == 1
            cluster.heal()
            assert await producer.client.send_heartbeats() == 2
            cluster.network.refusing.add(cut)
            cluster.network.cut(cut)
            await asyncio.sleep(0.1)
            await producer.client.send_heartbeats()
            again = [one for one in caplog.records if "no heartbeat to" in one.getMessage()]
            assert len(again) == len(lines) + 1, "what begins again is told at once"

    cluster.loop.run(run())


def test_a_closed_or_unused_client_does_not_warn_when_it_is_garbage_collected(fake_peer: Any, fake_broker: Any) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("shop", peer.address) as producer:
                await producer.send(Message("T", b"x"))
            shared = PullConsumer("audit", client=producer.client)
            unused = Consumer("g", peer.address)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                del producer, shared, unused
                gc.collect()
            with pytest.raises(ValueError, match="at least one name server"):
                Producer("shop", "")
            gc.collect()

    asyncio.run(run())


BUSY = """
import logging, sys, threading, time
logging.basicConfig(level=logging.INFO)
from flintmq.client.sync import Consumer, ConsumerSettings
from flintmq.remoting.client import daemon_threads
daemon_threads.wait_for_all.__defaults__ = (0.3,)
entered = threading.Event()
def listen(message):
    entered.set()
    time.sleep(3_600)
with Consumer("g", sys.argv[1], listen, settings=ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")) as consumer:
    consumer.subscribe("T")
    assert entered.wait(20)
print("closed", flush=True)
"""

FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")  # of Python itself: this process has threads
from flintmq.client.sync import Consumer, Producer, PullConsumer
with Producer("p", sys.argv[1]) as producer, PullConsumer("g", sys.argv[1]) as pulls, Consumer("c", sys.argv[1]) as consumer:
    producer.queues("T")
    child = os.fork()
    if child == 0:
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child", code, len(producer.queues("T")))
"""


def test_a_client_process_exits_soon_after_its_consumer_is_closed_although_a_message_listener_hangs(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The message comes again: it is not committed. The log says so."""
    done = asyncio.run(program(fake_peer, fake_broker, BUSY))
    assert done == (0, "closed\n", done[2])
    assert "functions of clients have not returned: g-listener_0" in done[2]


def test_a_child_process_forked_while_clients_are_open_exits_with_its_own_exit_status(
    fake_peer: Any, fake_broker: Any
) -> None:
    assert asyncio.run(program(fake_peer, fake_broker, FORKED)) == (0, "child 7 2\n", "")


async def program(fake_peer: Any, fake_broker: Any, script: str) -> tuple[int | None, str, str]:
    """Run a program beside a broker that has one message."""
    async with fake_peer() as peer:
        broker = fake_broker(peer)
        broker.put("T", 0, b"x")
        broker.peer.answers[38] = lambda asked: broker.consumer_list(asked)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, peer.address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(40):
                out, err = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
        return child.returncode, out.decode(), err.decode()
