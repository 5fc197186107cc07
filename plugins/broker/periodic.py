"""Work that comes back: a timer calls a function again and again on the loop's thread, and survives its failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from flintmq.core.kernel.blame import PLUGIN_FAULTS

log = logging.getLogger("flintmq.broker")


class Timers:
    """The timers of one server. Loop thread.

    Args:
        failed: called with which timer failed, and with what; when it returns False, the failure is logged here.
    """

    def __init__(self, failed: Callable[[str, BaseException], bool] = lambda name, error: False) -> None:
        self._failed = failed
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._work: dict[str, Callable[[], float]] = {}
        self._count = 0

    def every(self, interval_s: float, work: Callable[[], object], name: str) -> None:
        """Call ``work`` every so many seconds, first after one interval."""
        self.pace(interval_s, lambda: _then(work, interval_s), name)

    def pace(self, first_s: float, work: Callable[[], float], name: str) -> None:
        """Call ``work``, which returns after how many seconds it is to be called again."""
        self._work[name] = work
        key = self._count
        self._count += 1
        loop = asyncio.get_running_loop()

        def tick() -> None:
            wait_s = 1.0
            try:
                wait_s = work()
            except PLUGIN_FAULTS as error:
                if not self._failed(f"the timer '{name}'", error):
                    log.exception("the timer '%s' failed; it goes on in %s s", name, wait_s)
            if key in self._handles:
                self._handles[key] = loop.call_later(wait_s, tick)

        self._handles[key] = loop.call_later(first_s, tick)

    def run_now(self, name: str) -> None:
        """Do the work of a timer once, now; when it is due does not change. Raises what the work raises."""
        self._work[name]()

    def cancel(self) -> None:
        """Stop all of them."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()


def _then(work: Callable[[], object], interval_s: float) -> float:
    work()
    return interval_s
