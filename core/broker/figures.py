"""Collects the runtime figures of a broker from the modules that measure them.

There are two kinds of figures: texts for the answer to GET_BROKER_RUNTIME_INFO (request 28), and measurements for monitoring
systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.core.broker.stats import BrokerStats
    from flintmq.core.kernel.failures import Part
    from flintmq.core.kernel.ports.metrics import Measurement

Texts = Callable[[], Mapping[str, object]]
Measurements = Callable[[], Iterable["Measurement"]]


class Figures:
    """The sources of a broker's runtime figures. A source is a function that returns figures. Used only on the event loop's
    thread.

    Args:
        counts: the broker's counters.
        part_of: called when a source is added; returns the object that counts the failures of the plugin that adds the source,
            or None if the broker itself adds the source. If a plugin's source fails, the source's figures are left out.
    """

    __slots__ = ("_first", "_measurements", "_part_of", "_texts", "counts")

    def __init__(self, counts: BrokerStats, part_of: Callable[[], Part | None] = lambda: None) -> None:
        self.counts = counts
        """Counters of the broker, which GET_BROKER_RUNTIME_INFO (request 28) and VIEW_BROKER_STATS_DATA (request 315)
        report."""
        self._part_of = part_of
        self._first: list[tuple[Texts, Part | None]] = []
        self._texts: list[tuple[Texts, Part | None]] = []
        self._measurements: list[Measurements] = []

    def add(self, source: Texts, *, first: bool = False) -> None:
        """Add a source of figures for the answer to GET_BROKER_RUNTIME_INFO (request 28).

        Args:
            source: returns figures, keyed by name. It is called for each GET_BROKER_RUNTIME_INFO request and for each scrape of
                a monitoring system.
            first: whether a figure of this source is replaced if a source that was added without ``first`` has a figure of the
                same name.
        """
        (self._first if first else self._texts).append((source, self._part_of()))

    def add_measurements(self, source: Measurements) -> None:
        """Add a source of measurements, a function that is called for each scrape of a monitoring system."""
        self._measurements.append(source)

    def texts(self) -> dict[str, str]:
        """Return all figures for the answer to GET_BROKER_RUNTIME_INFO (request 28), keyed by name.

        The figures come from functions that the broker and its plugins have added (:meth:`add`). If a plugin's function raises
        an exception, its figures are left out. If one of the broker's own functions raises an exception, this method raises it.
        """
        found: dict[str, str] = {}
        for source, part in (*self._first, *self._texts):
            if part is None:
                found |= _as_text(source)
            elif not part.why_off:
                with part.counting(""):
                    found |= _as_text(source)
        return found

    def measurements(self) -> list[Measurement]:
        """Return the current measurements of all sources, in the order in which the sources were added."""
        return [one for source in self._measurements for one in source()]


def _as_text(source: Texts) -> dict[str, str]:
    return {str(name): str(value) for name, value in source().items()}
