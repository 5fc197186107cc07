"""The message filter of a consumer group for a topic: its entry in ``consumerFilter.json``, the positions of its bits in the
bit maps of the topic's messages, and its use by pull requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from flintmq.core.io.typed_json import Long
from flintmq.core.kernel.ports import MessageFilter
from flintmq.core.record.bloom import BloomFilterData, StoredBloom


class StoredFilter(msgspec.Struct, rename="camel"):
    """A consumer group's filter as stored in ``consumerFilter.json``, with the types of RocketMQ's ``ConsumerFilterData``."""

    bloom_filter_data: StoredBloom | None = None
    born_time: Long = 0
    client_version: Long = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: Long = 0
    expression: str = ""
    expression_type: str = ""
    topic: str = ""


@attrs.define(eq=False)
class ConsumerFilterData:
    """A group's filter, from its first subscription until a day after its last member left. Used only on the event loop's
    thread."""

    topic: str
    consumer_group: str
    expression: str
    expression_type: str
    compiled: MessageFilter | None
    """The compiled filter. It is None if the filter was loaded from ``consumerFilter.json``, and no consumer of the filter's
    group has subscribed since the filter was loaded."""
    bloom: BloomFilterData | None
    """Bit positions of the filter; None if bit maps are computed without this filter. For example, a held pull may still use a
    filter that was removed from the table."""
    born_time_ms: int
    """Creation time of the filter in ms since 1970. The bit map of a message that was stored at this time or before does not
    say whether the filter matches the message."""
    client_version: int
    """Time in ms since 1970 at which a client of the group made the subscription with this filter. An older subscription does
    not replace the filter."""
    dead_time_ms: int = 0
    """Time in ms since 1970 at which the group's last member left; 0 while the group has members."""

    @property
    def is_dead(self) -> bool:
        return self.dead_time_ms >= self.born_time_ms

    def dead_for_ms(self, now_ms: int) -> int:
        """Return the time since the group's last member left, in ms; -1 while the group has members."""
        return now_ms - self.dead_time_ms if self.is_dead else -1

    @property
    def key(self) -> tuple[str, str]:
        """Return the topic and the group of this filter."""
        return self.topic, self.consumer_group

    @property
    def size_bytes(self) -> int:
        """Return the length of the filter's expression in UTF-8, in bytes."""
        return len(self.expression.encode("utf-8", "surrogatepass"))

    def to_wire(self) -> dict[str, Any]:
        """Return this filter's entry of ``consumerFilter.json``. The entry leaves out members without a value."""
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
        """Return a filter that was read from ``consumerFilter.json`` and is not compiled yet. Raises ValueError for malformed
        data."""
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


class _Everything:
    """Accepts every message (a :class:`flintmq.core.kernel.ports.MessageFilter`)."""

    needs_properties = False

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return True


class DeadFilters(msgspec.Struct, frozen=True):
    """A filter that accepts every message. It replaces all filters of a topic whose consumer groups have no members.

    The dispatcher that computes the bit maps of messages thus sets the bits of these groups for every message, and does not
    evaluate the expression of each filter.
    """

    bloom: BloomFilterData | None
    """Bit positions of all filters of the topic whose consumer groups have no members."""
    compiled: MessageFilter | None = _Everything()


class BloomFilterBacked:
    """A consumer group's filter that checks a message's bit map first (a :class:`flintmq.core.kernel.ports.BitMapFilter`)."""

    __slots__ = ("_data", "matches_properties", "matches_tags_code", "needs_properties")

    def __init__(self, compiled: MessageFilter, data: ConsumerFilterData) -> None:
        self._data = data
        self.matches_tags_code = compiled.matches_tags_code
        self.matches_properties = compiled.matches_properties
        self.needs_properties = compiled.needs_properties

    def matches_bit_map(self, bit_map: bytes, store_timestamp_ms: int) -> bool:
        """Return False if a message's bit map shows that this filter does not accept the message; else True.

        The result is also True if the bit map was not computed for this filter, because the filter is newer or the bit map has
        another size.
        """
        bloom = self._data.bloom
        if bloom is None or store_timestamp_ms <= self._data.born_time_ms or len(bit_map) * 8 != bloom.bit_num:
            return True
        return bloom.is_hit(bit_map)
