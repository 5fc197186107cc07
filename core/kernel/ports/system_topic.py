"""The declaration of system topics, which belong to features of the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.io.disk import Disk


class TagsCodes(Protocol):
    """A rule that computes the tags codes of a system topic's consume queue units, which are usually hashes of the tags.

    Called on the thread that appends to the log, once for each record of the topic that is appended or read.
    """

    def tags_code(
        self,
        properties: Mapping[str, str],
        tags_code: int,
        store_timestamp_ms: int,
        physical_offset_bytes: int | None,
    ) -> int:
        """Return the tags code of a record's consume queue unit.

        Args:
            properties: the properties of the record.
            tags_code: the hash of its tags; 0 if it has none.
            store_timestamp_ms: the store time of the record.
            physical_offset_bytes: the physical offset of the record; None while it is being appended.
        """
        ...

    def begin(self, end_offset_bytes: int) -> None:
        """Record that the current rule for the tags codes of the topic's records applies from a physical offset on. Earlier
        records keep the rules that earlier calls recorded. For example, the rule of delayed messages changes if the configured
        delays change.

        Called at each start of a broker.

        Args:
            end_offset_bytes: the physical offset, which is the end of the recovered log.

        Raises:
            StoreError: the offset could not be written; the start continues nevertheless.
        """
        ...


TagsCodesFactory = Callable[["BrokerConfig", "Disk"], TagsCodes]
"""Function that makes the object which computes the tags codes of a topic's messages in a store. The broker calls the function
after it locks the store's folder and before it reads the log."""


class SystemTopic(msgspec.Struct, frozen=True):
    """A topic that belongs to a feature of the broker."""

    name: str
    queue_nums: int = 0
    """Number of queues that the topic has in the table of topics, from the broker's first start on; 0 for a topic that is
    missing from the table."""
    is_listed: bool = True
    """Whether request 305 (GET_SYSTEM_TOPIC_LIST_FROM_BROKER) lists the topic. Clients can neither create nor delete a listed
    topic."""
    clients_may_write: bool = False
    """Whether clients may send messages to the topic."""
    holds_messages: bool = False
    """Whether clients' messages wait in the topic, with their real topic and queue in ``REAL_TOPIC`` and ``REAL_QID``. The
    answer to a send names the real queue, access is checked for the real topic, and the retention of the topic with the waiting
    messages may not be shortened."""
    keeps_queues: bool = False
    """Whether the topic's queues are kept after all of their messages have expired, because the feature that owns the topic
    remembers queue offsets."""
    counts_queues: bool = False
    """Whether statistics of puts are kept for each queue of the topic (RocketMQ's ``QUEUE_PUT_NUMS``)."""
    tags_codes: TagsCodesFactory | None = None
    """Function that makes the object which computes the topic's tags codes; None if the tags codes are the hashes of the
    tags."""


def tags_codes_of(topics: tuple[SystemTopic, ...]) -> dict[str, TagsCodesFactory]:
    """Return the system topics that have a rule for tags codes; the value for each topic is the factory of its rule."""
    return {topic.name: topic.tags_codes for topic in topics if topic.tags_codes is not None}
