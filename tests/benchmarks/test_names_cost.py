"""One operation of administration must cost the same beside a hundred names and a hundred thousand, and hold nobody up."""

from __future__ import annotations

import pytest

from .names_cost import WHOLE_TABLES, measure

TRIES = 3
"""Others on the machine disturb one measurement, but hardly three."""
FLAT = 2.0
BLOCKED_MAX_MS = 5.0
"""Processor time of the loop at a stretch during operations; some 1 here, and 2,000 if it writes a table of 100,000 names."""
WHOLE_MAX_MS = 60.0
"""The same while such a table is asked for: 24 MB, which are copied on their way to the socket; some 25 here, 2,000 if it is
made at a stretch."""


def test_the_benchmark_with_many_topics_and_groups_measures_every_admin_operation() -> None:
    """A benchmark that no longer runs would hide a growing cost."""
    found = measure([20, 40], rounds=2)
    assert [*found] == [20, 40]
    assert len(found[40]) == 8 + len(WHOLE_TABLES)
    assert all(0 < cost.cpu_ms < 1_000 for costs in found.values() for cost in costs.values())


@pytest.mark.longest
@pytest.mark.timeout(600)
def test_the_cost_of_an_admin_operation_does_not_grow_with_the_number_of_topics_and_groups() -> None:
    """Once each of them wrote the table of all topics, of all groups or of all values: 350 ms beside 16,000."""
    for left in reversed(range(TRIES)):
        few, some, many = measure([100, 10_000, 100_000], rounds=80).values()
        operations = few.keys() - WHOLE_TABLES.keys()
        ratios = {name: max(some[name].cpu_ms, many[name].cpu_ms) / few[name].cpu_ms for name in operations}
        blocked = {name: max(some[name].blocked_max_ms, many[name].blocked_max_ms) for name in few}
        too_long = [name for name in few if blocked[name] > (BLOCKED_MAX_MS if name in operations else WHOLE_MAX_MS)]
        if max(ratios.values()) <= FLAT and not too_long:
            return
        if not left:
            raise AssertionError(f"ratios {ratios}; milliseconds at a stretch {blocked}")
