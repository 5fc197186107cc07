"""A clock that does its work out of order, too late or twice makes tests pass that should fail."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from flintmq.config.errors import ConfigError
from flintmq.remoting.client.blocking import LoopThread
from flintmq.testing.clock import VirtualClock

BEGIN_MS = 1_700_000_000_000


class Bench:
    """A clock, a loop in a thread, and what was done at which second since the beginning."""

    def __init__(self, clock: VirtualClock, thread: LoopThread) -> None:
        self.clock = clock
        self.thread = thread
        self.done: list[tuple[str, float]] = []
        self.loop = self.here(asyncio.get_running_loop)

    def here(self, work: Callable[[], Any]) -> Any:
        """Do something on the loop's thread."""

        async def run() -> Any:
            return work()

        return self.thread.run(run())

    def note(self, name: str) -> None:
        self.done.append((name, (self.clock.now_ms() - BEGIN_MS) / 1000))

    def later(self, delay_s: float, name: str, then: Callable[[], object] = lambda: None, **options: Any) -> Any:
        """Have a name noted later, and something done after it."""

        def work() -> None:
            self.note(name)
            then()

        return self.here(lambda: self.clock.call_later(self.loop, delay_s, work, **options))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(BEGIN_MS)


@pytest.fixture
def bench(clock: VirtualClock) -> Iterator[Bench]:
    thread = LoopThread()
    yield Bench(clock, thread)
    thread.stop()


def test_due_callbacks_run_in_the_order_of_their_times(bench: Bench) -> None:
    """Callbacks of the same time run in the order of scheduling, and none runs after the end of the advance."""
    for delay_s, name in ((2.0, "d"), (1.0, "b"), (0.5, "a"), (1.0, "c"), (3.001, "f"), (3.0, "e")):
        bench.later(delay_s, name)
    bench.clock.advance("999ms")
    assert bench.done == [("a", 0.5)]
    bench.clock.advance(timedelta(seconds=2, milliseconds=1))
    assert bench.done == [("a", 0.5), ("b", 1.0), ("c", 1.0), ("d", 2.0), ("e", 3.0)]
    assert (bench.clock.now_ms(), bench.clock.monotonic_s()) == (BEGIN_MS + 3_000, 1_003.0)


def test_a_callback_can_schedule_itself_again(bench: Bench) -> None:
    """Periodic work is nothing else; what it asks for at once comes before time goes on."""

    def again() -> None:
        bench.clock.call_later(bench.loop, 0.0, lambda: bench.note("at once"))
        bench.clock.call_later(bench.loop, 1.0, lambda: bench.note("again"))

    bench.later(1.0, "first", again)
    bench.later(1.001, "other")
    bench.clock.advance("2s")
    assert bench.done == [("first", 1.0), ("at once", 1.0), ("other", 1.001), ("again", 2.0)]


def test_ready_callbacks_run_before_time_advances(bench: Bench) -> None:
    """A delivered message wakes a held pull that way: its answer must not carry a later time."""
    bench.later(1.0, "due", lambda: bench.loop.call_soon(bench.note, "soon"))
    bench.later(1.001, "next")
    bench.clock.advance("2s")
    assert bench.done == [("due", 1.0), ("soon", 1.0), ("next", 1.001)]


def test_callbacks_without_delay_run_without_advancing_the_clock(bench: Bench) -> None:
    """A callback with any delay, however small, waits for the clock."""
    bench.later(0.0, "now")
    bench.later(-1.0, "late")
    bench.later(0.0001, "soon")
    bench.here(lambda: None)
    assert [name for name, _at_s in bench.done] == ["now", "late"]
    bench.clock.advance("1ms")
    assert bench.done[2:] == [("soon", 0.001)]


def test_a_canceled_callback_does_not_run(bench: Bench) -> None:
    """Not even when something of the same moment cancels it; to cancel again, or afterwards, is allowed."""
    second = bench.later(1.0, "second")
    bench.later(0.0, "nobody").cancel()
    third = bench.later(1.0, "third", second.cancel)
    fifth: list[Any] = []
    bench.later(2.0, "fourth", lambda: fifth[0].cancel())
    fifth.append(bench.later(2.0, "fifth"))
    second.cancel()
    bench.clock.advance("3s")
    third.cancel()
    assert [name for name, _at_s in bench.done if name != "nobody"] == ["third", "fourth"]


