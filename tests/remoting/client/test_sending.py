"""A broker that fails, or is slow, is let alone for as long as the Java client would; a clock that is set by hand says when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.core.route.route_data import BrokerData, QueueData, TopicRouteData
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import SendStatus
from flintmq.remoting.client.sending import LatencyBackoff
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.remoting.wire.json_body import dumps


class HandClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return (self.at_ms - 1_700_000_000_000) / 1000


class Cluster:
    """Brokers a, b and c behind one address; each has a latency, and a code that it answers."""

    def __init__(self, broker: Any, clock: HandClock, names: str = "abc") -> None:
        self.broker, self.clock, self.names = broker, clock, names
        self.asked: list[str] = []
        self.latency_ms = dict.fromkeys(names, 0)
        self.code = dict.fromkeys(names, 0)
        broker.peer.answers[105] = self.route
        broker.peer.answers[310] = self.send

    def route(self, asked: RemotingCommand) -> RemotingCommand:
        address = self.broker.peer.address
        data = TopicRouteData(
            broker_datas=[BrokerData(broker_addrs={0: address}, broker_name=name, cluster="C") for name in self.names],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=2, topic_sys_flag=0, write_queue_nums=2)
                for name in self.names
            ],
        )
        return response(asked, 0, body=dumps(data, "standard"))

    def send(self, asked: RemotingCommand) -> RemotingCommand:
        name = (asked.ext_fields or {})["n"]
        self.asked.append(name)
        self.clock.at_ms += self.latency_ms[name]
        if self.code[name] in (10, 11, 12):
            stored: RemotingCommand = self.broker.send(asked)
            stored.code = self.code[name]
            return stored
        if self.code[name]:
            return response(asked, self.code[name], "no")
        answer: RemotingCommand = self.broker.send(asked)
        return answer


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Cluster, Producer], Awaitable[None]], **options: Any) -> None:
    async def with_producer() -> None:
        clock = HandClock()
        async with fake_peer() as peer, asyncio.timeout(20):
            cluster = Cluster(fake_broker(peer), clock, options.pop("names", "abc"))
            async with Producer("pg", peer.address, clock=clock, **options) as producer:
                await test(cluster, producer)

    asyncio.run(with_producer())


async def send_many(cluster: Cluster, producer: Producer, count: int = 12) -> set[str]:
    """Send messages; return the brokers that were asked."""
    cluster.asked.clear()
    for _ in range(count):
        await producer.send(Message("T", b"x"), timeout_ms=60_000)
    return set(cluster.asked)


def test_new_messages_are_still_sent_to_a_failed_broker_if_latency_backoff_is_off(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Without back-off only the send that failed avoids the broker."""

    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.code["b"] = 14
        assert await send_many(cluster, producer) == {"a", "b", "c"}
        assert cluster.asked.count("b") >= 2
        assert not any(pair == ("b", "b") for pair in zip(cluster.asked, cluster.asked[1:], strict=False))

    run(fake_peer, fake_broker, test)


def test_latency_backoff_avoids_a_failed_broker_for_ten_minutes(fake_peer: Any, fake_broker: Any) -> None:
    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.code["b"] = 14
        assert "b" in await send_many(cluster, producer)
        assert cluster.asked.count("b") == 1
        cluster.code["b"] = 0
        cluster.clock.at_ms += 599_999
        assert await send_many(cluster, producer) == {"a", "c"}
        cluster.clock.at_ms += 1
        assert await send_many(cluster, producer) == {"a", "b", "c"}

    run(fake_peer, fake_broker, test, latency_backoff=True)


@pytest.mark.parametrize(
    ("latency_ms", "backoff_ms"),
    [(550, 30_000), (1_000, 60_000), (2_500, 120_000), (3_000, 180_000), (20_000, 600_000)],
)
def test_a_producer_avoids_a_slow_broker_for_a_time_that_depends_on_the_latency(
    fake_peer: Any, fake_broker: Any, latency_ms: int, backoff_ms: int
) -> None:
    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.latency_ms["b"] = latency_ms
        await send_many(cluster, producer)
        assert cluster.asked.count("b") == 1
        cluster.clock.at_ms += backoff_ms - 1
        assert await send_many(cluster, producer) == {"a", "c"}
        cluster.latency_ms["b"] = 549
        cluster.clock.at_ms += 1
        assert await send_many(cluster, producer) == {"a", "b", "c"}
        assert cluster.asked.count("b") > 1

    run(fake_peer, fake_broker, test, latency_backoff=True)


def test_messages_are_still_sent_to_a_broker_after_it_refused_an_illegal_message(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.code.update(a=13, b=13, c=13)
        for _ in range(3):
            with pytest.raises(RefusedError):
                await producer.send(Message("T", b"x"))
        cluster.code.update(a=0, b=0, c=0)
        assert await send_many(cluster, producer) == {"a", "b", "c"}

    run(fake_peer, fake_broker, test, latency_backoff=True)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_message_not_stored_durably_is_sent_to_another_broker_if_retry_when_not_durable_is_set(
    fake_peer: Any, fake_broker: Any, code: int
) -> None:
    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.code["a"] = code
        results = [await producer.send(Message("T", b"x")) for _ in range(12)]
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert {result.queue.broker_name for result in results} == {"b", "c"}
        cluster.code.update(b=code, c=code)
        cluster.asked.clear()
        assert (await producer.send(Message("T", b"x"))).status is SendStatus(code)
        assert len(cluster.asked) == 3
        cluster.code.update(a=code, b=13, c=14)
        assert (await producer.send(Message("T", b"x"), MessageQueue("a", 0, "T"))).status is SendStatus(code)

    run(fake_peer, fake_broker, test, retry_when_not_durable=True)


def test_a_send_returns_the_status_of_its_first_attempt_if_the_retry_after_a_flush_timeout_fails(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.code.update(a=10, b=13)
        ways = []
        for _ in range(8):
            cluster.asked.clear()
            try:
                assert (await producer.send(Message("T", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT
            except RefusedError:
                assert cluster.asked == ["b"]
            ways.append("".join(cluster.asked))
        assert set(ways) == {"ab", "b"}

    run(fake_peer, fake_broker, test, retry_when_not_durable=True, names="ab")


def test_a_producer_does_not_retry_on_flush_disk_timeout_if_the_topic_has_only_one_broker(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(cluster: Cluster, producer: Producer) -> None:
        cluster.code["a"] = 10
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT
        assert cluster.asked == ["a"]

    run(fake_peer, fake_broker, test, retry_when_not_durable=True, names="a")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 600, 3_000, 20_000]), st.integers(0, 200_000))))
def test_a_recently_slow_broker_is_selected_only_if_all_brokers_were_recently_slow(
    events: list[tuple[str, int, int]],
) -> None:
    clock = HandClock()
    backoff = LatencyBackoff(clock)
    free_at_ms = dict.fromkeys("abc", 0)
    queues = [MessageQueue(name, queue_id, "T") for name in "abc" for queue_id in range(2)]
    for name, latency_ms, pause_ms in events:
        backoff.answered(name, latency_ms)
        duration_ms = {0: 0, 600: 30_000, 3_000: 180_000, 20_000: 600_000}[latency_ms]
        free_at_ms[name] = clock.at_ms + duration_ms if duration_ms else 0
        clock.at_ms += pause_ms
        chosen = {queue.broker_name for queue in backoff.choose(queues)}
        free = {name for name, at_ms in free_at_ms.items() if at_ms <= clock.at_ms}
        assert chosen == free or (not free and chosen == {min(free_at_ms, key=lambda name: free_at_ms[name])})
