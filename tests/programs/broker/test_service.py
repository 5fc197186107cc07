"""Persisting offsets, registering and cleaning hang on these timers: one failure must not be the last of their work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.config import load_config
from flintmq.core.kernel.failures import Failures
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.programs.broker.service import Timers, tell_ignored


def run(test: Callable[[asyncio.AbstractEventLoop], object]) -> None:
    """Run a test in a loop; its timers are called by hand, so that nothing waits."""

    async def main() -> None:
        test(asyncio.get_running_loop())

    asyncio.run(main())


class Handles:
    """Takes the place of ``call_later``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, patch: pytest.MonkeyPatch) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0
        patch.setattr(loop, "call_later", self.call_later)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Handles:
        self.waiting.append((delay_s, call))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def tick(self) -> float:
        """Call what is due next; return how long it would have waited."""
        delay_s, call = self.waiting.pop(0)
        call()
        return delay_s


def test_timers_of_a_service_repeat_at_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """``every`` at one interval, ``pace`` at what the work itself asks for."""

    def test(loop: asyncio.AbstractEventLoop) -> None:
        handles, timers, done = Handles(loop, monkeypatch), Timers(), []
        timers.every(5.0, lambda: done.append("every"), "every")
        assert [handles.tick(), handles.tick()] == [5.0, 5.0]
        assert done == ["every", "every"]
        handles.waiting.clear()
        paces = iter([2.0, 3.0, 4.0])
        timers.pace(1.0, lambda: next(paces), "pace")
        assert [handles.tick() for _ in range(3)] == [1.0, 2.0, 3.0]

    run(test)


def test_the_error_of_a_timer_is_logged_and_the_timer_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where somebody else takes note of it, a plugin's failures for instance: then it is not logged twice."""

    def fail() -> None:
        raise ValueError("a defect")

    def test(loop: asyncio.AbstractEventLoop) -> None:
        handles, timers = Handles(loop, monkeypatch), Timers()
        timers.every(5.0, fail, "broken")
        handles.tick()
        assert "the timer 'broken' failed" in caplog.text
        assert handles.tick() == 1.0
        timers.cancel()
        caplog.clear()

    run(test)


def test_a_timer_of_a_plugin_is_ended_after_too_many_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failures are the plugin's, not the broker's."""

    def test(loop: asyncio.AbstractEventLoop) -> None:
        owner, failures = PluginOrigin("mine", PluginSource.PROGRAM), Failures(2)
        handles = Handles(loop, monkeypatch)
        timers = Timers(part_of=lambda name: failures.of(owner, "flintmq_services", name, optional=True))
        timers.every(5.0, lambda: 1 / 0, "broken")
        handles.tick()
        handles.tick()
        assert failures.last_error(owner) == "broken: ZeroDivisionError: division by zero"
        assert failures.errors(owner) == 2
        assert [*timers.alarms()] == []
        handles.tick()
        assert handles.waiting == []
        assert failures.errors(owner) == 2

    run(test)


def test_timers_can_be_run_immediately_and_do_not_run_after_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop cancels all; one that is just running does not come back."""

    def test(loop: asyncio.AbstractEventLoop) -> None:
        handles, timers, done = Handles(loop, monkeypatch), Timers(), []
        timers.every(5.0, lambda: done.append(1), "one")
        timers.every(5.0, timers.cancel, "stop")
        timers.run_now("one")
        assert done == [1]
        _delay_s, stop = handles.waiting.pop(1)
        handles.waiting.clear()
        stop()
        assert handles.cancelled == 2
        assert handles.waiting == []

    run(test)


def test_ignored_settings_of_a_configuration_file_are_logged_by_the_logger_flintmq_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Operators filter by the logger: what a file says in vain is no event of the broker."""
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\nnoSuchKey=1\n")
    tell_ignored(load_config(path, [], {}))
    assert {name for name, _level, _text in caplog.record_tuples} == {"flintmq.config"}


def test_canceling_a_timer_does_not_affect_other_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from its own work; its failures are no alarm any longer, and other timers go on."""

    def test(loop: asyncio.AbstractEventLoop) -> None:
        handles, timers, done = Handles(loop, monkeypatch), Timers(), []

        def fail() -> None:
            done.append("failing")
            if len(done) == 2:
                failing.cancel()
            raise ValueError("a defect")

        failing = timers.every(5.0, fail, "failing")
        handles.tick()
        assert [alarm.subject for alarm in timers.alarms()] == ["failing"]
        handles.tick()
        assert handles.waiting == []
        timers.every(5.0, lambda: done.append("other"), "other")
        failing.cancel()
        handles.tick()
        assert done == ["failing", "failing", "other"]
        assert [*timers.alarms()] == []
        with pytest.raises(KeyError):
            timers.run_now("failing")

    run(test)
