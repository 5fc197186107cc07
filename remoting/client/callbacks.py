"""The rule for exceptions of functions that users give to a client: they end the call of the function, and nothing else."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final

import attrs

from flintmq.core.running_loop import running_loop

CANCEL_TIMEOUT_S: Final = 5.0
"""How long a close waits for tasks that it has cancelled. A coroutine function of the user's may go on all the same."""


class CallbackError(RuntimeError):
    """A user's function raised an exception that would have ended a task, a thread or the process; it is the cause."""


@attrs.frozen
class Raised:
    """An exception that a function raised in a thread, carried back to the loop as a value.

    A future cannot carry ``StopIteration``, and ``SystemExit`` in a callback of the loop ends the loop.
    """

    failure: BaseException


def called(function: Callable[[Any], Any], argument: Any) -> Any:
    """Return what the function returns, or :class:`Raised`. For threads."""
    try:
        return function(argument)
    except BaseException as failure:
        return Raised(failure)


def result_of(outcome: Any) -> Any:
    """Return what :func:`called` has brought from a thread, or raise what the function raised, as :func:`outcome_of` does."""
    if not isinstance(outcome, Raised):
        return outcome
    if ends_one_call(outcome.failure):
        raise outcome.failure
    raise as_exception(outcome.failure) from outcome.failure


def is_of_task(failure: BaseException) -> bool:
    """Return whether the running task was cancelled or closed, so that the exception must go on.

    A ``CancelledError`` that a user's function raises by itself, or that comes of a future which somebody else cancelled, is a
    failure of the function. A ``GeneratorExit`` is, too, while a task runs: a coroutine is closed when its task does not.
    """
    if not isinstance(failure, asyncio.CancelledError | GeneratorExit):
        return False
    task = asyncio.current_task() if running_loop() is not None else None
    if isinstance(failure, GeneratorExit):
        return task is None
    return task is not None and task.cancelling() > 0


async def outcome_of(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a user's function returns, awaited if it is awaitable.

    Raises:
        CallbackError: it raised ``SystemExit``, ``KeyboardInterrupt``, ``StopIteration`` or another exception that would end
            more than this call, or ``CancelledError`` although nobody has cancelled the running task.
        Exception: whatever else it raised.
    """
    try:
        outcome = function(*args)
        return await outcome if inspect.isawaitable(outcome) else outcome
    except BaseException as failure:
        if is_of_task(failure) or ends_one_call(failure):
            raise
        raise as_exception(failure) from failure


def returned_by(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a user's plain function returns, called on the loop. Raises as :func:`outcome_of`."""
    try:
        return function(*args)
    except BaseException as failure:
        if ends_one_call(failure):
            raise
        raise as_exception(failure) from failure


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether calling a function, or an object that is callable, makes a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def ends_one_call(failure: BaseException) -> bool:
    """Return whether an exception ends no more than the call that raises it, wherever it is raised."""
    return isinstance(failure, Exception) and not isinstance(failure, StopIteration | StopAsyncIteration)


def as_exception(failure: BaseException) -> Exception:
    """Return the failure itself, or a :class:`CallbackError` if it is an exception that ends more than a call."""
    if isinstance(failure, Exception) and ends_one_call(failure):
        return failure
    return CallbackError(f"a function that was given to this client raised {told(failure)}")


def told(failure: BaseException) -> str:
    """Return the class and the text of an exception, also if its ``__str__`` raises."""
    try:
        text = str(failure)
    except Exception as failed:
        text = f"(its text cannot be made: {type(failed).__name__})"
    return f"{type(failure).__name__}: {text}"


async def ended(tasks: Collection[asyncio.Task[Any]]) -> list[str]:
    """Cancel tasks, and wait for their ends; return the names of those that go on all the same after ``CANCEL_TIMEOUT_S``.

    A task that calls this by way of a user's function, such as a check that closes its producer, is left out.
    """
    others = [task for task in tasks if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if not others:
        return []
    done, going_on = await asyncio.wait(others, timeout=CANCEL_TIMEOUT_S)
    for task in done:
        if not task.cancelled():
            task.exception()  # it is nobody's any more
    return sorted(task.get_name() for task in going_on)
