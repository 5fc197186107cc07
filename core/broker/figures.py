"""The figures of a broker, gathered from their sources: texts of request 28, and measurements for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.core.broker.stats import BrokerStats
    from flintmq.core.kernel.ports.metrics import Measurement

Texts = Callable[[], Mapping[str, object]]
Measurements = Callable[[], Iterable["Measurement"]]


class Figures:
    """The sources of a broker's figures. Loop thread.

    Args:
        counts: what the broker counts itself.
        on_failed: called with what a source of texts raised, whose figures are left out then; when it returns False, the
            error is raised.
    """

    __slots__ = ("_first", "_measurements", "_on_failed", "_texts", "counts")

    def __init__(
        self, counts: BrokerStats, on_failed: Callable[[str, Exception], bool] = lambda doing, error: False
    ) -> None:
        self.counts = counts
        """What the broker counts itself, behind requests 28 and 315."""
        self._on_failed = on_failed
        self._first: list[Texts] = []
        self._texts: list[Texts] = []
        self._measurements: list[Measurements] = []

    def add(self, source: Texts, *, first: bool = False) -> None:
        """Add a source of figures of request 28.

        Args:
            source: returns figures by name; called with each request 28, and with each scrape of a monitoring system.
            first: whether other sources may replace its figures.
        """
        (self._first if first else self._texts).append(source)

    def add_measurements(self, source: Measurements) -> None:
        """Add a source of measurements for monitoring systems. It is called with each scrape."""
        self._measurements.append(source)

    def texts(self) -> dict[str, str]:
        """Return every figure of request 28 as text. Raises what a source raises that nobody is blamed for."""
        found: dict[str, str] = {}
        for source in (*self._first, *self._texts):
            try:
                found |= {str(name): str(value) for name, value in source().items()}
            except Exception as error:
                if not self._on_failed("a source of runtime figures", error):
                    raise
        return found

    def measurements(self) -> list[Measurement]:
        """Return every measurement of now, in the order of the sources."""
        return [one for source in self._measurements for one in source()]
