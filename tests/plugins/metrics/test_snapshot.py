"""The loop belongs to clients: what asks it for figures waits, in bounds, and never the other way round."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeVar

import pytest

from flintmq.plugins.metrics.samples import Samples
from flintmq.plugins.metrics.snapshot import APART_S, SLICE_S, NoSnapshotError, Snapshots

T = TypeVar("T")


def one(samples: Samples) -> Iterator[None]:
    samples.add("a", 1)
    yield


async def elsewhere(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


def test_metrics_are_gathered_on_the_thread_of_the_event_loop() -> None:
    """The tables are the loop's: another thread that reads them would meet them half changed."""
    threads: list[int] = []

    def gather(samples: Samples) -> Iterator[None]:
        threads.append(threading.get_ident())
        yield from one(samples)

    async def live() -> None:
        taken = await elsewhere(Snapshots(asyncio.get_running_loop(), gather, 5).take)
        assert taken.samples.by_name == {"a": [((), 1)]}
        assert threads == [threading.get_ident()]

    asyncio.run(live())


def test_a_metrics_snapshot_times_out_and_is_canceled_if_the_event_loop_of_the_broker_is_blocked() -> None:
    """A monitoring system must learn that a broker hangs; and a scrape that nobody waits for costs nothing afterwards."""
    begun: list[int] = []

    def gather(_samples: Samples) -> Iterator[None]:
        begun.append(1)
        return iter(())

    async def live() -> None:
        snapshots = Snapshots(asyncio.get_running_loop(), gather, 0.05)
        said: list[str] = []

        def ask() -> None:
            with pytest.raises(NoSnapshotError) as caught:
                snapshots.take()
            said.append(str(caught.value))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(20)  # this is the loop's thread: it is blocked
        assert "has not answered within 0.05 s" in said[0]
        assert "listen.loop_blocked_warn_ms" in said[0]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not begun

    asyncio.run(live())


def test_gathering_many_metrics_is_split_into_several_event_loop_iterations() -> None:
    """Ten thousand queues must not be one pause of the broker."""
    turns = 0

    def gather(_samples: Samples) -> Iterator[None]:
        for _ in range(20):
            until_s = perf_counter() + SLICE_S / 2
            while perf_counter() < until_s:
                pass
            yield

    async def live() -> None:
        nonlocal turns
        snapshots = Snapshots(asyncio.get_running_loop(), gather, 20)
        asked = asyncio.ensure_future(elsewhere(snapshots.take))
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await asked).took_s >= 10 * SLICE_S

    asyncio.run(live())
    assert turns >= 5


def test_successive_metrics_snapshots_are_at_least_a_minimum_interval_apart() -> None:
    """Someone who reloads a page without end gets answers, at a pace that the loop does not feel."""

    async def live() -> float:
        snapshots = Snapshots(asyncio.get_running_loop(), one, 5)
        began_s = perf_counter()
        await asyncio.gather(*(elsewhere(snapshots.take) for _ in range(3)))
        return perf_counter() - began_s

    assert asyncio.run(live()) >= 2 * APART_S


def test_a_waiting_metrics_snapshot_fails_when_the_broker_stops() -> None:
    """A stop must not wait for a monitoring system."""

    async def live() -> None:
        begun = asyncio.Event()

        def never(_samples: Samples) -> Iterator[None]:
            begun.set()
            while True:
                until_s = perf_counter() + SLICE_S
                while perf_counter() < until_s:
                    pass
                yield

        snapshots = Snapshots(asyncio.get_running_loop(), never, 60)
        asked = asyncio.ensure_future(elsewhere(snapshots.take))
        await begun.wait()
        snapshots.close()
        with pytest.raises(NoSnapshotError, match="the broker stops"):
            await asked
        with pytest.raises(NoSnapshotError, match="the broker stops"):
            await elsewhere(snapshots.take)

    asyncio.run(live())


def test_a_metrics_snapshot_fails_if_the_event_loop_of_the_broker_is_already_closed() -> None:
    """The thread of a server may outlive the loop for a moment."""
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(NoSnapshotError, match="the broker stops"):
        Snapshots(loop, one, 5).take()


def test_an_error_while_gathering_metrics_is_raised_to_the_caller() -> None:
    """A defect is the scrape's, never the loop's."""

    def broken(_samples: Samples) -> Iterator[None]:
        raise ValueError("no such table")

    async def live() -> None:
        with pytest.raises(ValueError, match="no such table"):
            await elsewhere(Snapshots(asyncio.get_running_loop(), broken, 5).take)

    asyncio.run(live())
