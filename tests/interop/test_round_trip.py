"""Either broker takes over the other's folder: messages, offsets, topics, groups and delayed messages survive both ways."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import flintmq
from flintmq.config import LoadedConfig, load_config
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify import verify
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.pull_consumer import PullConsumer

from .conftest import Peer

pytestmark = [pytest.mark.slow, pytest.mark.java]

TOPIC = "RoundTrip"
GROUP = "round_trip_group"
SIZES = ("mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=1000", "maxHashSlotNum=100", "maxIndexNum=400")


def flint_config(store: Path, peer: Peer) -> LoadedConfig:
    addresses = [
        f"listen.port={peer.port}",
        f"nameserver.port={peer.namesrv_port}",
        f"namesrv.addresses={peer.namesrv}",
    ]
    return load_config(None, [f"store.path={store}", *addresses, *SIZES], {})


async def send(peer: Peer, maker: str, count: int) -> list[str]:
    """Sends plain, keyed, tagged, large, batched and delayed messages; returns the bodies that are visible at once."""
    sent = []
    async with Producer(f"producer_{maker}", [peer.namesrv]) as producer:
        for number in range(count):
            body = f"{maker} {number} " + "x" * (number * 37 % 3000)
            message = flintmq.Message(
                TOPIC,
                body.encode(),
                tags=f"tag{number % 3}",
                keys=(f"{maker}-{number}", "all"),
                properties={"n": str(number)},
            )
            await producer.send(message)
            sent.append(body)
        batch = [flintmq.Message(TOPIC, f"{maker} batch {number}".encode()) for number in range(5)]
        await producer.send_batch(batch)
        sent += [message.body.decode() for message in batch]
        await producer.send(flintmq.Message(TOPIC, f"{maker} later".encode(), delay_level=3))
    return sent


async def read_all(peer: Peer) -> list[str]:
    """Every visible message of the topic, in the order of its queues."""
    bodies = []
    async with PullConsumer(GROUP, [peer.namesrv]) as consumer:
        for queue in await consumer.queues(TOPIC):
            at = await consumer.min_offset(queue)
            while True:
                result = await consumer.pull(queue, at)
                if not result.messages:
                    break
                assert [m.queue_offset for m in result.messages] == list(range(at, at + len(result.messages)))
                bodies += [m.body.decode() for m in result.messages]
                at = result.next_begin_queue_offset
    return bodies


async def commit_half(peer: Peer) -> dict[int, int]:
    """Commits an offset in the middle of each queue."""
    committed = {}
    async with PullConsumer(GROUP, [peer.namesrv]) as consumer:
        for queue in await consumer.queues(TOPIC):
            middle = await consumer.max_offset(queue) // 2
            await consumer.commit(queue, middle)
            committed[queue.queue_id] = middle
    return committed


async def make_again(peer: Peer) -> None:
    """Deletes a topic with messages and makes it again: the log has a record of that, which the Java broker passes over."""
    async with AdminClient([peer.namesrv]) as admin, Producer("producer_again", [peer.namesrv]) as producer:
        for body in (b"old", b"new"):
            await admin.create_topic("Again", queues=8)
            sent = await producer.send(flintmq.Message("Again", body))
            assert sent.queue_offset == 0
            if body == b"old":
                await admin.delete_topic("Again")


async def check(peer: Peer, expected: list[str], committed: dict[int, int], maker: str) -> None:
    """Everything is there once, keys are found, and the group's offsets are the committed ones.

    Delayed messages come when they are due, which may be now.
    """
    found, wanted = (
        Counter(body for body in bodies if not body.endswith(" later")) for bodies in (await read_all(peer), expected)
    )
    assert found == wanted
    async with AdminClient([peer.namesrv]) as admin:
        # The index of the taken-over store is searched, not only the new one's.
        keyed = await admin.query_by_key(TOPIC, f"{maker}-7")
        assert [m.body.decode().split(" x")[0].strip() for m in keyed] == [f"{maker} 7"]
    async with PullConsumer(GROUP, [peer.namesrv]) as consumer:
        for queue in await consumer.queues(TOPIC):
            assert await consumer.committed(queue) == committed[queue.queue_id]


async def eventually_read(peer: Peer, expected: list[str], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while Counter(await read_all(peer)) != Counter(expected):  # noqa: ASYNC110 - the broker is another process
            await asyncio.sleep(0.5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_store_keeps_its_messages_when_it_moves_from_a_java_broker_to_flintmq_and_back(
    peer: Peer, tmp_path: Path, killed: bool
) -> None:
    """An operator switches over and back again, after clean stops and after the Java broker was killed."""
    store = tmp_path / "store"
    with peer.name_server(), peer.broker(store, *SIZES, kill=killed):
        expected = asyncio.run(send(peer, "java", 60))
        committed = asyncio.run(commit_half(peer))
        # The Java broker writes consumer offsets every 5 s: a kill before that would rightly lose them.
        if killed:
            wait_for_offsets(store, committed)

    with flintmq.NameServer(flint_config(store, peer)), flintmq.Broker(flint_config(store, peer)):
        asyncio.run(check(peer, expected, committed, "java"))
        expected += asyncio.run(send(peer, "flint", 60))
        committed = asyncio.run(commit_half(peer))
        asyncio.run(make_again(peer))

    with peer.name_server(), peer.broker(store, *SIZES):
        asyncio.run(check(peer, expected, committed, "flint"))
        asyncio.run(check(peer, expected, committed, "java"))
        # Level 3 is 10 s: one delayed message was stored by each, both are delivered by whoever runs then.
        expected += ["java later", "flint later"]
        asyncio.run(eventually_read(peer, expected, 40))
        expected += asyncio.run(send(peer, "java2", 20))

    with flintmq.NameServer(flint_config(store, peer)), flintmq.Broker(flint_config(store, peer)):
        expected += ["java2 later"]
        asyncio.run(eventually_read(peer, expected, 40))
        asyncio.run(check(peer, expected, committed, "java2"))
    assert verify(StoreFiles(store), DELAY_LEVEL_MS).is_sound


def wait_for_offsets(store: Path, committed: dict[int, int]) -> None:
    """Until the Java broker has written the offsets to its file."""

    async def wait() -> None:
        async with asyncio.timeout(30):
            path = store / "config" / "consumerOffset.json"
            while not (path.exists() and f"{TOPIC}@{GROUP}" in path.read_text()):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.2)

    asyncio.run(wait())
    assert committed
