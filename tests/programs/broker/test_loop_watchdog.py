"""The watchdog reads other modules' frames by name: a function that is renamed must not make it blind."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import sys
import threading
import time
from types import CodeType
from typing import Any

import pytest

from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.programs.broker.loop_delays import LoopDelays
from flintmq.programs.broker.loop_watchdog import CALLERS, LoopWatchdog

MINE = PluginOrigin("mine", PluginSource.PROGRAM)


def codes(code: CodeType) -> set[str]:
    """The qualified names of all functions in a module's code."""
    inner = [codes(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return {code.co_qualname}.union(*inner)


@pytest.mark.parametrize(("module", "name"), list(CALLERS), ids=str)
def test_the_functions_that_it_knows_exist(module: str, name: str) -> None:
    assert name in codes(compile(inspect.getsource(importlib.import_module(module)), module, "exec"))


def test_a_loop_that_runs_is_left_alone() -> None:
    """And a stop is at once, though the watchdog waits for the next beat."""

    async def live() -> LoopWatchdog:
        watchdog = LoopWatchdog(60_000, lambda module, name: MINE)
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


def test_it_ends_with_a_loop_that_nobody_stopped_it_for() -> None:
    async def live() -> threading.Thread:
        watchdog = LoopWatchdog(20, lambda module, name: None)
        watchdog.start()
        assert watchdog._thread is not None
        return watchdog._thread

    thread = asyncio.run(live())
    thread.join(10)
    assert not thread.is_alive()


def test_code_of_no_plugin_is_named_by_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """A program that embeds a broker may block its own loop."""
    noticed = threading.Event()

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            noticed.set()

    async def live() -> LoopWatchdog:
        watchdog = LoopWatchdog(200, lambda module, name: None)
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
    assert watchdog.last.startswith("code of no plugin, at ")
    assert sys.modules["threading"].__file__ in watchdog.last  # type: ignore[operator]


def test_a_loop_that_is_slow_all_the_time_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """At a median of 400 ms nobody was told anything, because no single block took 500."""
    told = threading.Event()

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def live() -> LoopWatchdog:
        watchdog = LoopWatchdog(5_000, lambda module, name: MINE)
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
    assert "mine" in line
    (alarm,) = watchdog.alarms()
    assert (alarm.id, alarm.level, alarm.unit) == ("loop.blocked", "warning", "ms")
    assert "everybody is served late" in alarm.message
    assert watchdog.times == 0, "it never stood still for long"
    assert int(watchdog.figures()["loopDelayMedianMillis"]) >= 2
