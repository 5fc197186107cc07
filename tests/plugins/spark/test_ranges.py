"""How queues' ranges are limited and packed, for any sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.spark.wire.ranges import QueueRange, limited_rows, packed, parts_wanted, ranges_between

SIZES = st.lists(st.integers(1, 1_000), min_size=1, max_size=20)


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    return [QueueRange(MessageQueue("b", number, "t"), 5, 5 + size) for number, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 2_000))
def test_a_batch_takes_rows_from_every_queue_if_the_row_limit_allows_one_row_per_queue(
    sizes: list[int], max_rows: int
) -> None:
    """At most so many, at least one, within each range; nobody starves where there is one for each."""
    ranges = ranges_of(sizes)
    ends = limited_rows(ranges, max_rows)
    taken = [ends[one.queue] - one.start for one in ranges]
    assert 1 <= sum(taken) <= max_rows
    assert all(0 <= got <= one.rows for got, one in zip(taken, ranges, strict=True))
    assert max_rows < len(ranges) or all(taken)


@given(SIZES, st.integers(1, 50))
def test_the_input_partitions_of_a_batch_contain_each_message_once(sizes: list[int], count: int) -> None:
    """No message is in two parts or in none; parts are few, and equal but for the last."""
    ranges = ranges_of(sizes)
    parts = packed(ranges, count)
    found = [(r.queue.queue_id, at) for part in parts for r in part for at in range(r.start, r.end)]
    assert found == [(one.queue.queue_id, at) for one in ranges for at in range(one.start, one.end)]
    lengths = [sum(r.rows for r in part) for part in parts]
    assert len(parts) <= count
    assert set(lengths[:-1]) <= {lengths[0]}
    assert lengths[-1] <= lengths[0]


def test_the_number_of_input_partitions_depends_on_the_size_of_the_data_and_on_the_cores() -> None:
    """Each task has a price: little work is one task, much is one for each 64 MB, and cores do not stand idle between."""
    mib = 1024 * 1024
    assert parts_wanted(mib, 64 * mib, None, 8) == 1
    assert parts_wanted(32 * mib, 64 * mib, None, 2) == 2
    assert parts_wanted(32 * mib, 64 * mib, None, 8) == 4
    assert parts_wanted(640 * mib, 64 * mib, None, 2) == 10
    assert parts_wanted(300 * mib, 64 * mib, None, 2) == 6
    assert parts_wanted(mib, 64 * mib, 5, 2) == 5


def test_a_new_queue_is_read_from_its_first_existing_message() -> None:
    """The first message need not have offset 0, because retention may have deleted some."""
    old, new = MessageQueue("b", 0, "t"), MessageQueue("b", 1, "t")
    assert ranges_between({old: 3}, {new: 9, old: 3}, {new: 4}) == [QueueRange(new, 4, 9)]
