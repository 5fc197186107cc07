"""A run of a client that fails is made simple: what is left of its decisions is what the fault needs."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.sending import Sender
from flintmq.testing.choices import Choices, shrink
from flintmq.tests.support.fake_cluster import FakeCluster

MESSAGES = 6


@pytest.fixture(autouse=True)
def frozen_heap() -> Iterator[None]:
    """Leave the objects of earlier tests out of the collection with which each of the hundreds of runs ends."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def is_stored_twice(choices: Choices) -> bool:
    """Return whether a run ends with a message that is stored twice: some sends at once, and a cut at some time."""
    random.seed(0)  # where a producer begins among the queues is no decision of the loop
    cluster = FakeCluster(choices)

    async def main() -> None:
        await cluster.start()
        async with Producer("p", cluster.address, clock=cluster.clock) as producer:
            await producer.queues("T")
            sends = [asyncio.create_task(producer.send(Message("T", b"%d" % number))) for number in range(MESSAGES)]
            if choices.happens(50):
                await asyncio.sleep(choices.below(20) / 1000)
                cluster.network.cut(cluster.addresses[1 + choices.below(2)])
            await asyncio.gather(*sends, return_exceptions=True)

    cluster.loop.run(main())
    return sum(cluster.length(queue) for queue in cluster.queues("T")) > MESSAGES


def test_a_random_run_that_stores_a_message_twice_is_reproduced_with_far_fewer_random_choices() -> None:
    """A lost answer makes two of one: the cut is left, and what it has to meet; order and delays of all else are plain."""
    whole = next(one for seed in range(200) if is_stored_twice(one := Choices(seed)))
    simple = shrink(is_stored_twice, whole.made, tries=300)
    assert is_stored_twice(Choices(recorded=simple))
    assert sum(map(bool, simple)) <= sum(map(bool, whole.made)) // 8


def test_the_random_decisions_of_a_failing_simulation_are_reduced_to_one_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer that does not remember which broker failed, needs one cut to be shown."""

    def next_queue(self: Any, route: Any, failed_broker: str | None = None) -> Any:
        return route.queues_to_write()[0]

    def fails(choices: Choices) -> bool:
        random.seed(0)
        cluster = FakeCluster(choices)

        async def main() -> str:
            await cluster.start()
            async with Producer("p", cluster.address, clock=cluster.clock) as producer:
                await producer.queues("T")
                if choices.happens(30):
                    cluster.network.refusing.add(cluster.addresses[1])
                try:
                    return (await producer.send(Message("T", b"x"))).queue.broker_name
                except Exception:
                    return "nowhere"

        return cluster.loop.run(main()) == "nowhere"

    assert not any(fails(Choices(seed)) for seed in range(20))
    monkeypatch.setattr(Sender, "next_queue", next_queue)
    whole = next(one for seed in range(200) if fails(one := Choices(seed)))
    simple = shrink(fails, whole.made, tries=300)
    assert len([choice for choice in simple if choice]) == 1
