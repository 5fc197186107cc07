"""A seeded loop gives one run for one seed, other runs for others, and reports programs that wait for ever or never wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SeededClock, SeededLoop, SpinningError, StalledError


async def _workers(count: int) -> list[int]:
    """Return the order in which workers finish that do not wait for one another."""
    order: list[int] = []

    async def work(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        order.append(number)

    await asyncio.gather(*(work(number) for number in range(count)))
    return order


def test_equal_seeds_give_the_same_order_of_tasks() -> None:
    loops = [SeededLoop(Choices(5)) for _ in range(2)]
    assert loops[0].run(_workers(8)) == loops[1].run(_workers(8))
    assert loops[0].choices.made == loops[1].choices.made
    assert loops[0].steps == loops[1].steps


def test_different_seeds_give_many_orders_of_tasks() -> None:
    orders = {tuple(SeededLoop(Choices(seed)).run(_workers(8))) for seed in range(50)}
    assert len(orders) > 30


def test_a_seeded_loop_without_random_choices_runs_tasks_in_the_same_order_as_asyncio() -> None:
    assert SeededLoop(Choices(recorded=[])).run(_workers(8)) == asyncio.run(_workers(8))


def test_the_time_of_a_seeded_loop_is_virtual() -> None:
    """A day passes in the time that a few callbacks take."""
    loop = SeededLoop()
    clock = SeededClock(loop)
    before_ms = clock.now_ms()

    async def sleep() -> float:
        async with asyncio.timeout(90_000):
            await asyncio.sleep(86_400)
        return loop.time()

    assert loop.run(sleep()) == pytest.approx(86_400)
    assert clock.now_ms() - before_ms == 86_400_000


def test_a_wait_that_cannot_end_raises_stalled_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError, match="wait"):
        SeededLoop().run(wait())


def test_a_task_that_never_waits_raises_spinning_error() -> None:
    async def spin() -> None:
        while True:
            await asyncio.gather(asyncio.sleep(0))

    with pytest.raises(SpinningError, match="without a wait"):
        SeededLoop().run(spin())


def test_a_seeded_event_loop_runs_blocking_functions_on_its_own_thread() -> None:
    async def call() -> int:
        return await asyncio.to_thread(threading.get_ident)

    assert SeededLoop().run(call()) == threading.get_ident()


def test_an_exception_of_a_function_run_by_to_thread_is_raised_in_the_awaiting_task() -> None:
    def fail() -> None:
        raise KeyError("k")

    async def call() -> None:
        await asyncio.to_thread(fail)

    with pytest.raises(KeyError):
        SeededLoop().run(call())


def test_a_seeded_event_loop_records_exceptions_in_callbacks_and_in_unawaited_tasks() -> None:
    async def fail() -> None:
        raise ValueError("forgotten")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)

    loop = SeededLoop()
    loop.run(main())
    assert {type(error["exception"]) for error in loop.errors} == {ZeroDivisionError, ValueError}


def test_a_canceled_timer_does_not_advance_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(100, lambda: None).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert SeededLoop().run(main()) == pytest.approx(1)
