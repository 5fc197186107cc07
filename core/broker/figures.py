"""The figures of a broker, gathered from their sources: texts of request 28, and measurements for monitoring."""

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
    """The sources of a broker's figures. Loop thread.

    Args:
        counts: what the broker counts itself.
        part_of: returns what counts the failures of a new source of texts, if a third party's plugin adds it: when such a
            source fails, its figures are left out.
    """

    __slots__ = ("_first", "_measurements", "_part_of", "_texts", "counts")

    def __init__(self, counts: BrokerStats, part_of: Callable[[], Part | None] = lambda: None) -> None:
        self.counts = counts
        """What the broker counts itself, behind requests 28 and 315."""
        self._part_of = part_of
        self._first: list[tuple[Texts, Part | None]] = []
        self._texts: list[tuple[Texts, Part | None]] = []
        self._measurements: list[Measurements] = []

    def add(self, source: Texts, *, first: bool = False) -> None:
        """Add a source of figures of request 28.

        Args:
            source: returns figures by name; called with each request 28, and with each scrape of a monitoring system.
            first: whether other sources may replace its figures.
        """
        (self._first if first else self._texts).append((source, self._part_of()))

    def add_measurements(self, source: Measurements) -> None:
        """Add a source of measurements for monitoring systems. It is called with each scrape."""
        self._measurements.append(source)

    def texts(self) -> dict[str, str]:
        """Return every figure of request 28 as text. Raises what a source of a built-in raises."""
        found: dict[str, str] = {}
        for source, part in (*self._first, *self._texts):
            if part is None:
                found |= _as_text(source)
            elif not part.why_off:
                with part.counting(""):
                    found |= _as_text(source)
        return found

    def measurements(self) -> list[Measurement]:
        """Return every measurement of now, in the order of the sources."""
        return [one for source in self._measurements for one in source()]


def _as_text(source: Texts) -> dict[str, str]:
    return {str(name): str(value) for name, value in source().items()}
