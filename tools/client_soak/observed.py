"""Counts of calls, faults, and measurements of this process in a soak test of the client library."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import statistics
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from client_soak.calls import PlannedError
from flintmq.programs.cli.exits import warn
from flintmq.remoting.client.blocking import shared_loop
from flintmq.remoting.client.callbacks import CallbackError

FAULT_CHARS: Final = 4_000
WARMUP_ROUNDS: Final = 2
"""Number of rounds at the beginning whose memory is not compared, because these rounds fill caches and import modules."""
MEMORY_GROWTH_MIB: Final = 8.0
"""Allowed growth of the client's memory in MiB, in addition to 5 %. The median of the first third of the rounds after the
warm-up is compared with the median of the last third."""
OBJECTS_GROWTH: Final = 2_000
"""Allowed growth, in addition to 2 %, of the number of objects that the garbage collector tracks. The median of the first third
of the rounds after the warm-up is compared with the median of the last third."""
LEFT_WAIT_S: Final = 5.0
"""Time in seconds for which threads and tasks of the clients may still run after the last client was closed. Threads and tasks
may run for this time because a listener may sleep."""
ANSWER_S: Final = 20.0
"""Time in seconds within which the event loop that all synchronous clients share must answer."""
KEPT_THREADS: Final = ("MainThread", "flintmq-client", "asyncio_", "asyncio-waitpid")
"""Beginnings of the names of threads that run until the process ends: the main thread, the loop of all synchronous clients, the
executors of event loops, and the thread that waits for the broker's process."""


@attrs.define
class CallFigures:
    """How often clients made one kind of call, how often it failed or was cancelled, and the longest duration."""

    count: int = 0
    failed: int = 0
    cancelled: int = 0
    longest_s: float = 0.0


class Observed:
    """Counts the calls and faults of a soak test. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: dict[str, CallFigures] = {}
        self.faults: Counter[str] = Counter()
        self.details: dict[str, str] = {}
        """Traceback or stack of the first occurrence of each fault, keyed by the text of the fault."""
        self.log_lines: Counter[str] = Counter()

    def ended(self, name: str, elapsed_s: float, *, failed: bool = False, cancelled: bool = False) -> None:
        """Count one call of a client, with its result."""
        with self._lock:
            figures = self.calls.setdefault(name, CallFigures())
            figures.count += 1
            figures.failed += failed
            figures.cancelled += cancelled
            figures.longest_s = max(figures.longest_s, round(elapsed_s, 3))

    def fault(self, what: str, detail: str = "") -> None:
        """Count a fault, which its text identifies, and print the fault the first time."""
        with self._lock:
            self.faults[what] += 1
            is_new = what not in self.details
            self.details.setdefault(what, detail[-FAULT_CHARS:])
        # A new fault is printed at once, because the next call may hang.
        if is_new:
            warn(what)

    def logged(self, text: str) -> None:
        """Count a log line; lines that differ only in their values are the same line."""
        with self._lock:
            self.log_lines[text] += 1

    @property
    def total(self) -> int:
        """The number of clients' calls that have ended in the soak test."""
        with self._lock:
            return sum(figures.count for figures in self.calls.values())


class LogCounter(logging.Handler):
    """A log handler that counts the log lines with warnings and errors. A line with an exception that no listener raised on
    purpose is a fault."""

    def __init__(self, observed: Observed) -> None:
        super().__init__(logging.WARNING)
        self._observed = observed

    def emit(self, record: logging.LogRecord) -> None:
        """Count one line of the log that is a warning or an error."""
        self._observed.logged(f"{record.levelname}: {record.msg}")
        failure = record.exc_info[1] if record.exc_info else None
        if failure is not None and not isinstance(failure, (PlannedError, CallbackError)):
            self._observed.fault(f"logged: {record.msg}: {type(failure).__name__}", logging.Formatter().format(record))


def watch_loop(loop: asyncio.AbstractEventLoop, name: str, observed: Observed) -> None:
    """Count each error that an event loop reports as a fault, such as an exception that was never retrieved."""

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        observed.fault(f"{name}: {context.get('message')}: {type(failure).__name__}", repr(context))

    loop.set_exception_handler(report)


@attrs.frozen
class Measured:
    """Measurements of this process after a round of the soak, while no client is open."""

    rss_mib: float
    objects: int
    descriptors: int
    threads: int
    tasks: int


async def measure(observed: Observed) -> Measured:
    """Measure this process while no client is open. Threads and tasks that clients have left behind are counted as faults.

    Raises:
        TimeoutError: the event loop of all synchronous clients does not answer any more. This is counted as a fault, too.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            await _on_shared_loop()
    except TimeoutError:
        observed.fault("the loop of all synchronous clients stands still")
        raise
    for _ in range(int(LEFT_WAIT_S / 0.1)):
        if not (left := await _left()):
            break
        await asyncio.sleep(0.1)
    for name in left:
        observed.fault(f"left after close: {name}")
    for _ in range(2):
        gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Measured(
        rss_mib=round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        objects=len(gc.get_objects()),
        descriptors=len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 - without the one that lists
        threads=threading.active_count(),
        tasks=len(asyncio.all_tasks()) + await _on_shared_loop(),
    )


async def _left() -> list[str]:
    """Return the threads and tasks of this process that closed clients have left behind."""
    threads = [f"thread {one.name}" for one in threading.enumerate() if not one.name.startswith(KEPT_THREADS)]
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    names = [f"task {task.get_name()} of {getattr(task.get_coro(), '__qualname__', '?')}" for task in tasks]
    return threads + names + await asyncio.wrap_future(shared_loop().start(_other_tasks()))


async def _other_tasks() -> list[str]:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return [f"task {task.get_name()} of {getattr(task.get_coro(), '__qualname__', '?')}, sync" for task in tasks]


async def _on_shared_loop() -> int:
    return len(await asyncio.wrap_future(shared_loop().start(_other_tasks())))


def check_flat(rounds: Sequence[Measured], observed: Observed) -> None:
    """Compare the measurements of the first rounds after the warm-up with those of the last rounds, and count growth as a
    fault."""
    counted = rounds[WARMUP_ROUNDS:]
    if len(counted) < 3:
        return
    third = max(1, len(counted) // 3)
    first, last = counted[:third], counted[-third:]

    def grown(figure: str) -> tuple[float, float]:
        return (
            statistics.median(getattr(one, figure) for one in first),
            statistics.median(getattr(one, figure) for one in last),
        )

    for figure, extra, share in (
        ("rss_mib", MEMORY_GROWTH_MIB, 0.05),
        ("objects", OBJECTS_GROWTH, 0.02),
        ("descriptors", 0, 0.0),
        # The number of threads may grow by six, because executors of event loops start their threads one by one.
        ("threads", 6, 0.0),
        ("tasks", 0, 0.0),
    ):
        before, after = grown(figure)
        if after > before * (1 + share) + extra:
            observed.fault(f"{figure} grew from {before:g} to {after:g}")
