"""Defines what is known of one group's filter in one topic.

See docs/internals/algorithms.md, Filters; docs/internals/store-format.md, Configuration files.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flintmq.core.io.typed_json import Long
from flintmq.core.kernel.ports import MessageFilter
from flintmq.core.record.bloom import BloomFilterData, StoredBloom


class StoredFilter(msgspec.Struct, rename="camel"):
    """A filter in the file's form, with RocketMQ's types (``ConsumerFilterData``)."""

    bloom_filter_data: StoredBloom | None = None
    born_time: Long = 0
    client_version: Long = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: Long = 0
    expression: str = ""
    expression_type: str = ""
    topic: str = ""


class ConsumerFilterData:
    """A group's filter, from its first subscription until a day after its last member left. Loop thread."""

    __slots__ = (
        "bloom",
        "born_time_ms",
        "client_version",
        "compiled",
        "consumer_group",
        "dead_time_ms",
        "expression",
        "expression_type",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        consumer_group: str,
        expression: str,
        expression_type: str,
        compiled: MessageFilter | None,
        *,
        bloom: BloomFilterData | None,
        born_time_ms: int,
        client_version: int,
        dead_time_ms: int = 0,
    ) -> None:
        self.topic = topic
        self.consumer_group = consumer_group
        self.expression = expression
        self.expression_type = expression_type
        self.compiled = compiled
        """None for a filter that was loaded and that no plugin understands any more."""
        self.bloom = bloom
        self.born_time_ms = born_time_ms
        """Bit maps of messages stored at this time or before say nothing about this filter."""
        self.client_version = client_version
        """When the client made the subscription: the newest of a group's wins."""
        self.dead_time_ms = dead_time_ms
        """When the group's last member left; 0 while it lives."""

    @property
    def is_dead(self) -> bool:
        return self.dead_time_ms >= self.born_time_ms

    def dead_for_ms(self, now_ms: int) -> int:
        """Return for how long it has been dead, in ms; -1 while it lives."""
        return now_ms - self.dead_time_ms if self.is_dead else -1

    def to_wire(self) -> dict[str, Any]:
        """Return the entry of ``consumerFilter.json``; members without a value are left out there."""
        return {
            "bloomFilterData": self.bloom.to_wire() if self.bloom is not None else None,
            "bornTime": self.born_time_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.consumer_group,
            "dead": self.is_dead,
            "deadTime": self.dead_time_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }

    @classmethod
    def of(cls, stored: StoredFilter) -> ConsumerFilterData:
        """Return a filter that was read and is not compiled yet. Raises ValueError for malformed data."""
        bloom = stored.bloom_filter_data
        data = cls(
            stored.topic,
            stored.consumer_group,
            stored.expression,
            stored.expression_type,
            None,
            bloom=BloomFilterData.of(bloom) if bloom is not None else None,
            born_time_ms=stored.born_time,
            client_version=stored.client_version,
            dead_time_ms=stored.dead_time,
        )
        if not (data.topic and data.consumer_group and data.expression):
            raise ValueError("topic, consumerGroup and expression are needed")
        return data


class BloomFilterBacked:
    """A group's filter that looks at the bit map first (a :class:`flintmq.core.kernel.ports.BitMapFilter`)."""

    __slots__ = ("_bloom", "_born_time_ms", "matches_properties", "matches_tags_code", "needs_properties")

    def __init__(self, compiled: MessageFilter, bloom: BloomFilterData, born_time_ms: int) -> None:
        self._bloom = bloom
        self._born_time_ms = born_time_ms
        self.matches_tags_code = compiled.matches_tags_code
        self.matches_properties = compiled.matches_properties
        self.needs_properties = compiled.needs_properties

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        """Return False only where the bit map was made with this filter and says that the message does not fit."""
        bloom = self._bloom
        if store_timestamp_ms <= self._born_time_ms or len(bit_map) * 8 != bloom.bit_num:
            return True
        return bloom.is_hit(bit_map)
