"""A process that serves: signals are caught before anything starts, READY is printed once, the stop is in order.

::

    signals caught ─▶ start ─▶ READY ─▶ wait ──SIGTERM, SIGINT──▶ stop ─▶ 0
                        │                └───── store fenced ───▶ stop ─▶ StoreFencedError (5)
                        └─ a signal while starting: what has started is stopped ─▶ 0
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from flintmq.core.errors import StoreFencedError
from flintmq.core.io.allocator import give_back_large_blocks
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.plugins.broker.service import run_loop_named
from flintmq.plugins.cli.exits import CommandError, ExitCode, complain
from flintmq.remoting.server.descriptors import raise_limit

T = TypeVar("T")


class Stopped(Exception):
    """A signal came while something was starting."""


class StopSignals:
    """Turns SIGTERM and SIGINT, however many, into one wish to stop. Main thread; a context manager.

    When all went well both are ignored afterwards: a second Ctrl-C, while the interpreter ends, changes nothing.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if error is not None else signal.SIG_IGN)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Asks for the stop. Loop thread or signal handler."""
        self.wanted = True
        if self._loop is not None and self._event is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: everything has stopped
                self._loop.call_soon_threadsafe(self._event.set)

    def attach(self) -> None:
        """From now on the running loop hears of it."""
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self.wanted:
            self._event.set()

    async def wait(self) -> None:
        """Returns when the stop is wanted."""
        assert self._event is not None
        await self._event.wait()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result. Raises ``Stopped`` when a signal came first; the work has been cancelled and is over then."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if task.done() and not self.wanted:
            return task.result()
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            raise Stopped
        return outcome


class FenceWatch:
    """A plugin of the serving process: a fenced store ends it, so that whoever supervises it learns and restarts it."""

    plugin_name = "fence_watch"

    def __init__(self, stop: StopSignals) -> None:
        self._stop = stop
        self.reason: str | None = None
        """Why the store is fenced; None while all is well."""

    @hookimpl
    def flintmq_broker_fenced(self, broker: Any, reason: str) -> None:
        self.reason = reason
        complain(f"the store is fenced, stopping: {reason}")
        self._stop.stop()


Start = Callable[[AsyncExitStack, FenceWatch], Coroutine[Any, Any, str]]
"""Starts everything on the stack and returns the words behind READY."""


def serve(start: Start, loop_name: str) -> None:
    """Runs services until a signal comes or the store is fenced.

    Args:
        start: starts the services.
        loop_name: ``asyncio``, ``uvloop`` or ``auto``.

    Raises:
        StoreFencedError: a sync failed; everything has been stopped.
        FlintError: what kept a service from starting.
    """
    raise_limit()
    give_back_large_blocks()
    with StopSignals() as stop:
        try:
            run = run_loop_named(loop_name)
        except ImportError as error:
            raise CommandError(
                f"listen.loop is {loop_name}, which is not installed: pip install 'flintmq[fast]'", ExitCode.USAGE
            ) from error
        run(_serve(start, stop))


async def _serve(start: Start, stop: StopSignals) -> None:
    stop.attach()
    watch = FenceWatch(stop)
    try:
        async with AsyncExitStack() as stack:
            try:
                words = await stop.unless_stopped(start(stack, watch))
            except Stopped:
                return
            gc.freeze()  # what serves stays: a full collection would look at all of it, and keep the loop for tens of ms
            if not stop.wanted:
                print(f"READY {words} pid={os.getpid()}", flush=True)
            await stop.wait()
    finally:
        if watch.reason is not None:
            raise StoreFencedError(watch.reason)
