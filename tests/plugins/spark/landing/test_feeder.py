"""The feeder decides when what lands; it never makes dispatch wait, and says what it is at."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest

from flintmq.config.sections.models import LandingSection
from flintmq.plugins.spark.landing.feeder import LandingFeeder
from flintmq.plugins.spark.landing.task import Landed, LandingError, LandingLossError, LandingTroubleError
from flintmq.testing.clock import ManualClock

KIB = 1024
SETTINGS = LandingSection(path="x", roll_bytes=64 * KIB, roll_interval_ms=10_000, queue_bytes=256 * KIB)


class FakeLander:
    """Lands what it is told, up to ``max_bytes`` a step, and fails when scripted."""

    def __init__(self, begin: int) -> None:
        self.committed_bytes = begin
        self.steps: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.closed = 0
        self.aborted = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def land(self, limit_offset_bytes: int, max_bytes: int, *, skip_lost: bool = False) -> Landed:
        if not self.gate.wait(60):
            raise AssertionError("nobody opened the gate")
        if self.aborted.is_set():
            raise LandingTroubleError("the landing process died")
        if self.failures:
            raise self.failures.pop(0)
        start = self.committed_bytes
        self.committed_bytes = min(limit_offset_bytes, start + max_bytes)
        self.steps.append((start, self.committed_bytes))
        return Landed(
            committed_bytes=self.committed_bytes,
            read_to_bytes=self.committed_bytes,
            rows=1,
            files=1,
            file_bytes=10,
            lost_bytes=0,
        )

    def abort(self) -> None:
        self.aborted.set()
        self.gate.set()

    def close(self) -> None:
        self.closed += 1


class Bench:
    """A feeder whose log and clock are moved by hand."""

    def __init__(self, settings: LandingSection = SETTINGS, committed: int | None = None) -> None:
        self.clock = ManualClock()
        self.readable = 0
        self.made: list[FakeLander] = []
        self.refusals: list[Exception] = []
        self.begin = committed or 0
        self.feeder = LandingFeeder(
            self._make, settings, lambda: self.readable, lambda: self.begin, committed, self.clock
        )

    def _make(self, begin: int) -> FakeLander:
        if self.refusals:
            raise self.refusals.pop(0)
        self.made.append(FakeLander(self.made[-1].committed_bytes if self.made else begin))
        return self.made[-1]

    @property
    def lander(self) -> FakeLander:
        return self.made[-1]

    def write(self, count: int) -> None:
        self.readable += count
        self.feeder.offer(self.readable)


def test_messages_are_written_to_the_landing_zone_when_a_time_or_size_limit_is_reached() -> None:
    """roll_interval_ms bounds the age of what is not there yet, roll_bytes the size of a file."""
    bench = Bench()
    feeder = bench.feeder
    assert feeder.run_once() == pytest.approx(1.0)
    bench.write(100)
    assert 0 < feeder.run_once() <= 1.0
    assert bench.lander.steps == []
    bench.clock.advance_ms(9_999)
    assert 0 < feeder.run_once() <= 0.002
    assert feeder.runtime_info()["LagMillis"] == "9999"
    bench.clock.advance_ms(1)
    assert feeder.run_once() == 0
    assert bench.lander.steps == [(0, 100)]
    assert feeder.runtime_info()["LagBytes"] == "0"
    bench.write(64 * KIB)
    assert feeder.run_once() == 0
    assert bench.lander.steps[-1] == (100, 100 + 64 * KIB)
    assert feeder.runtime_info()["Commits"] == "2"
    assert feeder.committed() == 100 + 64 * KIB


def test_the_export_to_the_landing_zone_reads_the_commit_log_if_too_many_messages_wait_in_memory() -> None:
    """Backpressure: with too much waiting, hand-overs are dropped, the log is read in steps, and then it follows again."""
    bench = Bench()
    feeder = bench.feeder
    feeder.run_once()
    assert feeder.runtime_info()["State"] == "following"
    for _ in range(10):
        bench.write(64 * KIB)
    assert int(feeder.runtime_info()["SkippedHandOvers"]) > 0
    assert feeder.run_once() == 0
    assert feeder.runtime_info()["State"] == "catching_up"
    skipped = int(feeder.runtime_info()["SkippedHandOvers"])
    bench.write(10)
    assert int(feeder.runtime_info()["SkippedHandOvers"]) == skipped + 1
    while feeder.run_once() == 0:
        pass
    assert bench.lander.steps == [(at * 64 * KIB, (at + 1) * 64 * KIB) for at in range(10)]
    found = feeder.runtime_info()
    assert (found["State"], found["LagBytes"]) == ("following", "10")
    bench.write(10)
    assert int(feeder.runtime_info()["SkippedHandOvers"]) == skipped + 1
    bench.clock.advance_ms(10_000)
    feeder.run_once()
    assert bench.lander.committed_bytes == bench.readable


def test_messages_stored_while_the_export_to_the_landing_zone_was_off_are_exported_later() -> None:
    """The manifest holds the last position, and the log holds the messages after it."""
    bench = Bench(committed=500)
    bench.readable = 500 + 300 * KIB
    assert bench.feeder.committed() == 500
    bench.feeder.catch_up(500, bench.readable)
    while bench.feeder.run_once() == 0:
        pass
    assert bench.lander.steps[0][0] == 500
    assert bench.readable - bench.lander.committed_bytes < 64 * KIB


def test_failed_writes_to_the_landing_zone_are_retried_with_growing_pauses() -> None:
    """A full disk or a dead process is no reason to stop, and no reason to write a log line a second."""
    bench = Bench()
    feeder = bench.feeder
    feeder.run_once()
    bench.write(64 * KIB)
    bench.lander.failures = [LandingTroubleError("the landing process died")]
    assert feeder.run_once() == 1.0
    assert feeder.runtime_info()["State"] == "retrying"
    assert feeder.runtime_info()["Error"] == "the landing process died"
    assert bench.made[0].closed == 1
    bench.write(64 * KIB)
    assert feeder.run_once() == pytest.approx(1.0), "a batch that comes meanwhile is no reason to try earlier"
    assert len(bench.made) == 1
    bench.clock.advance_ms(1_000)
    bench.refusals = [OSError(28, "No space left on device")]
    assert feeder.run_once() == 2.0
    bench.refusals = [LandingTroubleError("still")] * 10
    pauses = []
    for _ in range(10):
        bench.clock.advance_ms(60_000)
        pauses.append(feeder.run_once())
    assert pauses[-1] == 60.0
    bench.clock.advance_ms(60_000)
    assert feeder.run_once() == 0
    found = feeder.runtime_info()
    assert "Error" not in found
    assert found["Failures"] == "12"
    assert bench.lander.steps == [(0, 64 * KIB)]
    assert feeder.run_once() == 0
    assert feeder.run_once() > 0
    assert feeder.runtime_info()["State"] == "following"


@pytest.mark.parametrize(
    ("error", "lost"),
    [(LandingLossError("deleted; raise store.file_reserved_hours", 100, 5_100), 5_000), (LandingError("foreign"), 0)],
)
def test_a_permanent_error_stops_the_export_to_the_landing_zone_with_a_critical_log_record(
    error: Exception, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No retry can bring deleted files back: it stops, says so in log and figures, and the broker goes on."""
    bench = Bench()
    bench.feeder.run_once()
    bench.write(64 * KIB)
    bench.lander.failures = [error]
    bench.feeder.run_once()
    found = bench.feeder.runtime_info()
    assert (found["State"], found["Error"], found["LostBytes"]) == ("stopped", str(error), str(lost))
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    bench.write(64 * KIB)
    assert bench.feeder.run_once() == 1.0
    assert bench.lander.steps == []


