"""Detects when the event loop is blocked, for example by a plugin, and shows the stack of the code that blocks it.

A few times a second, the watchdog's thread asks the event loop to run a callback, the *beat*. If the beat has not run after a
fifth of ``loop_blocked_warn_ms``, the watchdog's thread reads the stack of the loop's thread, its innermost lines first. If the
beat has not run after the whole ``loop_blocked_warn_ms``, the watchdog's thread reads the stack again, and counts the loop as
blocked.

The event loop itself runs only the beat. A block is logged at the first, tenth, hundredth … time with the same stack. A loop is
reported as slow if half of the latest beats wait for a fifth of the limit or longer, even if the loop is never blocked for the
whole limit.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Final

from flintmq.config.sections.service import AlarmsSection
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock, stopwatch_of
from flintmq.core.io.threads import daemon_thread
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.core.log_events import event_log
from flintmq.programs.broker.loop_delays import LoopDelays

log = event_log("flintmq.broker")

_PAUSE_SHARE: Final = 0.5
"""Pause between two checks on the event loop, as a share of ``loop_blocked_warn_ms``. A block of the loop that is 1.5 times as
long as ``loop_blocked_warn_ms`` is always detected."""
_SLOW_SHARE: Final = 0.2
"""An event loop counts as slow if its median delay is longer than this share of ``loop_blocked_warn_ms``."""
_JOIN_S: Final = 1.0
_PLACES_MAX: Final = 1_000
_FRAMES_MAX: Final = 12
"""Maximum number of lines of a blocked event loop's stack that are shown."""
_SHOWN_MS: Final = AlarmsSection().slow_shown_ms