def test_advancing_the_virtual_clock_skips_periodic_checks_while_no_work_is_due(bench: Bench) -> None:
    """A broker checks twenty times a second, so a day of two million checks would take too long."""
    due_s = [math.inf]

    def look() -> None:
        if due_s[0] <= bench.clock.monotonic_s():
            due_s[0] = math.inf
            bench.note("found")
        looks.append(bench.clock.monotonic_s())
        bench.clock.call_later(bench.loop, 0.05, look, lambda: due_s[0] - bench.clock.monotonic_s())

    looks: list[float] = []
    bench.here(look)
    bench.later(100.0, "comes", lambda: due_s.__setitem__(0, bench.clock.monotonic_s() + 5.0))
    bench.later(200.0, "comes at once", lambda: due_s.__setitem__(0, 0.0))
    bench.clock.advance("1d")
    assert bench.done == [("comes", 100.0), ("found", 105.0), ("comes at once", 200.0), ("found", 200.0)]
    assert len(looks) == 3


def test_callbacks_of_two_event_loops_run_in_the_order_of_virtual_time(bench: Bench) -> None:
    """A master and a slave on one clock, for instance."""
    thread = LoopThread()
    other = Bench(bench.clock, thread)
    other.done = bench.done
    try:
        for number in range(1, 7):
            (bench if number % 2 else other).later(float(number), str(number))
        bench.clock.advance("6s")
    finally:
        thread.stop()
    assert bench.done == [(str(number), float(number)) for number in range(1, 7)]
    other.clock.advance("1s")


def test_an_error_of_a_callback_goes_to_the_exception_handler_of_the_loop(bench: Bench) -> None:
    """The same happens in real time, and later callbacks still run."""
    failed: list[Any] = []
    bench.here(lambda: bench.loop.set_exception_handler(lambda _loop, context: failed.append(context["exception"])))
    bench.later(1.0, "broken", lambda: 1 // 0)
    bench.later(2.0, "whole")
    bench.clock.advance("2s")
    assert [type(error) for error in failed] == [ZeroDivisionError]
    assert bench.done == [("broken", 1.0), ("whole", 2.0)]


def test_advancing_the_virtual_clock_on_the_thread_of_the_event_loop_raises_runtime_error(bench: Bench) -> None:
    """A test with an event loop would hang otherwise; the text says what to write instead."""
    bench.later(1.0, "due")
    with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
        bench.here(lambda: bench.clock.advance("1s"))

    async def elsewhere() -> None:
        await asyncio.to_thread(bench.clock.advance, "1s")

    bench.thread.run(elsewhere())
    assert bench.done == [("due", 1.0)]


def test_callbacks_of_a_closed_loop_are_dropped(clock: VirtualClock) -> None:
    """A loop that is open but does not run is an error, because the clock would wait forever."""
    loop = asyncio.new_event_loop()
    clock.call_later(loop, 1.0, lambda: None)
    with pytest.raises(RuntimeError, match="does not run"):
        clock.advance("1s")
    loop.close()
    clock.advance("1s")
    assert clock.now_ms() == BEGIN_MS + 1_000


def test_subscribers_of_the_virtual_clock_are_called_before_and_after_every_advance_of_its_time(
    clock: VirtualClock,
) -> None:
    """Before time moves and after it, on the thread that moves it."""
    seen: list[tuple[int, bool]] = []
    for event in (clock.advancing, clock.advanced):
        event.subscribe(lambda: seen.append((clock.now_ms() - BEGIN_MS, threading.current_thread() is here)))
    here = threading.current_thread()
    clock.advance("1s")
    clock.advance_ms(5)
    assert seen == [(0, True), (1_000, True), (1_000, True), (1_005, True)]


def test_a_duration_without_unit_or_with_a_negative_value_is_refused(clock: VirtualClock) -> None:
    """A slip of the pen must not pass as no time at all."""
    with pytest.raises(ConfigError, match="2 hours"):
        clock.advance("2 hours")
    with pytest.raises(ValueError, match="forward"):
        clock.advance(timedelta(seconds=-1))
    assert clock.now_ms() == BEGIN_MS
