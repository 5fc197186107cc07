"""Bit maps say whose filter a record fits; a record nobody filters carries none."""

from __future__ import annotations

from flintmq.core.broker.subscription import build_subscription
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.record.bloom import BloomFilter
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.consumer_filters import ConsumerFilterManager
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.testing.clock import ManualClock


def request(topic: str, sys_flag: int = 0, **properties: str) -> DispatchRequest:
    return DispatchRequest(topic, 0, 0, 100, 0, 0, 0, "", "", sys_flag, 0, properties)


def filters(**by_group: str) -> ConsumerFilterManager:
    made = ConsumerFilterManager(ManualClock(), {"SQL92": sql92_filter}, BloomFilter(20, 32))
    for group, expression in by_group.items():
        made.register(group, [build_subscription("T", expression, "SQL92", 1)])
    return made


def test_the_filter_bit_map_of_a_record_marks_only_groups_whose_filter_accepts_the_record() -> None:
    """All bits of a group whose filter fits, and of no other."""
    known = filters(big="a > 5", small="a < 5", unfit="a = 5 OR b > 1")
    batch = [request("T", a="9"), request("T", a="1", b="x"), request("U", a="9"), request("T", a="7"), request("T")]
    CalcBitMap(known).dispatch(RecordBatch.of_requests(batch))
    bloom = known.bloom_filter
    expected = [["big"], ["small"], None, ["big"], []]
    made = [
        None if groups is None else bloom.bit_map(bloom.positions(f"{group}#T") for group in groups)
        for groups in expected
    ]
    assert [entry.bit_map for entry in batch] == made


def test_dispatching_the_same_batch_twice_computes_equal_filter_bit_maps() -> None:
    """A full disk makes a batch come again; the second time must not differ."""
    dispatcher = CalcBitMap(filters(g="a > 5"))
    batch = [request("T", a=str(n)) for n in range(10)]
    dispatcher.dispatch(RecordBatch.of_requests(batch))
    first = [entry.bit_map for entry in batch]
    dispatcher.dispatch(RecordBatch.of_requests(batch))
    assert [entry.bit_map for entry in batch] == first
    dispatcher.dispatch(RecordBatch.of_requests([]))


def test_records_of_prepared_or_rolled_back_transactions_get_no_filter_bit_map() -> None:
    """Prepared and rolled back records never enter a queue."""
    batch = [request("T", sys_flag, a="9") for sys_flag in (0x4, 0xC, 0x8)]
    CalcBitMap(filters(g="a > 5")).dispatch(RecordBatch.of_requests(batch))
    assert [entry.bit_map is None for entry in batch] == [True, True, False]


def test_every_message_is_marked_as_matching_the_filter_of_a_group_without_members() -> None:
    """A group that comes back looks at what was stored meanwhile; nothing was evaluated for it."""
    known = filters(g="a > 5", here="a > 5")
    bloom = known.bloom_filter
    known.unregister("g")
    batch = [request("T", a="9"), request("T", a="1")]
    CalcBitMap(known).dispatch(RecordBatch.of_requests(batch))
    both, gone = (
        bloom.bit_map([bloom.positions("g#T"), bloom.positions("here#T")]),
        bloom.bit_map([bloom.positions("g#T")]),
    )
    assert [entry.bit_map for entry in batch] == [both, gone]
    known.unregister("here")
    assert not any(one.compiled.needs_properties for one in known.of_topic("T") if one.compiled), "nothing is evaluated"
    batch = [request("T", a="1"), request("U", a="1")]
    CalcBitMap(known).dispatch(RecordBatch.of_requests(batch))
    assert [entry.bit_map for entry in batch] == [both, None]
