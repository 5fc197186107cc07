"""Figures that a service brings to monitoring systems (docs/metrics.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, runtime_checkable

import msgspec

from flintmq.core.errors import FlintError

NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}")
"""What a metric and a label may be called."""
OURS: Final = ("rocketmq_", "flintmq_", "process_")
"""How names begin that belong to the broker itself."""
TAKEN: Final = frozenset({"cluster", "node_type", "node_id", "le", "quantile"})
"""Labels that are given to every figure, or mean something to what reads them."""
MEASUREMENTS_MAX: Final = 1_000
"""Measurements of one service that are told."""
_TEXT_MAX_CHARS: Final = 300


class Measurement(msgspec.Struct, frozen=True):
    """One figure of now. Those of one name have the same kind and the same names of labels."""

    name: str
    """Such as ``audit_lines_total``. A counter's ends with ``_total``."""
    value: float
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What it is about. Take names of which there is a bounded number: each is a series that monitoring keeps for long."""
    kind: Literal["counter", "gauge"] = "gauge"
    meaning: str = ""
    """A sentence about it; the first one of a name counts."""


@runtime_checkable
class SupportsMetrics(Protocol):
    """A service with figures for monitoring systems, beside those of :class:`.SupportsFigures`."""

    def metrics(self) -> Iterable[Measurement]:
        """Return the figures of now; of a service at most :data:`MEASUREMENTS_MAX` are told.

        Called on the loop's thread with each scrape, which may come every second: return what was counted, measure nothing.
        """
        ...


def checked(one: object) -> Measurement:
    """Return a third party's measurement as it is told: a float, and texts of a bounded length.

    Raises:
        FlintError: it is none, or its name or a label's cannot be told; says which.
    """
    if not isinstance(one, Measurement):
        raise FlintError(f"expected Measurement objects; found a {type(one).__name__}")
    if not isinstance(one.name, str) or NAME.fullmatch(one.name) is None or one.name.startswith(OURS):
        raise FlintError(
            f"a metric cannot be called {str(one.name)[:80]!r}: letters, digits and _, and not {OURS} in front"
        )
    if one.kind not in ("counter", "gauge") or (one.kind == "counter") != one.name.endswith("_total"):
        raise FlintError(
            f"{one.name}: only the name of a counter must end with _total; its kind is {one.kind!r}, and must be counter or "
            "gauge"
        )
    labels: dict[str, str] = {}
    for name, value in one.labels.items():
        if not isinstance(name, str) or NAME.fullmatch(name) is None or name.startswith("__") or name in TAKEN:
            raise FlintError(f"{one.name}: a label cannot be called {str(name)[:80]!r}")
        labels[name] = str(value)[:_TEXT_MAX_CHARS]
    return Measurement(one.name, float(one.value), labels, one.kind, str(one.meaning)[:_TEXT_MAX_CHARS])
