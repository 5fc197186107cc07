"""The seam to threads: whatever is done outside the loop's thread begins here, so that a simulation can do it in its own order.

Functions that block are given to the event loop (:func:`background`, :func:`submit`), because a loop may decide itself where
they run. Threads that live longer come from :func:`threads_here`: the machine's, or those of a loop that has none and does
their work itself, as :class:`flintmq.testing.seeded_loop.SeededLoop` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, ParamSpec, Protocol, TypeVar, TypeVarTuple, Unpack, cast

from flintmq.core.running_loop import running_loop

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Signal(Protocol):
    """What wakes a service. A ``threading.Lock`` is one: locked while nobody has asked for a round."""

    def locked(self) -> bool: ...

    def release(self) -> None: ...


class Rounds(Protocol):
    """A service that works in rounds: when it is woken, and when a time is over."""

    rest_s: float
    """How long it rests after each round, whatever wakes it meanwhile."""

    @property
    def stopping(self) -> bool:
        """Whether no round is wanted any more."""
        ...

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the next round if nobody asks for one; None waits for that alone."""
        ...

    def run_once(self, now_s: float) -> None:
        """Do one round of work."""
        ...


class Threads(Protocol):
    """Where the work of threads is done."""

    def run_rounds(self, service: Rounds) -> Signal | None:
        """Have a service's rounds run without a thread of its own, and return what wakes it; None where it needs a thread."""
        ...

    def repeat(self, name: str, interval_s: float, call: Callable[[], object]) -> Callable[[], None]:
        """Call something again and again, first after one interval. Return the function that ends it after the call that
        runs then."""
        ...

    def worker(self, name: str) -> Executor:
        """Return an executor that does one thing after the other."""
        ...


class MachineThreads:
    """The threads of the machine."""

    def run_rounds(self, service: Rounds) -> Signal | None:
        return None

    def repeat(self, name: str, interval_s: float, call: Callable[[], object]) -> Callable[[], None]:
        ended = threading.Event()

        def loop() -> None:
            while not ended.wait(interval_s):
                call()

        thread = daemon_thread(loop, name)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()

        return end

    def worker(self, name: str) -> Executor:
        return thread_pool(1, name)


MACHINE_THREADS: Final = MachineThreads()


def threads_here() -> Threads:
    """Return the threads of the loop that runs in the caller's thread, where it has some of its own; else the machine's."""
    return cast("Threads", getattr(running_loop(), "threads", MACHINE_THREADS))


def daemon_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Return a thread that is not started yet, and that cannot keep the interpreter from exiting."""
    return threading.Thread(target=target, name=name, daemon=True)


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor with so many threads at most."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


async def background(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run something that blocks in a thread of the running loop's executor, and return what it returns."""
    return await asyncio.to_thread(call, *arguments, **named)


def submit(executor: Executor | None, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> asyncio.Future[T]:
    """Run something that blocks in an executor, the running loop's own where it is None; return the promise of its result.

    Raises:
        RuntimeError: the executor takes nothing any more.
    """
    return asyncio.get_running_loop().run_in_executor(executor, call, *arguments)
