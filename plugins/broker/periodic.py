"""Work that comes back: a timer calls a function again and again on the loop's thread, and survives its failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from flintmq.core.kernel.blame import PLUGIN_FAULTS

log = logging.getLogger("flintmq.broker")


class Timers:
    """The timers of one service. Loop thread."""

    def __init__(self) -> None:
        self.on_failed: Callable[[str, BaseException], bool] = lambda name, error: False
        """Called with what failed in which timer; when it returns False, the failure is logged here."""
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._work: dict[str, Callable[[], float]] = {}
        self._count = 0

    def every(self, interval_s: float, work: Callable[[], object], name: str) -> None:
        """Calls ``work`` every so many seconds, first after one interval."""
        self.pace(interval_s, lambda: _then(work, interval_s), name)

    def pace(self, first_s: float, work: Callable[[], float], name: str) -> None:
        """Calls ``work``, which says after how many seconds it wants to be called again."""
        self._work[name] = work
        key = self._count
        self._count += 1
        loop = asyncio.get_running_loop()

        def tick() -> None:
            wait_s = 1.0
            try:
                wait_s = work()
            except PLUGIN_FAULTS as error:
                if not self.on_failed(f"the timer '{name}'", error):
                    log.exception("the timer '%s' failed; it goes on in %s s", name, wait_s)
            if key in self._handles:
                self._handles[key] = loop.call_later(wait_s, tick)

        self._handles[key] = loop.call_later(first_s, tick)

    def run_now(self, name: str) -> None:
        """Does a timer's work once, at once; when it is due stays as it is. Raises what the work raises."""
        self._work[name]()

    def cancel(self) -> None:
        """Stops all of them."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()


def _then(work: Callable[[], object], interval_s: float) -> float:
    work()
    return interval_s
