"""An asyncio event loop that runs a program in the same way each time for the same seed.

::

    loop = SeededLoop(Choices(seed=7))
    loop.run(main())                     # the same seed gives the same run

The seed decides the order in which ready callbacks run. Time is virtual: when no callback is ready, the loop moves its clock to
the next timer. Work that services normally do in threads runs on the loop's thread, after delays that the seed decides.
Connections and servers belong to a :class:`~flintmq.testing.simulated_network.SimulatedNetwork`.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import socket
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

from flintmq.core.io.clock import Scheduled
from flintmq.testing.choices import Choices
from flintmq.testing.seeded_threads import SeededThreads

if TYPE_CHECKING:
    from flintmq.testing.simulated_network import SimulatedNetwork, SimulatedSocket

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_WITHOUT_TIME_MAX: Final = 200_000
"""Number of callbacks that may run without an advance of the loop's time. If more callbacks run, the simulation ends with
``SpinningError``."""
CLOCK_STEP_S: Final = 1e-6
STARTED_AT_MS: Final = 1_700_000_000_000
"""Wall-clock time, in ms since 1970, at which a new seeded event loop begins."""


if TYPE_CHECKING:
    from asyncio import (
        BaseEventLoop as _AbstractEventLoop,  # type checkers take an abstract loop's other methods for missing
    )
else:
    from asyncio import AbstractEventLoop as _AbstractEventLoop


class StalledError(AssertionError):
    """The seeded loop has no ready callback and no timer, but the program has not ended: it would wait for ever."""


class SpinningError(AssertionError):
    """The seeded loop runs callback after callback without a wait: the program would use a whole processor for ever."""


class _LoopSettings(_AbstractEventLoop):
    """The settings of a seeded event loop: its network, task factory, debug flag and exception handler."""

    def __init__(self) -> None:
        self.network: SimulatedNetwork | None = None
        """The simulated network over which the loop's programs connect; None if the loop has no network."""
        self.errors: list[dict[str, Any]] = []
        """The contexts of errors in callbacks and in tasks that nobody awaited, as passed to :meth:`call_exception_handler`."""
        self._debug = False
        self._task_factory: Any = None
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect over the simulated network. Raises ``ConnectionRefusedError`` as a real loop does."""
        return await self._network().connect(protocol_factory, str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Listen on the simulated network, at the address of a socket that :meth:`bind` returned or at a host and a port."""
        sock: SimulatedSocket | None = options.get("sock")
        if sock is not None:
            return sock.listen(protocol_factory)
        return self._network().listen(protocol_factory, str(host), int(port or 0))

    def bind(self, host: str, port: int) -> SimulatedSocket:
        """Return a socket at an address of the simulated network, not listening yet. Raises ``OSError`` if the address is in
        use."""
        return self._network().bind(host, port)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    def _network(self) -> SimulatedNetwork:
        if self.network is None:
            raise OSError("this loop has no network: make a SimulatedNetwork for it")
        return self.network

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def set_default_executor(self, executor: Any) -> None:
        """Do nothing with an executor: the seeded loop has no threads."""

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that a program did not catch, in :attr:`errors`."""
        self.errors.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass an error to the exception handler that the program has set, or keep the error in :attr:`errors`."""
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)


