"""Acknowledgements that stand for a second copy: kept, late, refused, and never by mistake."""

from __future__ import annotations

import pytest

from flintmq.core.kernel.ports import FlushStatus, FlushWaiter
from flintmq.core.log.watermarks import Watermarks
from flintmq.plugins.replication.group_transfer import GroupTransferService
from flintmq.testing.clock import ManualClock

FLUSHED, TIMEOUT, FENCED = FlushStatus.FLUSHED, FlushStatus.TIMEOUT, FlushStatus.FENCED
SLAVE_TIMEOUT, NOT_AVAILABLE = FlushStatus.SLAVE_TIMEOUT, FlushStatus.SLAVE_NOT_AVAILABLE


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def marks() -> Watermarks:
    found = Watermarks(synchronous=True)
    found.set_all(1000)
    return found


@pytest.fixture
def gate(marks: Watermarks, clock: ManualClock) -> GroupTransferService:
    return GroupTransferService(marks, clock, timeout_ms=3000, fallbehind_max_bytes=5000)


def ends(waiter: FlushWaiter) -> list[FlushStatus]:
    """Fills when it is done."""
    found: list[FlushStatus] = []
    waiter.add_done_callback(found.append)
    return found


def test_a_wait_for_replication_fails_at_once_if_no_slave_is_connected(gate: GroupTransferService) -> None:
    """A producer must not wait three seconds for nobody."""
    assert gate.submit(1100).status is NOT_AVAILABLE


def test_a_wait_for_replication_ends_when_a_slave_has_copied_the_log_to_the_awaited_position(
    gate: GroupTransferService, marks: Watermarks
) -> None:
    """In order, and no earlier; readers see what two hold."""
    gate.joined("s", 1000)
    marks.wrote = marks.committed = marks.flushed = 1300
    first, second = ends(gate.submit(1100)), ends(gate.submit(1300))
    assert marks.readable == 1000
    assert gate.holds("s", 1299)
    assert (first, second, marks.readable) == ([FLUSHED], [], 1299)
    assert not gate.holds("s", 1299)
    assert gate.holds("s", 1300)
    assert (second, marks.readable) == ([FLUSHED], 1300)
    assert gate.submit(1300).status is FLUSHED


def test_a_wait_for_replication_ends_when_the_first_of_two_slaves_reaches_the_awaited_position(
    gate: GroupTransferService,
) -> None:
    """As in RocketMQ; the slower one catches up."""
    gate.joined("slow", 1000)
    gate.joined("quick", 1000)
    waiting = ends(gate.submit(1100))
    gate.holds("quick", 1100)
    assert waiting == [FLUSHED]
    gate.left("quick")
    assert gate.submit(1100).status is FLUSHED, "it is held, whoever left"
    assert gate.submit(1200).status is None


def test_a_wait_for_replication_fails_at_once_if_the_only_slave_is_too_far_behind(gate: GroupTransferService) -> None:
    """It could not answer in time."""
    gate.joined("s", 1000)
    assert gate.submit(5999).status is None
    assert gate.submit(6000).status is NOT_AVAILABLE


def test_a_wait_for_replication_to_a_slave_times_out(
    gate: GroupTransferService, clock: ManualClock, marks: Watermarks
) -> None:
    """Late is told from never, and what comes late still counts for readers."""
    gate.joined("s", 1000)
    early = ends(gate.submit(1100))
    clock.advance_ms(2000)
    late = ends(gate.submit(1200))
    assert 0.9 < gate.expire() <= 1.0
    clock.advance_ms(1000)
    gate.expire()
    assert (early, late) == ([SLAVE_TIMEOUT], [])
    gate.holds("s", 1200)
    assert (late, marks.replicated) == ([FLUSHED], 1200)


def test_stopping_the_master_ends_every_wait_for_replication(gate: GroupTransferService, marks: Watermarks) -> None:
    """Nobody is left behind, and what no slave holds is not shown in the last moment."""
    gate.joined("s", 1000)
    marks.wrote = marks.committed = marks.flushed = 1100
    waiting = ends(gate.submit(1100))
    gate.close()
    assert waiting == [SLAVE_TIMEOUT]
    assert marks.readable == 1000
    assert gate.submit(1200).status is NOT_AVAILABLE
