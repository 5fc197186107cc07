"""The view shows RocketMQ's own broker as it shows FlintMQ's, while it is killed and comes back, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cluster_view.poll import Pace
from flintmq.programs.cluster_view.values import GroupView
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.client.admin_messages import move_queue, plan_queue_move
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.testing.clock import ManualClock

from .conftest import Peer

LIMIT_S = 90.0
SETTINGS = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.5, commit_interval_s=0.5)
STORE = ("mappedFileSizeCommitLog=67108864", "mappedFileSizeConsumeQueue=20000", "flushConsumerOffsetInterval=500")


class Look:
    """A view whose time goes on by eleven seconds with every look."""

    def __init__(self, admin: AdminClient, clock: ManualClock) -> None:
        self._clock = clock
        self.view = ClusterView(admin, Pace(lookups_per_s=1000))

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> None:
        """Look again and again: the broker is another process, which tells nobody."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LIMIT_S
        while True:
            self._clock.advance_ms(11_000)
            await self.view.refresh(all_due=True)
            if await holds():
                return
            assert loop.time() < deadline_s, f"waited {LIMIT_S:g} s for {what}"
            await asyncio.sleep(0.1)

    async def group(self, name: str) -> GroupView | None:
        return next((one for one in await self.view.groups() if one.name == name), None)


async def watch(peer: Peer, store: Path) -> None:
    clock = ManualClock()
    async with AdminClient(peer.namesrv, clock=clock) as admin:
        look = Look(admin, clock)
        with peer.broker(store, *STORE, kill=True):
            await look.until(lambda: has_brokers(look, missing=0), "the broker to register")
            address = f"127.0.0.1:{peer.port}"
            await admin.create_topic("T", queues=2, address=address)
            await consume_badly(look, peer)
            await move_one_queue(look, admin, peer)
        await look.until(lambda: has_brokers(look, missing=1), "the view to miss the broker")
        (alarm,) = [one for one in (await look.view.overview()).alarms if one.id == "broker.missing"]
        assert alarm.address.endswith(f":{peer.port}")
        row = next(one for one in await look.view.topics() if one.name == "T")
        assert row.missing == row.brokers
        found = await look.view.topic("T")
        assert found is not None
        assert found.errors
        with peer.broker(store, *STORE):
            await look.until(lambda: has_brokers(look, missing=0), "the broker to be back")
            found = await look.view.topic("T")
            assert found is not None
            assert (found.messages, found.errors) == (20, ())
        await look.view.close()


async def has_brokers(look: Look, *, missing: int) -> bool:
    overview = await look.view.overview()
    return (overview.brokers, overview.brokers_missing) == (1, missing)


async def move_one_queue(look: Look, admin: AdminClient, peer: Peer) -> None:
    """A group goes on elsewhere in one queue and stays where it is in the other, offline and online, by RocketMQ's requests."""
    await admin.create_topic("Two", queues=2, address=f"127.0.0.1:{peer.port}")
    (broker,) = await admin.masters()
    first, second = (MessageQueue(broker, queue_id, "Two") for queue_id in (0, 1))
    api = BrokerApi(admin.client, "mover")
    got: list[tuple[int, int]] = []

    async def listen(message: MessageExt) -> None:
        got.append((message.queue_id, message.queue_offset))

    async def has_committed(*wanted: int) -> bool:
        return [await api.committed(queue) for queue in (first, second)] == list(wanted)

    async with Producer("p", peer.namesrv) as producer:
        for number in range(10):
            await producer.send(Message("Two", b"x"), queue=(first, second)[number % 2])
    for queue, consumed in ((first, 3), (second, 5)):
        await api.commit(queue, consumed)
    move = await plan_queue_move(admin, first, "mover", -1, 1)
    assert (move.consumer_offset, move.new_offset, move.again) == (3, 1, 2)
    assert await move_queue(admin, "mover", first, 1) == 0
    assert await has_committed(1, 5)
    async with Consumer("mover", peer.namesrv, listen, settings=SETTINGS) as consumer:
        await consumer.subscribe("Two")
        await look.until(lambda: has_committed(5, 5), "the group to consume")
        assert got == [(0, 1), (0, 2), (0, 3), (0, 4)]
        assert await move_queue(admin, "mover", first, 3) == 1
        await look.until(lambda: has_moved(got), "the queue to come again")
        assert got[4:] == [(0, 3), (0, 4)]
        odd = attrs.evolve(SETTINGS, message_model="BROADCASTING")
        async with Consumer("mover", peer.namesrv, listen, settings=odd, client_id="odd") as other:
            await other.subscribe("Two")

            async def has_conflict() -> bool:
                row = await look.group("mover")
                return row is not None and "BROADCASTING of odd" in row.conflict

            await look.until(has_conflict, "the message model to differ")


