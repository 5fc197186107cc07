"""Runs a server process: catches signals before anything starts, prints one line ``READY …`` when it is ready, and stops in
order.

SIGTERM, SIGINT and SIGHUP stop the server, and the process exits with code 0. A signal during the start has the same effect:
the services that have started are stopped. A store is fenced after a failed sync or write: it then refuses all further writes.
If the store is fenced, the server stops, and the process exits with code 5 (``StoreFencedError``).
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

    SIGHUP arrives when a terminal is closed; the signal stops RocketMQ's processes in order as well. If SIGHUP is ignored at
    the process's start, as by nohup(1), it stays ignored. After an orderly stop, the three signals are ignored, so a second
    Ctrl-C while the interpreter exits has no effect.
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
        """Request the stop of this process. For the loop thread and signal handlers."""
        self.wanted = True
        if self._loop is not None:
            # call_soon_threadsafe() raises RuntimeError if the event loop is closed.
            # RuntimeError is ignored, because a process with a closed event loop has already stopped its services.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Wait until the stop of this process is requested. A request that was made before the event loop ran counts."""
        self._loop = asyncio.get_running_loop()
        if not self.wanted:
            await self._event.wait()


class FenceWatch:
    """A plugin that ends the process when the store is fenced, because a fenced store refuses all writes until the next start.
    The process's supervisor can then start the process again."""

    plugin_name = "fence_watch"

    def __init__(self, stop: StopSignals) -> None:
        self._stop = stop
        self.reason: str | None = None
        """Why the store is fenced, which means that it refuses all writes; None if the store is not fenced."""

    def stop_at_end_of(self, descriptor: int, told: Callable[[bytes], None] | None = None) -> None:
        """Stop this process when a pipe is closed, because the pipe's other end belongs to the parent process. Called only on
        the event loop's thread.

        Args:
            descriptor: the pipe's descriptor.
            told: a function for the lines from the pipe. It is called with each line.
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
    """Return the configuration of a serving process. Raises ConfigError.

    Args:
        config: the configuration file; None for the defaults.
        given: values of command-line options, keyed by setting; None for an option that is not given.
        settings: ``--set`` options, which override ``given``.
        role: the server to configure. If brokers and name servers have settings with the same RocketMQ name, the name means the
            setting of this server.
    """
    SERVING_OUTPUT.begin()
    overrides = [f"{key}={value}" for key, value in given.items() if value is not None]
    loaded = load_config(config, [*overrides, *settings], role=role)
    tell_ignored(loaded)
    return loaded


def with_name_server(loaded: LoadedConfig, own: str) -> LoadedConfig:
    """Return the configuration of a broker with a name server in the same process.

    Args:
        loaded: the configuration of both.
        own: ``host:port`` of that name server.
    """
    addresses = ";".join((own, *(address for address in loaded.config.namesrv.addresses if address != own)))
    return loaded.with_overrides([f"namesrv.addresses={addresses}"])


def with_environment(loaded: LoadedConfig) -> LoadedConfig:
    """Return the configuration of a single broker. If the configuration names no name servers, the broker uses those of
    ``NAMESRV_ADDR``."""
    if not loaded.config.namesrv.addresses and "NAMESRV_ADDR" in os.environ:
        return loaded.with_overrides([f"namesrv.addresses={os.environ['NAMESRV_ADDR']}"])
    return loaded


def store_folder(loaded: LoadedConfig) -> Path:
    """Return the absolute path of the store; symbolic links are not resolved."""
    return Path(os.path.abspath(loaded.config.store.path))  # noqa: PTH100


def ready_word(path: Path) -> str:
    """Return a path as a word of the line ``READY …``. Blanks, percent signs and unprintable characters are encoded as in URLs.

    The line can be split at blanks; ``urllib.parse.unquote`` then returns the path.
    """
    return "".join(one if one.isprintable() and not one.isspace() and one != "%" else _quoted(one) for one in str(path))


def _quoted(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))


Start = Callable[[AsyncExitStack, FenceWatch], Coroutine[Any, Any, str]]
"""Function that starts all services of a process on the exit stack. It returns the words that follow ``READY`` in the line that
the process prints when it is ready."""


def serve(start: Start, loop_name: str) -> None:
    """Run services until a signal arrives, or until the store is fenced, which means that it refuses all writes.

    Args:
        start: starts the services.
        loop_name: ``asyncio``, ``uvloop`` or ``auto``.

    Raises:
        StoreFencedError: a sync failed; everything has been stopped.
        FlintError: a service could not start.
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
                # The cancelled start must end before the exit stack stops the services that have already started.
                await asyncio.gather(starting, return_exceptions=True)
                return
            words = await starting
            # During a start on a long log, the C library keeps freed large blocks of memory, so that the start can reuse them.
            # After the start, the C library is set to return freed large blocks to the operating system.
            give_back_large_blocks()
            give_back_free_memory()
            # Without gc.freeze(), a full collection visits all permanent objects, and blocks the loop for tens of milliseconds.
            gc.freeze()
            print(f"READY {words} pid={os.getpid()}", flush=True)
            manager.tell("READY=1", f"STATUS={words}")
            await stopping
            manager.tell("STOPPING=1", f"STATUS=stopping{f': {watch.reason}' if watch.reason else ''}")
    finally:
        stopping.cancel()
        if watch.reason is not None:
            raise StoreFencedError(watch.reason)
