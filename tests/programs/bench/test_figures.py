"""Intervals are what makes a table of a noisy machine honest: they must be Student's, and pair the rounds."""

from __future__ import annotations

import math

import pytest

from flintmq.programs.bench.figures import estimate, ratio


def test_the_confidence_interval_is_computed_with_the_student_t_distribution() -> None:
    """The textbook's: five values, four degrees of freedom, 2.776 standard errors."""
    found = estimate([10, 12, 11, 13, 14])
    assert found.mean == 12
    assert found.half_width == pytest.approx(2.776 * math.sqrt(2.5) / math.sqrt(5), rel=1e-3)


def test_a_single_round_has_an_infinite_confidence_interval() -> None:
    found = estimate([7.0])
    assert (found.mean, found.low) == (7.0, 0.0)
    assert math.isinf(found.high)
    assert found.as_json()["high"] == -1


def test_ratios_of_benchmark_results_are_computed_within_each_round() -> None:
    """A machine that is twice as slow in one round says nothing about the ratio."""
    found = ratio([20, 10, 40], [10, 5, 20])
    assert found is not None
    assert found.mean == pytest.approx(2)
    assert found.half_width == pytest.approx(0, abs=1e-9)
    assert ratio([1, 0], [1, 1]) is None
    assert ratio([], []) is None


def test_the_confidence_interval_of_many_rounds_uses_the_normal_distribution() -> None:
    values = [float(n % 2) for n in range(100)]
    assert estimate(values).half_width == pytest.approx(1.96 * 0.50252 / 10, rel=1e-3)
