"""What is counted per batch adds up to what single messages would."""

from __future__ import annotations

from flintmq.core.broker.batch_figures import NOTES_MAX, BatchFigures
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.testing.clock import ManualClock


def record(topic: str, size: int) -> DispatchRequest:
    return DispatchRequest(topic, 0, 0, size, 0, 0, 0, "", "", 0, 0, {})


def counted() -> BrokerStats:
    stats = BrokerStats(ManualClock())
    stats.figures = BatchFigures()
    return stats


def test_the_size_histograms_count_each_message_of_an_append_once() -> None:
    """Appends of one topic, of several, and across the moments at which counters are folded."""
    stats = counted()
    stats.stored([record("A", 100)], 0.001)
    stats.stored([record("A", 2000), record("A", 4000)], 0.001)
    stats.stored([record("A", 5000), record("B", 10), record("B", 30)], 0.002)
    stats.sample()
    stats.stored([record("B", 2_000_000)], 0.02)
    stats.sample()
    figures = stats.figures
    assert figures is not None
    assert figures.sizes["A"].counts == [1, 2, 1, 0, 0, 0, 0]
    assert figures.sizes["A"].total == 11_100
    assert figures.sizes["B"].counts == [2, 0, 0, 0, 1, 0, 0]
    assert figures.messages.counts[:4] == [2, 1, 1, 0]
    assert sum(figures.append_s.counts) == 4
    stats.waited(0.3)
    assert sum(figures.durable_s.counts) == 1


def test_statistics_count_every_append_even_if_more_appends_occur_than_the_buffer_can_hold() -> None:
    """Nobody may read the figures for days."""
    stats, figures = BrokerStats(ManualClock()), BatchFigures()
    stats.figures = figures
    for _ in range(NOTES_MAX + 3):
        stats.stored([record("A", 100)], 0.001)
    assert sum(figures.append_s.counts) == NOTES_MAX
    figures.fold()
    figures.fold()
    assert sum(figures.append_s.counts) == figures.sizes["A"].counts[0] == NOTES_MAX + 3


def test_deleting_a_topic_or_group_removes_its_statistics() -> None:
    """A broker on which topics come and go must not grow."""
    stats = counted()
    stats.stored([record("A", 100)])
    stats.handed_out("A", "g", 0, 1, 100, 0.0, 7)
    stats.handed_out("B", "g", 0, 1, 100, 0.0, 8)
    figures = stats.figures
    assert figures is not None
    stats.handed_out("A", "g", 0, 1, 100, 0.0, 9)
    assert stats.consume_tps("g", "A") == 0, "the table folds what was counted"
    assert figures.pulled == {"A": {(0, "g"): 9}, "B": {(0, "g"): 8}}, "where the last pull ended"
    stats.forget_topic("A")
    assert (figures.sizes, figures.pulled) == ({}, {"B": {(0, "g"): 8}})
    stats.forget_group("g")
    assert figures.pulled == {}
