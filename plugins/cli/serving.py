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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from flintmq.config import LoadedConfig, load_config
from flintmq.config.loading.schema import Role
from flintmq.core.errors import StoreFencedError
from flintmq.core.io.allocator import give_back_free_memory, give_back_large_blocks
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.plugins.broker.service import run_loop_named, tell_ignored
from flintmq.plugins.cli.exits import CommandError, ExitCode, complain
from flintmq.remoting.server.descriptors import raise_limit

T = TypeVar("T")


class Stopped(Exception):
    """A signal came during the start."""


class StopSignals:
    """Turns any number of SIGTERM and SIGINT into one request to stop. Main thread; a context manager.

    After an orderly stop both signals are ignored: a second Ctrl-C, while the interpreter ends, changes nothing.
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
        """Request the stop. Loop thread or signal handler."""
        self.wanted = True
        if self._loop is not None and self._event is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: everything has stopped
                self._loop.call_soon_threadsafe(self._event.set)

    def attach(self) -> None:
        """Deliver the request to the running loop, also one that came before."""
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self.wanted:
            self._event.set()

    async def wait(self) -> None:
        """Return when the stop has been requested."""
        assert self._event is not None
        await self._event.wait()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. Raises ``Stopped`` when a signal came first; the work has ended by then."""
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
    """A plugin of the serving process that ends it when the store is fenced, so that its supervisor restarts it."""

    plugin_name = "fence_watch"

    def __init__(self, stop: StopSignals) -> None:
        self._stop = stop
        self.reason: str | None = None
        """Why the store is fenced; None while it is not."""

    @hookimpl
    def flintmq_broker_fenced(self, broker: Any, reason: str) -> None:
        self.reason = reason
        complain(f"the store is fenced, stopping: {reason}")
        self._stop.stop()


def load(
    config: Path | None, given: Mapping[str, object], settings: Sequence[str], *, role: Role = "broker"
) -> LoadedConfig:
    """Return the configuration of a serving process. Raises ``ConfigError``.

    Args:
        config: the file; None for the defaults.
        given: key of a setting → what an option of the command line says, None where the option was not given.
        settings: ``--set`` options, which take precedence over ``given``.
        role: whose meaning an ambiguous RocketMQ name has.
    """
    overrides = [f"{key}={value}" for key, value in given.items() if value is not None]
    loaded = load_config(config, [*overrides, *settings], role=role)
    tell_ignored(loaded)
    return loaded


def store_folder(loaded: LoadedConfig) -> Path:
    """Return the absolute path of the store; symbolic links stay as they were written."""
    return Path(os.path.abspath(loaded.config.store.path))  # noqa: PTH100


Start = Callable[[AsyncExitStack, FenceWatch], Coroutine[Any, Any, str]]
"""Starts everything on the stack and returns the words that follow READY."""


def serve(start: Start, loop_name: str) -> None:
    """Run services until a signal comes or the store is fenced.

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
            give_back_free_memory()
            gc.freeze()  # a full collection would visit all that stays, and stop the loop for tens of milliseconds
            if not stop.wanted:
                print(f"READY {words} pid={os.getpid()}", flush=True)
            await stop.wait()
    finally:
        if watch.reason is not None:
            raise StoreFencedError(watch.reason)
