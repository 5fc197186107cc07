"""A timeout bounds the whole call, whoever hangs: a name server, several of them, a broker, or a message that goes before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError, RemotingTimeoutError
from flintmq.core.route.route_data import BrokerData, QueueData, TopicRouteData
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.remoting.wire.json_body import dumps
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

TIMEOUT_MS = 200
MESSAGE = Message("T", b"x")

CALLS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "send": lambda one: one.send(MESSAGE, timeout_ms=TIMEOUT_MS),
    "send with a key": lambda one: one.send(MESSAGE, sharding_key="k", timeout_ms=TIMEOUT_MS),
    "send to a queue": lambda one: one.send(MESSAGE, QUEUE, timeout_ms=TIMEOUT_MS),
    "send_batch": lambda one: one.send_batch([MESSAGE] * 2, timeout_ms=TIMEOUT_MS),
    "send_batch with a key": lambda one: one.send_batch([MESSAGE] * 2, sharding_key="k", timeout_ms=TIMEOUT_MS),
    "send_all": lambda one: one.send_all([MESSAGE] * 2, timeout_ms=TIMEOUT_MS),
    "send_oneway": lambda one: one.send_oneway(MESSAGE, timeout_ms=TIMEOUT_MS),
    "request": lambda one: one.request(MESSAGE, timeout_ms=TIMEOUT_MS),
    "request with a key": lambda one: one.request(MESSAGE, sharding_key="k", timeout_ms=TIMEOUT_MS),
    "send_half": lambda one: one.send_half(MESSAGE, timeout_ms=TIMEOUT_MS),
}
QUEUE: Any = None


def silent(_asked: RemotingCommand) -> None:
    return None


async def check(_message: object) -> TransactionState:
    return TransactionState.ROLLBACK


async def took_s(call: Awaitable[object]) -> float:
    """Return how long a call took that fails as it should."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    async with asyncio.timeout(20):
        with pytest.raises((RemotingError, RefusedError)) as failure:
            await call
    assert isinstance(failure.value, RemotingTimeoutError)
    return loop.time() - begin_s


@pytest.mark.parametrize("linger_ms", [None, 0])
@pytest.mark.parametrize(
    "hangs", ["name server", "two name servers", "name server of a new topic", "broker", "everything"]
)
def test_every_producer_call_ends_at_its_timeout_if_name_servers_or_brokers_do_not_answer(
    fake_peer: Any, fake_broker: Any, hangs: str, linger_ms: float | None
) -> None:
    async def run() -> None:
        async with fake_peer() as peer, fake_peer() as other:
            fake_broker(peer)
            if "name server" in hangs or hangs == "everything":
                peer.answers[105] = other.answers[105] = silent
            if hangs == "name server of a new topic":
                peer.answers[105] = lambda asked: response(asked, 17) if "TBW" not in str(asked.ext_fields) else None
            if hangs in ("broker", "everything"):
                peer.answers.update({310: silent, 320: silent, 34: silent, 325: silent})
            addresses = f"{peer.address};{other.address}" if "two" in hangs else peer.address

            async def one(name: str) -> tuple[str, float]:
                kind: Any = TransactionProducer if name == "send_half" else Producer
                options = {"check": check} if name == "send_half" else {}
                producer = kind("pg", addresses, linger_ms=linger_ms, heartbeat_interval_s=3_600, **options)
                try:
                    return name, await took_s(CALLS[name](producer))
                finally:
                    await producer.close()

            names = [
                name for name in CALLS if name != "send_oneway" or hangs != "broker"
            ]  # it does not wait for a broker
            durations = await asyncio.gather(*map(one, names))
            assert [(name, duration_s) for name, duration_s in durations if not 0.15 < duration_s < 0.9] == []

    asyncio.run(run())


def test_a_known_route_is_used_if_no_name_server_answers_in_time(fake_peer: Any, fake_broker: Any) -> None:
    """It is old, and a send that waited for a newer one all of its time would fail at a broker that works."""

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("pg", peer.address, route_interval_s=0.01) as producer:
                await producer.send(MESSAGE)
                peer.answers[105] = silent
                await asyncio.sleep(0.02)  # until the route is old
                assert (await producer.send(MESSAGE, timeout_ms=400)).queue.topic == "T"

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["request", "half message"])
def test_a_request_succeeds_within_its_timeout_if_no_name_server_answers_the_route_refresh(kind: str) -> None:
    """Before a request or a half message, the brokers must learn of the client, which needs the route, too."""
    cluster = FakeCluster(Choices(1), brokers=1)

    async def run() -> None:
        await cluster.start()
        async with TransactionProducer(
            "p", cluster.address, check=check, clock=cluster.clock, route_interval_s=1, heartbeat_interval_s=3_600
        ) as producer:
            await producer.send(MESSAGE)
            await asyncio.sleep(2)  # the route is old now
            cluster.network.silent.add(cluster.addresses[0])
            if kind == "request":
                assert (await producer.request(MESSAGE, timeout_ms=3_000)).body
            else:
                assert (await producer.send_half(MESSAGE, timeout_ms=3_000)).queue.topic == "T"

    cluster.loop.run(run())


