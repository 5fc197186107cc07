"""A kit that misses a planted bug proves nothing: each of these services breaks one rule and must be found out."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from flintmq.config.sections.models import CommitRealTimeSection, FlushRealTimeSection, GroupCommitSection
from flintmq.core.errors import StoreFencedError
from flintmq.core.kernel.ports import FlushContext, FlushStatus, FlushWaiter, TransientStorePool
from flintmq.core.waiters import DONE, PendingWaiter
from flintmq.flush.group_commit import DeadlineWatcher, GroupCommit
from flintmq.flush.real_time import CommitRealTime, FlushRealTime
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.testing import flush_kit
from flintmq.testing.failure import KitFailure
from flintmq.testing.flush_kit import check_flush_service
from flintmq.testing.pool_kit import check_transient_store_pool

GROUP = GroupCommitSection(sync_flush_timeout_ms=50, interval_ms=2)
REAL_TIME = FlushRealTimeSection(interval_ms=2, least_pages=4, thorough_interval_ms=4, timed=False)
COMMIT = CommitRealTimeSection(
    interval_ms=2, thorough_interval_ms=4, flush_interval_ms=2, flush_least_pages=4, flush_thorough_interval_ms=4
)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is waited for to the end: 0.4 s is long enough for what does."""
    monkeypatch.setattr(flush_kit, "PATIENCE_S", 0.4)


class AcknowledgesBeforeTheSync(GroupCommit):
    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        super().submit(end_offset_bytes)
        return DONE


class AcknowledgesWithoutASync(GroupCommit):
    """Its thread does all but the sync."""

    def _sync_to(self, target_bytes: int) -> None:
        self._waiters.complete_flushed(target_bytes)


class AcknowledgesAndForgets(AcknowledgesWithoutASync):
    """Breaks every other rule as well: what matters most is told, not what is looked at first."""

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        return DONE

    def finish(self) -> None:
        """Makes nothing durable."""


class SyncsInSubmit(GroupCommit):
    """Correct, but the event loop stands still during each sync."""

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        waiter = super().submit(end_offset_bytes)
        self.run_once(self._clock.monotonic_s())
        return waiter


class AdvancesAfterAFailedSync(GroupCommit):
    """What RocketMQ does (docs/internals/algorithms.md, Flush strategies)."""

    def _sync_to(self, target_bytes: int) -> None:
        try:
            self._syncs.flush_to(target_bytes)
        except StoreFencedError as error:
            self._failure = error
        self._waiters.complete_flushed(target_bytes)


class TriesAFailedSyncAgain(GroupCommit):
    def _sync_to(self, target_bytes: int) -> None:
        try:
            self._waiters.complete_flushed(self._syncs.flush_to(target_bytes))
        except StoreFencedError:
            while len(self._waiters):
                self._waiters.complete_expired(float("inf"))


class ForgetsTheFence(GroupCommit):
    """Refuses those who wait, but takes new ones in."""

    def _sync_to(self, target_bytes: int) -> None:
        try:
            self._waiters.complete_flushed(self._syncs.flush_to(target_bytes))
        except StoreFencedError as error:
            self._failure = error
            self._waiters.close()
            self._waiters._closed = False


class LosesWaitersOnStop(GroupCommit):
    def stop(self) -> None:
        self._waiters._pending.clear()
        self.end()
        self._watcher.end()


class StopsWithoutASync(GroupCommit):
    def finish(self) -> None:
        self._waiters.close()


class LeavesAThreadBehind(GroupCommit):
    def stop(self) -> None:
        self._watcher.end = lambda timeout_s=None: True  # type: ignore[method-assign]
        super().stop()


class HasNoDeadline(GroupCommit):
    def __init__(self, context: FlushContext) -> None:
        super().__init__(context)
        self._watcher.run_once = lambda now_s: None  # type: ignore[method-assign]


class WatchesOnTheFlushThread(GroupCommit):
    """The deadline is looked at between syncs only, so a sync that hangs is never noticed."""

    def __init__(self, context: FlushContext) -> None:
        super().__init__(context)
        self._watcher = DeadlineWatcher(context, type(self._waiters)())

    def run_once(self, now_s: float) -> None:
        super().run_once(now_s)
        self._waiters.complete_expired(now_s)


class FlushesOneFileAndAcknowledgesAll(GroupCommit):
    def _sync_to(self, target_bytes: int) -> None:
        try:
            self._syncs.flush(0)
        except StoreFencedError as error:
            self._failure = error
            self._waiters.close()
        self._waiters.complete_flushed(target_bytes)


class CallsBackTwice(GroupCommit):
    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        waiter = super().submit(end_offset_bytes)
        if isinstance(waiter, PendingWaiter):
            inner = waiter.add_done_callback

            class Twice:
                @property
                def status(self) -> FlushStatus | None:
                    return waiter.status

                def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
                    inner(callback)
                    inner(callback)

            return Twice()
        return waiter


class NeverSyncsWhatNobodyWaitsFor(GroupCommit):
    def run_once(self, now_s: float) -> None:
        if len(self._waiters):
            super().run_once(now_s)


class MakesFlushedPositionsWait(GroupCommit):
    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        waiter = self._waiters.add(end_offset_bytes, self._clock.monotonic_s() + 0.05)
        self.wakeup()
        self._watcher.arm()
        return waiter


class DropsWhoCameMeanwhile(GroupCommit):
    """Takes those who came during a sync for those the sync was for."""

    def _sync_to(self, target_bytes: int) -> None:
        before = len(self._waiters)
        try:
            flushed_bytes = self._syncs.flush_to(target_bytes)
        except StoreFencedError as error:
            self._failure = error
            self._waiters.close()
            return
        del self._waiters._pending[before:]
        self._waiters.complete_flushed(flushed_bytes)


