"""Two orderly consumers must never hold the same queue; a dead one must not hold it for ever."""

from __future__ import annotations

import msgspec
import pytest

from flintmq.core.broker.queue_locks import RebalanceLockManager
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.testing.clock import ManualClock

Q0, Q1 = MessageQueue("b", 0, "T"), MessageQueue("b", 1, "T")


def test_only_one_client_of_a_group_can_lock_a_queue_at_a_time() -> None:
    locks = RebalanceLockManager(ManualClock())
    assert locks.lock_batch("g", [Q0], "a") == [Q0]
    assert locks.lock_batch("g", [Q0, Q1, Q1], "b") == [Q1]
    assert locks.lock_batch("g", [Q0], "a") == [Q0]
    assert locks.lock_batch("h", [Q0], "b") == [Q0]
    locks.unlock_batch("g", [Q0], "b")
    assert locks.lock_batch("g", [Q0], "b") == []
    locks.unlock_batch("g", [Q0], "a")
    assert locks.lock_batch("g", [Q0], "b") == [Q0]
    assert locks.owner("g", Q0) == "b"
    assert locks.lock_batch("x", [], "b") == []
    locks.unlock_batch("none", [Q0], "b")


def test_locks_expire_after_60_seconds_without_renewal() -> None:
    clock = ManualClock()
    locks = RebalanceLockManager(clock)
    locks.lock_batch("g", [Q0], "a")
    clock.advance_ms(60_000)
    assert locks.lock_batch("g", [Q0], "b") == []
    assert locks.remove_expired() == 0
    clock.advance_ms(1)
    assert locks.owner("g", Q0) is None
    assert locks.lock_batch("g", [Q0], "b") == [Q0]
    clock.advance_ms(60_001)
    assert locks.remove_expired() == 1
    assert locks.remove_expired() == 0


def test_a_message_queue_encoded_as_json_and_decoded_again_is_equal_to_the_original() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Q0), type=MessageQueue) == Q0


def test_the_number_of_locks_is_bounded_and_expired_locks_are_replaced() -> None:
    """Names of groups and clients are whatever a client says."""
    clock = ManualClock()
    locks = RebalanceLockManager(clock, count_max=2)
    locks.lock_batch("g", [Q0], "a")
    clock.advance_ms(50_000)
    locks.lock_batch("h", [Q0], "a")
    with pytest.raises(RefusedError) as refused:
        locks.lock_batch("i", [Q0], "a")
    assert (refused.value.code, refused.value.reason) == (2, "locks.full")
    assert locks.lock_batch("h", [Q0], "a") == [Q0], "who has one may renew it"
    clock.advance_ms(11_000)
    assert locks.lock_batch("i", [Q0], "a") == [Q0], "the first has expired"
    locks.unlock_batch("i", [Q0], "a")
    assert locks.lock_batch("g", [Q1], "a") == [Q1]


def test_queue_locks_from_before_a_restart_are_valid_until_their_renewal_is_due() -> None:
    """A consumer that works on a queue must not have it taken by one that joins after the start."""
    clock = ManualClock()
    before = RebalanceLockManager(clock)
    before.lock_batch("g", [Q0, Q1], "a")
    assert before.held() == {"g": {"a": [Q0, Q1]}}
    locks = RebalanceLockManager(clock)
    locks.keep("g", "a", [Q0, Q1], 30.0)
    locks.keep("g", "a", [], 30.0)
    clock.advance_ms(20_000)
    assert locks.lock_batch("g", [Q0, Q1], "b") == []
    assert locks.lock_batch("g", [Q0], "a") == [Q0]
    clock.advance_ms(10_001)
    assert locks.lock_batch("g", [Q0, Q1], "b") == [Q1], "Q0 was renewed"
    assert locks.held() == {"g": {"a": [Q0], "b": [Q1]}}
    full = RebalanceLockManager(clock, count_max=1)
    with pytest.raises(RefusedError):
        full.keep("g", "a", [Q0, Q1], 30.0)


def test_the_change_counter_of_queue_locks_grows_only_if_the_owner_of_a_lock_changes() -> None:
    """Renewals, which come all the time, must not have the locks written again."""
    clock = ManualClock()
    locks = RebalanceLockManager(clock)
    locks.lock_batch("g", [Q0], "a")
    assert locks.changes == 1
    locks.lock_batch("g", [Q0], "a")
    assert locks.changes == 1
    locks.unlock_batch("g", [Q0], "a")
    locks.lock_batch("g", [Q0], "b")
    assert locks.changes == 3
    clock.advance_ms(60_001)
    locks.lock_batch("g", [Q0], "a")
    clock.advance_ms(60_001)
    locks.remove_expired()
    assert locks.changes == 5
