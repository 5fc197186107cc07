"""Runs the work of threads on the thread of a seeded loop, after delays that the seed decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from flintmq.core.io.threads import Rounds
    from flintmq.testing.seeded_loop import SeededLoop

P = ParamSpec("P")
T = TypeVar("T")

LATE_MS_MAX: Final = 5
"""Maximum delay, in ms, that is added to the time at which the work of a thread is due."""


class SeededThreads:
    """Runs the work of threads on a :class:`~flintmq.testing.seeded_loop.SeededLoop`.

    This class implements :class:`flintmq.core.io.threads.Threads`.
    """

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop

    def run_rounds(self, service: Rounds) -> LoopRounds:
        return LoopRounds(self._loop, service)

    def repeat(self, name: str, interval_s: float, call: Callable[[], object]) -> Callable[[], None]:
        timer: asyncio.TimerHandle

        def work() -> None:
            nonlocal timer
            timer = later(self._loop, interval_s, work)
            call()

        timer = later(self._loop, interval_s, work)
        return lambda: timer.cancel()

    def worker(self, name: str) -> Executor:
        return InlineExecutor()


class LoopRounds:
    """Runs the rounds of a service's periodic work on a seeded loop. The object is also the
    :class:`flintmq.core.io.threads.Signal` that wakes the service.

    Args:
        loop: the loop that runs the rounds.
        service: the service. The rounds end when the service is stopping.
    """

    def __init__(self, loop: SeededLoop, service: Rounds) -> None:
        self._loop = loop
        self._service = service
        self._is_asked = False
        self._rests_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._plan()

    def locked(self) -> bool:
        """Return True if no round of the service has been requested since the last round began."""
        return not self._is_asked

    def release(self) -> None:
        """Request a round of the service's work. The round begins after a short delay, but not during the pause that follows
        each round."""
        self._is_asked = True
        self._plan()

    def _plan(self) -> None:
        """Schedule the next round of work of this object's service on the seeded loop, in place of the round scheduled before.

        If a caller has requested a round, the round begins when the pause after the last round is over. Without a request, the
        round begins when the service's waiting time is over. A service without a waiting time gets a round only on request.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = 0.0 if self._is_asked else self._service.wait_s(self._loop.time())
        if wait_s is not None:
            rest_s = self._rests_until_s - self._loop.time()
            self._timer = later(self._loop, max(wait_s, rest_s, 0.0), self._run)

    def _run(self) -> None:
        if self._service.stopping:
            return
        self._is_asked = False
        self._service.run_once(self._loop.time())
        self._rests_until_s = self._loop.time() + self._service.rest_s
        self._plan()


class InlineExecutor(Executor):
    """Runs each submitted function at once, on the thread of its caller."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as failure:
            # A thread of a real executor also passes exceptions of every type to the future.
            done.set_exception(failure)
        return done


def later(loop: SeededLoop, wait_s: float, work: Callable[[], object]) -> asyncio.TimerHandle:
    """Call a function after ``wait_s`` seconds and a delay of 1 to :data:`LATE_MS_MAX` ms, as real threads run late."""
    return loop.call_later(wait_s + (1 + loop.choices.below(LATE_MS_MAX)) / 1000, work)
