"""A consumer that cannot consume says so: at once, then with growing pauses, and to whoever asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RemotingError
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.troubles import Troubles
from flintmq.remoting.wire.command import response
from flintmq.testing.choices import Choices
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.fake_broker import _PeerConnection
from flintmq.tests.support.fake_cluster import FakeCluster

SOON = ConsumerSettings(
    consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.01, error_delay_s=0.02, commit_interval_s=60
)


def test_a_continuing_problem_is_logged_at_once_and_then_with_growing_pauses() -> None:
    clock = ManualClock()
    troubles = Troubles(clock)
    told_s = []
    for second in range(20_000):
        if troubles.met("Orders", "gone"):
            told_s.append(second)
        clock.advance_ms(1_000)
    assert told_s[:5] == [0, 30, 90, 210, 450]
    assert told_s[-1] - told_s[-2] == 3_600
    assert troubles.reasons() == {"Orders": "gone"}
    assert troubles.over("Orders") == 20_000
    assert troubles.over("Orders") is None
    assert not troubles.met("Orders", "again", may_pass=True)
    assert troubles.met("Orders", "again", may_pass=True)
    assert not troubles.met("Orders", "again", may_pass=True)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_consumer_warns_only_once_per_topic_if_the_name_server_is_unreachable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with Consumer("g", "127.0.0.1:1", settings=SOON) as consumer:
            await consumer.subscribe("Orders")
            await consumer.subscribe("Bills")
            for _ in range(5):
                await consumer.rebalance()
            assert set(consumer.troubles) == {"Orders", "Bills"}
            assert "127.0.0.1:1" in consumer.troubles["Orders"]
            assert [message async for message in consumer.messages(timeout_ms=20)] == []

    asyncio.run(run())
    told = warnings(caplog)
    assert len([line for line in told if "Orders" in line]) == 1, told
    assert "nobody answers at 127.0.0.1:1" in "".join(told)
    assert "%RETRY%" not in "".join(told)


def test_a_consumer_logs_only_one_warning_about_a_topic_that_does_not_exist(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            broker = fake_broker(peer)
            async with Consumer("g", peer.address, settings=SOON) as consumer:
                await consumer.subscribe("Later")
                for _ in range(3):
                    await consumer.rebalance()
                assert "No topic route" in consumer.troubles["Later"]
                broker.topics.add("Later")
                broker.members["g"] = [consumer.client.client_id]
                await peer.until(lambda: any(queue.topic == "Later" for queue in consumer.process_queues))
                await peer.until(lambda: not consumer.troubles)
                await consumer.subscribe("Never")
                await consumer.rebalance()
                await consumer.unsubscribe("Never")
                assert consumer.troubles == {}

    asyncio.run(run())
    assert len([line for line in warnings(caplog) if "Later" in line]) == 1


def test_an_unreachable_broker_causes_one_connection_attempt_at_a_time_and_one_log_line(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of 65 queues that connects by itself makes 76 connections a second, and as many lines."""

    async def run() -> None:
        async with fake_peer() as name_server:
            peer = fake_peer()
            await peer.__aenter__()
            broker = fake_broker(peer)
            broker.queue_nums = 65
            name_server.answers[105] = broker.route
            slowly = attrs.evolve(SOON, rebalance_interval_s=0.05)
            async with Consumer("g", name_server.address, lambda message: None, settings=slowly) as consumer:
                broker.members["g"] = [consumer.client.client_id]
                await consumer.subscribe("T")
                await peer.until(lambda: len(consumer.process_queues) == 65 and len(peer.of_code(11)) >= 65)
                opened: list[str] = []
                usual = consumer.client.remoting._open

                async def counted(address: str, connection: Any) -> None:
                    opened.append(address)
                    await usual(address, connection)

                consumer.rebalancer.rebalance = lambda: asyncio.sleep(0)  # type: ignore[method-assign]  # it asks at a pace of its own
                consumer.client.remoting._open = counted  # type: ignore[method-assign]
                for transport in list(peer.transports):
                    transport.abort()
                peer._server.close()
                await asyncio.sleep(0.3)  # fifteen of error_delay_s
                tries = len([address for address in opened if address == peer.address])
                assert 1 <= tries <= 16, tries
                assert [subject for subject in consumer.troubles if subject.startswith("broker ")] == [
                    "broker broker-a"
                ]

                again = await asyncio.get_running_loop().create_server(
                    lambda: _PeerConnection(peer), "127.0.0.1", peer.port
                )
                pulls = len(peer.of_code(11))
                await peer.until(lambda: len(peer.of_code(11)) >= pulls + 65)
                await peer.until(lambda: not consumer.troubles)
                again.close()
            await peer.__aexit__()

    asyncio.run(run())
    told = warnings(caplog)
    assert len([line for line in told if line.startswith("broker broker-a does not answer")]) == 1
    assert not [line for line in told if line.startswith("pulling")]


