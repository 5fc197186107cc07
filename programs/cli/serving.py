"""A process that serves: signals are caught before anything starts, READY is printed once, the stop is in order.

::

    signals caught ─▶ start ─▶ READY ─▶ wait ──SIGTERM, SIGINT, SIGHUP──▶ stop ─▶ 0
                        │                └───── store fenced ──────────▶ stop ─▶ StoreFencedError (5)
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
from types import TracebackType
from typing import Any, Self

from flintmq.config import LoadedConfig, load_config
from flintmq.config.loading.schema import Role
from flintmq.core.errors import StoreFencedError
from flintmq.core.io.allocator import give_back_free_memory, give_back_large_blocks
from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.programs.broker.running import run_to_end
from flintmq.programs.broker.service import tell_ignored
from flintmq.programs.cli.exits import CommandError, ExitCode, complain
from flintmq.programs.cli.service_manager import ServiceManager
from flintmq.programs.cli.serving_output import SERVING_OUTPUT
from flintmq.remoting.server.descriptors import raise_limit


class StopSignals:
    """Turns any number of SIGTERM, SIGINT and SIGHUP into one request to stop. Main thread; a context manager.

    SIGHUP comes when a terminal is closed, and stops RocketMQ's processes in order as well; where it is ignored when the
    process begins, as nohup(1) has it, it stays ignored. After an orderly stop all of them are ignored: a second Ctrl-C,
    while the interpreter ends, changes nothing.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self.stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if error is not None else signal.SIG_IGN)

    def stop(self, *_signal: object) -> None:
        """Request the stop. Loop thread or signal handler."""
        self.wanted = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: everything has stopped
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Return when the stop has been requested, also before this loop ran."""
        self._loop = asyncio.get_running_loop()
        if not self.wanted:
            await self._event.wait()


class FenceWatch:
    """A plugin of the serving process that ends it when the store is fenced, so that its supervisor restarts it."""

    plugin_name = "fence_watch"

    def __init__(self, stop: StopSignals) -> None:
        self._stop = stop
        self.reason: str | None = None
        """Why the store is fenced; None while it is not."""

    def stop_at_end_of(self, descriptor: int, told: Callable[[bytes], None] | None = None) -> None:
        """Stop when a pipe ends, because the process at its other end, which would stop this one, has gone. Loop thread.

        Args:
            descriptor: of the pipe.
            told: called with each line that comes before.
        """
        loop = asyncio.get_running_loop()
        rest = b""

        def read() -> None:
            nonlocal rest
            some = os.read(descriptor, 4096)
            *lines, rest = (rest + some).split(b"\n")
            if told is not None:
                for line in lines:
                    told(line)
            if not some:
                loop.remove_reader(descriptor)
                self._stop.stop()

        loop.add_reader(descriptor, read)

    @hookimpl
    def flintmq_broker_fenced(self, api: Any, reason: str) -> None:
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
    SERVING_OUTPUT.begin()
    overrides = [f"{key}={value}" for key, value in given.items() if value is not None]
    loaded = load_config(config, [*overrides, *settings], role=role)
    tell_ignored(loaded)
    return loaded


def with_name_server(loaded: LoadedConfig, own: str) -> LoadedConfig:
    """Return the configuration of a broker beside a name server in its process.

    Args:
        loaded: the configuration of both.
        own: ``host:port`` of that name server.
    """
    addresses = ";".join((own, *(address for address in loaded.config.namesrv.addresses if address != own)))
    return loaded.with_overrides([f"namesrv.addresses={addresses}"])


def with_environment(loaded: LoadedConfig) -> LoadedConfig:
    """Return the configuration of a broker alone: without name servers it has those that NAMESRV_ADDR names."""
    if not loaded.config.namesrv.addresses and "NAMESRV_ADDR" in os.environ:
        return loaded.with_overrides([f"namesrv.addresses={os.environ['NAMESRV_ADDR']}"])
    return loaded


def store_folder(loaded: LoadedConfig) -> Path:
    """Return the absolute path of the store; symbolic links stay as they were written."""
    return Path(os.path.abspath(loaded.config.store.path))  # noqa: PTH100


def ready_word(path: Path) -> str:
    """Return a path as a word of the READY line: blanks, percent signs and what is not text are written as in URLs.

    The line is taken apart at its blanks; ``urllib.parse.unquote`` returns the path.
    """
    return "".join(one if one.isprintable() and not one.isspace() and one != "%" else _quoted(one) for one in str(path))


def _quoted(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))


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
    manager = ServiceManager.of_environment()
    raise_limit()
    began = SERVING_OUTPUT.begin()
    try:
        with StopSignals() as stop:
            run_to_end(loop_name, _serve(start, stop, manager))
    except ImportError as error:
        if error.name != "uvloop":
            raise
        raise CommandError(
            f"listen.loop is {loop_name}, which is not installed: pip install '.[fast]' in FlintMQ's folder",
            ExitCode.USAGE,
        ) from error
    finally:
        if began:
            SERVING_OUTPUT.end()


async def _serve(start: Start, stop: StopSignals, manager: ServiceManager) -> None:
    watch = FenceWatch(stop)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        async with AsyncExitStack() as stack:
            starting = asyncio.ensure_future(start(stack, watch))
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.wanted:
                manager.tell("STOPPING=1")
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)  # what has started is stopped by the stack
                return
            words = await starting
            give_back_large_blocks()  # not before: a start on a long log takes large blocks again and again
            give_back_free_memory()
            gc.freeze()  # a full collection would visit all that stays, and stop the loop for tens of milliseconds
            print(f"READY {words} pid={os.getpid()}", flush=True)
            manager.tell("READY=1", f"STATUS={words}")
            await stopping
            manager.tell("STOPPING=1", f"STATUS=stopping{f': {watch.reason}' if watch.reason else ''}")
    finally:
        stopping.cancel()
        if watch.reason is not None:
            raise StoreFencedError(watch.reason)