async def has_moved(got: list[tuple[int, int]]) -> bool:
    return len(got) >= 6


async def consume_badly(look: Look, peer: Peer) -> None:
    """Members of one group contradict each other, and that of another does not come forward."""
    going = asyncio.Event()

    async def hang(message: MessageExt) -> None:
        await going.wait()

    async def take(message: MessageExt) -> None:
        return None

    one = Consumer("odd", peer.namesrv, take, settings=SETTINGS, client_id="one")
    two = Consumer("odd", peer.namesrv, take, settings=SETTINGS, client_id="two")
    slow = Consumer("slow", peer.namesrv, hang, settings=SETTINGS, client_id="hanging")
    await one.subscribe("T", "a")
    await two.subscribe("T", "b")
    await slow.subscribe("T")
    async with Producer("p", peer.namesrv) as producer, slow:
        for number in range(20):
            await producer.send(Message("T", b"x", tags="ab"[number % 2]))
        async with one, two:

            async def has_conflict() -> bool:
                row = await look.group("odd")
                return row is not None and row.members == 2 and bool(row.conflict)

            await look.until(has_conflict, "the conflict")
            found = await look.view.group("odd")
            assert found is not None
            (conflict,) = found.conflicts or ()
            assert sorted((one.value, one.client_ids) for one in conflict.variants) == [
                ("a", ("one",)),
                ("b", ("two",)),
            ]
        await look.until(lambda: is_stuck(look), "the group to be stuck")
        found = await look.view.group("slow")
        assert found is not None
        assert {(one.topic, one.client_id) for one in found.stuck} == {("T", "hanging")}
        assert sum(one.lag for one in found.queues or () if one.topic == "T") == 20
        (member,) = found.member_list or ()
        assert (member.client_id, member.language, member.error) == ("hanging", "PYTHON", "")
        overview = await look.view.overview()
        assert {(one.id, one.subject) for one in overview.alarms} >= {("consumer.stuck", "slow")}
        (broker,) = await look.view.brokers()
        told_ms = float(broker.figures["putLatency99"])  # 0 in its first minute
        assert overview.put_latency_99_ms == (told_ms or None)
        assert (broker.is_flintmq, broker.version) == (False, "V4_9_7")
        assert 0 < broker.disk_ratio < 1
        detailed = await look.view.broker(broker.name)
        assert detailed is not None
        assert {one.name: one.value for one in detailed.config or ()}["brokerName"] == broker.name
        assert (detailed.report, detailed.error) == (None, "")
        going.set()


async def is_stuck(look: Look) -> bool:
    row = await look.group("slow")
    return row is not None and bool(row.members) and row.lag == 20 and bool(row.stuck)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(400)
def test_the_cluster_view_shows_a_killed_java_broker_as_missing_until_the_broker_has_restarted(
    tmp_path: Path, peer: Peer
) -> None:
    """By administration requests of RocketMQ 4.9 alone."""
    with peer.name_server():
        asyncio.run(watch(peer, tmp_path / "store"))
