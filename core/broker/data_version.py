"""The version of a configuration table, by which name servers and slaves see that it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.io.typed_json import Long, read_as


class StoredVersion(msgspec.Struct):
    """A version in the wire's and the files' form, with RocketMQ's types (``DataVersion``)."""

    counter: Long = 0
    timestamp: Long = 0


@attrs.frozen
class DataVersion:
    """A timestamp and a counter; two versions are equal when both are (docs/internals/algorithms.md, Topics and groups)."""

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
        """Reads the wire's and the files' form; what is missing is 0 (5.x adds ``stateVersion``, which is ignored).

        Raises:
            JsonTypeError: a member is not of RocketMQ's type.
        """
        return cls.of(read_as(value or {}, StoredVersion))

    @classmethod
    def of(cls, stored: StoredVersion) -> DataVersion:
        """A version that was read."""
        return cls(stored.timestamp, stored.counter)
