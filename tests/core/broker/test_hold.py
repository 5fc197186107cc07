"""A held pull that is not woken costs its consumer seconds; one that is woken twice is answered twice."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from flintmq.core.broker.hold import ANY_QUEUE, HELD_BYTES, HeldPull, PullRequestHoldService, places_of
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, RecordBatch
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.record.bulk_columns import columns_of
from flintmq.plugins.filters.plugin import tag_filter
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel


def record(topic: str, queue_id: int, queue_offset: int, tags_code: int = 0, **properties: str) -> DispatchRequest:
    return DispatchRequest(topic, queue_id, 0, 100, tags_code, 0, queue_offset, "", "", 0, 0, properties)


class Held:
    """A service with a clock, the ends of queues, and the pulls that were let go."""

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.ends: dict[tuple[str, int], int] = {}
        self.resumed: list[HeldPull] = []
        self.service = PullRequestHoldService(
            self.clock, lambda topic, queue_id: self.ends.get((topic, queue_id), 0), **limits
        )
        self.channel = RecordingChannel()

    def hold(self, queue_offset: int = 0, timeout_ms: int = 15_000, queue_id: int = 0, **extra: object) -> HeldPull:
        pull = self.service.hold(
            "T",
            queue_id,
            queue_offset,
            self.channel,
            timeout_ms,
            self.resumed.append,
            **extra,  # type: ignore[arg-type]
        )
        assert pull is not None
        return pull


def test_a_message_arrival_wakes_only_the_held_pulls_of_its_queue() -> None:
    held = Held()
    first, other, far = held.hold(5), held.hold(5, queue_id=1), held.hold(9)
    assert held.service.arrived(RecordBatch.of_units([record("U", 0, 7), record("T", 2, 7), record("T", 0, 4)])) == 0
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 5), record("T", 0, 6)])) == 1
    assert held.resumed == [first]
    assert not first.is_held
    assert other.is_held
    assert far.is_held
    assert len(held.service) == 2


def test_a_bulk_read_of_records_creates_dispatch_requests_only_for_queues_with_a_held_pull() -> None:
    """A slave that catches up reads a long way of the log: it must not make objects for messages that no pull waits for."""
    pytest.importorskip("numpy", reason="columns need numpy")
    held = Held()
    records = [record("T", 0, 5), record("U", 0, 1), record("T", 1, 7), record("T", 0, 6)]
    made: list[int] = []

    def request_at(row: int) -> DispatchRequest:
        made.append(row)
        return records[row]

    def batch() -> RecordBatch:
        return RecordBatch.of_columns(replace(columns_of(records), request_at=request_at))

    assert held.service.arrived(batch()) == 0
    assert not made
    first, far = held.hold(6), held.hold(9)
    assert held.service.arrived(batch()) == 1
    assert made == [0, 3]
    assert held.resumed == [first]
    assert far.is_held


def test_a_batch_wakes_held_pulls_whose_filter_matches_a_message_of_the_batch() -> None:
    """A filter may match only the last message; a batch in another queue wakes nobody."""
    held = Held()
    first, last = held.hold(5), held.hold(5, message_filter=tag_filter("B", frozenset()))
    other, far = held.hold(5, message_filter=tag_filter("C", frozenset())), held.hold(8)

    def appended(queue_id: int) -> AppendedBatch:
        codes = [65, 65, 66]
        return AppendedBatch(
            "T", queue_id, 0, 300, 0, 5, 0, range(0, 300, 100), [100] * 3, codes, [""] * 3, "", [b""] * 3, [b""] * 3
        )

    assert held.service.arrived(RecordBatch.of_units([appended(1), record("U", 0, 7)])) == 0
    assert held.service.arrived(RecordBatch.of_units([appended(1), appended(0)])) == 2
    assert held.resumed == [first, last]
    assert other.is_held
    assert far.is_held
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 8)])) == 1


def test_a_held_pull_is_not_woken_by_messages_that_its_filter_rejects() -> None:
    held = Held()
    pull = held.hold(0, message_filter=tag_filter("A", frozenset()))
    assert held.service.notify_arriving("T", 0, 1, 66) == 0
    assert held.service.check() == 0
    held.ends["T", 0] = 1
    assert held.service.check() == 1
    assert held.resumed == [pull]
    held.hold(1, message_filter=tag_filter("A", frozenset()))
    assert held.service.notify_arriving("T", 0, 2, 65) == 1
    held.hold(1, message_filter=tag_filter("A", frozenset()))
    assert held.service.notify_arriving("T", 0, 2) == 1


def test_message_properties_are_given_only_to_filters_that_need_properties() -> None:
    class Even:
        needs_properties = True

        def matches_tags_code(self, tags_code: int) -> bool:
            return True

        def matches_properties(self, properties: Mapping[str, str]) -> bool:
            return properties.get("n") == "2"

    held = Held()
    held.hold(0, message_filter=Even())
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 0, n="1")])) == 0
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 1, n="2")])) == 1


def test_a_held_pull_expires_at_its_deadline() -> None:
    held = Held()
    late, soon = held.hold(0, 15_000), held.hold(0, 1_000)
    assert held.service.next_deadline_s == held.clock.monotonic_s() + 1
    held.clock.advance_ms(999)
    assert held.service.expire() == 0
    held.clock.advance_ms(1)
    assert held.service.expire() == 1
    assert held.resumed == [soon]
    assert held.service.next_deadline_s == late.deadline_s
    held.clock.advance_ms(20_000)
    held.service.expire()
    assert held.service.next_deadline_s is None


def test_closing_a_connection_drops_its_held_pulls_without_answering_them() -> None:
    held = Held()
    held.hold(0)
    held.hold(0, queue_id=1)
    assert held.service.close_channel(held.channel) == 2
    assert held.service.close_channel(held.channel) == 0
    held.clock.advance_ms(20_000)
    assert held.service.expire() == 0
    assert held.resumed == []
    assert len(held.service) == 0


def test_the_callback_that_resumes_a_held_pull_can_hold_the_pull_again() -> None:
    held = Held()
    held.service.hold("T", 0, 0, held.channel, 1_000, lambda pull: held.hold(pull.queue_offset + 1) and None)
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 0)])) == 1
    assert len(held.service) == 1
    assert held.service.release_all() == 1
    assert len(held.service) == 0


@pytest.mark.parametrize("key", ["held_max", "held_per_connection_max"])
def test_the_error_for_too_many_held_pulls_contains_the_name_of_the_exceeded_setting(key: str) -> None:
    """One connection must not take the place of all others; who is refused is not told that nothing was found, because
    then it would ask again at once."""
    held = Held(**{key: 2})
    first, _ = held.hold(0), held.hold(0)
    with pytest.raises(RefusedError) as refused:
        held.hold(0)
    assert (refused.value.code, refused.value.key, refused.value.measured) == (2, f"pull.{key}", "2 held pulls")
    assert len(held.service) == 2
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 0)])) == 2
    assert first in held.resumed
    held.hold(0)


def test_each_connection_has_a_separate_limit_of_held_pulls() -> None:
    held = Held(held_per_connection_max=1)
    held.hold(0)
    held.channel = RecordingChannel()
    held.hold(0)


def test_message_arrivals_in_a_queue_stay_fast_with_100000_held_pulls_on_other_topics() -> None:
    held = Held()
    channels = [RecordingChannel() for _ in range(1_000)]
    for number in range(100_000):
        held.service.hold(f"T{number % 1000}", 0, 0, channels[number % 1000], 15_000, held.resumed.append)
    started_s = time.perf_counter()
    for queue_offset in range(10_000):
        held.service.arrived(RecordBatch.of_requests([record("busy", 0, queue_offset)]))
    assert time.perf_counter() - started_s < 1.0
    assert held.service.arrived(RecordBatch.of_units([record("T7", 0, 0)])) == 100
    held.clock.advance_ms(15_000)
    assert held.service.expire() == 99_900
    assert held.service.next_deadline_s is None


def test_the_deadline_of_a_held_pull_is_removed_after_the_pull_has_ended() -> None:
    held = Held()
    keep = held.hold(10**9, 15_000, queue_id=3)
    for queue_offset in range(5_000):
        held.hold(queue_offset, 60_000)
        held.service.arrived(RecordBatch.of_requests([record("T", 0, queue_offset)]))
    assert len(held.service._deadlines) < 200
    assert keep.is_held


def test_a_held_pull_with_a_large_request_counts_as_several_pulls_against_the_limits() -> None:
    """All of a request is kept while it is held: 20,000 pulls with a header of 1 MB each were 20 GB."""
    held = Held(held_max=10, held_per_connection_max=6)
    large = held.hold(places=4)
    held.hold()
    with pytest.raises(RefusedError) as refused:
        held.hold(places=2)
    assert refused.value.reason == "pull.held_per_connection_max"
    held.hold()
    first, held.channel = held.channel, RecordingChannel()
    with pytest.raises(RefusedError) as refused:
        held.hold(places=5)
    assert refused.value.reason == "pull.held_max"
    held.hold(places=4)
    assert len(held.service) == 4
    held.service.close_channel(first)
    assert not large.is_held
    held.service.close_channel(held.channel)
    assert (len(held.service), held.service._more_places, held.service._more_places_of) == (0, 0, {})
    for _ in range(6):
        held.hold()


def test_the_size_of_a_held_pull_request_includes_body_header_fields_and_filter_expression() -> None:
    """Its body, its fields and its expression: whatever the sender can make long."""

    def weigh(body: bytes = b"", fields: dict[str, str] | None = None, subscription: str | None = None) -> int:
        return places_of(Request(RecordingChannel(), 11, 1, 0, 0, "JAVA", 0, fields, body), subscription)  # type: ignore[arg-type]

    assert weigh(fields={"topic": "T", "consumerGroup": "g"}, subscription="A || B") == 1
    long = "x" * HELD_BYTES
    assert [weigh(long.encode()), weigh(fields={long: ""}), weigh(fields={"k": long}), weigh(subscription=long)] == [
        2
    ] * 4
    assert weigh(subscription=100 * long) == 101


def test_a_message_in_any_queue_wakes_a_pull_that_is_held_for_the_whole_topic() -> None:
    """Once; by no arrival in another topic, and beside the pulls of the queue itself."""
    held = Held()
    waits, other, pull = held.hold(0, queue_id=ANY_QUEUE), held.hold(0, queue_id=ANY_QUEUE), held.hold(7, queue_id=3)
    assert held.service.arrived(RecordBatch.of_units([record("U", 3, 7)])) == 0
    assert held.service.arrived(RecordBatch.of_units([record("T", 3, 7), record("T", 1, 9)])) == 3
    assert set(map(id, held.resumed)) == {id(waits), id(other), id(pull)}
    assert held.service.arrived(RecordBatch.of_units([record("T", 3, 8)])) == 0
    assert len(held.service) == 0


def test_a_held_pull_for_any_queue_of_a_topic_is_woken_by_a_batch_of_new_records() -> None:
    """A slave's copy of the log arrives so."""
    pytest.importorskip("numpy", reason="columns need numpy")
    held = Held()
    records = [record("U", 0, 5), record("T", 6, 1)]
    waits = held.hold(0, queue_id=ANY_QUEUE)
    batch = RecordBatch.of_columns(replace(columns_of(records), request_at=records.__getitem__))
    assert held.service.arrived(batch) == 1
    assert held.resumed == [waits]


