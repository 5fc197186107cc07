"""CalcBitMap: notes with each record which groups' filters it fits.

See docs/internals/algorithms.md, Dispatch; docs/internals/store-format.md, Bloom filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintmq.core.kernel.ports import MessageFilter, RecordBatch
from flintmq.core.record.bloom import BloomFilter, BloomFilterData
from flintmq.core.record.sys_flag import is_queued


class GroupFilter(Protocol):
    """A group's filter and its positions."""

    @property
    def compiled(self) -> MessageFilter | None: ...

    @property
    def bloom(self) -> BloomFilterData | None: ...


class ConsumerFilters(Protocol):
    """The broker's filters, as this dispatcher sees them."""

    @property
    def bloom_filter(self) -> BloomFilter: ...

    def of_topic(self, topic: str) -> Sequence[GroupFilter]:
        """Return the topic's filters; none for most topics."""
        ...


class CalcBitMap:
    """Sets ``bit_map`` of each request whose topic a consumer filters by properties. Loop thread.

    It stands before the consume queues, which write the bit map down, and is the one dispatcher that changes what it is
    given. The same records with the same filters give the same bit maps.

    The positions of groups that have no members now are set in each bit map, by one filter that stands for all of them: it
    costs nothing, and when such a group is back it looks at what was stored meanwhile, message by message.
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
