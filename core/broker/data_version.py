"""The version of a configuration table, by which name servers and slaves see that it changed."""

from __future__ import annotations

import msgspec

from flintmq.core.io.clock import Clock
from flintmq.core.io.typed_json import Long


class DataVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A timestamp and a counter (``DataVersion``); two versions are equal when both are equal.

    Members that RocketMQ 5 adds (``stateVersion``) are ignored. See docs/internals/algorithms.md, Topics and groups.
    """

    counter: Long = 0
    """How often the table has changed."""
    timestamp_ms: Long = msgspec.field(name="timestamp", default=0)
    """When the table last changed."""

    def next(self, clock: Clock) -> DataVersion:
        """Return the version after one more change."""
        return DataVersion(timestamp_ms=clock.now_ms(), counter=self.counter + 1)
