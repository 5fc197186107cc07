"""Nothing that a user's function raises ends more than its call, whatever it raises and wherever it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.remoting.client.blocking import LoopThread
from flintmq.remoting.client.callbacks import CallbackError, Raised, called, outcome_of

ENDING: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError]
ORDINARY: list[type[BaseException]] = [ValueError, TimeoutError]


def raiser(failure: type[BaseException]) -> Callable[..., Any]:
    def function(*_: object) -> Any:
        raise failure("no")

    return function


def async_raiser(failure: type[BaseException]) -> Callable[..., Any]:
    async def function(*_: object) -> Any:
        await asyncio.sleep(0)
        raise failure("no")

    return function


@pytest.mark.parametrize("make", [raiser, async_raiser])
@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_callback_exception_that_would_end_the_process_becomes_a_callback_error(
    make: Callable[..., Any], failure: type[BaseException]
) -> None:
    async def call() -> None:
        with pytest.raises(CallbackError, match=failure.__name__) as caught:
            await outcome_of(make(failure))
        assert isinstance(caught.value.__cause__, failure)

    asyncio.run(call())


@pytest.mark.parametrize("failure", ORDINARY)
def test_an_ordinary_exception_of_a_callback_is_raised_unchanged(failure: type[BaseException]) -> None:
    async def call() -> None:
        with pytest.raises(failure):
            await outcome_of(raiser(failure))

    asyncio.run(call())


@pytest.mark.parametrize("failure", [*ENDING, *ORDINARY])
def test_every_exception_that_a_callback_raises_is_caught_and_returned_as_a_value(
    failure: type[BaseException],
) -> None:
    outcome = called(raiser(failure), None)
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.failure, failure)


def test_canceling_a_task_that_awaits_a_callback_raises_cancelled_error_in_the_task() -> None:
    """Only the function's own CancelledError is a failure of the function."""

    async def wait() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.ensure_future(outcome_of(wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt])
def test_the_loop_thread_survives_a_callback_exception_that_would_end_its_event_loop(
    failure: type[BaseException],
) -> None:
    """A later call of another client does not hang, and the thread ends when it is told to."""
    thread = LoopThread("test")
    asyncio_loop = thread._loop
    asyncio_loop.call_soon_threadsafe(raiser(failure))

    async def answer() -> int:
        return 42

    assert thread.start(answer()).result(10) == 42
    thread.stop()
    assert not thread._thread.is_alive()
