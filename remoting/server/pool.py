"""Pools of requests. A pool limits the unanswered requests of its codes, and may run blocking handlers in threads."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

from flintmq.core.errors import RefusedError
from flintmq.core.io.threads import daemon_thread
from flintmq.core.kernel.failures import PLUGIN_FAULTS
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode

log: Final = event_log("flintmq.remoting")

_Job = tuple[Callable[[Request], Any], Request, "asyncio.Future[Any]"]


class Pool:
    """A bounded queue of requests that a server has accepted and not answered yet. Used only on the event loop's thread.

    Args:
        name: name of the pool; ``admission.<name>_queue`` of the configuration sets its capacity.
        capacity: largest number of requests under way.
        key: the configuration key of the capacity, if it differs from ``admission.<name>_queue``.
        threads: threads that run the handlers that are not ``async def``; None runs them on the loop.
    """

    __slots__ = ("capacity", "key", "name", "refused", "threads", "waiting")

    def __init__(self, name: str, capacity: int, *, key: str = "", threads: HandlerThreads | None = None) -> None:
        self.name = name
        self.capacity = capacity
        self.key = key or f"admission.{name}_queue"
        self.threads = threads
        self.waiting = 0
        """Number of the pool's requests that were accepted and not answered yet."""
        self.refused = 0
        """Number of requests that were refused because the pool was full."""

    def overload(self) -> RefusedError:
        """Count a request that the pool's full queue cannot accept, and return the refusal of the request."""
        self.refused += 1
        return RefusedError(
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]system busy, start flow control for a while",
            reason="queue.full",
            measured=f"{self.waiting} requests in queue {self.name}",
            key=self.key,
        )


class HandlerThreads:
    """The threads of one pool of requests.

    The methods are called on the event loop's thread. The handlers of requests run in the pool's threads.

    Args:
        name: name of the pool, for the names of the threads and the log.
        threads: largest number of threads. Each is started when a request needs it.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads_max = threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._closed = False

    def grow(self, threads: int) -> None:
        """Raise the maximum number of the pool's threads to `threads`. A lower number than the present one has no effect.

        Request processors that share a pool thus get the highest number that one of them needs.
        """
        self.threads_max = max(self.threads_max, threads)

    def behind(self, handler: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Any]]:
        """Return a coroutine function that runs a request's handler in the pool's threads.

        If the handler returns a coroutine, the coroutine runs on the event loop.
        """

        async def run(request: Request) -> Any:
            result = await self._run(handler, request)
            return await result if asyncio.iscoroutine(result) else result

        return run

    def _run(self, handler: Callable[[Request], Any], request: Request) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(RuntimeError(f"the pool {self.name} is closed"))
            return future
        self._under_way += 1
        if len(self._threads) < min(self._under_way, self.threads_max):
            thread = daemon_thread(self._work, f"flintmq-{self.name}-{len(self._threads)}")
            self._threads.append(thread)
            thread.start()
        self._jobs.put((handler, request, future))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            handler, request, future = job
            # If the stop of the broker has cancelled the future, the request is not handled: no client waits for its answer.
            if future.cancelled():
                self._tell(future, None, None)
                continue
            try:
                result, error = handler(request), None
            except PLUGIN_FAULTS as failure:
                result, error = None, failure
            self._tell(future, result, error)

    def _tell(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        # A RuntimeError means that the event loop is closed, because the stop of the server did not wait for the worker thread.
        with contextlib.suppress(RuntimeError):
            future.get_loop().call_soon_threadsafe(self._done, future, result, error)

    def _done(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._under_way -= 1
        if future.done():
            if asyncio.iscoroutine(result):
                result.close()
            return
        # SystemExit would end the event loop, and futures reject StopIteration, so both are wrapped in a RuntimeError.
        if isinstance(error, (SystemExit, StopIteration)):
            named = RuntimeError(f"a handler raised {type(error).__name__}")
            named.__cause__ = error
            error = named
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    async def close(self, timeout_s: float) -> list[str]:
        """End the pool's threads. Idempotent.

        A thread whose handler does not return in time continues. The place where it runs is logged and returned.

        Args:
            timeout_s: seconds to wait for running handlers.

        Returns:
            The place of each thread that has not ended: ``thread at file:line in function``.
        """
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + timeout_s
        # The threads are polled, because a thread cannot be awaited. Polling costs little, because a pool is rarely stopped.
        while any(t.is_alive() for t in self._threads) and now_s() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        stuck = [thread for thread in self._threads if thread.is_alive()]
        self._threads.clear()
        frames = sys._current_frames()
        places = []
        for thread in stuck:
            frame = frames.get(thread.ident or 0)
            last = traceback.extract_stack(frame)[-1] if frame is not None else None
            place = f"{last.filename}:{last.lineno} in {last.name}" if last is not None else "its end"
            places.append(f"{thread.name} at {place}")
            log.error(
                "pool.stuck",
                "pool %(pool)s: a handler does not return, so its thread still runs after the stop: %(place)s",
                pool=self.name,
                place=places[-1],
            )
        return places