def test_stopping_the_export_to_the_landing_zone_writes_all_waiting_messages() -> None:
    """A clean stop leaves nothing waiting, so that the files are whole without another start."""
    bench = Bench()
    bench.feeder.start()
    bench.write(200 * KIB + 17)
    bench.feeder.close()
    bench.feeder.close()
    assert bench.lander.committed_bytes == bench.readable
    assert bench.lander.closed == 1


def test_stopping_the_export_to_the_landing_zone_aborts_a_hanging_writer_after_the_stop_timeout() -> None:
    """A landing zone on a disk that hangs must not keep the broker from stopping."""
    bench = Bench(attrs.evolve(SETTINGS, stop_timeout_ms=50))
    bench.begin = 0
    entered = threading.Event()
    make = bench.feeder._make_lander

    def stuck(begin: int) -> Any:
        lander = make(begin)
        bench.lander.gate.clear()
        entered.set()
        return lander

    bench.feeder._make_lander = stuck
    bench.readable = 64 * KIB
    bench.feeder.start()
    assert entered.wait(60)
    bench.feeder.close()
    assert bench.lander.aborted.is_set()
    assert bench.lander.steps == []


def test_message_dispatch_never_waits_for_a_hanging_write_to_the_landing_zone() -> None:
    """The broker must keep its speed while a step of the landing zone hangs."""
    bench = Bench()
    bench.feeder.run_once()
    bench.lander.gate.clear()
    bench.feeder.start()
    for _ in range(1_000):
        bench.write(64 * KIB)
    assert int(bench.feeder.runtime_info()["SkippedHandOvers"]) > 900
    bench.lander.gate.set()
    bench.feeder.close()
    assert bench.lander.committed_bytes == bench.readable
