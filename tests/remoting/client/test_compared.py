"""The rows of docs/client-compared.md: each names a test that exists, and those that no other module has are here."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.wire.command import request

ROOT = Path(str(flintmq.__file__)).parent
PAGE = (ROOT / "docs" / "client-compared.md").read_text("utf-8")
ROWS = re.compile(r"^\| (\d+) \| (?!`tests/).*$", re.MULTILINE)
TESTS = re.compile(r"^\| (\d+) \| `([^`]+)::(\w+)` \|$", re.MULTILINE)
FAST = ConsumerSettings(consume_from=FROM_FIRST, rebalance_interval_s=0.05, error_delay_s=0.01)
Q0, Q1 = MessageQueue("broker-a", 0, "T"), MessageQueue("broker-a", 1, "T")


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any], Awaitable[None]]) -> None:
    async def with_broker() -> None:
        async with asyncio.timeout(30), fake_peer() as peer:
            await test(fake_broker(peer))

    asyncio.run(with_broker())


def test_each_row_of_the_client_comparison_names_an_existing_test() -> None:
    """A row that is added needs one, and a test that is renamed is found again."""
    rows = [int(row[1]) for row in ROWS.finditer(PAGE)]
    named = TESTS.findall(PAGE)
    assert rows == list(range(1, len(rows) + 1))
    assert [int(number) for number, _, _ in named] == rows
    for _, file, name in named:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_no_cell_of_the_client_comparison_table_is_empty() -> None:
    """An empty cell would not say whether nothing is known, or there is nothing to say."""
    for row in ROWS.finditer(PAGE):
        cells = [cell.strip() for cell in row[0].strip("|").split("|")]
        assert len(cells) == 6, row[0]
        assert all(cells), row[0]


def test_a_poll_during_a_seek_returns_messages_from_the_new_position(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        for number in range(5):
            broker.put("T", 0, b"%d" % number)
        async with PullConsumer("g", broker.peer.address) as consumer:
            await consumer.assign([Q0], consume_from=FROM_FIRST)
            assert len(await consumer.poll()) == 5
            polling = asyncio.create_task(consumer.poll(20_000))
            await broker.peer.until(lambda: len(broker.held) == 1)
            await consumer.seek(Q0, 3)
            assert [message.body for message in await polling] == [b"3", b"4"]
            assert consumer.positions == {Q0: 5}

    run(fake_peer, fake_broker, test)


def test_a_commit_after_a_seek_stores_the_new_position(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        for number in range(5):
            broker.put("T", 0, b"%d" % number)
        async with PullConsumer("g", broker.peer.address) as consumer:
            await consumer.assign([Q0], consume_from=FROM_FIRST)
            await consumer.poll()
            await consumer.commit()
            await consumer.seek(Q0, 2)
            await consumer.commit()
            assert await consumer.committed(Q0) == 2

    run(fake_peer, fake_broker, test)


def test_two_tasks_that_iterate_over_the_same_consumer_share_its_messages(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        for number in range(40):
            broker.put("T", number % 2, b"%d" % number)
        taken: list[list[bytes]] = [[], []]

        async def loop(mine: list[bytes]) -> None:
            async for message in consumer:
                mine.append(message.body)
                await asyncio.sleep(0)

        async with Consumer("g", broker.peer.address, settings=FAST) as consumer:
            await consumer.subscribe("T")
            loops = [asyncio.create_task(loop(mine)) for mine in taken]
            await broker.peer.until(lambda: len(taken[0]) + len(taken[1]) == 40)
        await asyncio.gather(*loops)  # the close has ended them
        assert sorted(taken[0] + taken[1]) == sorted(b"%d" % number for number in range(40))
        assert all(taken)

    run(fake_peer, fake_broker, test)


def test_a_consumer_still_gets_messages_after_quickly_unsubscribing_and_resubscribing(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        heard: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            heard.append(message.body)

        async with Consumer("g", broker.peer.address, listen, settings=FAST) as consumer:
            await consumer.subscribe("T")
            for _ in range(5):
                await consumer.unsubscribe("T")
                await consumer.subscribe("T")
            for number in range(2):
                broker.put("T", number, b"%d" % number)
            await broker.peer.until(lambda: {b"0", b"1"} <= set(heard))

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("way", ["gone", pytest.param("silent", marks=pytest.mark.slow)])
def test_a_consumer_closes_within_seconds_although_its_servers_do_not_answer(
    fake_peer: Any, fake_broker: Any, way: str
) -> None:
    async def test(broker: Any) -> None:
        heard = asyncio.Event()

        async def listen(_message: MessageExt) -> None:
            heard.set()

        broker.put("T", 0, b"0")
        consumer = Consumer("g", broker.peer.address, listen, settings=FAST)
        await consumer.start()
        await consumer.subscribe("T")
        await heard.wait()
        if way == "gone":
            await broker.peer.__aexit__()
        else:
            broker.peer.received = lambda transport, command: None
        async with asyncio.timeout(10):
            await consumer.close()

    run(fake_peer, fake_broker, test)


def test_a_member_that_loses_a_queue_in_a_rebalance_commits_the_offset_for_the_new_owner(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The member that gets it begins there, also if the loss comes between two messages."""

    async def test(broker: Any) -> None:
        settings = attrs.evolve(FAST, rebalance_interval_s=60.0, commit_interval_s=60.0)
        heard: dict[str, list[bytes]] = {"1": [], "2": []}

        def listener(name: str) -> Callable[[MessageExt], Awaitable[None]]:
            async def listen(message: MessageExt) -> None:
                heard[name].append(message.body)

            return listen

        def member(name: str) -> Consumer:
            return Consumer("g", broker.peer.address, listener(name), settings=settings, client_id=name)

        broker.put("T", 1, b"0")
        async with member("1") as one:
            await one.subscribe("T")
            await broker.peer.until(lambda: heard["1"] == [b"0"] and one.process_queues[Q1].commit_offset == 1)
            async with member("2") as two:
                await two.subscribe("T")
                await broker.peer.until(lambda: len(broker.members["g"]) == 2)
                broker.peer.push(request(40, {"consumerGroup": "g"}, oneway=True))
                await broker.peer.until(lambda: Q1 not in one.process_queues)
                await broker.peer.until(lambda: broker.offsets.get(("g", "T", 1)) == 1)
                broker.put("T", 1, b"1")
                await two.rebalance()
                await broker.peer.until(lambda: bool(heard["2"]))
        assert heard["2"][-1] == b"1"
        assert heard["1"] == [b"0"]

    run(fake_peer, fake_broker, test)
