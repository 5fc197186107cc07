"""Runs event loops, coroutines and functions to their end, even if a plugin calls ``sys.exit()`` or the caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from flintmq.core.io.threads import submit
from flintmq.core.log_events import event_log

T = TypeVar("T")

log = event_log("flintmq.broker")


def run_loop_named(name: str) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Return a function that runs a coroutine on the event loop with a name.

    Args:
        name: ``asyncio``, ``uvloop`` (ImportError if it is not installed), or ``auto`` for uvloop if it is installed.
    """
    if name == "asyncio":
        return asyncio.run
    try:
        import uvloop
    except ImportError:
        if name == "auto":
            return asyncio.run
        raise
    return uvloop.run


def run_to_end(name: str, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the event loop with a name (:func:`run_loop_named`), whatever other tasks raise.

    A SystemExit in a task or callback, for example of a plugin, would stop the loop in the middle of its work. The error is
    logged, and the loop continues. This function is for threads without signals, and for processes that handle signals
    themselves.
    """
    new_loop = None
    if name != "asyncio":
        try:
            import uvloop

            new_loop = uvloop.new_event_loop
        except ImportError:
            if name != "auto":
                work.close()
                raise
    with asyncio.Runner(loop_factory=new_loop) as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done():
                    raise
                log.error(
                    "plugin.task_exits",
                    "a task raised %(error)s, which would end the process; the process continues",
                    error=repr(error),
                    exc_info=error,
                )


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that must not be interrupted. If the caller is cancelled meanwhile, the cancellation takes effect
    afterwards."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    raise cancelled from (None if task.cancelled() else task.exception())


async def in_thread_to_its_end(work: Callable[[], T]) -> T:
    """Run a function in a thread and wait for it. If the caller is cancelled, the cancellation takes effect afterwards."""
    return await to_its_end(_done(submit(None, work)))


async def _done(future: asyncio.Future[T]) -> T:
    """Wait until a function in a thread has ended, despite cancellations of the caller, because the function cannot be
    stopped."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((future,))
    return future.result()
