"""A histogram whose buckets are off by one tells operators of syncs that are not as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.histogram import Histogram


@given(st.lists(st.tuples(st.floats(-10, 10), st.integers(1, 5)), max_size=50))
def test_the_upper_bound_of_a_histogram_bucket_is_inclusive(
    values: list[tuple[float, int]],
) -> None:
    """A value that equals a bound belongs below it, as Prometheus has it."""
    histogram = Histogram((-1.0, 0.0, 2.5))
    for value, count in values:
        histogram.add(value, count)
    below = [sum(count for value, count in values if value <= bound) for bound in (*histogram.bounds, float("inf"))]
    assert [sum(histogram.counts[: number + 1]) for number in range(4)] == below
    assert abs(histogram.total - sum(value * count for value, count in values)) < 1e-6
