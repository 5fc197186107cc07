"""What is left out by default must run with ``--slow``: a case that is lost would be missed by nobody."""

from __future__ import annotations

import pytest

from flintmq.tests.support.effort import first


def test_parametrized_cases_outside_the_default_selection_are_marked_slow() -> None:
    """In the order in which they were given, so that names of tests do not change."""
    found = first(["a", 2], ["a", ("b", 1), (2, "c"), "d"])
    assert [tuple(one.values) for one in found] == [("a",), ("b", 1), (2, "c"), ("d",)]
    slow = [[mark.name for mark in one.marks] for one in found]
    assert slow == [[], ["slow"], [], ["slow"]]


def test_a_default_case_that_is_not_among_the_test_cases_raises_value_error() -> None:
    """Else a test whose only default case was renamed would run with ``--slow`` alone."""
    with pytest.raises(ValueError, match="'gone'"):
        first(["gone"], ["a"])
