"""The asynchronous strategies' rounds: when a page is dirty enough, when everything goes, what a stop does."""

from __future__ import annotations

import attrs
import pytest

from flintmq.config.sections.models import CommitRealTimeSection, FlushRealTimeSection
from flintmq.core.kernel.ports import FlushContext
from flintmq.core.waiters import DONE, FENCED
from flintmq.flush.real_time import CommitRealTime, FlushRealTime
from flintmq.flush.service_thread import ServiceThread
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.testing.clock import ManualClock
from flintmq.testing.fake_log import FakeLog

PAGE = 4096


def flush_service(log: FakeLog, clock: ManualClock, **changes: object) -> FlushRealTime:
    settings = attrs.evolve(FlushRealTimeSection(), **changes)
    return FlushRealTime(FlushContext(log, clock, settings, None))


def commit_service(log: FakeLog, clock: ManualClock, **changes: object) -> CommitRealTime:
    settings = attrs.evolve(CommitRealTimeSection(), **changes)
    return CommitRealTime(FlushContext(log, clock, settings, None))


def count_wakeups(thread: ServiceThread) -> list[None]:
    calls: list[None] = []
    thread.wakeup = lambda: calls.append(None)  # type: ignore[method-assign]
    return calls


def test_dirty_pages_are_flushed_if_at_least_four_pages_are_dirty_or_after_ten_seconds() -> None:
    """flushCommitLogLeastPages and flushCommitLogThoroughInterval, as RocketMQ counts them."""
    log, clock = FakeLog(), ManualClock()
    flusher = flush_service(log, clock)
    flusher.run_once(clock.monotonic_s())  # the first round is a thorough one
    log.append(4 * PAGE - 1)
    clock.advance_ms(500)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 0
    log.append(1)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 4 * PAGE
    log.append(100)
    clock.advance_ms(9_499)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 4 * PAGE
    clock.advance_ms(1)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 4 * PAGE + 100
    assert flusher.wait_s(clock.monotonic_s()) == pytest.approx(0.5)


def test_a_full_log_file_is_flushed_even_if_fewer_than_four_pages_are_dirty() -> None:
    log, clock = FakeLog(file_bytes=PAGE), ManualClock()
    flusher = flush_service(log, clock)
    flusher.run_once(clock.monotonic_s())
    log.append(2 * PAGE + 10)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 2 * PAGE


def test_an_append_wakes_the_flush_service_only_if_timed_flushing_is_off() -> None:
    """flushCommitLogTimed: a wake-up per append costs the loop thread a thread switch."""
    log, clock = FakeLog(), ManualClock()
    timed, woken = flush_service(log, clock), flush_service(log, clock, timed=False)
    timed_calls, woken_calls = count_wakeups(timed), count_wakeups(woken)
    assert timed.submit(1) is DONE
    assert woken.submit(1) is DONE
    assert (len(timed_calls), len(woken_calls)) == (0, 1)


def test_a_failed_sync_ends_the_flush_service_and_fences_the_store() -> None:
    log, clock = FakeLog(), ManualClock()
    service = flush_service(log, clock)
    log.fail_syncs()
    log.append(100)
    service.run_once(clock.monotonic_s())
    service.run_once(clock.monotonic_s())
    assert service.failure is not None
    assert service.submit(100) is FENCED
    assert service.wait_s(clock.monotonic_s()) is None
    service.stop()
    assert log.calls_after_fence == 0


