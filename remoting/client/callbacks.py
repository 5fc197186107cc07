"""The rule for exceptions of functions that users give to a client: they end the call of the function, and nothing else."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import attrs


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


def is_of_task(failure: BaseException) -> bool:
    """Return whether the running task was cancelled or closed, so that the exception must go on.

    A ``CancelledError`` that a user's function raises by itself, or that comes of a future which somebody else cancelled, is a
    failure of the function.
    """
    if isinstance(failure, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(failure, GeneratorExit)


async def outcome_of(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a user's function returns, awaited if it is awaitable.

    Raises:
        CallbackError: it raised ``SystemExit``, ``KeyboardInterrupt``, ``StopIteration`` or another exception that would end
            more than this call, or ``CancelledError`` although nobody has cancelled the running task.
        Exception: whatever else it raised.
    """
    try:
        outcome = function(*args)
        outcome = await outcome if inspect.isawaitable(outcome) else outcome
    except BaseException as failure:
        if is_of_task(failure):
            raise
        raise as_exception(failure) from failure
    if isinstance(outcome, Raised):
        raise as_exception(outcome.failure) from outcome.failure
    return outcome


def as_exception(failure: BaseException) -> Exception:
    """Return the failure itself, or a :class:`CallbackError` if it is an exception that ends more than a call."""
    if isinstance(failure, Exception) and not isinstance(failure, StopIteration | StopAsyncIteration):
        return failure
    return CallbackError(f"a function that was given to this client raised {type(failure).__name__}: {failure}")
