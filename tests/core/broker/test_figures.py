"""The figures of a broker: gathered from sources, of which some may fail."""

from __future__ import annotations

import pytest

from flintmq.core.broker.figures import Figures
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.kernel.ports import Measurement
from flintmq.testing.clock import ManualClock


def test_a_later_source_replaces_the_figures_of_those_that_are_first() -> None:
    figures = Figures(BrokerStats(ManualClock()))
    figures.add(lambda: {"b": "of a service", "c": 3})
    figures.add(lambda: {"a": 1, "b": 2}, first=True)
    assert list(figures.texts().items()) == [("a", "1"), ("b", "of a service"), ("c", "3")]


def fail() -> dict[str, str]:
    raise ValueError("no figures today")


def test_a_source_that_fails_is_left_out_if_somebody_is_blamed() -> None:
    blamed: list[tuple[str, str]] = []

    def blame(doing: str, error: Exception) -> bool:
        blamed.append((doing, str(error)))
        return True

    figures = Figures(BrokerStats(ManualClock()), blame)
    figures.add(fail)
    figures.add(lambda: {"a": 1})
    assert figures.texts() == {"a": "1"}
    assert blamed == [("a source of runtime figures", "no figures today")]


def test_an_error_that_nobody_is_blamed_for_is_raised() -> None:
    figures = Figures(BrokerStats(ManualClock()))
    figures.add(fail)
    with pytest.raises(ValueError, match="no figures today"):
        figures.texts()


def test_measurements_come_in_the_order_of_their_sources() -> None:
    figures = Figures(BrokerStats(ManualClock()))
    figures.add_measurements(lambda: [Measurement("b", 1)])
    figures.add_measurements(lambda: (Measurement("a", number) for number in (2, 3)))
    assert [(one.name, one.value) for one in figures.measurements()] == [("b", 1), ("a", 2), ("a", 3)]