def test_a_send_does_not_wait_for_a_broker_whose_address_is_missing_from_the_topic_route(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            broker = fake_broker(peer)

            def route(asked: RemotingCommand) -> RemotingCommand:
                data = TopicRouteData(
                    order_topic_conf="broker-a:2;gone:1",
                    broker_datas=[BrokerData(broker_addrs={0: peer.address}, broker_name="broker-a", cluster="C")],
                    queue_datas=[
                        QueueData(
                            broker_name="broker-a", perm=6, read_queue_nums=2, topic_sys_flag=0, write_queue_nums=2
                        )
                    ],
                )
                return response(asked, 0, body=dumps(data, "standard"))

            peer.answers[105] = route
            queue = MessageQueue("broker-a", 0, "T")
            async with TransactionProducer("p", peer.address, check=check) as producer:
                assert (await producer.send_half(MESSAGE, queue)).queue == queue
            assert broker.peer.of_code(34)

    asyncio.run(run())


def test_a_message_keeps_its_timeout_if_a_message_with_a_longer_timeout_was_sent_before_it(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Both are for one queue, in order: the first may take long, and the second must not wait for it."""

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("pg", peer.address, linger_ms=0) as producer:
                await producer.send(MESSAGE, sharding_key="k")
                usual, peer.answers[310] = peer.answers[310], silent
                first = asyncio.create_task(producer.send(MESSAGE, sharding_key="k", timeout_ms=30_000))
                await peer.until(lambda: len(peer.of_code(310)) == 2)
                second = producer.send(MESSAGE, sharding_key="k", timeout_ms=TIMEOUT_MS)
                assert await took_s(second) < 0.9
                peer.answers[310] = usual
                for transport in peer.transports:
                    transport.abort()
                with pytest.raises(RemotingError):
                    await first

    asyncio.run(run())


def test_a_send_retry_fetches_the_new_address_of_a_broker_whose_address_has_changed(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Without asking again, sends fail until the route is refreshed by itself, which takes half a minute."""

    async def run() -> None:
        async with fake_peer() as name_server, fake_peer() as second:
            fake_broker(second)
            first = fake_peer()
            await first.__aenter__()
            fake_broker(first)
            at = [first.address]

            def route(asked: RemotingCommand) -> RemotingCommand:
                data = TopicRouteData(
                    broker_datas=[BrokerData(broker_addrs={0: at[0]}, broker_name="broker-a", cluster="C")],
                    queue_datas=[
                        QueueData(
                            broker_name="broker-a", perm=6, read_queue_nums=2, topic_sys_flag=0, write_queue_nums=2
                        )
                    ],
                )
                return response(asked, 0, body=dumps(data, "standard"))

            name_server.answers[105] = route
            clock = HandClock()
            async with Producer("pg", name_server.address, clock=clock) as producer:
                sent = await producer.send(MESSAGE)
                await first.__aexit__()
                at[0] = second.address
                clock.at_s += 1
                await producer.send(MESSAGE)
                assert len(second.of_code(310)) == 1
                clock.at_s += 1
                looked_up = len(name_server.of_code(105))
                await producer.send(MESSAGE, sent.queue)
                assert len(name_server.of_code(105)) == looked_up, "a send that works asks for no route"

    asyncio.run(run())


class HandClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s


def silent_queue(linger_ms: float, sends: list[tuple[int, str]]) -> list[tuple[int, float]]:
    """Send to a queue whose broker is silent, each in its time, with a key or to the queue; return how long each took."""
    cluster = FakeCluster(Choices(1), brokers=1)

    async def run() -> list[tuple[int, float]]:
        await cluster.start()
        queue = cluster.queues("T")[0]
        async with Producer("pg", cluster.address, linger_ms=linger_ms, clock=cluster.clock) as producer:
            await producer.send(MESSAGE)
            cluster.network.silent.add(cluster.addresses[1])

            async def one(timeout_ms: int, how: str) -> tuple[int, float]:
                to: Any = {"sharding_key": "k"} if how == "key" else {"queue": queue} if how == "queue" else {}
                return timeout_ms, await took_s(producer.send(MESSAGE, timeout_ms=timeout_ms, **to))

            tasks = []
            for timeout_ms, how in sends:
                tasks.append(asyncio.create_task(one(timeout_ms, how)))
                await asyncio.sleep(0.001)
            return await asyncio.gather(*tasks)

    return cluster.loop.run(run())


@pytest.mark.parametrize("linger_ms", [0, 5, 500, 20_000])
@pytest.mark.parametrize("how", ["key", "queue", "any"])
def test_each_send_ends_at_its_own_timeout_if_queued_batches_have_different_timeouts(
    linger_ms: float, how: str
) -> None:
    """Messages of other timeouts are other batches, one behind the other: none may add the time of those before it."""
    timeouts_ms = [300, 2_500, 300, 1_000, 300, 2_000, 400]
    for timeout_ms, duration_s in silent_queue(linger_ms, [(timeout_ms, how) for timeout_ms in timeouts_ms]):
        assert timeout_ms / 1000 - 0.02 <= duration_s <= timeout_ms / 1000 + 0.02


def test_messages_of_the_same_batch_keep_separate_timeouts() -> None:
    """A batch is not over when the first of its messages, which has waited for long, is out of time."""
    cluster = FakeCluster(Choices(1), brokers=1)

    async def run() -> None:
        await cluster.start()
        queue = cluster.queues("T")[0]
        async with Producer("pg", cluster.address, linger_ms=0, clock=cluster.clock) as producer:
            await producer.send(MESSAGE)
            cluster.network.silent.add(cluster.addresses[1])
            before = asyncio.create_task(took_s(producer.send(MESSAGE, queue, timeout_ms=900)))
            await asyncio.sleep(0.01)
            early = asyncio.create_task(took_s(producer.send(MESSAGE, queue, timeout_ms=1_000)))
            await asyncio.sleep(0.8)
            late = asyncio.create_task(took_s(producer.send(MESSAGE, queue, timeout_ms=1_000)))
            assert [round(await each, 2) for each in (before, early, late)] == [0.9, 1.0, 1.0]

    cluster.loop.run(run())


def test_a_message_is_sent_in_time_if_the_linger_time_is_longer_than_the_send_timeout() -> None:
    """Otherwise a message that no other joins would never be sent."""
    cluster = FakeCluster(Choices(1), brokers=1)

    async def run() -> None:
        await cluster.start()
        queue = cluster.queues("T")[0]
        async with Producer("pg", cluster.address, linger_ms=10_000, clock=cluster.clock) as producer:
            for to in ({}, {"queue": queue}, {"sharding_key": "k"}):
                await producer.send(MESSAGE, timeout_ms=1_000, **to)
            long = asyncio.create_task(producer.send(MESSAGE, queue, timeout_ms=60_000))
            await asyncio.sleep(0)
            await producer.send(MESSAGE, queue, timeout_ms=1_000)
            await long

    cluster.loop.run(run())


@pytest.mark.parametrize("kind", ["request", "transaction"])
def test_a_hanging_broker_does_not_delay_calls_to_another_broker(kind: str) -> None:
    """All brokers of the topic are told of this client before a request, and before a transaction."""
    cluster = FakeCluster(Choices(1), brokers=2)

    async def run() -> None:
        await cluster.start()
        works, hangs = cluster.queues("T")[0], cluster.queues("T")[-1]
        cluster.network.silent.add(cluster.addresses[2])
        async with TransactionProducer("p", cluster.address, check=check, clock=cluster.clock) as producer:

            async def call(queue: Any) -> float:
                begin_s = cluster.loop.time()
                if kind == "request":
                    await producer.request(MESSAGE, queue)
                else:
                    await producer.send_in_transaction(MESSAGE, lambda *_: TransactionState.COMMIT, queue)
                return cluster.loop.time() - begin_s

            longest_s = 1.0 if kind == "request" else 0.1  # the fake broker takes its time to reply
            assert await call(works) <= 1.5 + longest_s
            await asyncio.sleep(3)
            assert await call(works) <= longest_s
            with pytest.raises(RemotingError):
                await call(hangs)
            cluster.heal()
            await asyncio.sleep(5)
            await call(works)
            assert await call(hangs) <= longest_s

    cluster.loop.run(run())