class SeededLoop(_LoopSettings):
    """An event loop that runs one program in one thread. Not thread-safe. The loop never waits for the machine's clock or
    network.

    Args:
        choices: the source of the loop's decisions, which depend on a seed.
        disorder: percentage of steps in which a callback may run before the callback that has waited longest.
    """

    def __init__(self, choices: Choices | None = None, *, disorder: int = 50) -> None:
        super().__init__()
        self.choices = choices if choices is not None else Choices()
        self.threads = SeededThreads(self)
        """Object that runs, on this event loop, the work that services normally do in threads."""
        self.steps = 0
        """Number of callbacks that the event loop has run."""
        self._disorder = disorder
        self._now_s = 0.0
        self._moved_at_step = 0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.numbers = itertools.count()
        """Iterator of numbers for objects that are created on the loop. An object has the same number in each run with the same
        seed."""
        self._is_running = self._is_closed = self._is_stopping = False
        self._generators: set[Any] = set()

    # --- running ---

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Then cancel all other tasks, close the loop, and return the coroutine's result.

        Raises:
            StalledError: the program waits for something that never comes.
            SpinningError: the program never waits.
            BaseException: whatever ``main`` raises.
        """
        try:
            return self.run_until_complete(main)
        finally:
            self.close()

    def run_until_complete(self, future: Generator[Any, None, T] | Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """Run the loop until a future is done, and return the future's result."""
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        task.add_done_callback(lambda _: self.stop())
        self._run(task)
        return task.result()

    def run_forever(self) -> None:
        """Run the loop until :meth:`stop` is called, or until no callback and no timer is left."""
        self._run(None)

    def _run(self, awaited: asyncio.Future[Any] | None) -> None:
        self._is_stopping = False
        self.run_while(lambda: not self._is_stopping)
        if awaited is not None and not self._is_stopping:
            raise StalledError(f"nothing is left to do, and these wait: {self._waiting()}")

    def run_while(self, condition: Callable[[], bool]) -> None:
        """Run the loop's callbacks while a condition holds and a callback or a timer is left.

        Raises:
            SpinningError: more than :data:`STEPS_WITHOUT_TIME_MAX` callbacks ran without an advance of the loop's time.
            RuntimeError: the loop is closed or already running.
        """
        if self._is_closed or self._is_running:
            raise RuntimeError("the loop is closed" if self._is_closed else "the loop is running")
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            while condition() and self._step():
                pass
        finally:
            self._is_running = False
            asyncio._set_running_loop(before)

    def _step(self) -> bool:
        """Run one callback. If no callback is ready, move the time to the next timer. Return False if the loop has neither a
        callback nor a timer."""
        self._take_due()
        if not self._ready:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if not self._timers:
                return False
            # The clock is set slightly past the timer's time, because a real event loop also runs timers slightly late.
            self._now_s = max(self._now_s, self._timers[0][0]) + CLOCK_STEP_S
            self._moved_at_step = self.steps
            self._take_due()
        at = 0
        if len(self._ready) > 1 and self.choices.happens(self._disorder):
            at = self.choices.below(len(self._ready))
        handle = self._ready.pop(at)
        if not handle.cancelled():
            self.steps += 1
            if self.steps - self._moved_at_step > STEPS_WITHOUT_TIME_MAX:
                raise SpinningError(
                    f"{STEPS_WITHOUT_TIME_MAX} callbacks ran without a wait; the last callback is {handle!r}"
                )
            handle._run()
        return True

    def _take_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._ready.append(timer)

    def _waiting(self) -> str:
        return ", ".join(sorted(f"{task.get_name()} in {task.get_coro()!r}" for task in asyncio.all_tasks(self)))

    def stop(self) -> None:
        """End :meth:`run_forever` after the callback that runs now."""
        self._is_stopping = True

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Cancel every task that is left, run these tasks to their ends, and close the loop. Idempotent."""
        if self._is_closed:
            return
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self._moved_at_step = self.steps
        ends_at_step = self.steps + STEPS_WITHOUT_TIME_MAX // 2
        self.run_while(lambda: self.steps < ends_at_step and not all(task.done() for task in tasks))
        for task in tasks:
            if not task.done():
                self.errors.append({"message": "a task goes on after it was cancelled", "task": task})
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        # Garbage collection deletes dropped tasks and futures: their unretrieved exceptions are reported before close() ends.
        gc.collect()

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: asynchronous generators are closed when they are garbage-collected."""

    async def shutdown_default_executor(self) -> None:
        """Do nothing: the seeded loop has no executor with threads."""

    # --- time ---

    def time(self) -> float:
        """Return the virtual seconds since the seeded loop was made."""
        return self._now_s

    # --- callbacks ---

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, which runs in one of the loop's next steps."""
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, which runs in one of the loop's next steps. The loop has only one thread, so this method is the
        same as :meth:`call_soon`."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after ``delay`` virtual seconds of the seeded loop."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time of the loop."""
        self._check_open()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self.numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing when a timer is cancelled: a cancelled timer is skipped when it is due."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")

    # --- creation of futures, tasks and threads ---

    def create_future(self) -> asyncio.Future[Any]:
        return SeededFuture(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._check_open()
        if self._task_factory is not None:
            task: asyncio.Task[Any] = self._task_factory(self, coro, **options)
            return task
        return SeededTask(coro, loop=self, **options)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call a function, which is meant for another thread, on the loop's thread, after a delay of up to 50 virtual
        milliseconds."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as failure:
                # A real executor also passes exceptions of every type to the future.
                done.set_exception(failure)
            else:
                done.set_result(result)

        self.call_later(self.choices.below(50) / 1000, work)
        return done


class SeededFuture(asyncio.Future[Any]):
    """A future of the seeded loop. Its hash is its creation number, not its address, so that sets of futures iterate in the
    same order in each run."""

    def __init__(self, *, loop: SeededLoop) -> None:
        self._number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SeededTask(asyncio.Task[Any]):
    """A task of the seeded loop. Its hash is its creation number, not its address, so that sets of tasks iterate in the same
    order in each run."""

    def __init__(self, coro: Any, *, loop: SeededLoop, **options: Any) -> None:
        # The task's number is set first: the constructor of asyncio.Task adds the task to a set, which needs the task's hash.
        self._number = next(loop.numbers)
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class SeededClock:
    """The time of a :class:`SeededLoop`, as a :class:`~flintmq.core.io.clock.Clock`."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return STARTED_AT_MS + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def stopwatch_s(self) -> float:
        return self._loop.time()

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        callback: Callable[[], object],
        rest_s: Callable[[], float] | None = None,
    ) -> Scheduled:
        return loop.call_later(delay_s, callback)
