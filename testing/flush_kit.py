"""Checks that a flush service follows the rules of its interface, :class:`~flintmq.core.kernel.ports.FlushCommitLogService`,
with any flush strategy.

From a test of your plugin::

    from flintmq.testing.flush_kit import check_flush_service

    def test_the_flush_service_passes_the_flush_kit():
        check_flush_service(MyService, settings=MySettings(interval_ms=5, timeout_ms=50), synchronous=True, timeout_s=0.05)

The checks run the service on real threads, with a commit log in memory. The checks wait for events and not for fixed times, so
give the service settings with intervals of a few milliseconds. Each check is a function that checks one rule, and a test can
call the function alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import attrs

from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.ports import (
    FlushCommitLogService,
    FlushContext,
    FlushServiceFactory,
    FlushStatus,
    FlushWaiter,
    TransientStorePool,
)
from flintmq.testing.failure import KitFailure, expect
from flintmq.testing.fake_log import FakeLog

PATIENCE_S: Final = 5.0
"""Seconds that a check of a flush service waits for an event that must happen. With a correct flush service, the event happens
after milliseconds."""

_RECORD_BYTES: Final = 300
_FILE_BYTES: Final = 8192


class WaiterProbe:
    """Records which position of the log was durable when a waiter for a flush was completed."""

    def __init__(self, waiter: FlushWaiter, log: FakeLog, end_offset_bytes: int) -> None:
        self._log = log
        self._called = threading.Event()
        self.end_offset_bytes = end_offset_bytes
        self.waiter = waiter
        self.calls: list[FlushStatus] = []
        self.durable_when_called_bytes = -1
        waiter.add_done_callback(self._done)

    def _done(self, status: FlushStatus) -> None:
        self.durable_when_called_bytes = self._log.flushed_offset_bytes
        self.calls.append(status)
        self._called.set()

    def wait(self) -> FlushStatus:
        """Return the final status of the waiter. Raises KitFailure if the waiter has no status within :data:`PATIENCE_S`."""
        expect(self._called.wait(PATIENCE_S), "every waiter is completed", f"none for {self.end_offset_bytes} bytes")
        expect(self.waiter.status is self.calls[0], "status and callback agree", (self.waiter.status, self.calls))
        return self.calls[0]

    def check_once(self) -> None:
        expect(len(self.calls) == 1, "a callback is called exactly once", self.calls)


@attrs.define
class FlushBench:
    """One flush service over one log in memory. The ``with`` statement starts and stops the service."""

    factory: FlushServiceFactory[Any]
    settings: Any
    clock: Clock = SYSTEM_CLOCK
    pool: TransientStorePool | None = None
    file_bytes: int = _FILE_BYTES
    log: FakeLog = attrs.field(init=False)
    service: FlushCommitLogService = attrs.field(init=False)
    _threads_before: set[threading.Thread] = attrs.field(init=False, factory=set)

    def __enter__(self) -> FlushBench:
        self._threads_before = set(threading.enumerate())
        self.log = FakeLog(file_bytes=self.file_bytes, pool=self.pool, hold_limit_s=2 * PATIENCE_S)
        self.service = self.factory(FlushContext(self.log, self.clock, self.settings, self.pool))
        self.service.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.log.release_syncs()
        self.service.stop()
        if kind is None:
            # Threads of asyncio may remain: another event loop in the process may have started helper threads.
            new = {one for one in threading.enumerate() if not one.name.startswith("asyncio_")} - self._threads_before
            left = [one for one in new if one.is_alive()]
            expect(not left, "stop ends the service's threads", left)

    def append(self, size_bytes: int = _RECORD_BYTES) -> int:
        """Append bytes to the log in memory, and return the log's new end."""
        end = self.log.append(size_bytes)
        if end is None:
            raise KitFailure("the pool must have a free buffer for this check")
        return end

    def put(self, size_bytes: int = _RECORD_BYTES) -> WaiterProbe:
        """Append bytes to the log in memory, and submit the log's new end to the flush service. Return an object that records
        how the service completes the waiter for this end."""
        end = self.append(size_bytes)
        waiter = self.service.submit(end)
        expect(not self.log.hold_expired, "submit does not wait for a sync")
        return WaiterProbe(waiter, self.log, end)

    def put_into_a_held_sync(self) -> WaiterProbe:
        """Append bytes, submit the log's new end, and wait until the sync has begun. The sync lasts until
        ``log.release_syncs()``."""
        self.log.hold_syncs()
        probe = self.put()
        expect(self.log.wait_sync_entered(PATIENCE_S), "a submit leads to a sync")
        return probe


