"""A picture of the last minutes lies within its frame, leaves out what nobody knows, and says the same in words."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")

from hypothesis import given
from hypothesis import strategies as st

from flintmq.programs.cluster_view.history import Sample
from flintmq.programs.console.charts import HEIGHT, ROWS_MAX, WIDTH, Line, draw, table
from flintmq.programs.console.texts import rate

SENT = Line("sent", lambda one: one.put_per_s, rate)
GOT = Line("consumed", lambda one: one.get_per_s, rate)


def sample(at_s: float, put: float | None, got: float | None = 0.0) -> Sample:
    return Sample(at_s, put, got, None)


def test_chart_axes_have_a_rounded_maximum_and_start_at_the_first_sample() -> None:
    """The upper edge is a round number, and the left one no further back than is needed."""
    chart = draw(
        "Throughput", "messages/s", (SENT, GOT), [sample(40, 10.0), sample(100, 20.0), sample(300, 40.0)], 300.0
    )
    assert (chart.top, chart.since) == ("50.0", "5 min")
    sent, got = chart.lines
    assert sent.parts == ("40.0,48.0 100.0,36.0", "300.0,12.0")
    assert got.parts == ("40.0,60.0 100.0,60.0", "300.0,60.0")
    assert chart.words == (
        "In the last 5 min: sent 40.0 messages/s now, between 10.0 and 40.0; consumed 0 messages/s now, between 0 and 0."
    )
    assert [(row.ago, row.cells) for row in table((SENT, GOT), [sample(95, 10.0), sample(100, 20.0)], 100.0)] == [
        ("0.0 s", ("15.0", "0"))
    ]


def test_samples_taken_each_minute_form_a_line_with_gaps_where_samples_are_missing() -> None:
    """That is what there is while nobody looks; a gap is where nobody answered for longer."""
    each_minute = [sample(60.0 * number, 1.0) for number in range(10)]
    (line,) = draw("T", "u", (SENT,), each_minute, 540.0).lines
    assert len(line.parts) == 1
    (line,) = draw("T", "u", (SENT,), each_minute[:3] + each_minute[7:], 540.0).lines
    assert len(line.parts) == 2


def test_a_chart_of_24_hours_begins_24_hours_ago_even_if_only_the_last_minutes_have_samples() -> None:
    """A day of which the last hour is known must not look like a day that was so."""
    chart = draw("T", "u", (SENT,), [sample(86_000, 1.0), sample(86_060, 1.0)], 86_400.0, 86_400.0)
    assert chart.since == "24 h"
    ((part,),) = [line.parts for line in chart.lines]
    assert part.startswith("298.")
    assert len(table((SENT,), [sample(86_000, 1.0)], 86_400.0, 86_400.0)) == 1


def test_a_chart_without_samples_or_values_draws_no_lines() -> None:
    """Of no samples, and of figures that nobody told."""
    for samples in ([], [sample(1, None, None)]):
        chart = draw("Throughput", "messages/s", (SENT, GOT), samples, 10.0)
        assert [line.parts for line in chart.lines] == [(), ()]
        assert chart.words == "Nothing yet."
        assert chart.top == "1.0"
    assert table((SENT,), [], 10.0) == ()
    assert [row.cells for row in table((SENT,), [sample(1, None)], 10.0)] == [("–",)]


values = st.none() | st.floats(0, 1e12)


@given(st.lists(st.tuples(st.floats(0, 30), values, values), max_size=40))
def test_every_point_of_a_chart_lies_within_its_frame(steps: list[tuple[float, float | None, float | None]]) -> None:
    """Whatever the figures are, and however long nobody looked."""
    samples, now_s = [], 1_000.0
    for step_s, put, got in steps:
        now_s += step_s
        samples.append(sample(now_s, put, got))
    kept = [one for one in samples if now_s - one.at_s <= 600]
    chart = draw("T", "u", (SENT, GOT), kept, now_s)
    points = [point for line in chart.lines for part in line.parts for point in part.split(" ")]
    for x, y in (map(float, point.split(",")) for point in points):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert len(points) == sum(value is not None for one in kept for value in (one.put_per_s, one.get_per_s))
    assert len(table((SENT, GOT), kept, now_s)) <= ROWS_MAX
