"""Work takes as long as it takes whatever a clock says that is moved by hand; only a simulation decides that, too."""

from __future__ import annotations

import asyncio
import time

from flintmq.core.io.clock import SYSTEM_CLOCK, stopwatch_of, thread_time_of
from flintmq.testing.choices import Choices
from flintmq.testing.clock import ManualClock
from flintmq.testing.seeded_loop import SeededClock, SeededLoop


def test_system_and_manual_clocks_measure_elapsed_and_cpu_time_with_operating_system_timers() -> None:
    """Hot paths call these functions, so the clocks must offer the system's functions themselves."""
    for clock in (SYSTEM_CLOCK, ManualClock()):
        assert stopwatch_of(clock) is time.perf_counter
        assert thread_time_of(clock) is time.thread_time


def test_the_clock_of_a_seeded_simulation_measures_elapsed_and_cpu_time_in_simulated_time() -> None:
    loop = SeededLoop(Choices(0))
    clock = SeededClock(loop)

    async def main() -> list[float]:
        began = stopwatch_of(clock)(), thread_time_of(clock)()
        await asyncio.sleep(3600)
        return [stopwatch_of(clock)() - began[0], thread_time_of(clock)() - began[1]]

    assert all(3600 <= took_s < 3601 for took_s in loop.run(main()))
