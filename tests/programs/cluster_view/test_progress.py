"""A rate and a queue that stands still are seen only by looking twice; a wrong one would have people chase ghosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cluster_view.progress import GroupProgress, Meters, advance, ends_by_topic, lag_of
from flintmq.remoting.wire.bodies import ConsumeStats, OffsetWrapper

Q0, Q1 = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T")
RETRY = MessageQueue("a", 0, "%RETRY%g")


def look(known: GroupProgress | None, now_s: float, **ends_and_offsets: tuple[int, int]) -> GroupProgress:
    queues = {"q0": Q0, "q1": Q1, "retry": RETRY}
    table = {queues[name]: OffsetWrapper(end, offset, 0) for name, (end, offset) in ends_and_offsets.items()}
    return advance(known, [ConsumeStats(1.5, table)], now_s)


def test_a_rate_is_none_until_two_message_totals_are_measured() -> None:
    meters = Meters()
    meters.note("T", 10, 100.0)
    assert meters.per_s("T") is None
    meters.note("T", 30, 104.0)
    assert meters.per_s("T") == 5.0
    meters.note("T", 31, 104.1)
    assert meters.per_s("T") == 5.0, "a tenth of a second says little"
    meters.keep(["U"])
    assert meters.per_s("T") is None


def test_a_topic_that_was_deleted_and_created_again_has_no_negative_rate() -> None:
    meters = Meters()
    meters.note("T", 1000, 0.0)
    meters.note("T", 3, 10.0)
    assert meters.per_s("T") is None
    meters.note("T", 13, 20.0)
    assert meters.per_s("T") == 1.0


def test_a_queue_is_stuck_if_messages_wait_and_its_offset_does_not_move() -> None:
    seen = look(None, 0.0, q0=(10, 4), q1=(10, 4))
    seen = look(seen, 50.0, q0=(20, 4), q1=(20, 5))
    assert seen.stuck(59.0, 60.0) == []
    assert seen.stuck(60.0, 60.0) == [(Q0, 60.0)]
    assert (seen.lag, seen.retry_lag, seen.topics, seen.per_s) == (31, 0, ("T",), 1.5)


def test_a_queue_without_waiting_messages_is_not_stuck() -> None:
    """The time counts from when messages were first seen to wait: an idle topic is not a stuck consumer."""
    seen = look(None, 0.0, q0=(4, 4))
    seen = look(seen, 1000.0, q0=(5, 4))
    assert seen.stuck(1000.0, 60.0) == []
    assert seen.stuck(1060.0, 60.0) == [(Q0, 60.0)]


def test_a_queue_is_not_reported_as_stuck_if_its_consumer_offset_has_decreased() -> None:
    seen = look(look(None, 0.0, q0=(9, 5)), 70.0, q0=(9, 2))
    assert seen.stuck(70.0, 60.0) == []


def test_the_lag_of_retry_topics_is_counted_separately_from_the_lag_of_other_topics() -> None:
    seen = look(None, 0.0, q0=(4, 4), retry=(3, 1))
    assert (seen.lag, seen.retry_lag, seen.topics) == (2, 2, ("%RETRY%g", "T"))


def test_messages_of_a_topic_that_several_groups_consume_are_counted_once() -> None:
    """Two groups that consume a topic do not double its rate."""
    groups = {"g": look(None, 0.0, q0=(5, 0), q1=(6, 0)), "h": look(None, 0.0, q0=(5, 5))}
    assert ends_by_topic(groups) == {"T": 11}


@pytest.mark.parametrize(("end", "offset", "lag"), [(5, 3, 2), (5, -1, 5), (5, 7, 0), (0, 0, 0)])
def test_a_lag_is_never_negative(end: int, offset: int, lag: int) -> None:
    """A group may be ahead of a queue whose log was cut."""
    assert lag_of(OffsetWrapper(end, offset, 0)) == lag


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 100)), min_size=1, max_size=20))
def test_incremental_detection_of_stuck_queues_gives_the_same_result_as_a_full_computation(
    looks: list[tuple[int, int, float]],
) -> None:
    """Against the definition, computed from the whole past."""
    seen, now_s, past = None, 0.0, []
    for end, offset, pause_s in looks:
        now_s += pause_s
        seen = look(seen, now_s, q0=(end, offset))
        past.append((end, offset, now_s))
    since_s = now_s
    for end, offset, at_s in reversed(past):
        if end <= offset or offset != past[-1][1]:
            break
        since_s = at_s
    assert seen is not None
    waits = past[-1][0] > past[-1][1]
    assert seen.stuck(now_s, 0.0) == ([(Q0, now_s - since_s)] if waits else [])
