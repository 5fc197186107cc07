"""Starts all work that must not block the event loop. A simulation can replace the threads, and then decides the order of the
work.

Blocking functions are passed to the event loop (:func:`background`, :func:`submit`), which decides where they run. Periodic
work and services use the object that :func:`threads_here` returns. Normally, this object starts threads of the operating
system. In a simulation, the object is the attribute ``threads`` of a :class:`flintmq.testing.seeded_loop.SeededLoop`, and does
all work on the loop's own thread.
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
    """A signal that wakes a :class:`Rounds` service. The signal is locked until a call of :meth:`release` requests a round of
    work. A ``threading.Lock`` can be used as the signal."""

    def locked(self) -> bool: ...

    def release(self) -> None: ...


class Rounds(Protocol):
    """A service that works in rounds. A round of work begins when the service is woken, or when its waiting time is over."""

    rest_s: float
    """Minimum pause in seconds after each round of the service, even if the service is woken."""

    @property
    def stopping(self) -> bool:
        """Return whether the service stops, so that no further round of work begins."""
        ...

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the service's next round of work if the service is not woken; None if it only works when it
        is woken."""
        ...

    def run_once(self, now_s: float) -> None:
        """Do the work that is due at the time ``now_s``, in seconds. Called when the service is woken, and when the time that
        :meth:`wait_s` returned is over."""
        ...


class Threads(Protocol):
    """Runs work that could block the event loop of a broker. The work runs in threads, or in a simulation on the simulated
    loop."""

    def run_rounds(self, service: Rounds) -> Signal | None:
        """Run the rounds of a service on the event loop, and return the signal that wakes the service. Return None if this
        object cannot run a service on the event loop; the caller then starts a thread.
        """
        ...

    def repeat(self, name: str, interval_s: float, call: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each interval, and return a function that ends the repeated calls.

        The returned function waits for a call that is under way.
        """
        ...

    def worker(self, name: str) -> Executor:
        """Return an executor that runs the functions submitted to it one at a time."""
        ...


class MachineThreads:
    """Runs work that could block the event loop in threads of the operating system."""

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
    """Return the attribute ``threads`` of the event loop that runs in the caller's thread. Return :data:`MACHINE_THREADS` if no
    event loop runs in this thread, or if the event loop lacks the attribute ``threads``.
    """
    return cast("Threads", getattr(running_loop(), "threads", MACHINE_THREADS))


def daemon_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Return a daemon thread that is not started yet. A daemon thread does not keep the interpreter from exiting."""
    return threading.Thread(target=target, name=name, daemon=True)


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor with at most ``threads`` threads, whose names begin with ``name``."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


async def background(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a blocking function in the executor of the running loop, and return its result."""
    return await asyncio.to_thread(call, *arguments, **named)


def submit(executor: Executor | None, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> asyncio.Future[T]:
    """Run a blocking function in an executor, and return a future of its result.

    Args:
        executor: the executor; None for the executor of the running loop.
        call: the function.
        arguments: its arguments.

    Raises:
        RuntimeError: the executor is shut down.
    """
    return asyncio.get_running_loop().run_in_executor(executor, call, *arguments)
