"""The end of a queue, found many units at a time, must be the one found unit by unit: what lies behind it is cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES
from flintmq.dispatchers.consume_queue import consume_queue, queue_units
from flintmq.dispatchers.consume_queue.queue_units import OFFSET_MAX

SIZES = st.sampled_from([100, 100, 100, 100, 1, 0, -1, FILLER_SIZE])
STEPS = st.sampled_from([100, 100, 100, 100, 500, 0, 99, -100])
ODD = st.sampled_from([None] * 20 + [0, -1, OFFSET_MAX, OFFSET_MAX + 1, 2**63 - 1])


@given(st.lists(st.tuples(STEPS, SIZES, ODD), max_size=40), st.sampled_from([-1, 0, 150]))
@example([(0, FILLER_SIZE, 0)] * 3 + [(100, 100, None)] * 30 + [(0, 0, 0)] * 9, -1)
def test_the_numpy_search_and_the_unit_by_unit_search_find_the_same_end_of_a_consume_queue(
    steps: list[tuple[int, int, int | None]], known: int
) -> None:
    """Fillers, halves of units, places that go back, places no log has, and where the newest message ends."""
    units = bytearray()
    physical = 0
    for step, size, odd in steps:
        physical += step
        units += UNIT.pack(physical if odd is None else odd, size, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_units, "_TURN", 8)
        one_by_one = consume_queue._valid_units(memoryview(units), known)
        assert queue_units.valid_units(memoryview(units), known) == one_by_one
        patch.setattr(consume_queue, "_FEW_UNITS", 3)
        assert consume_queue._valid_units(memoryview(units), known) == one_by_one
    assert one_by_one[0] <= len(units) // UNIT_BYTES
