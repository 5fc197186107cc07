"""Outages lose nothing that was acknowledged, and the client recovers by itself within the protocol's periods.

By default the periods and the time limits are a hundredth of RocketMQ's (routes and heartbeats 30 s, rebalance 20 s). With
``--slow`` they are RocketMQ's periods, and there is also a partition of 30 s.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.config import load_config
from flintmq.remoting.client import AdminClient, Consumer, FlintError, Message, MessageExt, Producer
from flintmq.remoting.client.instance import REQUEST_TIMEOUT_MS
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.testing.embedded import SETTINGS
from flintmq.tests.support.ports import free_ports

from .cut import Healing, Network
from .sites import (
    BROKER,
    FLINTMQ,
    JAVA_49,
    LIMIT_S,
    Room,
    jars_of,
    java_peer,
    java_settings,
    known,
    registered,
    site_params,
    until,
)


@attrs.frozen
class Periods:
    """Intervals between the periodic tasks by which a client recovers."""

    heartbeat_s: float
    route_s: float
    rebalance_s: float
    pull_s: float
    """How long a broker may hold a pull, and half of how long the client waits for it."""

    def client(self) -> dict[str, Any]:
        """Options of a client's instance."""
        return {"heartbeat_interval_s": self.heartbeat_s, "route_interval_s": self.route_s}

    def consumer(self, room: Room) -> Any:
        """Settings of a consumer."""
        return room.settings(
            rebalance_interval_s=self.rebalance_s,
            suspend_ms=int(self.pull_s * 1000),
            error_delay_s=min(3.0, self.route_s / 10),
        )


SCALED = Periods(0.3, 0.3, 0.2, 0.5)
REAL = Periods(30.0, 30.0, 20.0, 15.0)
BUSY_S = 4.0
"""Additional time that is allowed because the machine does other work, in seconds."""


