"""Clients for callers without an event loop: the loop runs in a daemon thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread. Thread-safe."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. Never call it on the loop's own thread."""
        return self.start(work).result()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def is_stopped(self) -> bool:
        return self._loop.is_closed()

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
