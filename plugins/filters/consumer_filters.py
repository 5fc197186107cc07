"""Keeps the filters of consumer groups that subscribe with SQL92 or other expressions than tags, in ``consumerFilter.json``.

For each message, the broker stores a bit map of the filters that accept the message. A filter is *dead* while its group has no
members. The broker keeps dead filters for a day, so that a group that reconnects within a day can use the stored bit maps.

A heartbeat can register filters, so the number of filters is limited for each topic, group and broker. The total size of all
expressions, and the size of the expressions that are compiled in a second, are limited as well. At a limit, a new filter
replaces a dead filter. If no filter is dead, the new filter is not kept, and each pull of its group evaluates the expression
for every message. No filter is kept for a topic or group that does not exist. See docs/internals/algorithms.md, Filters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from flintmq.config.sections.models import BrokerConfig
from flintmq.core import limits
from flintmq.core.broker.subscription import SQL92, SubscriptionData
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import MessageFilter, MessageFilterFactory
from flintmq.core.log_events import client_log
from flintmq.core.record.bloom import BloomFilter
from flintmq.plugins.filters.consumer_filter_data import BloomFilterBacked, ConsumerFilterData, DeadFilters
from flintmq.plugins.filters.consumer_filter_file import ConsumerFilterFile, FilePart

_log = client_log(__name__)
PERSIST_INTERVAL_S: Final = 10.0
PER_EXPECTED: Final = 2
"""Maximum number of filters of a topic, as a multiple of ``pull.expect_consumer_num``. With more filters, the bit maps of
messages would no longer exclude any message."""
_CLEAN_AFTER_MS: Final = 24 * 3600 * 1000
_DEAD_BEFORE_LOAD_MS: Final = 30_000
_NO_FILTERS: Final[tuple[ConsumerFilterData | DeadFilters, ...]] = ()

Key = tuple[str, str]
"""Key of a filter: topic and group."""


def _exists(topic: str, group: str, expression_type: str) -> bool:
    """Return True, so that a table keeps all filters. The table uses this function until its owner sets
    :attr:`ConsumerFilterManager.is_wanted`."""
    return True


class ConsumerFilterManager:
    """A table of filters, keyed by topic and group. Used only on the event loop's thread.

    Args:
        clock: gives filters their times, and limits compilation.
        factories: factories of filters, keyed by expression type; filters of other types are not kept.
        bloom_filter: computes the bit positions of each group and topic.
        file: ``config/consumerFilter.json``, or None to keep the table in memory.
        count_max: largest number of filters to keep.
    """

    def __init__(
        self,
        clock: Clock,
        factories: Mapping[str, MessageFilterFactory],
        bloom_filter: BloomFilter,
        file: JsonFile | None = None,
        *,
        count_max: int = limits.CONSUMER_FILTERS_MAX,
    ) -> None:
        self._clock = clock
        self._factories = factories
        self.file = ConsumerFilterFile(file)
        self._count_max = count_max
        self.bloom_filter = bloom_filter
        self.is_wanted: Callable[[str, str, str], bool] = _exists
        """Function that returns whether a filter is kept. Its arguments are the filter's topic, group and expression type."""
        self._table: dict[str, dict[str, ConsumerFilterData]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._dead: dict[Key, ConsumerFilterData] = {}
        """Filters of groups without members, keyed by topic and group, in the order in which the groups lost their last
        member."""
        self._bytes = 0
        self._of_topic: dict[str, tuple[ConsumerFilterData | DeadFilters, ...]] = {}
        self._count = 0
        self._compiled_bytes = 0
        self._compiled_since_s = clock.monotonic_s()
        self.left_out = 0
        """Number of filters in clients' heartbeats that the broker did not keep because a limit was reached."""

    def __len__(self) -> int:
        return self._count

    # read

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        return self._table.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> tuple[ConsumerFilterData | DeadFilters, ...]:
        """Return the filters with which the bit maps of a topic are computed.

        These are the filters of groups that have members, and one filter for all groups without members, which lets every
        message pass."""
        return self._of_topic.get(topic, _NO_FILTERS)

    def backed(
        self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str
    ) -> MessageFilter:
        """Return the filter for a group's subscription. If this table contains the same SQL92 expression for the group and
        topic, the returned filter checks a message's bit map before it calls ``made``. Otherwise, return ``made`` unchanged.

        Expressions of a plugin's type are never combined with a bit map: their filters may also check tags codes, which bit
        maps do not cover.

        Args:
            topic: the topic of the subscription.
            group: the consumer group.
            expression_type: the type of the expression.
            made: the filter as its factory made it.
            expression: the expression.
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
        return BloomFilterBacked(made, data)

    # change

    def register(self, group: str, subscriptions: Collection[SubscriptionData]) -> None:
        """Update a group's filters from a heartbeat. The group's filters for topics that the heartbeat does not name are marked
        as dead, and removed a day later."""
        for wanted in subscriptions:
            if not wanted.is_tag_type and wanted.sub_string:
                self._register(group, wanted)
        known = self._topics_of.get(group)
        if known:
            for topic in known - {wanted.topic for wanted in subscriptions}:
                self._die(self.find(topic, group))

    def _register(self, group: str, wanted: SubscriptionData) -> None:
        if not self.is_wanted(wanted.topic, group, wanted.expression_type):
            return
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
            self._changed(old.topic)
            self._live(old)
            return
        if not self._may_compile(wanted.sub_string):
            # Too many filters were compiled in this second, so a later heartbeat compiles the new filter.
            # Pulls do not use the old filter while the new filter is not compiled.
            return
        compiled = self._compile(wanted.expression_type, wanted.sub_string)
        if old is not None:
            self._remove(old)
        if compiled is None:
            return
        data = ConsumerFilterData(
            wanted.topic,
            group,
            wanted.sub_string,
            wanted.expression_type,
            compiled,
            bloom=bloom,
            born_time_ms=self._clock.now_ms(),
            client_version=wanted.sub_version,
        )
        if self._make_room(data):
            self._put(data)
        else:
            self.left_out += 1
            _log.info(
                "filter.no_room",
                "the expression of group %(group)s for topic %(topic)s is not kept: there are too many",
                group=group,
                topic=wanted.topic,
            )

    def _may_compile(self, expression: str) -> bool:
        """Return whether a filter expression may be compiled in the current second, and count the expression's bytes."""
        now_s = self._clock.monotonic_s()
        if now_s - self._compiled_since_s >= 1.0:
            self._compiled_since_s, self._compiled_bytes = now_s, 0
        if self._compiled_bytes >= limits.CONSUMER_FILTERS_COMPILED_BYTES_PER_S:
            return False
        self._compiled_bytes += len(expression)
        return True

    def _compile(self, expression_type: str, expression: str) -> MessageFilter | None:
        """Return a filter for an expression; None if the expression is malformed. The client gets the error when it has the
        expression checked, or when it pulls."""
        factory = self._factories.get(expression_type)
        if factory is None:
            return None
        try:
            return factory(expression, frozenset())
        except RefusedError as error:
            _log.info("filter.not_kept", "a subscription is not kept: %(error)s", error=error)
            return None

    def _make_room(self, data: ConsumerFilterData) -> bool:
        """Remove filters of groups without members until one more filter fits into the limits; return False if removing all
        these filters would not suffice."""
        of_topic, of_group = self._table.get(data.topic, {}), self._topics_of.get(data.consumer_group, set())
        per_topic = PER_EXPECTED * self.bloom_filter.expected
        if len(of_topic) >= per_topic and not self._bury(one for one in of_topic.values() if one.is_dead):
            return False
        if len(of_group) >= limits.CONSUMER_FILTERS_PER_GROUP_MAX and not self._bury(
            one for topic in of_group if (one := self._table[topic][data.consumer_group]).is_dead
        ):
            return False
        while len(self) >= self._count_max or self._bytes + data.size_bytes > limits.CONSUMER_FILTERS_MAX_BYTES:
            if not self._bury(iter(self._dead.values())):
                return False
        return True

    def _bury(self, dead: Iterator[ConsumerFilterData]) -> bool:
        """Remove one dead filter, the first that the iterator returns; return False if the iterator is empty. A filter is dead
        while its consumer group has no members."""
        first = next(dead, None)
        if first is not None:
            self._remove(first)
        return first is not None

    def unregister(self, group: str) -> None:
        """Mark the filters of a group as dead, because the group's last member left. Dead filters are removed a day later."""
        for topic in self._topics_of.get(group, ()):
            self._die(self.find(topic, group))

    def _live(self, data: ConsumerFilterData) -> None:
        """Mark a filter as used, because its group has members again. Compile the filter if it was loaded from the file."""
        if not data.is_dead:
            return
        if data.compiled is None:
            if not self._may_compile(data.expression):
                return
            data.compiled = self._compile(data.expression_type, data.expression)
            if data.compiled is None:
                self._remove(data)
                return
        data.dead_time_ms = 0
        self._dead.pop(data.key, None)
        self._changed(data.topic)

    def _die(self, data: ConsumerFilterData | None) -> None:
        if data is not None and not data.is_dead:
            data.dead_time_ms = max(self._clock.now_ms(), data.born_time_ms)
            self._dead[data.key] = data
            self._changed(data.topic)

    def _put(self, data: ConsumerFilterData) -> None:
        self._table.setdefault(data.topic, {})[data.consumer_group] = data
        self._topics_of.setdefault(data.consumer_group, set()).add(data.topic)
        self._bytes += data.size_bytes
        self._count += 1
        if data.is_dead:
            self._dead[data.key] = data
        self._changed(data.topic)

    def _remove(self, data: ConsumerFilterData) -> None:
        topic, group = data.key
        del self._table[topic][group]
        if not self._table[topic]:
            del self._table[topic]
        self._topics_of[group].discard(topic)
        if not self._topics_of[group]:
            del self._topics_of[group]
        self._dead.pop(data.key, None)
        self._bytes -= data.size_bytes
        self._count -= 1
        # A held pull with the removed filter must not use later bit maps, which are computed without the removed filter.
        data.bloom = None
        self._changed(topic)

    def _changed(self, topic: str) -> None:
        self.file.changed(topic)
        usable = [
            data
            for data in self._table.get(topic, {}).values()
            if data.bloom and self.bloom_filter.is_valid(data.bloom)
        ]
        found: list[ConsumerFilterData | DeadFilters] = [data for data in usable if not data.is_dead and data.compiled]
        dead = [data.bloom for data in usable if data.is_dead and data.bloom]
        if dead:
            found.append(DeadFilters(self.bloom_filter.all_of(dead)))
        if found:
            self._of_topic[topic] = tuple(found)
        else:
            self._of_topic.pop(topic, None)

    def clean(self) -> None:
        """Remove the filters whose groups have had no members for a day."""
        now_ms = self._clock.now_ms()
        for data in list(self._dead.values()):
            if data.dead_for_ms(now_ms) < _CLEAN_AFTER_MS:
                break
            self._remove(data)

    def forget_topic(self, topic: str) -> None:
        """Remove the filters of a topic that was deleted."""
        for data in list(self._table.get(topic, {}).values()):
            self._remove(data)

    def forget_group(self, group: str) -> None:
        """Remove the filters of a group that was deleted."""
        for topic in list(self._topics_of.get(group, ())):
            self._remove(self._table[topic][group])

    def forget_unwanted(self) -> None:
        """Remove the filters of groups and topics for which :attr:`is_wanted` returns False."""
        for data in [data for groups in self._table.values() for data in groups.values()]:
            if not self.is_wanted(data.topic, data.consumer_group, data.expression_type):
                self._remove(data)

    # file

    def persist(self) -> bool:
        """Remove expired filters, and write ``consumerFilter.json`` if the table changed; return whether the table changed.
        Raises StoreError."""
        parts = self.take_changes()
        if parts is not None:
            self.file.write(parts)
        return parts is not None

    def take_changes(self) -> list[FilePart] | None:
        """Remove expired filters, and return the parts of ``consumerFilter.json`` to write; None if the table has not changed
        since the last call."""
        self.clean()
        return self.file.take(self._table)

    def load(self) -> bool:
        """Read ``consumerFilter.json``; return False if the file does not exist, or was written with another bloom filter.

        If the bloom filter has changed, the bit maps in the store cannot be used, so all filters of the file are ignored, like
        in RocketMQ. Filters that exceed the limits are ignored, too.

        All filters that are read are dead: for a group that had members when the file was written, the table assumes that the
        last member left half a minute ago.

        Raises:
            StoreFormatError: the file and its backup cannot be read.
        """
        found = self.file.load()
        if not found or any(not self.bloom_filter.is_valid(data.bloom) for data in found):
            return False
        dead_time_ms = self._clock.now_ms() - _DEAD_BEFORE_LOAD_MS
        changes = False
        for data in found:
            if not data.dead_time_ms:
                data.dead_time_ms = max(dead_time_ms, data.born_time_ms)
                changes = True
        for data in sorted(found, key=lambda data: data.dead_time_ms, reverse=True):
            self._load(data)
        place = {(data.topic, data.consumer_group): at for at, data in enumerate(found)}
        # Filters of the groups whose members left last were added first, so that the limits exclude the oldest filters.
        # Each topic's groups are sorted as in ``consumerFilter.json``, because the filters were added in another order.
        for topic, groups in self._table.items():
            self._table[topic] = dict(sorted(groups.items(), key=lambda item: place[topic, item[0]]))
        self._dead = dict(sorted(self._dead.items(), key=lambda item: item[1].dead_time_ms))
        self.file.is_dirty = changes or len(self) != len(found)
        return True

    def _load(self, data: ConsumerFilterData) -> None:
        """Add a filter of ``consumerFilter.json`` if :attr:`is_wanted` returns True for the filter, and the filter fits into
        the limits."""
        of_topic, of_group = self._table.get(data.topic, {}), self._topics_of.get(data.consumer_group, ())
        if (
            self.is_wanted(data.topic, data.consumer_group, data.expression_type)
            and data.consumer_group not in of_topic
            and len(of_topic) < PER_EXPECTED * self.bloom_filter.expected
            and len(of_group) < limits.CONSUMER_FILTERS_PER_GROUP_MAX
            and len(self) < self._count_max
            and self._bytes + data.size_bytes <= limits.CONSUMER_FILTERS_MAX_BYTES
        ):
            self._put(data)


def load_filters(
    config: BrokerConfig, factories: Mapping[str, MessageFilterFactory], clock: Clock, disk: Disk
) -> ConsumerFilterManager:
    """Return the table of filters that was read from a store's folder. Raises ``StoreFormatError``."""
    pull = config.pull
    table = ConsumerFilterManager(
        clock,
        factories,
        BloomFilter(pull.max_error_rate, pull.expect_consumer_num),
        JsonFile(Path(config.store.path) / "config" / "consumerFilter.json", disk),
    )
    table.is_wanted = lambda topic, group, expression_type: expression_type != SQL92 or pull.property_filter
    table.load()
    return table
