"""The tables of a broker, as features use them. Each class has only the attributes and methods that features need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec

if TYPE_CHECKING:
    from flintmq.core.broker.groups import SubscriptionGroupConfig
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.broker.topic_config import TopicConfig
    from flintmq.core.io.config_manager import DataVersion, NotedFile, VersionedTable

P = ParamSpec("P")


class TableFile(Generic[P]):
    """The file of a broker's table: encodes and writes the whole table. Used only on the event loop's thread.

    Args:
        table: the table of topics, groups or offsets.
        encoded: returns the table as the body of a response, in pieces.
    """

    __slots__ = ("_table", "compact", "durable", "encoded", "persist")

    def __init__(self, table: NotedFile, encoded: Callable[P, Iterator[bytes]]) -> None:
        self._table: Final = table
        self.encoded: Final = encoded
        """Function that returns the table of topics, groups or offsets as the body of a response, in pieces."""
        self.durable: Final = table.durable
        """Coroutine function that returns when all earlier changes of the table of topics, groups or offsets survive a power
        failure."""
        self.persist: Final = table.persist
        """Function that writes the table of topics, groups or offsets to its file, and returns when the file is written."""
        self.compact: Final = table.compact
        """Coroutine function that writes the table of topics, groups or offsets to its file in a thread."""

    @property
    def is_dirty(self) -> bool:
        """Whether the table has changes that are not in the file."""
        return self._table.is_dirty


class VersionedFile(TableFile[P]):
    """The file of a table that has a data version, by which name servers and slaves detect changes. Used only on the event
    loop's thread.

    Args:
        table: the table of topics, groups or offsets.
        encoded: returns the table as the body of a response, in pieces.
    """

    __slots__ = ("_versioned",)

    def __init__(self, table: VersionedTable[Any], encoded: Callable[P, Iterator[bytes]]) -> None:
        super().__init__(table, encoded)
        self._versioned: Final = table

    def __len__(self) -> int:
        return len(self._versioned)

    @property
    def noted(self) -> int:
        """Number of changes of the table that are in the journal, but not in the file yet."""
        return self._versioned.noted

    @property
    def data_version(self) -> DataVersion:
        """Version of the table, by which name servers and slaves detect changes."""
        return self._versioned.data_version


class Topics:
    """The table of topics, as features use it. Used only on the event loop's thread.

    An attribute without a description is the attribute with the same name in
    :class:`~flintmq.core.broker.topics.TopicConfigManager`.
    """

    __slots__ = (
        "_table",
        "changed",
        "create_in_send_back",
        "delete",
        "deleted",
        "file",
        "holding_topics",
        "is_system_topic",
        "keeping_topics",
        "put",
        "queue_inside",
        "select",
        "system_topics",
        "update_order_topics",
        "widths",
    )

    def __init__(self, state: BrokerState) -> None:
        self._table: Final = state.topics
        table = state.topics
        self.changed: Final = table.changed
        self.create_in_send_back: Final = table.create_in_send_back
        self.delete: Final = table.delete
        self.deleted: Final = table.deleted
        self.file: Final = VersionedFile(table, table.encoded)
        """Object that writes the topic table to its file, and returns the table's version. It also encodes the table as the
        body of a response."""
        self.holding_topics: Final = table.holding_topics
        self.is_system_topic: Final = table.is_system_topic
        self.keeping_topics: Final = table.keeping_topics
        self.put: Final = table.put
        self.queue_inside: Final = table.queue_inside
        self.select: Final = table.select
        self.system_topics: Final = table.system_topics
        self.update_order_topics: Final = table.update_order_topics
        self.widths: Final = table.widths

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table


class Groups:
    """The table of subscription groups, as features use it. Used only on the event loop's thread.

    An attribute without a description is the attribute with the same name in
    :class:`~flintmq.core.broker.groups.SubscriptionGroupManager`.
    """

    __slots__ = ("_table", "delete", "deleted", "file", "find", "put", "select")

    def __init__(self, state: BrokerState) -> None:
        self._table: Final = state.groups
        table = state.groups
        self.delete: Final = table.delete
        self.deleted: Final = table.deleted
        self.file: Final = VersionedFile(table, table.encoded)
        """Object that writes the table of subscription groups to its file, and returns the table's version. It also encodes the
        table as the body of a response."""
        self.find: Final = table.find
        self.put: Final = table.put
        self.select: Final = table.select

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table


class Offsets:
    """The table of consumer offsets, as features use it. Used only on the event loop's thread.

    An attribute without a description is the attribute with the same name in
    :class:`~flintmq.core.broker.offsets.ConsumerOffsetManager`.
    """

    __slots__ = (
        "_table",
        "clone",
        "commit",
        "file",
        "min_offset_in_all_groups",
        "put",
        "query",
        "query_all",
        "readers",
        "remove_group",
        "remove_topic",
        "topics",
        "which_group_by_topic",
        "which_topic_by_consumer",
    )

    def __init__(self, state: BrokerState) -> None:
        self._table: Final = state.offsets
        table = state.offsets
        self.clone: Final = table.clone
        self.commit: Final = table.commit
        self.file: Final = TableFile(table, table.encoded)
        """Object that writes the table of consumer offsets to its file. It also encodes the table as the body of a response."""
        self.min_offset_in_all_groups: Final = table.min_offset_in_all_groups
        self.put: Final = table.put
        self.query: Final = table.query
        self.query_all: Final = table.query_all
        self.readers: Final = state.readers
        """The readers of topics: consumer groups, and features of the broker that read a system topic, for example delayed
        delivery. Retention keeps the messages that a reader has not read yet."""
        self.remove_group: Final = table.remove_group
        self.remove_topic: Final = table.remove_topic
        self.topics: Final = table.topics
        self.which_group_by_topic: Final = table.which_group_by_topic
        self.which_topic_by_consumer: Final = table.which_topic_by_consumer

    def __bool__(self) -> bool:
        """Return whether any group has a consumer offset."""
        return self._table.entries > 0


class Clients:
    """The connected clients of a broker, their queue locks and their message filters. Used only on the event loop's thread."""

    __slots__ = ("consumers", "filters", "locks", "producers")

    def __init__(self, state: BrokerState) -> None:
        self.consumers: Final = state.consumers
        """Consumer groups with connected members."""
        self.producers: Final = state.producers
        """Producer groups with connected members, which can be asked about their transactions."""
        self.locks: Final = state.locks
        """Locks of queues that orderly consumers hold."""
        self.filters: Final = state.filters
        """Factories of message filters, keyed by expression type."""
