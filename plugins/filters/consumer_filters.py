"""Keeps filters of groups that do not subscribe by tags, in ``consumerFilter.json`` (docs/internals/algorithms.md, Filters).

They outlive their group by a day, so that bit maps go on being computed for a group that is away for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.subscription import SQL92, SubscriptionData
from flintmq.core.client_log import client_log
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.disk import Disk
from flintmq.core.io.typed_json import Long, read_as
from flintmq.core.kernel.ports import MessageFilter, MessageFilterFactory
from flintmq.core.record.bloom import BloomFilter, BloomFilterData, StoredBloom

_log = client_log(__name__)
PERSIST_INTERVAL_S: Final = 10.0
_CLEAN_AFTER_MS: Final = 24 * 3600 * 1000
_DEAD_BEFORE_LOAD_MS: Final = 30_000


_NO_FILTERS: Final[tuple[ConsumerFilterData, ...]] = ()


class ConsumerFilterManager:
    """The filters by topic and group. Loop thread; the caller calls :meth:`persist` at intervals.

    Args:
        factories: the factories by expression type; filters of other types are not kept.
        bloom_filter: gives groups their positions.
        file: ``config/consumerFilter.json``, or None to keep the table in memory.
    """

    def __init__(
        self,
        clock: Clock,
        factories: Mapping[str, MessageFilterFactory],
        bloom_filter: BloomFilter,
        file: JsonFile | None = None,
    ) -> None:
        self._clock = clock
        self._factories = factories
        self._file = file
        self.bloom_filter = bloom_filter
        self._table: dict[str, dict[str, ConsumerFilterData]] = {}
        self._of_topic: dict[str, tuple[ConsumerFilterData, ...]] = {}
        self._dirty = False

    def __len__(self) -> int:
        return sum(len(groups) for groups in self._table.values())

    # read

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        return self._table.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> tuple[ConsumerFilterData, ...]:
        """Return the filters of a topic that bit maps are computed with, dead ones too."""
        return self._of_topic.get(topic, _NO_FILTERS)

    def backed(
        self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str
    ) -> MessageFilter:
        """Return the filter of a subscription, with the bit map to look at first where the group's filter is this one.

        A plugin's type is left as it is: it may judge by tags codes as well, of which the bit map says nothing.
        """
        data = self.find(topic, group)
        if (
            data is None
            or expression_type != SQL92
            or data.bloom is None
            or data.expression != expression
            or data.expression_type != expression_type
        ):
            return made
        return BloomFilterBacked(made, data.bloom, data.born_time_ms)

    # change

    def register(self, group: str, subscriptions: Collection[SubscriptionData]) -> None:
        """Take what a heartbeat says of a group's subscriptions. Its filters of topics that it no longer names are dead."""
        for wanted in subscriptions:
            if not wanted.is_tag_type and wanted.sub_string:
                self._register(group, wanted)
        if not self._table:
            return
        topics = {wanted.topic for wanted in subscriptions}
        for topic, groups in self._table.items():
            if topic not in topics:
                self._die(groups.get(group))

    def _register(self, group: str, wanted: SubscriptionData) -> None:
        old = self.find(wanted.topic, group)
        if old is not None and wanted.sub_version <= old.client_version:
            if wanted.sub_version == old.client_version:
                self._live(old)
            return
        bloom = self.bloom_filter.positions(f"{group}#{wanted.topic}")
        if old is not None and (old.expression, old.expression_type, old.bloom) == (
            wanted.sub_string,
            wanted.expression_type,
            bloom,
        ):
            old.client_version = wanted.sub_version
            self._dirty = True
            self._live(old)
            return
        compiled = self._compile(wanted.expression_type, wanted.sub_string)
        if compiled is None:
            if old is not None:
                self._remove(old)
            return
        self._put(
            ConsumerFilterData(
                wanted.topic,
                group,
                wanted.sub_string,
                wanted.expression_type,
                compiled,
                bloom=bloom,
                born_time_ms=self._clock.now_ms(),
                client_version=wanted.sub_version,
            )
        )

    def _compile(self, expression_type: str, expression: str) -> MessageFilter | None:
        """Return a filter, or None for what does not parse: the client learns that when it asks or pulls."""
        factory = self._factories.get(expression_type)
        if factory is None:
            return None
        try:
            return factory(expression, frozenset())
        except RefusedError as error:
            _log.info("a subscription is not kept: %s", error)
            return None

    def unregister(self, group: str) -> None:
        """Mark the filters of a group as dead, because its last member left; they are removed a day later."""
        for groups in self._table.values():
            self._die(groups.get(group))

    def _live(self, data: ConsumerFilterData) -> None:
        if data.is_dead:
            data.dead_time_ms = 0
            self._dirty = True

    def _die(self, data: ConsumerFilterData | None) -> None:
        if data is not None and not data.is_dead:
            data.dead_time_ms = self._clock.now_ms()
            self._dirty = True

    def _put(self, data: ConsumerFilterData) -> None:
        self._table.setdefault(data.topic, {})[data.consumer_group] = data
        self._changed(data.topic)

    def _remove(self, data: ConsumerFilterData) -> None:
        groups = self._table[data.topic]
        del groups[data.consumer_group]
        if not groups:
            del self._table[data.topic]
        self._changed(data.topic)

    def _changed(self, topic: str) -> None:
        self._dirty = True
        usable = tuple(
            data
            for data in self._table.get(topic, {}).values()
            if data.compiled is not None and self.bloom_filter.is_valid(data.bloom)
        )
        if usable:
            self._of_topic[topic] = usable
        else:
            self._of_topic.pop(topic, None)

    def clean(self) -> None:
        """Remove the filters that have been dead for a day."""
        now_ms = self._clock.now_ms()
        for data in [data for groups in self._table.values() for data in groups.values()]:
            if data.dead_for_ms(now_ms) >= _CLEAN_AFTER_MS:
                self._remove(data)

    # file

    def to_wire(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: data.to_wire() for group, data in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self._table.items()
            }
        }

    def persist(self) -> bool:
        """Clean, and write the file if something changed; return whether it was written. Raises StoreError."""
        self.clean()
        if not self._dirty or self._file is None:
            return False
        self._file.save(self.to_wire())
        self._dirty = False
        return True

    def load(self) -> bool:
        """Read the file; return False when there is none, or when its positions are of another bloom filter.

        Then bit maps in the store mean something else, so all of it is forgotten, as RocketMQ does. Members are taken
        to have left half a minute ago.

        Raises:
            StoreFormatError: the file and its backup cannot be read.
        """
        value = self._file.load() if self._file is not None else None
        found = [] if value is None else list(_entries(value))
        if not found or any(not self.bloom_filter.is_valid(data.bloom) for data in found):
            return False
        dead_time_ms = self._clock.now_ms() - _DEAD_BEFORE_LOAD_MS
        alive = False
        for data in found:
            data.compiled = self._compile(data.expression_type, data.expression)
            if not data.dead_time_ms:
                data.dead_time_ms = max(dead_time_ms, data.born_time_ms)
                alive = True
            self._put(data)
        self._dirty = alive
        return True


