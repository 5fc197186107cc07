"""The version of a configuration table, by which name servers and slaves see that it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from flintmq.core.io.clock import Clock


@attrs.frozen
class DataVersion:
    """A timestamp and a counter; two versions are equal when both are (reference: algorithms 11)."""

    timestamp_ms: int = 0
    """When the table last changed."""
    counter: int = 0
    """How often it changed."""

    def next(self, clock: Clock) -> DataVersion:
        """The version after one more change."""
        return DataVersion(clock.now_ms(), self.counter + 1)

    def to_wire(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp_ms}

    @classmethod
    def from_wire(cls, value: Mapping[str, Any] | None) -> DataVersion:
        """Reads the wire's and the files' form; what is missing is 0 (5.x adds ``stateVersion``, which is ignored)."""
        value = value or {}
        return cls(int(value.get("timestamp") or 0), int(value.get("counter") or 0))
