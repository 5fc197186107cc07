"""Brokers that are replaced one after the other lose nothing, and no send fails: what docs/operations.md says of an upgrade.

What is started again is the same version: there is no older one yet.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from broker_process import BrokerProcess

from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, FlintError, Message, MessageExt, Producer
from flintmq.tests.support.ports import free_ports

TOPIC = "Rolling"
LIMIT_S = 60.0


class Cluster:
    """Two name servers and two brokers, each a process with a place that it keeps."""

    def __init__(self, work: Path) -> None:
        first, second, self._a, self._b = free_ports(4)
        self.names = {"n1": first, "n2": second}
        self.address = f"127.0.0.1:{first};127.0.0.1:{second}"
        self._work = work
        self.running: dict[str, BrokerProcess] = {}

    def start(self, name: str) -> None:
        """Start one, or start it again where it was, and wait until it is ready."""
        (self._work / name).mkdir(exist_ok=True)
        store = self._work / name / "store"
        if name in self.names:
            started = BrokerProcess(store, f"nameserver.port={self.names[name]}", role="namesrv")
        else:
            port = {"a": self._a, "b": self._b}[name]
            own = (f"broker.name={name}", f"listen.port={port}", f"namesrv.addresses={self.address}")
            started = BrokerProcess(store, *own, "namesrv.register_interval_ms=1000")
        started.wait_ready()
        self.running[name] = started

    def stop(self, name: str) -> None:
        """Stop one in good order."""
        assert self.running.pop(name).end(signal.SIGTERM) == 0


class Traffic:
    """A producer and a consumer that remember."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[bytes, tuple[str, float]] = {}
        """By body: the broker that stored it, and when."""
        self.consumed: Counter[bytes] = Counter()
        self.failed: list[str] = []
        periods = {"heartbeat_interval_s": 0.5, "route_interval_s": 0.5}
        settings = ConsumerSettings(
            consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.2, suspend_ms=500, error_delay_s=0.1
        )
        self.producer = Producer("p", address, **periods)
        self.consumer = Consumer("g", address, self._listen, settings=settings, **periods)

    async def _listen(self, message: MessageExt) -> None:
        self.consumed[message.body] += 1

    async def send(self) -> None:
        """Send numbers until cancelled."""
        for number in itertools.count():
            body = b"%d" % number
            try:
                sent = await self.producer.send(Message(TOPIC, body))
                self.acknowledged[body] = (sent.queue.broker_name, time.monotonic())
            except FlintError as error:
                self.failed.append(str(error))
            await asyncio.sleep(0.002)

    async def flows(self, *brokers: str) -> None:
        """Wait until 50 messages stored from now on are consumed, some at each of these brokers: then clients know it again."""
        since_s = time.monotonic()

        def enough() -> bool:
            new = [at for body, (at, when_s) in self.acknowledged.items() if when_s > since_s and body in self.consumed]
            return len(new) >= 50 and set(brokers) <= set(new)

        await until(enough)

    async def complete(self) -> None:
        """Wait until all that was acknowledged is consumed."""
        await until(lambda: self.acknowledged.keys() <= self.consumed.keys())


async def until(holds: object) -> None:
    """Wait until something holds, which happens in other processes."""
    assert callable(holds)
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - it happens in other processes
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_a_rolling_restart_under_load_loses_no_message(tmp_path: Path) -> None:
    """Brokers first, then name servers, waiting for each to be back: every send is acknowledged and every message consumed."""
    cluster = Cluster(tmp_path)
    for name in ("n1", "n2", "a", "b"):
        cluster.start(name)

    async def run() -> None:
        async with AdminClient(cluster.address) as admin:
            for address in (await admin.masters()).values():
                await admin.create_topic(TOPIC, queues=4, address=address)

            async def known_at_both() -> bool:
                return len((await admin.topic_route(TOPIC)).broker_datas) == 2

            async with asyncio.timeout(LIMIT_S):
                while not await known_at_both():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
        traffic = Traffic(cluster.address)
        async with traffic.producer, traffic.consumer:
            await traffic.consumer.subscribe(TOPIC)
            sending = asyncio.create_task(traffic.send())
            try:
                await traffic.flows("a", "b")
                for name in ("a", "b", "n1", "n2"):
                    await asyncio.to_thread(cluster.stop, name)
                    await traffic.flows()  # with what is left
                    await asyncio.to_thread(cluster.start, name)
                    await traffic.flows("a", "b")
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            await traffic.complete()
            assert traffic.failed == []

    asyncio.run(run())