def test_stopping_the_flush_service_makes_at_most_ten_attempts_if_no_bytes_can_be_flushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that never gets clean must not keep the broker from stopping."""
    log, clock = FakeLog(), ManualClock()
    service = flush_service(log, clock)
    log.append(100)
    calls: list[int] = []

    def stuck(least_pages: int) -> int:
        calls.append(least_pages)
        return 0

    monkeypatch.setattr(log, "flush", stuck)
    service.stop()
    assert calls == [0] * 10


@pytest.mark.parametrize("timed", [True, False])
def test_a_commit_wakes_the_flush_service_unless_it_flushes_at_a_timed_interval(timed: bool) -> None:
    """flushCommitLogTimed: a sync for each commit would be a hundred a second."""
    log, clock = FakeLog(file_bytes=16 * PAGE, pool=AnonymousBufferPool(2, 16 * PAGE)), ManualClock()
    service = commit_service(log, clock, flush_timed=timed)
    woken = count_wakeups(service.flusher)
    service.run_once(clock.monotonic_s())
    assert not woken, "nothing committed, nothing to flush"
    log.append(100)
    clock.advance_ms(100)
    service.run_once(clock.monotonic_s())
    assert log.committed_offset_bytes == 0, "less than four pages, and not yet 200 ms"
    clock.advance_ms(100)
    service.run_once(clock.monotonic_s())
    assert (log.committed_offset_bytes, log.flushed_offset_bytes, len(woken)) == (100, 0, int(not timed))
    service.flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 100
    service.stop()


def test_an_append_wakes_the_commit_service_only_if_enough_pages_are_dirty() -> None:
    log, clock = FakeLog(file_bytes=16 * PAGE, pool=AnonymousBufferPool(2, 16 * PAGE)), ManualClock()
    service = commit_service(log, clock)
    woken = count_wakeups(service)
    assert service.submit(4 * PAGE - 1) is DONE
    assert not woken
    assert service.submit(4 * PAGE) is DONE
    assert len(woken) == 1


def test_a_failed_commit_fences_the_store_and_ends_the_commit_and_flush_services() -> None:
    log, clock = FakeLog(file_bytes=16 * PAGE, pool=AnonymousBufferPool(2, 16 * PAGE)), ManualClock()
    service = commit_service(log, clock)
    log.fail_commits()
    log.append(100)
    service.run_once(clock.monotonic_s())
    assert service.submit(100) is FENCED
    assert service.wait_s(clock.monotonic_s()) is None
    service.run_once(clock.monotonic_s())
    service.stop()
    assert (log.committed_offset_bytes, log.flushed_offset_bytes) == (0, 0)


def test_stopping_the_commit_service_commits_and_flushes_all_bytes() -> None:
    log, clock = FakeLog(file_bytes=PAGE, pool=AnonymousBufferPool(4, PAGE)), ManualClock()
    service = commit_service(log, clock)
    log.append(2 * PAGE + 100)
    service.stop()
    assert log.flushed_offset_bytes == 2 * PAGE + 100
    assert service.submit(1) is FENCED


def test_stopping_the_commit_service_makes_at_most_ten_attempts_if_no_bytes_can_be_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, clock = FakeLog(file_bytes=PAGE, pool=AnonymousBufferPool(1, PAGE)), ManualClock()
    service = commit_service(log, clock)
    log.append(100)
    calls: list[int] = []

    def stuck(least_pages: int) -> int:
        calls.append(least_pages)
        return 0

    monkeypatch.setattr(log, "commit", stuck)
    service.stop()
    assert calls == [0] * 10


def test_a_requested_flush_syncs_even_a_single_dirty_page_in_the_next_round() -> None:
    """However few pages are dirty, and however long the thorough interval is: once."""
    log, clock = FakeLog(), ManualClock()
    flusher = flush_service(log, clock)
    flusher.run_once(clock.monotonic_s())
    woken = count_wakeups(flusher)
    log.append(10)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 0
    flusher.flush_soon()
    assert len(woken) == 1
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 10
    log.append(10)
    flusher.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == 10


def test_uncommitted_bytes_are_committed_before_a_requested_sync() -> None:
    """The sync must cover what is still in the pool when it is asked for."""
    log, clock = FakeLog(), ManualClock()
    service = commit_service(log, clock)
    service.run_once(clock.monotonic_s())
    service.flusher.run_once(clock.monotonic_s())
    log.append(10)
    service.flush_soon()
    service.run_once(clock.monotonic_s())
    service.flusher.run_once(clock.monotonic_s())
    assert (log.committed_offset_bytes, log.flushed_offset_bytes) == (10, 10)
