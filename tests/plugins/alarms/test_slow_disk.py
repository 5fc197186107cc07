"""A disk that hesitated is an alarm for a stated time: whoever looks a minute later must still learn why sends were slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.plugins.alarms.store_alarms import StoreAlarms
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, opened
from flintmq.tests.support.slow_disk import SlowDisk
from flintmq.tests.support.state import state_of


@pytest.mark.parametrize(
    ("what", "operation", "uses_pool"),
    [("append", "write", False), ("flush", "sync", False), ("commit", "write", True)],
)
def test_the_alarm_about_a_slow_disk_operation_ends_after_five_minutes(
    tmp_path: Path, what: str, operation: Any, uses_pool: bool
) -> None:
    """The bound is RocketMQ's, half a second; the line in the log comes besides."""
    disk = SlowDisk(ManualClock())
    pool = AnonymousBufferPool(2, 4096) if uses_pool else None
    strategy = attrs.evolve(BY_HAND, uses_pool=uses_pool)
    with opened(tmp_path, strategy=strategy, disk=disk, clock=disk.clock, pool=pool) as store:
        watch = StoreAlarms(state_of(clock=disk.clock, store=store).api)

        def work(takes_ms: int) -> None:
            disk.slow, disk.takes_ms = operation, takes_ms
            store.put([message()])
            store.commit_log.commit(0)
            store.commit_log.flush(0)
            store.dispatch()

        work(500)
        assert [*watch.alarms()] == []
        work(812)
        (alarm,) = watch.alarms()
        assert (alarm.id, alarm.level, alarm.value, alarm.unit, alarm.limit) == (
            f"{what}.slow",
            "warning",
            812,
            "ms",
            500,
        )
        disk.clock.advance_ms(299_000)
        assert [one.id for one in watch.alarms()] == [f"{what}.slow"]
        disk.clock.advance_ms(2_000)
        assert [*watch.alarms()] == []