class Traffic:
    """Sends numbers until :meth:`stop_sending`, and records the acknowledged and the consumed ones."""

    def __init__(self, room: Room, topic: str, address: str, periods: Periods, timeout_ms: int = 1_000) -> None:
        self.acknowledged: dict[bytes, float] = {}
        self.consumed: Counter[bytes] = Counter()
        self.refusals = 0
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._producer = Producer(room.group("p"), address, **periods.client())
        self.consumer = Consumer(
            room.group(), address, self._listen, settings=periods.consumer(room), **periods.client()
        )
        self._sending: asyncio.Task[None] | None = None

    async def _listen(self, message: MessageExt) -> None:
        self.consumed[message.body] += 1

    async def _send(self) -> None:
        for number in itertools.count():
            body = b"%d" % number
            try:
                await self._producer.send(Message(self._topic, body), timeout_ms=self._timeout_ms)
                self.acknowledged[body] = time.monotonic()
            except FlintError:
                self.refusals += 1
            await asyncio.sleep(0.002)

    async def __aenter__(self) -> Traffic:
        await self._producer.start()
        await self.consumer.start()
        await self.consumer.subscribe(self._topic)
        self._sending = asyncio.create_task(self._send())
        await self.flows(0.0, LIMIT_S)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop_sending()
        await self._producer.close()
        await self.consumer.close()

    async def stop_sending(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def flows(self, since_s: float, limit_s: float) -> float:
        """Wait until 20 messages that were acknowledged since a time are consumed; return the seconds since that time."""

        async def enough() -> bool:
            new = [body for body, at_s in self.acknowledged.items() if at_s > since_s and body in self.consumed]
            return len(new) >= 20

        await until(enough, "messages to flow", limit_s)
        return time.monotonic() - since_s

    async def nothing_is_lost(self, limit_s: float) -> None:
        """Stop sending, and wait until all acknowledged messages are consumed."""
        await self.stop_sending()

        async def complete() -> bool:
            return self.acknowledged.keys() <= self.consumed.keys()

        try:
            await until(complete, "all that was acknowledged to be consumed", limit_s)
        except AssertionError as failure:
            missing = sorted(self.acknowledged.keys() - self.consumed.keys(), key=int)
            held = {str(queue): one.commit_offset for queue, one in self.consumer.process_queues.items()}
            raise AssertionError(f"{failure}: {len(missing)} are missing, {missing[:5]}; held {held}") from failure


class Servers:
    """A broker and a name server for one test. Both can be stopped and started again at the same addresses."""

    def __init__(self, name: str, work: Path) -> None:
        self._name = name
        self._work = work
        self._held = {"names": ExitStack(), "broker": ExitStack()}
        if name == FLINTMQ:
            port, names_port = free_ports(2)
            self.address = f"127.0.0.1:{names_port}"
            own = (f"listen.port={port}", f"nameserver.port={names_port}", f"namesrv.addresses={self.address}")
            self._config = load_config(
                None, (f"store.path={work / 'store'}", *SETTINGS, *BROKER, *own, "registerNameServerPeriod=1000"), {}
            )
        else:
            jars_of(name)
            self._peer = java_peer(name, work)
            self.address = self._peer.namesrv

    async def start(self, which: str) -> None:
        """Start the broker, or the name server (``names``); it is known when this returns."""
        if self._name == FLINTMQ:
            made: Any = flintmq.NameServer(self._config) if which == "names" else flintmq.Broker(self._config)
        elif which == "names":
            made = self._peer.name_server()
        else:
            made = self._peer.broker(self._work / "store", *java_settings(self._name), kill=True)
        await asyncio.to_thread(self._held[which].enter_context, made)
        if which == "broker":
            await registered(self.address)

    async def stop(self, which: str) -> None:
        """Stop it; Java's broker is killed."""
        await asyncio.to_thread(self._held[which].close)

    async def __aenter__(self) -> Servers:
        await self.start("names")
        await self.start("broker")
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop("broker")
        await self.stop("names")


def own_room(room: Room, servers: Servers) -> Room:
    """Yield a room at servers that only this test uses."""
    return attrs.evolve(room, site=attrs.evolve(room.site, name_server=servers.address))


@pytest.mark.parametrize("room", site_params((FLINTMQ, JAVA_49)), indirect=True)
def test_clients_continue_after_a_restart_of_the_broker(room: Room) -> None:
    """Sending and consuming fail during the restart, and continue after it."""

    async def run() -> None:
        async with Servers(room.site.name, room.folder) as servers:
            at = own_room(room, servers)
            async with Traffic(at, await at.topic(), servers.address, SCALED) as traffic:
                await servers.stop("broker")
                await until(lambda: _above(traffic, 0), "a send to fail")
                await servers.start("broker")
                took_s = await traffic.flows(time.monotonic(), 10)
                await traffic.nothing_is_lost(10)
                assert took_s < SCALED.route_s + SCALED.rebalance_s + BUSY_S, took_s

    asyncio.run(run())


async def _above(traffic: Traffic, count: int) -> bool:
    return traffic.refusals > count


@pytest.mark.parametrize("room", site_params((FLINTMQ, JAVA_49)), indirect=True)
def test_clients_continue_across_a_restart_of_the_name_server(room: Room) -> None:
    """Clients that know the route are not affected, and brokers register at the new name server."""

    async def run() -> None:
        async with Servers(room.site.name, room.folder) as servers:
            at = own_room(room, servers)
            topic = await at.topic()
            async with Traffic(at, topic, servers.address, SCALED) as traffic:
                await servers.stop("names")
                await traffic.flows(time.monotonic(), 10)
                await asyncio.sleep(3 * SCALED.route_s)  # routes get too old meanwhile
                await traffic.flows(time.monotonic(), 10)
                await servers.start("names")
                async with AdminClient(servers.address) as admin:
                    await until(lambda: known(admin, topic, 4), "the broker to register")
                    assert await at.topic(which="later") == f"{at.name}-later"
                await traffic.flows(time.monotonic(), 10)
                await traffic.nothing_is_lost(10)
                assert traffic.refusals == 0

    asyncio.run(run())


async def partition(room: Room, periods: Periods, lasts_s: float, healing: Healing) -> float:
    """Cut the network for some seconds; return the seconds from its end until messages flow again."""
    async with AdminClient(room.address) as admin:
        (broker,) = (await admin.masters()).values()
    topic = await room.topic()
    async with Network(room.address, broker) as network, Traffic(room, topic, network.name_server, periods) as traffic:
        network.cut()
        cut_at_s = time.monotonic()
        await asyncio.sleep(lasts_s)
        assert max(traffic.acknowledged.values()) < cut_at_s + 0.1
        network.heal(healing)
        took_s = await traffic.flows(time.monotonic(), 90)
        await traffic.nothing_is_lost(30)
    return took_s


@pytest.mark.parametrize("healing", ["resumes", pytest.param("resets", marks=pytest.mark.slow), "stays dead"])
@pytest.mark.parametrize("room", site_params(), indirect=True)
def test_messages_flow_again_soon_after_a_short_network_partition(
    room: Room, healing: Healing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests run out of time while it lasts, and messages flow again soon after it, for each fate of the connections."""
    monkeypatch.setattr("flintmq.remoting.client.connection.SILENCE_S", 0.5)
    took_s = asyncio.run(partition(room, SCALED, 1.2, healing))
    assert took_s < SCALED.heartbeat_s + SCALED.rebalance_s + REQUEST_TIMEOUT_MS / 1000 + BUSY_S, took_s


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("healing", [pytest.param("resumes", marks=pytest.mark.longest), "stays dead"])
@pytest.mark.parametrize("room", [FLINTMQ], indirect=True)
def test_messages_flow_again_soon_after_a_network_partition_of_30_s(room: Room, healing: Healing) -> None:
    """With RocketMQ's own periods."""
    took_s = asyncio.run(partition(room, REAL, 30, healing))
    assert took_s < REAL.heartbeat_s + REQUEST_TIMEOUT_MS / 1000 + BUSY_S, took_s


@pytest.mark.parametrize("room", site_params(), indirect=True)
def test_clients_use_added_queues_of_a_topic_and_stop_using_removed_queues(room: Room) -> None:
    """More are used within the period of routes and rebalances. Fewer: those written to first, then those read."""

    async def run() -> None:
        topic = await room.topic(queues=4)
        async with Traffic(room, topic, room.address, SCALED) as traffic, AdminClient(room.address) as admin:

            def held() -> set[int]:
                return {queue.queue_id for queue in traffic.consumer.process_queues if queue.topic == topic}

            changed_at_s = time.monotonic()
            await room.topic(queues=8)
            await until(lambda: _equal(held(), set(range(8))), "eight queues to be consumed", 10)
            assert time.monotonic() - changed_at_s < SCALED.route_s + 2 * SCALED.rebalance_s + BUSY_S
            await traffic.flows(time.monotonic(), 10)
            (address,) = (await admin.masters()).values()
            await admin.create_topic(topic, queues=8, write_queues=2, address=address)
            last_s = time.monotonic() + 2 * SCALED.route_s
            await traffic.flows(last_s, 10)  # and messages on their way to the other queues have arrived
            stats = await admin.consume_stats(room.group(), topic)
            ends = {queue.queue_id: at.broker_queue_offset for queue, at in stats.offset_table.items()}

            async def drained() -> bool:
                found = (await admin.consume_stats(room.group(), topic)).offset_table
                return all(
                    at.consumer_offset >= ends[queue.queue_id] for queue, at in found.items() if queue.queue_id >= 2
                )

            await until(drained, "the queues that go to be consumed", 10)
            await admin.create_topic(topic, queues=2, address=address)
            await until(lambda: _equal(held(), {0, 1}), "two queues to be consumed", 10)
            await traffic.flows(time.monotonic(), 10)
            await traffic.nothing_is_lost(10)

    asyncio.run(run())


async def _equal(one: object, other: object) -> bool:
    return one == other


@pytest.mark.parametrize("room", site_params(), indirect=True)
def test_random_joins_and_departures_of_members_lose_no_message(room: Room) -> None:
    """A dozen members join and leave at random. All acknowledged messages are consumed; at the end each queue has one owner."""

    async def run() -> None:
        topic = await room.topic(queues=8)
        chance = random.Random(7)
        async with Traffic(room, topic, room.address, SCALED) as traffic:
            members: list[Consumer] = []

            async def listen(message: MessageExt) -> None:
                traffic.consumed[message.body] += 1

            for step in range(24):
                if len(members) < 4 or (len(members) < 12 and chance.random() < 0.6):
                    member = Consumer(
                        room.group(), room.address, listen, settings=SCALED.consumer(room), client_id=f"m{step}"
                    )
                    await member.subscribe(topic)
                    await member.start()
                    members.append(member)
                else:
                    await members.pop(chance.randrange(len(members))).close()
                await asyncio.sleep(0.02)

            async def shared_out() -> bool:
                all_of_them = [traffic.consumer, *members]
                held = [queue.queue_id for m in all_of_them for queue in m.process_queues if queue.topic == topic]
                return sorted(held) == list(range(8))

            over_at_s = time.monotonic()
            await until(shared_out, "the queues to be shared out", 15)
            assert time.monotonic() - over_at_s < SCALED.heartbeat_s + 2 * SCALED.rebalance_s + BUSY_S
            await traffic.nothing_is_lost(15)
            await asyncio.gather(*(member.close() for member in members))

    asyncio.run(run())


class Heartbeats:
    """Counts the heartbeats of a client, as a hook."""

    def __init__(self) -> None:
        self.sent_at_s: list[float] = []

    def before_request(self, _address: str, command: RemotingCommand) -> None:
        if command.code == RequestCode.HEART_BEAT:
            self.sent_at_s.append(time.monotonic())

    def after_response(self, _address: str, command: RemotingCommand, answer: RemotingCommand) -> None:
        """Do nothing."""


@pytest.mark.parametrize("room", site_params(), indirect=True)
def test_a_slow_listener_does_not_stop_heartbeats(room: Room) -> None:
    """All its threads are busy for twelve periods: the member keeps its queues, and nobody else gets its messages."""

    async def run() -> None:
        topic = await room.topic(queues=2)
        heartbeats, seen = Heartbeats(), Counter[bytes]()

        def listen(message: MessageExt) -> None:
            time.sleep(0.3)  # a listener that blocks, not a test that waits
            seen[message.body] += 1

        settings = SCALED.consumer(room)
        settings = attrs.evolve(settings, concurrency=2)
        options: dict[str, Any] = {"hooks": [heartbeats], "heartbeat_interval_s": 0.1}
        async with (
            Producer(room.group("p"), room.address) as producer,
            Consumer(room.group(), room.address, listen, settings=settings, **options) as consumer,
        ):
            await consumer.subscribe(topic)
            for number in range(8):
                await producer.send(Message(topic, b"%d" % number))
            await until(lambda: _equal(len(seen), 8), "the slow listener", 20)
        gaps = [after - before for before, after in itertools.pairwise(heartbeats.sent_at_s)]
        assert len(gaps) >= 5
        assert max(gaps) < 0.7, gaps
        assert set(seen.values()) == {1}

    asyncio.run(run())
