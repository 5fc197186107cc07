"""A whole cluster must run in one thread on a simulated disk and network, and one seed must always give the same run.

Without this no failure that a seed finds could be found again.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from flintmq.config import load_config
from flintmq.core.io import chance
from flintmq.programs.broker.broker import Broker
from flintmq.programs.name_server.name_server import NameServer
from flintmq.remoting.client import Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.client.send_result import SendStatus
from flintmq.testing import simulated_network
from flintmq.testing.choices import Choices
from flintmq.testing.embedded import SETTINGS
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.simulation import Simulation

NAMES = "127.0.0.1:9876"
COMMON = (
    *SETTINGS,
    "listen.host=127.0.0.1",
    f"namesrv.addresses={NAMES}",
    "flush.strategy=group_commit",
    "store.preallocate=true",
    "ha.enable=true",
    "ha.secret=0123456789abcdef0123456789abcdef",
)
MASTER = (
    "store.path=/simulated/master",
    "broker.role=sync_master",
    "listen.port=10911",
    "listen.ha_port=10912",
)
SLAVE = (
    "store.path=/simulated/slave",
    "broker.role=slave",
    "broker.id=1",
    "listen.port=11911",
    "listen.ha_port=11912",
)
MESSAGES = 20


class Cluster:
    """A name server, a master and its slave in one simulation, with what their clients and disks saw."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(Choices(seed))
        self.master_disk = SimulatedDisk()
        self.slave_disk = SimulatedDisk()
        self.stored: list[str] = []
        self.consumed: list[str] = []
        self.is_stopped = False

    def broker(self, settings: tuple[str, ...], disk: SimulatedDisk) -> Broker:
        return Broker(load_config(None, (*COMMON, *settings), {}), clock=self.simulation.clock, disk=disk)

    def name_server(self) -> NameServer:
        settings = (*SETTINGS, "nameserver.host=127.0.0.1", "nameserver.port=9876")
        return NameServer(load_config(None, settings, {}), clock=self.simulation.clock)

    async def main(self) -> None:
        async with (
            self.name_server(),
            self.broker(MASTER, self.master_disk) as master,
            self.broker(SLAVE, self.slave_disk) as slave,
        ):
            while master.runtime_info()["haSlaves"] != "1":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await self.send()
            await self.consume()
            assert slave.state.store.watermarks.flushed == master.state.store.watermarks.wrote
        self.is_stopped = True

    async def send(self) -> None:
        """Send until a slave has each message as well: each answer waits for it."""
        async with Producer("producers", NAMES, clock=self.simulation.clock, client_id="producer") as producer:
            for number in range(MESSAGES):
                result = await producer.send(Message("T", b"message %d" % number))
                assert result.status is SendStatus.SEND_OK
                self.stored.append(result.msg_id)

    async def consume(self) -> None:
        consumed = asyncio.Event()

        def listener(message: MessageExt) -> None:
            self.consumed.append(message.msg_id)
            if len(self.consumed) == MESSAGES:
                consumed.set()

        settings = ConsumerSettings(consume_from="first")
        clock = self.simulation.clock
        consumer = Consumer("consumers", NAMES, listener, settings=settings, clock=clock, client_id="consumer")
        await consumer.subscribe("T")
        async with consumer:
            await consumed.wait()


def log_of(disk: SimulatedDisk, folder: str) -> bytes:
    """The first file of a broker's log."""
    (path,) = disk.list_files(Path(folder) / "commitlog")[:1]
    return disk.read(path)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Any, bytes]]:
    """All that is written to the network: when, between whom, and what."""
    written: list[tuple[float, Any, bytes]] = []
    write = simulated_network.SimulatedTransport.write

    def noted(transport: simulated_network.SimulatedTransport, data: bytes) -> None:
        written.append((transport._loop.time(), transport.names, bytes(data)))
        write(transport, data)

    monkeypatch.setattr(simulated_network.SimulatedTransport, "write", noted)
    return written


@pytest.mark.parametrize("seed", range(5))
def test_a_simulated_cluster_replicates_and_delivers_all_messages_on_one_event_loop(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.simulation.run(cluster.main())
    assert cluster.is_stopped
    assert sorted(cluster.consumed) == sorted(cluster.stored)
    assert log_of(cluster.master_disk, "/simulated/master") == log_of(cluster.slave_disk, "/simulated/slave")
    assert not cluster.master_disk.exists(Path("/simulated/master/abort")), "the stop was not in order"
    assert not cluster.simulation.loop.errors


def test_a_restarted_broker_delivers_the_messages_that_are_on_its_simulated_disk() -> None:
    cluster = Cluster(3)

    async def main() -> None:
        master = (*MASTER, "broker.role=async_master")
        async with cluster.name_server():
            async with cluster.broker(master, cluster.master_disk):
                await cluster.send()
            async with cluster.broker(master, cluster.master_disk):
                await cluster.consume()

    cluster.simulation.run(main())
    assert sorted(cluster.consumed) == sorted(cluster.stored)
    assert cluster.simulation.loop.time() < 60
    assert not cluster.simulation.loop.errors


def test_equal_seeds_give_equal_runs_of_a_cluster(wire: list[tuple[float, Any, bytes]]) -> None:
    """Its decisions, all that is written to the network, and what the disks have at its end are the same each time."""

    def run(seed: int) -> tuple[object, ...]:
        wire.clear()
        cluster = Cluster(seed)
        cluster.simulation.run(cluster.main())
        disks = [log_of(cluster.master_disk, "/simulated/master"), log_of(cluster.slave_disk, "/simulated/slave")]
        loop = cluster.simulation.loop
        return list(cluster.simulation.choices.made), list(wire), disks, cluster.consumed, loop.steps, loop.time()

    for seed in range(3):
        first = run(seed)
        assert run(seed) == first, f"two runs of the seed {seed} differ"
        assert run(seed + 100)[:2] != first[:2], "the seed decides nothing"


def test_random_values_are_unpredictable_again_after_a_simulation() -> None:
    async def draw() -> int:
        return chance.bits(64)

    numbers = {Simulation(Choices(7)).run(draw()) for _ in range(2)}
    assert numbers == {random.Random(7).getrandbits(64)}
    assert chance.bits(64) not in numbers
