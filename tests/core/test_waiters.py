"""A promise of durability must end once, whichever thread ends it, and an acknowledgement needs all that was promised."""

from __future__ import annotations

import threading

import pytest

from flintmq.core.kernel.ports import FlushStatus, FlushWaiter
from flintmq.core.waiters import DONE, CompletedWaiter, PendingWaiter, both
from flintmq.core.waiters import FENCED as FENCED_WAITER

FLUSHED, TIMEOUT, FENCED = FlushStatus.FLUSHED, FlushStatus.TIMEOUT, FlushStatus.FENCED
SLAVE_TIMEOUT, NOT_AVAILABLE = FlushStatus.SLAVE_TIMEOUT, FlushStatus.SLAVE_NOT_AVAILABLE


def ends(waiter: FlushWaiter) -> list[FlushStatus]:
    """Return a list that is filled when the waiter is done."""
    found: list[FlushStatus] = []
    waiter.add_done_callback(found.append)
    return found


def test_a_completed_waiter_calls_an_added_callback_at_once() -> None:
    calls: list[FlushStatus] = []
    DONE.add_done_callback(calls.append)
    FENCED_WAITER.add_done_callback(calls.append)
    assert calls == [FlushStatus.FLUSHED, FlushStatus.FENCED]
    assert (repr(DONE), repr(FENCED_WAITER)) == ("<CompletedWaiter flushed>", "<CompletedWaiter fenced>")


def test_a_waiter_completed_twice_keeps_the_status_of_the_first_completion() -> None:
    """A timeout and a sync may race; the client must get one answer."""
    waiter = PendingWaiter(100, 5.0, threading.Lock())
    calls: list[FlushStatus] = []
    waiter.add_done_callback(calls.append)
    assert repr(waiter) == "<PendingWaiter to 100 pending>"
    assert waiter.complete(FlushStatus.TIMEOUT)
    assert not waiter.complete(FlushStatus.FLUSHED)
    waiter.add_done_callback(calls.append)
    assert calls == [FlushStatus.TIMEOUT, FlushStatus.TIMEOUT]
    assert repr(waiter) == "<PendingWaiter to 100 timeout>"


def test_an_exception_in_one_callback_of_a_waiter_does_not_prevent_the_next_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiter = PendingWaiter(100, 5.0, threading.Lock())
    calls: list[FlushStatus] = []
    waiter.add_done_callback(lambda status: 1 / 0)  # type: ignore[arg-type, return-value]
    waiter.add_done_callback(calls.append)
    waiter.complete(FlushStatus.FLUSHED)
    assert calls == [FlushStatus.FLUSHED]
    assert "ZeroDivisionError" in caplog.text


class ByHand(PendingWaiter):
    """A promise that the test keeps."""

    def __init__(self) -> None:
        super().__init__(0, 0.0, threading.Lock())


@pytest.mark.parametrize(
    ("flush", "transfer", "expected"),
    [
        (FLUSHED, FLUSHED, FLUSHED),
        (TIMEOUT, FLUSHED, TIMEOUT),
        (FLUSHED, SLAVE_TIMEOUT, SLAVE_TIMEOUT),
        (TIMEOUT, SLAVE_TIMEOUT, SLAVE_TIMEOUT),
        (TIMEOUT, NOT_AVAILABLE, NOT_AVAILABLE),
        (FENCED, FLUSHED, FENCED),
        (FENCED, SLAVE_TIMEOUT, FENCED),
    ],
)
@pytest.mark.parametrize("flush_first", [True, False])
def test_a_combined_waiter_reports_success_only_after_flush_and_replication_have_both_succeeded(
    flush: FlushStatus, transfer: FlushStatus, expected: FlushStatus, flush_first: bool
) -> None:
    """Only both make an acknowledgement, whichever comes first."""
    disk, slave = ByHand(), ByHand()
    waiter = both(disk, slave)
    found = ends(waiter)
    order = [(disk, flush), (slave, transfer)]
    for one, status in order if flush_first else reversed(order):
        assert waiter.status in (None, FENCED)
        one.complete(status)
    assert found == [expected] == ends(waiter)
    assert waiter.status is expected


def test_a_waiter_for_flush_and_replication_is_completed_immediately_if_the_flush_fails() -> None:
    """No slave can make it an acknowledgement any more."""
    disk = ByHand()
    found = ends(both(disk, ByHand()))
    disk.complete(FENCED)
    assert found == [FENCED]


def test_joining_a_flushed_and_a_pending_waiter_returns_the_pending_waiter() -> None:
    """One of the two is handed on as it is."""
    pending = ByHand()
    assert both(CompletedWaiter(FLUSHED), pending) is pending
    assert both(pending, CompletedWaiter(FLUSHED)) is pending
    assert both(CompletedWaiter(FLUSHED), CompletedWaiter(NOT_AVAILABLE)).status is NOT_AVAILABLE


def test_a_waiter_calls_back_once_if_flush_and_replication_complete_at_the_same_time() -> None:
    """The disk's promise is kept on another thread than the slave's."""
    for _ in range(200):
        disk, slave = ByHand(), ByHand()
        waiter = both(disk, slave)
        found = ends(waiter)
        threads = [threading.Thread(target=one.complete, args=(FLUSHED,)) for one in (disk, slave)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [FLUSHED]