def test_a_pull_held_for_all_queues_of_a_topic_is_woken_only_by_messages_that_match_its_filter() -> None:
    held = Held()
    waits = held.hold(0, queue_id=ANY_QUEUE, message_filter=tag_filter("A", frozenset({7})))
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 0, tags_code=8)])) == 0
    assert held.service.arrived(RecordBatch.of_units([record("T", 1, 0, tags_code=7)])) == 1
    assert held.resumed == [waits]


def test_the_periodic_check_wakes_a_pull_that_is_held_for_a_whole_topic_if_a_message_has_arrived() -> None:
    """The check compares the sum of the ends of all queues, because such a wait names no single queue."""
    held = Held()
    waits = held.hold(5, queue_id=ANY_QUEUE)
    held.ends["T", ANY_QUEUE] = 5
    assert held.service.check() == 0
    held.ends["T", ANY_QUEUE] = 6
    assert held.service.check() == 1
    assert held.resumed == [waits]


def test_a_canceled_pull_is_not_resumed_when_a_message_arrives() -> None:
    held = Held(held_max=1)
    pull = held.hold(0, queue_id=ANY_QUEUE)
    held.service.cancel(pull)
    held.service.cancel(pull)
    assert (len(held.service), held.service.next_deadline_s) == (0, None)
    assert held.service.arrived(RecordBatch.of_units([record("T", 0, 0)])) == 0
    held.hold(0)
    assert held.resumed == []


def test_a_held_pull_counts_against_the_limit_per_connection_only_if_it_came_over_a_connection() -> None:
    """It belongs to no connection: closing one does not drop it, a stop resumes it."""
    held = Held(held_max=4, held_per_connection_max=1)
    held.channel = None  # type: ignore[assignment]
    first, second = held.hold(0), held.hold(0, places=3)
    with pytest.raises(RefusedError) as refused:
        held.hold(0)
    assert refused.value.reason == "pull.held_max"
    assert held.service.close_channel(RecordingChannel()) == 0
    assert held.service.release_all() == 2
    assert held.resumed == [first, second]
    held.hold(0, places=4)
