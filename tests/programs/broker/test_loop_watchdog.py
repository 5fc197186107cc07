"""A loop that stands still is noticed, and the log shows the stack that keeps it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

import pytest

from flintmq.programs.broker.loop_delays import LoopDelays
from flintmq.programs.broker.loop_watchdog import LoopWatchdog


def test_the_watchdog_reports_nothing_if_the_event_loop_is_not_blocked() -> None:
    """And a stop is at once, though the watchdog waits for the next beat."""

    async def live() -> LoopWatchdog:
        watchdog = LoopWatchdog(60_000)
        watchdog.start()
        begin_s = time.monotonic()
        watchdog.stop()
        watchdog.stop()
        assert time.monotonic() - begin_s < 0.9
        return watchdog

    watchdog = asyncio.run(live())
    assert (watchdog.times, watchdog.last) == (0, "")
    assert watchdog._thread is not None
    assert not watchdog._thread.is_alive()


def test_the_watchdog_thread_ends_with_its_event_loop() -> None:
    async def live() -> threading.Thread:
        watchdog = LoopWatchdog(20)
        watchdog.start()
        assert watchdog._thread is not None
        return watchdog._thread

    thread = asyncio.run(live())
    thread.join(10)
    assert not thread.is_alive()


def test_the_stack_of_a_blocked_event_loop_is_reported_innermost_line_first() -> None:
    """The innermost line may belong to a library: who called it is beside it."""
    noticed = threading.Event()

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            noticed.set()

    async def live() -> LoopWatchdog:
        watchdog = LoopWatchdog(200)
        watchdog.start()
        assert noticed.wait(30)
        await asyncio.sleep(0)
        watchdog.stop()
        return watchdog

    handler: Any = Notices()
    logging.getLogger("flintmq.broker").addHandler(handler)
    try:
        watchdog = asyncio.run(live())
    finally:
        logging.getLogger("flintmq.broker").removeHandler(handler)
    assert watchdog.times == 1
    assert watchdog.longest_ms >= 200
    assert watchdog.last.startswith(f"{sys.modules['threading'].__file__}:")
    assert f", called from {__file__}:" in watchdog.last
    assert "<locals>.live" in watchdog.last


def test_an_alarm_is_raised_if_the_event_loop_is_permanently_slow(caplog: pytest.LogCaptureFixture) -> None:
    """At a median of 400 ms nobody was told anything, because no single block took 500."""
    told = threading.Event()

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def live() -> LoopWatchdog:
        watchdog = LoopWatchdog(5_000)
        watchdog._slow_s, watchdog._delays = 0.002, LoopDelays(0.002)
        watchdog._pause.set()  # it looks again at once
        watchdog.start()
        deadline_s = time.monotonic() + 30
        while not told.is_set() and time.monotonic() < deadline_s:
            told.wait(0.005)  # blocks the loop
            await asyncio.sleep(0)
        watchdog.stop()
        return watchdog

    handler: Any = Notices()
    logging.getLogger("flintmq.broker").addHandler(handler)
    try:
        watchdog = asyncio.run(live())
    finally:
        logging.getLogger("flintmq.broker").removeHandler(handler)
    (line,) = [line for line in caplog.messages if "served late" in line]
    assert __file__ in line
    (alarm,) = watchdog.alarms()
    assert (alarm.id, alarm.level, alarm.unit) == ("loop.blocked", "warning", "ms")
    assert "everybody is served late" in alarm.message
    assert watchdog.times == 0, "it never stood still for long"
    assert int(watchdog.figures()["loopDelayMedianMillis"]) >= 2