def load_filters(
    config: BrokerConfig, factories: Mapping[str, MessageFilterFactory], clock: Clock, disk: Disk
) -> ConsumerFilterManager:
    """Return the table that is in the folder of a store. Raises ``StoreFormatError``."""
    pull = config.pull
    table = ConsumerFilterManager(
        clock,
        factories,
        BloomFilter(pull.max_error_rate, pull.expect_consumer_num),
        JsonFile(Path(config.store.path) / "config" / "consumerFilter.json", disk),
    )
    table.load()
    return table


def _entries(value: Any) -> list[ConsumerFilterData]:
    """Return the filters of a file. Malformed entries are left out, because the next heartbeat repeats them."""
    found: list[ConsumerFilterData] = []
    topics = value.get("filterDataByTopic") if isinstance(value, Mapping) else None
    for of_topic in topics.values() if isinstance(topics, Mapping) else ():
        groups = of_topic.get("groupFilterData") if isinstance(of_topic, Mapping) else None
        for entry in groups.values() if isinstance(groups, Mapping) else ():
            try:
                found.append(ConsumerFilterData.of(read_as(entry, StoredFilter)))
            except ValueError as error:
                _log.warning("a consumer filter in the file is left out: %s", error)
    return found


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


@attrs.define(eq=False)
class ConsumerFilterData:
    """A group's filter, from its first subscription until a day after its last member left. Loop thread."""

    topic: str
    consumer_group: str
    expression: str
    expression_type: str
    compiled: MessageFilter | None
    """None for a filter that was loaded and that no plugin understands any more."""
    bloom: BloomFilterData | None
    born_time_ms: int
    """Bit maps of messages stored at this time or before say nothing about this filter."""
    client_version: int
    """When the client made the subscription: the newest of a group's wins."""
    dead_time_ms: int = 0
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
