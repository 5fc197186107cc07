"""The port of system topics: what a feature says of the topics that are its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from flintmq.config.sections.models import BrokerConfig
    from flintmq.core.io.disk import Disk


class TagsCodes(Protocol):
    """Says what the tags code of a topic's consume queue units means, where it is not the hash of the tags.

    The thread that owns the log calls it, once for each record of the topic that is appended or read.
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
            properties: the record's.
            tags_code: the hash of its tags, 0 without any.
            store_timestamp_ms: when the record was stored, or is being stored.
            physical_offset_bytes: where the record lies in the log; None for one that is being appended.
        """
        ...

    def begin(self, end_offset_bytes: int) -> None:
        """Take note that the rule in force holds for records from a physical offset on. Called at each start of a broker.

        Args:
            end_offset_bytes: the end of the recovered log.

        Raises:
            StoreError: the note could not be written; the start continues without it.
        """
        ...


TagsCodesFactory = Callable[["BrokerConfig", "Disk"], TagsCodes]
"""Makes the rule of one store, after its folder is locked and before anything is read from the log."""


class SystemTopic(msgspec.Struct, frozen=True):
    """A topic that belongs to a feature of the broker."""

    name: str
    queue_nums: int = 0
    """How many queues it has in the table of topics from the first start on; 0 for a topic that is not in that table."""
    is_listed: bool = True
    """Whether administration sees it among the system topics (code 304), and can neither create nor delete it."""
    clients_may_write: bool = False
    """Whether a client may send messages to it."""
    holds_messages: bool = False
    """Whether messages of clients wait here for something under their ``REAL_TOPIC`` and ``REAL_QID``. The answer to a send
    names the queue that was meant, access is judged by the real topic, and no shorter retention may be set for the topic."""
    keeps_queues: bool = False
    """Whether its queues are kept after all of their messages have expired, because the feature remembers queue offsets."""
    counts_queues: bool = False
    """Whether statistics of puts are kept for each of its queues (RocketMQ's ``QUEUE_PUT_NUMS``)."""
    tags_codes: TagsCodesFactory | None = None
    """Makes what computes the tags codes of its units; None where they are the hashes of the tags."""


def tags_codes_of(topics: tuple[SystemTopic, ...]) -> dict[str, TagsCodesFactory]:
    """Return the factories of the topics whose tags codes are not hashes of tags, by topic."""
    return {topic.name: topic.tags_codes for topic in topics if topic.tags_codes is not None}