@pytest.mark.parametrize("fault", ["refusing", "silent"])
@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize("orderly", [False, True])
def test_an_unreachable_broker_does_not_stop_the_consumption_of_queues_of_another_broker(
    fault: str, away: int, orderly: bool
) -> None:
    """This holds at the start, for stored offsets, for renewed locks and for given up queues."""
    cluster = FakeCluster(Choices(4), brokers=2)
    got: list[bytes] = []

    async def run() -> None:
        await cluster.start()
        queues = cluster.queues("T")
        there = [queue for queue in queues if queue.broker_name != f"broker-{away}"]
        getattr(cluster.network, fault).add(cluster.addresses[1 + away])
        for number, queue in enumerate(queues):
            cluster.put(queue, b"%d" % number)

        def listen(message: MessageExt) -> None:
            got.append(message.body)

        def held(consumer: Consumer) -> set[MessageQueue]:
            return {queue for queue in consumer.process_queues if queue.topic == "T"}

        async def until(condition: Callable[[], bool], within_s: float) -> None:
            async with asyncio.timeout(within_s):
                while not condition():  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(0.1)

        settings = ConsumerSettings(consume_from="first", orderly=orderly)
        async with Consumer("g", cluster.address, listen, settings=settings, clock=cluster.clock) as consumer:
            await consumer.subscribe("T")
            await until(lambda: held(consumer) == set(there), 15)
            await until(lambda: all(cluster.committed("g", queue) == 1 for queue in there), 15)
            assert [name for name in consumer.troubles if name == "T"], "it is said that queues are missing"
            await asyncio.sleep(90)  # locks were renewed
            assert held(consumer) == set(there)
            cluster.heal()
            await until(lambda: held(consumer) == set(queues) and not consumer.troubles, 60)
            await until(lambda: len(set(got)) == len(queues), 30)
            getattr(cluster.network, fault).add(cluster.addresses[1 + away])
            cluster.network.cut(cluster.addresses[1 + away])
            for queue in queues:
                cluster.put(queue, b"more")
            await until(lambda: all(cluster.committed("g", queue) == 2 for queue in there), 15)
            await asyncio.sleep(90)
            assert set(there) <= held(consumer)
            for queue in there:
                cluster.put(queue, b"most")
            await until(lambda: all(cluster.committed("g", queue) == 3 for queue in there), 15)
        async with PullConsumer("pulls", cluster.address, clock=cluster.clock) as pulls:
            cluster.heal()
            await pulls.assign("T")
            getattr(cluster.network, fault).add(cluster.addresses[1 + away])
            cluster.network.cut(cluster.addresses[1 + away])
            with pytest.raises(RemotingError):
                await pulls.commit()
            assert all(cluster.committed("pulls", queue) is not None for queue in there)

    cluster.loop.run(run())


def test_repeated_pull_and_commit_failures_are_logged_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    """The same holds for an offset store of the user that fails each time."""
    cluster = FakeCluster(Choices(4), brokers=1)

    class Broken:
        async def load(self, _queue: MessageQueue) -> int:
            return 0

        async def save(self, _offsets: dict[MessageQueue, int]) -> None:
            raise ZeroDivisionError

    async def run() -> None:
        await cluster.start()
        peer = cluster.brokers["broker-0"].peer
        usual = peer.answers[11]
        consumer = Consumer("g", cluster.address, lambda message: None, clock=cluster.clock, offset_store=Broken())
        async with consumer:
            await consumer.subscribe("T")
            await consumer.rebalance()
            for queue in cluster.queues("T"):
                cluster.put(queue, b"x")
            await asyncio.sleep(60)
            peer.answers[11] = lambda asked: response(asked, 16, "not yours")
            for transport in list(peer.transports):
                transport.abort()
            await asyncio.sleep(600)
            refused = [line for line in warnings(caplog) if line.startswith("pulling") and "topic='T'" in line]
            assert 2 <= len(refused) <= 2 * 5, refused
            peer.answers[11] = usual
            await asyncio.sleep(10)
            peer.answers[11] = lambda asked: response(asked, 16, "not yours")
            for queue in cluster.queues("T"):
                cluster.put(queue, b"x")
            await asyncio.sleep(5)
            again = [line for line in warnings(caplog) if line.startswith("pulling") and "topic='T'" in line]
            assert len(again) > len(refused), "what begins again is told at once"

    cluster.loop.run(run())
    stored = [line for line in warnings(caplog) if line.endswith("commit failed")]
    assert 1 <= len(stored) <= 10  # those of the close, too
