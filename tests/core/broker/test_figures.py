"""The figures of a broker: gathered from sources, of which some may fail."""

from __future__ import annotations

import pytest

from flintmq.core.broker.figures import Figures
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.kernel.failures import Failures
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.core.kernel.ports import Measurement
from flintmq.testing.clock import ManualClock


def test_values_from_the_first_source_of_runtime_figures_are_overridden_by_later_sources() -> None:
    figures = Figures(BrokerStats(ManualClock()))
    figures.add(lambda: {"b": "of a service", "c": 3})
    figures.add(lambda: {"a": 1, "b": 2}, first=True)
    assert list(figures.texts().items()) == [("a", "1"), ("b", "of a service"), ("c", "3")]


def fail() -> dict[str, str]:
    raise ValueError("no figures today")


def test_runtime_info_omits_the_values_of_a_plugin_that_raises_an_exception() -> None:
    """After the last failure that is allowed it is not called any more."""
    owner = PluginOrigin("mine", PluginSource.PROGRAM)
    part = Failures(2).of(owner, "flintmq_services", "a source of runtime figures", optional=True)
    figures = Figures(BrokerStats(ManualClock()), lambda: part)
    figures.add(fail)
    figures.add(lambda: {"a": 1})
    assert figures.texts() == {"a": "1"}
    assert part.errors == 1
    figures.texts()
    assert part.why_off
    figures.texts()
    assert part.errors == 2


def test_reading_the_runtime_figures_raises_an_error_if_a_built_in_source_of_figures_fails() -> None:
    figures = Figures(BrokerStats(ManualClock()))
    figures.add(fail)
    with pytest.raises(ValueError, match="no figures today"):
        figures.texts()


def test_measurements_are_returned_in_the_order_in_which_their_sources_were_added() -> None:
    figures = Figures(BrokerStats(ManualClock()))
    figures.add_measurements(lambda: [Measurement("b", 1)])
    figures.add_measurements(lambda: (Measurement("a", number) for number in (2, 3)))
    assert [(one.name, one.value) for one in figures.measurements()] == [("b", 1), ("a", 2), ("a", 3)]
