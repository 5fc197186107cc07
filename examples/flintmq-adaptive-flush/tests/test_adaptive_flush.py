"""The flush strategy acknowledges messages only after a sync, and delays a sync only if several acknowledgements share it."""

from __future__ import annotations

import pytest
from flintmq_adaptive_flush.service import AdaptiveGroupCommit, AdaptiveGroupCommitSection

from flintmq import Clock
from flintmq.core.kernel.ports import FlushContext
from flintmq.testing.clock import ManualClock
from flintmq.testing.fake_log import FakeLog
from flintmq.testing.flush_kit import check_flush_service


class SlowLog(FakeLog):
    """A log whose syncs take 10 ms of the test's clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        self._clock.advance_ms(10)
        return super().flush(least_pages, written_through=written_through)


class Observed(AdaptiveGroupCommit):
    """A flush strategy that records the length of its pauses, in seconds, instead of waiting."""

    def __init__(self, log: FakeLog, clock: Clock, settings: AdaptiveGroupCommitSection) -> None:
        super().__init__(FlushContext(log, clock, settings, None))
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def rounds(service: Observed, log: FakeLog, clock: ManualClock, waiters: int, count: int) -> None:
    for _ in range(count):
        for _ in range(waiters):
            end = log.append(100)
            assert end is not None
            service.submit(end)
        service.run_once(clock.monotonic_s())


def test_the_adaptive_strategy_passes_the_flush_kit() -> None:
    settings = AdaptiveGroupCommitSection(sync_flush_timeout_ms=100, interval_ms=2, linger_percent=100)
    check_flush_service(AdaptiveGroupCommit, settings=settings, synchronous=True, timeout_s=0.1)


def test_a_single_client_never_waits_for_other_clients() -> None:
    clock = ManualClock()
    log = SlowLog(clock)
    service = Observed(log, clock, AdaptiveGroupCommitSection())
    rounds(service, log, clock, waiters=1, count=10)
    assert service.pauses == []


def test_several_clients_wait_a_fraction_of_the_sync_time() -> None:
    clock = ManualClock()
    log = SlowLog(clock)
    service = Observed(log, clock, AdaptiveGroupCommitSection(linger_percent=20, max_linger_ms=100))
    rounds(service, log, clock, waiters=5, count=40)
    assert service.pauses == sorted(service.pauses), "the estimate grows towards what syncs take"
    assert service.pauses[-1] == pytest.approx(0.002, rel=0.01)


def test_the_wait_is_limited_to_max_linger_ms() -> None:
    clock = ManualClock()
    log = SlowLog(clock)
    service = Observed(log, clock, AdaptiveGroupCommitSection(linger_percent=100, max_linger_ms=1))
    rounds(service, log, clock, waiters=5, count=20)
    assert max(service.pauses) == 0.001
