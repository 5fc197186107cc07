"""What is known of one group's filter in one topic (reference: algorithms 17, store-format 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flintmq.core.filter.bloom import BloomFilterData
from flintmq.core.ports import MessageFilter


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
        """How long it has been dead; -1 while it lives."""
        return now_ms - self.dead_time_ms if self.is_dead else -1

    def to_wire(self) -> dict[str, Any]:
        """As ``consumerFilter.json`` has it; members without a value are left out there."""
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
    def from_wire(cls, value: Mapping[str, Any]) -> ConsumerFilterData:
        """What a file holds, not compiled yet. Raises ValueError for what is no filter data."""
        bloom = value.get("bloomFilterData")
        data = cls(
            str(value.get("topic") or ""),
            str(value.get("consumerGroup") or ""),
            str(value.get("expression") or ""),
            str(value.get("expressionType") or ""),
            None,
            bloom=BloomFilterData.from_wire(bloom) if isinstance(bloom, Mapping) else None,
            born_time_ms=int(value.get("bornTime") or 0),
            client_version=int(value.get("clientVersion") or 0),
            dead_time_ms=int(value.get("deadTime") or 0),
        )
        if not (data.topic and data.consumer_group and data.expression):
            raise ValueError("topic, consumerGroup and expression are needed")
        return data


class BloomFilterBacked:
    """A group's filter that looks at the bit map first (a :class:`flintmq.core.ports.BitMapFilter`)."""

    __slots__ = ("_bloom", "_born_time_ms", "matches_properties", "matches_tags_code", "needs_properties")

    def __init__(self, compiled: MessageFilter, bloom: BloomFilterData, born_time_ms: int) -> None:
        self._bloom = bloom
        self._born_time_ms = born_time_ms
        self.matches_tags_code = compiled.matches_tags_code
        self.matches_properties = compiled.matches_properties
        self.needs_properties = compiled.needs_properties

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        """False only where the bit map was made with this filter and says that the message does not fit."""
        bloom = self._bloom
        if store_timestamp_ms <= self._born_time_ms or len(bit_map) * 8 != bloom.bit_num:
            return True
        return bloom.is_hit(bit_map)