class LoopWatchdog:
    """Watches the event loop of one broker. Call :meth:`start` and :meth:`stop` on the loop's thread. Any thread may read the
    figures.

    Args:
        warn_ms: time, in ms, from which on a block of the loop is logged and counted.
        clock: measures how long ago the last block was. The blocks themselves are measured in real time.
        shown_ms: time, in ms, for which a block is shown as an alarm.
    """

    def __init__(self, warn_ms: int, clock: Clock = SYSTEM_CLOCK, shown_ms: int = _SHOWN_MS) -> None:
        self._warn_s = warn_ms / 1000
        self._clock = clock
        self._now_s = stopwatch_of(clock)
        self._shown_s = shown_ms / 1000
        self._last_s: float | None = None
        self._last_ms = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = 0
        self._thread: threading.Thread | None = None
        self._beat = threading.Event()
        self._pause = threading.Event()
        self._stopped = False
        self._seen: dict[str, int] = {}
        self._slow_s = self._warn_s * _SLOW_SHARE
        self._delays = LoopDelays(self._slow_s)
        self._is_slow = False
        self._slow_last_s: float | None = None
        self._slow_ms = 0
        self._slow_by = ""
        self.times = 0
        """Number of times that the event loop was blocked for longer than ``loop_blocked_warn_ms``."""
        self.longest_ms = 0
        self.last = ""
        """Stack of the event loop's thread when the loop was last blocked; empty if the loop was never blocked."""

    def start(self) -> None:
        """Start to watch the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._thread = daemon_thread(self._watch, "flintmq-loop-watchdog")
        self._thread.start()

    def stop(self) -> None:
        """Stop watching the event loop. Idempotent."""
        self._stopped = True
        self._pause.set()
        self._beat.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def figures(self) -> dict[str, str]:
        """Return the figures about a blocked or slow event loop, for answers to GET_BROKER_RUNTIME_INFO (request 28)."""
        return {
            "loopBlockedTimes": str(self.times),
            "loopBlockedMaxMillis": str(self.longest_ms),
            "loopBlockedBy": self.last,
            "loopDelayMedianMillis": str(round(self._delays.median_s * 1000)),
        }

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm if the event loop was blocked or slow recently."""
        now_s, key = self._clock.monotonic_s(), "listen.loop_blocked_warn_ms"
        if self._slow_last_s is not None and now_s - self._slow_last_s <= self._shown_s:
            text = (
                f"everybody is served late: half of all looks at the event loop waited for {self._slow_ms:,} ms or longer; it "
                f"was mostly busy with {self._slow_by}"
            )
            yield Alarm("loop.blocked", WARNING, "", text, self._slow_ms, "ms", round(self._slow_s * 1000), key)
        elif self._last_s is not None and now_s - self._last_s <= self._shown_s:
            text = f"nobody was served for {self._last_ms:,} ms: the event loop was busy with {self.last}"
            limit_ms = round(self._warn_s * 1000)
            yield Alarm("loop.blocked", WARNING, "", text, self._last_ms, "ms", limit_ms, key)

    def _watch(self) -> None:
        assert self._loop is not None
        while True:
            self._beat.clear()
            # clear() may undo the wake-up by a concurrent stop(). The thread still ends, because stop() first sets a flag.
            if self._stopped:
                return
            if self._loop.is_closed():
                return
            asked_s = self._now_s()
            try:
                self._loop.call_soon_threadsafe(self._beat.set)
            except RuntimeError:  # RuntimeError: the event loop was closed after the call of is_closed().
                return
            busy_with = ""
            if not self._beat.wait(self._slow_s):
                busy_with = self._look()
                if not self._beat.wait(self._warn_s - self._slow_s):
                    self._note(self._look())
                    self._beat.wait()
                    took_ms = int((self._now_s() - asked_s) * 1000)
                    self.longest_ms = max(self.longest_ms, took_ms)
                    self._last_ms, self._last_s = took_ms, self._clock.monotonic_s()
            if not self._stopped:
                self._note_delay(self._now_s() - asked_s, busy_with)
            self._pause.wait(self._warn_s * _PAUSE_SHARE)

    def _note_delay(self, delay_s: float, busy_with: str) -> None:
        """Record how late the event loop ran the watchdog's latest callback, and log when the loop becomes slow."""
        self._delays.note(delay_s, busy_with)
        was_slow, self._is_slow = self._is_slow, self._delays.is_slow
        if not self._is_slow:
            return
        self._slow_by = self._delays.busiest()
        self._slow_ms = round(self._delays.median_s * 1000)
        self._slow_last_s = self._clock.monotonic_s()
        if not was_slow:
            log.warning(
                "loop.slow",
                "everybody is served late: half of all looks at the event loop waited for %(median_ms)d ms or longer; "
                "it is mostly busy with %(by)s",
                median_ms=self._slow_ms,
                by=self._slow_by,
            )

    def _note(self, what: str) -> None:
        self.times += 1
        self.longest_ms = max(self.longest_ms, int(self._warn_s * 1000))
        self.last = what
        if what not in self._seen and len(self._seen) >= _PLACES_MAX:
            return
        times = self._seen[what] = self._seen.get(what, 0) + 1
        if str(times).rstrip("0") == "1":
            often = f", for the {times}th time" if times > 1 else ""
            log.warning(
                "loop.blocked",
                "nobody is served for more than %(warn_ms)d ms%(often)s: the event loop is busy with %(by)s",
                warn_ms=round(self._warn_s * 1000),
                often=often,
                by=what,
            )

    def _look(self) -> str:
        """Return the current stack of the event loop's thread, its innermost lines first."""
        places = [
            f"{each.f_code.co_filename}:{each.f_lineno} in {each.f_code.co_qualname}"
            for each in islice(_outwards(_frame_of(self._watched)), _FRAMES_MAX)
        ]
        return ", called from ".join(places) or "?"


def _frame_of(thread: int) -> FrameType | None:
    """Return the current frame of a thread.

    Garbage collection is disabled during the call of ``sys._current_frames``. In CPython 3.11 and 3.12.0, the call holds no
    references to the frames that it reads. A garbage collection would let other threads run, and these threads may free the
    frames. The result of the call would then contain other objects.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if was_enabled:
            gc.enable()


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
