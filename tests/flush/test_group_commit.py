"""Group commit's rounds and deadlines, at times the test chooses: no thread, no sleep."""

from __future__ import annotations

import threading

import pytest

from flintmq.config.sections.models import GroupCommitSection
from flintmq.core.kernel.ports import FlushContext, FlushStatus
from flintmq.core.waiters import DONE, FENCED
from flintmq.flush.group_commit import DeadlineWatcher, GroupCommit, PendingWaiters
from flintmq.testing.clock import ManualClock
from flintmq.testing.fake_log import FakeLog


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log() -> FakeLog:
    return FakeLog(file_bytes=8192)


@pytest.fixture
def service(log: FakeLog, clock: ManualClock) -> GroupCommit:
    """A service whose thread is never started: the test plays the thread."""
    return GroupCommit(FlushContext(log, clock, GroupCommitSection(), None))


def put(log: FakeLog, size_bytes: int = 100) -> int:
    end = log.append(size_bytes)
    assert end is not None
    return end


def test_one_sync_completes_all_waiters_whose_positions_it_makes_durable(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """That is what makes group commit cheap: many waiters, one sync."""
    waiters = [service.submit(put(log)) for _ in range(50)]
    assert {waiter.status for waiter in waiters} == {None}
    service.run_once(clock.monotonic_s())
    assert {waiter.status for waiter in waiters} == {FlushStatus.FLUSHED}
    assert log.sync_calls == [(0, 5000)]
    assert service.statistics().waiters == 50


def test_one_round_of_group_commit_syncs_all_log_files_with_unsynced_messages(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """A flush call handles one file, and RocketMQ tries only twice."""
    waiter = service.submit(put(log, 8192 * 4))
    service.run_once(clock.monotonic_s())
    assert waiter.status is FlushStatus.FLUSHED
    assert len(log.sync_calls) == 4


def test_the_default_deadline_of_a_waiter_is_exactly_five_seconds(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """syncFlushTimeout is 5000 ms: clients are built around it."""
    watcher = service._watcher
    first = service.submit(put(log))
    clock.advance_ms(1_000)
    second = service.submit(put(log))
    watcher.run_once(clock.monotonic_s())
    assert watcher.wait_s(clock.monotonic_s()) == pytest.approx(4.0)
    clock.advance_ms(3_999)
    watcher.run_once(clock.monotonic_s())
    assert first.status is None
    clock.advance_ms(1)
    watcher.run_once(clock.monotonic_s())
    assert (first.status, second.status) == (FlushStatus.TIMEOUT, None)
    assert watcher.wait_s(clock.monotonic_s()) == pytest.approx(1.0)
    service.run_once(clock.monotonic_s())
    watcher.run_once(clock.monotonic_s())
    assert (first.status, second.status) == (FlushStatus.TIMEOUT, FlushStatus.FLUSHED)
    assert watcher.wait_s(clock.monotonic_s()) is None, "an idle watcher does not wake"
    assert service.statistics().timeouts == 1


def test_several_new_flush_requests_wake_the_timeout_thread_only_once(log: FakeLog, clock: ManualClock) -> None:
    """A wake-up per append would cost a thread switch per append."""
    waiters = PendingWaiters()
    watcher = DeadlineWatcher(FlushContext(log, clock, None, None), waiters)
    woken: list[bool] = []
    watcher.wakeup = lambda: woken.append(True)  # type: ignore[method-assign]
    for end in (1, 2, 3):
        waiters.add(end, clock.monotonic_s() + 5)
        watcher.arm()
    assert woken == [True]
    waiters.complete_flushed(3)
    watcher.run_once(clock.monotonic_s())
    waiters.add(4, clock.monotonic_s() + 5)
    watcher.arm()
    assert woken == [True, True]


def test_a_flush_request_that_arrives_during_a_timeout_check_can_still_time_out(
    log: FakeLog, clock: ManualClock
) -> None:
    """Between "nobody waits" and "disarmed" lies a gap: a waiter that falls into it would have no deadline."""

    class Gap(PendingWaiters):
        looked = False

        def complete_expired(self, now_s: float) -> float | None:
            next_deadline_s = super().complete_expired(now_s)
            if not self.looked:
                self.looked = True
                self.add(1, now_s + 5)
            return next_deadline_s

    watcher = DeadlineWatcher(FlushContext(log, clock, None, None), Gap())
    watcher.run_once(clock.monotonic_s())
    assert watcher.wait_s(clock.monotonic_s()) == pytest.approx(5.0)


def test_a_group_commit_round_without_waiters_syncs_messages_that_are_not_yet_on_disk(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """Messages with WAIT=false are not waited for, but must not stay in the page cache."""
    end = put(log)
    service.run_once(clock.monotonic_s())
    assert log.flushed_offset_bytes == end
    service.run_once(clock.monotonic_s())
    assert len(log.sync_calls) == 1, "a clean log costs no sync"
    assert service.wait_s(clock.monotonic_s()) == pytest.approx(0.010)


def test_neither_pending_nor_later_waiters_are_acknowledged_after_a_sync_has_failed(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """After a failed sync the kernel may call lost pages clean: a second try would lie.

    See docs/internals/reliability.md, Acknowledgements.
    """
    log.fail_syncs()
    waiters = [service.submit(put(log)) for _ in range(3)]
    service.run_once(clock.monotonic_s())
    assert {waiter.status for waiter in waiters} == {FlushStatus.FENCED}
    assert service.submit(put(log)) is FENCED
    assert service.submit(0) is FENCED, "not even what is flushed: the reason to ask is an acknowledgement"
    service.run_once(clock.monotonic_s())
    service.stop()
    assert log.calls_after_fence == 0
    assert service.wait_s(clock.monotonic_s()) is None
    assert "scripted" in str(service.failure)


def test_no_waiter_is_acknowledged_if_the_second_of_two_log_files_fails_to_sync(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """What lies in the file that was synced is durable, but the fence is for good: silence is the safe answer."""
    log.fail_syncs(after=1)
    within, beyond = service.submit(put(log)), service.submit(put(log, 9000))
    service.run_once(clock.monotonic_s())
    assert beyond.status is FlushStatus.FENCED
    assert within.status is FlushStatus.FENCED


def test_waiters_are_completed_with_an_error_status_if_a_log_flush_raises_an_unexpected_exception(
    service: GroupCommit, log: FakeLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in the log must not leave the clients waiting on a dead thread."""

    def broken(least_pages: int) -> int:
        raise ZeroDivisionError("bug")

    waiter = service.submit(put(log))
    monkeypatch.setattr(log, "flush", broken)
    service.run_once(clock.monotonic_s())
    assert waiter.status is FlushStatus.FENCED
    assert isinstance(service.failure, ZeroDivisionError)


def test_a_waiter_for_a_position_beyond_the_log_does_not_delay_waiters_for_existing_positions(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """No progress ends the round, and only those who are covered are done."""
    never = service.submit(10_000)
    written = service.submit(put(log))
    service.run_once(clock.monotonic_s())
    assert (never.status, written.status) == (None, FlushStatus.FLUSHED)
    service.stop()
    assert never.status is FlushStatus.FENCED


def test_a_group_commit_service_that_was_never_started_can_be_stopped(service: GroupCommit, log: FakeLog) -> None:
    """A broker that fails half-way through its start still stops cleanly."""
    waiter = service.submit(put(log))
    service.stop()
    service.start()
    assert waiter.status is FlushStatus.FLUSHED
    assert service.submit(put(log)) is FENCED
    service.stop()


def test_stopping_group_commit_does_not_wait_for_a_hanging_sync(log: FakeLog, clock: ManualClock) -> None:
    """Stopping must end even when the disk never answers, and tell nobody FLUSHED."""
    service = GroupCommit(FlushContext(log, clock, GroupCommitSection(sync_flush_timeout_ms=20), None))
    service.start()
    log.hold_syncs()
    waiter = service.submit(put(log))
    assert log.wait_sync_entered(5)
    service.stop()
    assert waiter.status is FlushStatus.FENCED
    log.release_syncs()
    assert service.end(5), "the thread ends when the disk answers after all"


def test_a_flush_request_for_an_already_flushed_position_completes_at_once(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    end = put(log)
    service.run_once(clock.monotonic_s())
    assert service.submit(end) is DONE
    assert service.submit(end - 50) is DONE


def test_a_group_commit_interval_of_0_is_treated_as_one_millisecond(log: FakeLog, clock: ManualClock) -> None:
    service = GroupCommit(FlushContext(log, clock, GroupCommitSection(interval_ms=0), None))
    assert service.wait_s(clock.monotonic_s()) == pytest.approx(0.001)


def test_an_idle_group_commit_service_lengthens_its_interval(
    service: GroupCommit, log: FakeLog, clock: ManualClock
) -> None:
    """100 looks a second for nothing are half a percent of a core; the first bytes bring the pace back."""
    for _ in range(100):
        assert service.wait_s(clock.monotonic_s()) == pytest.approx(0.010)
        service.run_once(clock.monotonic_s())
    assert service.wait_s(clock.monotonic_s()) == pytest.approx(0.100)
    put(log)
    service.run_once(clock.monotonic_s())
    assert service.wait_s(clock.monotonic_s()) == pytest.approx(0.010)


def test_group_commit_completes_every_flush_request_that_is_submitted_during_a_sync() -> None:
    """The list is shared by three threads; every waiter must come out of it exactly once."""
    log = FakeLog(file_bytes=4096)
    service = GroupCommit(FlushContext(log, ManualClock(), GroupCommitSection(interval_ms=1), None))
    service.start()
    completed: list[tuple[int, FlushStatus, int]] = []
    all_done = threading.Event()
    count = 3_000

    def submit(number: int) -> None:
        end = put(log, 7)

        def done(status: FlushStatus) -> None:
            completed.append((number, status, log.flushed_offset_bytes - end))
            if len(completed) == count:
                all_done.set()

        service.submit(end).add_done_callback(done)

    for number in range(count):
        submit(number)
    assert all_done.wait(10)
    service.stop()
    assert sorted(number for number, _, _ in completed) == list(range(count))
    assert {status for _, status, _ in completed} == {FlushStatus.FLUSHED}
    assert min(ahead for _, _, ahead in completed) >= 0
    statistics = service.statistics()
    assert statistics.waiters == count
    assert statistics.synced_bytes == 7 * count


def test_pending_waiters_are_completed_in_the_order_of_their_log_positions() -> None:
    waiters = PendingWaiters()
    late, early = waiters.add(200, 9.0), waiters.add(100, 9.0)
    assert waiters.complete_flushed(150) == 1
    assert (late.status, early.status) == (None, FlushStatus.FLUSHED)
    assert waiters.newest_end_bytes == 200
    assert waiters.complete_flushed(200) == 1
    assert waiters.newest_end_bytes == 0
    assert len(waiters) == 0


def test_no_flush_request_is_acknowledged_after_the_list_of_waiting_requests_is_closed() -> None:
    waiters = PendingWaiters()
    left = waiters.add(100, 9.0)
    assert waiters.close() == 1
    assert left.status is FlushStatus.FENCED
    assert waiters.add(100, 9.0) is FENCED
    assert waiters.close() == 0
    assert waiters.completed == 2