class CountsNothing(GroupCommit):
    def statistics(self) -> Any:
        return attrs.evolve(super().statistics(), synced_bytes=0)


SYNCHRONOUS_BUGS = [
    (AcknowledgesBeforeTheSync, "not FLUSHED before its sync"),
    (AcknowledgesWithoutASync, "nothing is acknowledged without a sync"),
    (AcknowledgesAndForgets, "nothing is acknowledged without a sync"),
    (SyncsInSubmit, "submit does not wait for a sync"),
    (AdvancesAfterAFailedSync, "a failed sync makes its waiters FENCED|every submit is FENCED"),
    (TriesAFailedSyncAgain, "FENCED|tried again"),
    (ForgetsTheFence, "every submit is FENCED|never tried again"),
    (LosesWaitersOnStop, "every waiter is completed|a submit after stop"),
    (StopsWithoutASync, "stop makes everything durable"),
    (LeavesAThreadBehind, "stop ends the service's threads"),
    (HasNoDeadline, "every waiter is completed"),
    (WatchesOnTheFlushThread, "every waiter is completed"),
    (FlushesOneFileAndAcknowledgesAll, "FLUSHED means|synced|durable|FENCED"),
    (CallsBackTwice, "exactly once"),
    (NeverSyncsWhatNobodyWaitsFor, "bytes without a waiter are synced too"),
    (MakesFlushedPositionsWait, "a flushed position is FLUSHED at once"),
    (DropsWhoCameMeanwhile, "every waiter is completed"),
    (CountsNothing, "synced bytes are counted exactly"),
]


@pytest.mark.parametrize(("service", "rule"), SYNCHRONOUS_BUGS, ids=lambda value: getattr(value, "__name__", None))
def test_the_test_kit_detects_each_deliberate_bug_in_a_synchronous_flush_service(
    service: type[GroupCommit], rule: str
) -> None:
    with pytest.raises(KitFailure) as caught:
        check_flush_service(service, settings=GROUP, synchronous=True, timeout_s=0.05)
    assert re.search(rule, str(caught.value)), caught.value


class NeverFences(FlushRealTime):
    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        super().submit(end_offset_bytes)
        return DONE


class KeepsAsyncCallersWaiting(FlushRealTime):
    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        super().submit(end_offset_bytes)
        return PendingWaiter(end_offset_bytes, 0.0, threading.Lock())


class FlushesOnlyWhenWoken(FlushRealTime):
    def wait_s(self, now_s: float) -> float | None:
        return None


class StopsDirty(FlushRealTime):
    def finish(self) -> None:
        """Leaves it."""


@pytest.mark.parametrize(
    ("service", "rule"),
    [
        (NeverFences, "every submit is FENCED|is FENCED"),
        (KeepsAsyncCallersWaiting, "every waiter is completed"),
        (FlushesOnlyWhenWoken, "bytes without a waiter are synced too"),
        (StopsDirty, "stop makes everything durable"),
    ],
)
def test_the_test_kit_for_flush_services_fails_on_each_deliberately_broken_asynchronous_service(
    service: type[FlushRealTime], rule: str
) -> None:
    with pytest.raises(KitFailure, match=rule):
        check_flush_service(service, settings=REAL_TIME, synchronous=False)


class CommitsOnlyFullFiles(CommitRealTime):
    def run_once(self, now_s: float) -> None:
        self.work(1_000)


class ForgetsItsFailure(CommitRealTime):
    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        super().submit(end_offset_bytes)
        return DONE


@pytest.mark.parametrize(
    ("service", "rule"),
    [(CommitsOnlyFullFiles, "synced|committed"), (ForgetsItsFailure, "FENCED")],
)
def test_the_test_kit_for_flush_services_fails_on_each_deliberately_broken_commit_service(
    service: type[CommitRealTime], rule: str
) -> None:
    with pytest.raises(KitFailure, match=rule):
        check_flush_service(service, settings=COMMIT, synchronous=False, pool_factory=AnonymousBufferPool)


class GivesNothingBack(AnonymousBufferPool):
    def give_back(self, buffer: memoryview) -> None:
        """Keeps it."""


class LendsTwice(AnonymousBufferPool):
    def borrow(self) -> memoryview | None:
        if len(self._free) > 1:
            return super().borrow()
        return self._free[0][0] if self._free else None


class KeepsStaleBytes:
    """Hands the same bytes out again."""

    def __init__(self, buffers: int, bytes_each: int) -> None:
        self._free = [memoryview(bytearray(bytes_each)) for _ in range(buffers)]

    @property
    def available_buffers(self) -> int:
        return len(self._free)

    def borrow(self) -> memoryview | None:
        return self._free.pop() if self._free else None

    def give_back(self, buffer: memoryview) -> None:
        self._free.append(buffer)

    def close(self) -> None:
        self._free.clear()


@pytest.mark.parametrize(
    ("pool", "rule"),
    [
        (GivesNothingBack, "given back is available"),
        (LendsTwice, "not available|exhausted"),
        (KeepsStaleBytes, "last borrower wrote is not readable"),
    ],
)
def test_the_test_kit_for_transient_store_pools_fails_on_each_deliberately_broken_pool(
    pool: Callable[[int, int], TransientStorePool], rule: str
) -> None:
    with pytest.raises(KitFailure, match=rule):
        check_transient_store_pool(pool)
