"""Protocols of services that provide figures for monitoring systems (docs/metrics.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, runtime_checkable

import msgspec

from flintmq.core.errors import FlintError

NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}")
"""Pattern of valid names of metrics and labels."""
OURS: Final = ("rocketmq_", "flintmq_", "process_")
"""Prefixes of metric names that are reserved for the broker."""
TAKEN: Final = frozenset({"cluster", "node_type", "node_id", "le", "quantile"})
"""Label names that plugins may not use: the exporter adds these labels to every figure, or Prometheus reserves them."""
MEASUREMENTS_MAX: Final = 1_000
"""Maximum number of measurements that are exported for one service."""
_TEXT_MAX_CHARS: Final = 300


class Measurement(msgspec.Struct, frozen=True):
    """The current value of a metric, for monitoring systems.

    All measurements with the same name have the same kind and label names.
    """

    name: str
    """Name of the metric, such as ``audit_lines_total``. The name of a counter ends with ``_total``."""
    value: float
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Label values, keyed by label name. Use few distinct values: monitoring keeps a time series for each value."""
    kind: Literal["counter", "gauge"] = "gauge"
    meaning: str = ""
    """Help text of the metric, one sentence. If measurements of one name have different texts, the first text is used."""


@runtime_checkable
class SupportsMetrics(Protocol):
    """A service with figures for monitoring systems, in addition to the figures of :class:`.SupportsFigures`."""

    def metrics(self) -> Iterable[Measurement]:
        """Return the service's current measurements; at most :data:`MEASUREMENTS_MAX` of a service are exported.

        Called on the loop's thread for each scrape, perhaps every second. Return values that the service has already computed,
        because each call delays the loop.
        """
        ...


def checked(one: object) -> Measurement:
    """Return a third party's measurement in the form that is exported: the value as a float, and the texts shortened.

    Raises:
        FlintError: the argument is not a measurement, or the name of the metric or of a label is not valid.
    """
    if not isinstance(one, Measurement):
        raise FlintError(f"expected Measurement objects; found a {type(one).__name__}")
    if not isinstance(one.name, str) or NAME.fullmatch(one.name) is None or one.name.startswith(OURS):
        raise FlintError(
            f"a metric cannot be called {str(one.name)[:80]!r}: the name must have only letters, digits and _, and must not "
            f"begin with {', '.join(OURS)} or a digit"
        )
    if one.kind not in ("counter", "gauge") or (one.kind == "counter") != one.name.endswith("_total"):
        raise FlintError(
            f"the metric {one.name} has the kind {one.kind!r}: the kind must be counter or gauge. The name of a counter must "
            "end with _total, and the name of a gauge must not"
        )
    labels: dict[str, str] = {}
    for name, value in one.labels.items():
        if not isinstance(name, str) or NAME.fullmatch(name) is None or name.startswith("__") or name in TAKEN:
            raise FlintError(f"{one.name}: a label cannot be called {str(name)[:80]!r}")
        labels[name] = str(value)[:_TEXT_MAX_CHARS]
    return Measurement(one.name, float(one.value), labels, one.kind, str(one.meaning)[:_TEXT_MAX_CHARS])
