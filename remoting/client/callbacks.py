"""Calls of users' functions (listeners, checks, hooks), such that an exception ends only the call that raised it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final

import attrs

from flintmq.core.running_loop import running_loop

CANCEL_TIMEOUT_S: Final = 5.0
"""Seconds that closing a client waits for the client's cancelled tasks. A task may run longer, because a user's coroutine
function can ignore its cancellation."""


class CallbackError(RuntimeError):
    """A user's function raised an exception that would have ended a task, a thread or the process. The original exception is in
    ``__cause__``."""


@attrs.frozen
class Raised:
    """An exception that a function raised on a thread, returned to the event loop as a value.

    It is a value because a future cannot hold ``StopIteration``, and ``SystemExit`` in a callback ends the loop.
    """

    failure: BaseException


def called(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a user's function on the current thread; return its result, or its exception as :class:`Raised`."""
    try:
        return function(argument)
    except BaseException as failure:
        return Raised(failure)


def result_of(outcome: Any) -> Any:
    """Return the result of a user's function, given the value that :func:`called` returned. If the function raised an
    exception, raise the exception here.

    A :class:`CallbackError` is raised instead of exceptions that would not only end the current call: ``StopIteration`` and
    ``StopAsyncIteration``, which can end a generator, and exceptions such as ``SystemExit``, which end the process.
    """
    if not isinstance(outcome, Raised):
        return outcome
    if ends_one_call(outcome.failure):
        raise outcome.failure
    raise as_exception(outcome.failure) from outcome.failure


def is_of_task(failure: BaseException) -> bool:
    """Return whether an exception means that the running task was cancelled or closed. Such an exception must be propagated.

    A user's function can also raise ``CancelledError`` or ``GeneratorExit`` as an ordinary failure. False is returned in these
    cases:

    * A ``CancelledError`` was raised, but the running task was not cancelled. For example, the function awaited a future that
      was cancelled.
    * A ``GeneratorExit`` was raised while a task is running. Python closes the coroutine of a task only while the task is not
      running, so the function itself raised this exception.
    """
    if not isinstance(failure, asyncio.CancelledError | GeneratorExit):
        return False
    task = asyncio.current_task() if running_loop() is not None else None
    if isinstance(failure, GeneratorExit):
        return task is None
    return task is not None and task.cancelling() > 0


async def outcome_of(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function and return its result, awaited if it is awaitable.

    Raises:
        CallbackError: the function raised ``SystemExit``, ``KeyboardInterrupt``, ``StopIteration`` or another exception that
            would end more than this call, or ``CancelledError`` although the running task was not cancelled.
        Exception: any other exception of the function.
    """
    try:
        outcome = function(*args)
        return await outcome if inspect.isawaitable(outcome) else outcome
    except BaseException as failure:
        if is_of_task(failure) or ends_one_call(failure):
            raise
        raise as_exception(failure) from failure


def returned_by(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's plain function in the caller's thread and return its result. Raises as :func:`outcome_of` does."""
    try:
        return function(*args)
    except BaseException as failure:
        if ends_one_call(failure):
            raise
        raise as_exception(failure) from failure


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a call of a function, or of a callable object, returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def ends_one_call(failure: BaseException) -> bool:
    """Return whether an exception ends only the call that raises it.

    False for ``StopIteration`` and ``StopAsyncIteration``, which have a special meaning in generators and coroutines. False
    also for exceptions such as ``SystemExit``, which end the process.
    """
    return isinstance(failure, Exception) and not isinstance(failure, StopIteration | StopAsyncIteration)


def as_exception(failure: BaseException) -> Exception:
    """Return an exception of a user's function as an exception that ends only one call.

    An exception that would end more than one call is replaced by a :class:`CallbackError`.
    """
    if isinstance(failure, Exception) and ends_one_call(failure):
        return failure
    return CallbackError(f"a function that was given to this client raised {told(failure)}")


def told(failure: BaseException) -> str:
    """Return the class name and the message of an exception, even if its ``__str__`` raises."""
    try:
        text = str(failure)
    except Exception as failed:
        text = f"(its text cannot be made: {type(failed).__name__})"
    return f"{type(failure).__name__}: {text}"


async def ended(tasks: Collection[asyncio.Task[Any]]) -> list[str]:
    """Cancel tasks and wait for them; return the names of the tasks that still run after ``CANCEL_TIMEOUT_S``.

    The task that calls this function is not cancelled. It is one of the tasks if a user's function closes its client, such as a
    transaction check that closes its producer.
    """
    others = [task for task in tasks if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if not others:
        return []
    done, going_on = await asyncio.wait(others, timeout=CANCEL_TIMEOUT_S)
    for task in done:
        if not task.cancelled():
            # Without task.exception(), asyncio would log an exception of the task as never retrieved.
            task.exception()
    return sorted(task.get_name() for task in going_on)
