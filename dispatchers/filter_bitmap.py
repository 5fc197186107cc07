"""CalcBitMap: a dispatcher that computes, for each record, a bit map of the consumer groups whose filters the record matches.

See docs/internals/algorithms.md, Dispatch; docs/internals/store-format.md, Bloom filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintmq.core.kernel.ports import MessageFilter, RecordBatch
from flintmq.core.record.bloom import BloomFilter, BloomFilterData
from flintmq.core.record.sys_flag import is_queued


class GroupFilter(Protocol):
    """The compiled filter of a consumer group, and the group's positions in bit maps."""

    @property
    def compiled(self) -> MessageFilter | None: ...

    @property
    def bloom(self) -> BloomFilterData | None: ...


class ConsumerFilters(Protocol):
    """The filters of the broker's consumer groups, from which the bit maps of records are computed."""

    @property
    def bloom_filter(self) -> BloomFilter: ...

    def of_topic(self, topic: str) -> Sequence[GroupFilter]:
        """Return the filters of the consumer groups that consume a topic; empty for most topics."""
        ...


class CalcBitMap:
    """A dispatcher that sets ``bit_map`` of each request whose topic is filtered by properties. For the loop thread only.

    It runs before the consume queues, which store the bit map. It is the only dispatcher that changes requests. The same
    records with the same filters give the same bit maps.

    The filter of a group without members is not evaluated. Instead, one common filter sets the positions of all such groups in
    every bit map, as if every record matched. When a group has members again, the broker therefore evaluates the group's filter
    for each message that was stored while the group had no members.
    """

    def __init__(self, filters: ConsumerFilters) -> None:
        self.filters = filters

    def dispatch(self, batch: RecordBatch) -> None:
        filters = self.filters
        make = filters.bloom_filter.bit_map
        topic = ""
        of_topic: Sequence[GroupFilter] = ()
        for request in batch.requests():
            if request.topic != topic:
                topic = request.topic
                of_topic = filters.of_topic(topic)
            if of_topic and is_queued(request.sys_flag):
                properties = request.properties
                request.bit_map = make(
                    group.bloom
                    for group in of_topic
                    if group.bloom is not None
                    and group.compiled is not None
                    and (not group.compiled.needs_properties or group.compiled.matches_properties(properties))
                )