def check_flush_service(
    factory: FlushServiceFactory[Any],
    *,
    settings: Any,
    synchronous: bool,
    timeout_s: float | None = None,
    pool_factory: Callable[[int, int], TransientStorePool] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Run every check that applies to a flush service.

    Args:
        factory: the factory that the strategy registers.
        settings: the strategy's settings, with intervals of some milliseconds.
        synchronous: whether the strategy is synchronous, so that a waiter becomes FLUSHED only after a sync.
        timeout_s: the time after which the strategy, with these settings, ends a waiter with TIMEOUT (less than 1 s); None if
            the strategy has no timeout.
        pool_factory: called with the number of buffers and the bytes of each buffer; returns a transient store pool, for
            strategies that use one.
        clock: the clock of the service. Its time must be real time, because the service's intervals must pass.

    Raises:
        KitFailure: names the broken rule.
    """

    def bench(buffers: int = 4) -> FlushBench:
        pool = pool_factory(buffers, _FILE_BYTES) if pool_factory else None
        return FlushBench(factory, settings, clock, pool)

    if synchronous:
        # The most important rule is checked first: no bytes are acknowledged before their sync has ended.
        check_no_answer_before_the_sync(bench)
    check_becomes_durable(bench)
    check_rolls_over_files(bench)
    check_watermark_and_statistics(bench)
    check_stop_makes_durable(bench, synchronous=synchronous)
    check_failed_sync(bench, synchronous=synchronous)
    check_failed_sync_on_stop(bench)
    if synchronous:
        check_gathers(bench)
        check_already_flushed(bench)
        check_stop_with_waiters(bench)
        check_fenced_waiters(bench)
        if timeout_s is not None:
            check_deadline(bench)
    else:
        check_answers_at_once(bench)
    if pool_factory is not None:
        check_exhausted_pool(bench)
        check_failed_commit(bench)


Bench = Callable[..., FlushBench]


def check_becomes_durable(bench: Bench) -> None:
    """Check that a flush service syncs appended bytes within a short time, whether or not the bytes were submitted."""
    with bench() as b:
        probe = b.put()
        expect(probe.wait() is FlushStatus.FLUSHED, "a submit without trouble ends with FLUSHED", probe.calls)
        expect(b.log.wait_flushed(probe.end_offset_bytes, PATIENCE_S), "what was submitted is synced")
        expect(b.log.wait_flushed(b.append(), PATIENCE_S), "bytes without a waiter are synced too")
        probe.check_once()


def check_rolls_over_files(bench: Bench) -> None:
    """Check that a flush service reaches a position two files ahead, although one flush call handles only one file."""
    with bench() as b:
        probe = b.put(_FILE_BYTES * 2 + _RECORD_BYTES)
        expect(probe.wait() is FlushStatus.FLUSHED, "a submit across files ends with FLUSHED", probe.calls)
        expect(b.log.wait_flushed(probe.end_offset_bytes, PATIENCE_S), "a submit across files is synced")


def check_watermark_and_statistics(bench: Bench) -> None:
    """Check that a flush service's positions and counters never decrease, and that the counters agree with the syncs, bytes and
    waiters of the check."""
    with bench() as b:
        before = b.service.statistics()
        probes = [b.put() for _ in range(8)]
        for probe in probes:
            probe.wait()
        expect(b.log.wait_flushed(probes[-1].end_offset_bytes, PATIENCE_S), "all of them are synced")
        b.service.stop()
        after = b.service.statistics()
        expect(after.syncs > before.syncs, "syncs are counted", after)
        expect(after.synced_bytes == b.log.flushed_offset_bytes, "synced bytes are counted exactly", after)
        expect(after.waiters >= len(probes), "waiters are counted", after)
        expect(after.sync_time_s >= before.sync_time_s, "sync time only grows", after)
        ends = [end for _, end in b.log.sync_calls]
        expect(ends == sorted(ends), "the flushed position never goes back", ends)


def check_no_answer_before_the_sync(bench: Bench) -> None:
    """Check that a flush service acknowledges bytes only after a sync of these bytes has ended."""
    with bench() as b:
        b.log.hold_syncs()
        probe = b.put()
        is_synced = b.log.wait_sync_entered(PATIENCE_S)
        told = (probe.waiter.status, *probe.calls)
        if not is_synced:
            expect(FlushStatus.FLUSHED not in told, "nothing is acknowledged without a sync", told)
        expect(is_synced, "a submit leads to a sync")
        expect(FlushStatus.FLUSHED not in told, "a waiter is not FLUSHED before its sync has ended", told)
        b.log.release_syncs()
        if probe.wait() is FlushStatus.FLUSHED:
            expect(
                probe.durable_when_called_bytes >= probe.end_offset_bytes,
                "FLUSHED means that the position is on disk",
                f"{probe.durable_when_called_bytes} of {probe.end_offset_bytes}",
            )


def check_gathers(bench: Bench) -> None:
    """Check that one sync completes all waiters that were submitted to the flush service during the previous sync."""
    with bench() as b:
        probes = [b.put_into_a_held_sync()]
        probes += [b.put(16) for _ in range(24)]
        b.log.release_syncs()
        order = [probe.wait() for probe in probes]
        expect(
            all(status in (FlushStatus.FLUSHED, FlushStatus.TIMEOUT) for status in order),
            "waiters of one sync end together",
            order,
        )
        for probe in probes:
            probe.check_once()
            if probe.calls[0] is FlushStatus.FLUSHED:
                expect(probe.durable_when_called_bytes >= probe.end_offset_bytes, "FLUSHED means on disk")
        syncs = len(b.log.sync_calls)
        expect(syncs <= len(probes) // 2, "waiters share syncs", f"{syncs} syncs for {len(probes)} waiters")


def check_already_flushed(bench: Bench) -> None:
    """Check that a submit of a position that is already on disk does not wait."""
    with bench() as b:
        probe = b.put()
        expect(probe.wait() is FlushStatus.FLUSHED, "a submit without trouble ends with FLUSHED")
        again = b.service.submit(probe.end_offset_bytes)
        expect(again.status is FlushStatus.FLUSHED, "a flushed position is FLUSHED at once", again.status)


def check_deadline(bench: Bench) -> None:
    """Check that a flush service ends each waiter with TIMEOUT, and only once, if a sync hangs. Check that the service flushes
    again after the sync has ended."""
    with bench() as b:
        probe = b.put_into_a_held_sync()
        late = b.put()
        for waiting in (probe, late):
            expect(waiting.wait() is FlushStatus.TIMEOUT, "a hanging sync ends with TIMEOUT", waiting.calls)
        b.log.release_syncs()
        expect(b.log.wait_flushed(late.end_offset_bytes, PATIENCE_S), "what timed out is synced all the same")
        healthy = b.put()
        expect(healthy.wait() is FlushStatus.FLUSHED, "after a timeout the service works on", healthy.calls)
        probe.check_once()
        late.check_once()
        expect(b.service.statistics().timeouts >= 2, "timeouts are counted", b.service.statistics())


def check_failed_sync(bench: Bench, *, synchronous: bool) -> None:
    """Check that a failed sync is final for a flush service: no waiter gets FLUSHED, and no sync is tried again."""
    with bench() as b:
        good = b.put()
        good.wait()
        expect(b.log.wait_flushed(good.end_offset_bytes, PATIENCE_S), "the first record is synced")
        durable = b.log.flushed_offset_bytes
        b.log.fail_syncs()
        failed = b.put()
        expect(b.log.wait_fenced(PATIENCE_S), "the sync is tried")
        status = failed.wait()
        if synchronous:
            expect(status is FlushStatus.FENCED, "a failed sync makes its waiters FENCED", status)
        _expect_fenced(b, "after a failed sync every submit is FENCED")
        b.service.stop()
        expect(b.log.flushed_offset_bytes == durable, "nothing is flushed after a failed sync")
        expect(b.log.calls_after_fence == 0, "a failed sync is never tried again", b.log.calls_after_fence)
        failed.check_once()


def check_fenced_waiters(bench: Bench) -> None:
    """Check that a failed sync makes all waiters FENCED: the waiters of this sync and the waiters that were submitted during
    this sync."""
    with bench() as b:
        b.log.fail_syncs()
        probes = [b.put_into_a_held_sync()]
        probes += [b.put() for _ in range(5)]
        b.log.release_syncs()
        for probe in probes:
            status = probe.wait()
            expect(status is not FlushStatus.FLUSHED, "no waiter gets FLUSHED from a failed sync", status)
            probe.check_once()
        _expect_fenced(b, "after a failed sync every submit is FENCED")


def check_stop_makes_durable(bench: Bench, *, synchronous: bool) -> None:
    """Check that ``stop`` of a flush service syncs the remaining bytes and can be called again. After the stop nothing is
    flushed."""
    with bench() as b:
        probe = b.put(_FILE_BYTES + _RECORD_BYTES)
        end = b.log.append(_FILE_BYTES + _RECORD_BYTES)
        b.service.stop()
        expect(
            b.log.flushed_offset_bytes == end, "stop makes everything durable", f"{b.log.flushed_offset_bytes} of {end}"
        )
        expect(probe.wait() is FlushStatus.FLUSHED, "what stop made durable is FLUSHED", probe.calls)
        b.service.stop()
        probe.check_once()
        submitted = b.service.submit(b.log.wrote_offset_bytes + _RECORD_BYTES)
        if synchronous:
            expect(submitted.status is FlushStatus.FENCED, "a submit after stop is FENCED", submitted.status)
        else:
            expect(submitted.status is not None, "a submit after stop does not stay pending")


def check_stop_with_waiters(bench: Bench) -> None:
    """Check that ``stop`` of a flush service leaves no waiter pending, not even a waiter for a position that is never reached
    or a waiter during a sync."""
    with bench() as b:
        waiting = [b.put_into_a_held_sync()]
        waiting.append(b.put())
        beyond = b.log.wrote_offset_bytes + _FILE_BYTES
        never = WaiterProbe(b.service.submit(beyond), b.log, beyond)
        stopper = threading.Thread(target=b.service.stop)
        stopper.start()
        b.log.release_syncs()
        stopper.join(PATIENCE_S)
        expect(not stopper.is_alive(), "stop returns")
        for probe in waiting:
            status = probe.wait()
            on_disk = probe.durable_when_called_bytes >= probe.end_offset_bytes
            expect(status is not FlushStatus.FLUSHED or on_disk, "FLUSHED means on disk, at stop as well", status)
            probe.check_once()
        expect(never.wait() is not FlushStatus.FLUSHED, "what was never written is never FLUSHED", never.calls)


def check_failed_sync_on_stop(bench: Bench) -> None:
    """Check that a sync that fails during ``stop`` of a flush service is final: later submits are FENCED, and nothing is
    flushed."""
    with bench() as b:
        b.log.fail_syncs()
        end = b.append()
        b.service.stop()
        status = b.service.submit(end).status
        expect(status is FlushStatus.FENCED, "a submit after a failed last sync is FENCED", status)
        expect(b.log.flushed_offset_bytes == 0, "nothing is flushed after a failed sync")


def check_answers_at_once(bench: Bench) -> None:
    """Check that an asynchronous strategy never makes a caller wait, not even while a sync hangs."""
    with bench() as b:
        b.log.hold_syncs()
        for _ in range(3):
            probe = b.put()
            expect(probe.waiter.status is FlushStatus.FLUSHED, "an asynchronous submit is done", probe.waiter.status)
            probe.check_once()


def check_exhausted_pool(bench: Bench) -> None:
    """Check that a full transient store pool only delays appends: commits give the pool's buffers back, and nothing is lost."""
    with bench(2) as b:
        refused = False
        for _ in range(1_000):
            end = b.log.append(_FILE_BYTES // 4)
            if end is None:
                refused = True
                expect(
                    b.log.wait_committed(b.log.wrote_offset_bytes, PATIENCE_S),
                    "a full pool is committed before long, without a submit",
                )
                end = b.log.append(_FILE_BYTES // 4)
                expect(end is not None, "committed files give their buffers back")
                break
        expect(refused or b.log.committed_offset_bytes > 0, "the pool is either filled or drained")
        b.service.stop()
        expect(b.log.flushed_offset_bytes == b.log.wrote_offset_bytes, "everything appended is durable after stop")


def check_failed_commit(bench: Bench) -> None:
    """Check that a flush service acknowledges nothing after a failed commit, as after a failed sync."""
    with bench() as b:
        b.log.fail_commits()
        b.put()
        expect(b.log.wait_fenced(PATIENCE_S), "what is written is committed before long")
        _expect_fenced(b, "after a failed commit every submit is FENCED")


def _expect_fenced(b: FlushBench, rule: str) -> None:
    """Wait until a waiter that is submitted to the flush service is FENCED: the service may need a moment to notice the
    failure."""
    # A flush service's thread notices a failed sync only after some time, so submit() is repeated for up to PATIENCE_S.
    gate = threading.Event()
    for _ in range(int(PATIENCE_S / 0.002)):
        status = b.service.submit(b.log.wrote_offset_bytes + _RECORD_BYTES).status
        if status is FlushStatus.FENCED:
            return
        gate.wait(0.002)
    expect(False, rule, status)
