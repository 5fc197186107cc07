"""Finds the readers of a topic: groups with consumer offsets or subscriptions, and features of the broker itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.broker.topic_name import RETRY_PREFIX

if TYPE_CHECKING:
    from flintmq.core.broker.consumers import ConsumerTable
    from flintmq.core.broker.groups import SubscriptionGroupManager
    from flintmq.core.broker.offsets import ConsumerOffsetManager


DELAYED_DELIVERY: Final = "(delayed delivery)"
OPEN_TRANSACTIONS: Final = "(open transactions)"
"""Names of the features that read the broker's system topics. The names are used like names of groups. Names of groups cannot
have parentheses, so no group has the name of a feature."""


class OwnReader(msgspec.Struct, frozen=True):
    """A feature of the broker that reads a system topic, in which messages wait for delivery to their real topic."""

    name: str
    """Name of the feature that reads the topic. Lists of a topic's readers contain this name in the same way as the names of
    consumer groups."""
    next_offset: Callable[[int], int]
    """Function that returns, for a queue id of the system topic, the queue offset of the first message that the feature still
    needs. The feature is the part of the broker that reads the system topic, for example delayed delivery."""
    is_done: Callable[[int], bool]
    """Function that returns, for a queue offset in the system topic, whether the broker's feature that reads the topic no
    longer needs the message at this queue offset. :attr:`next_offset` returns the first message that the feature still needs.
    The function is called only for queue offsets after this message."""


class Readers:
    """The readers of topics and their offsets, for retention. Used only on the event loop's thread.

    The class implements :class:`flintmq.plugins.retention.cleaner.ConsumerOffsets`. A consumer group reads the topics in which
    it has a consumer offset, and its retry topic. Broadcasting groups store their offsets on the clients, so they are not
    included.

    Args:
        offsets: the table of consumer offsets.
        groups: the table of groups; None to ignore retry topics without offsets.
        consumers: the connected consumers; None if there are none.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        groups: SubscriptionGroupManager | None = None,
        consumers: ConsumerTable | None = None,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._consumers = consumers
        self.own: dict[str, OwnReader] = {}
        """Features of the broker that read a topic, keyed by topic."""

    def add(
        self,
        topic: str,
        next_offset: Callable[[int], int],
        *,
        name: str = DELAYED_DELIVERY,
        is_done: Callable[[int], bool] = lambda queue_offset: False,
    ) -> None:
        """Register a feature of the broker that reads a topic.

        Args:
            topic: the topic.
            next_offset: returns, for a queue id, the queue offset of the first message that the feature still needs.
            name: name of the feature in the log.
            is_done: returns, for a queue offset greater than the result of ``next_offset``, whether the feature no longer needs
                the message.
        """
        self.own[topic] = OwnReader(name, next_offset, is_done)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove the consumer offsets of all groups in a deleted queue."""
        self._offsets.remove_queue(topic, queue_id)

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the names of the readers of a topic, which are consumer groups or a feature of the broker. A feature, such as
        delayed delivery, is returned for a system topic that the feature reads. The result also contains consumer groups that
        are not connected."""
        if topic in self.own:
            return {self.own[topic].name}
        found = self._offsets.which_group_by_topic(topic)
        if topic.startswith(RETRY_PREFIX) and self._groups is not None:
            group = topic.removeprefix(RETRY_PREFIX)
            found |= {group} if group in self._groups else set()
        return found

    def online(self) -> dict[str, set[str]]:
        """Return the connected consumer groups, except broadcasting groups, keyed by the topics to which they subscribe."""
        found: dict[str, set[str]] = {}
        for info in self._consumers or ():
            if not info.is_broadcasting:
                for topic in info.subscriptions:
                    found.setdefault(topic, set()).add(info.group_name)
        return found

    def query(self, topic: str, group: str, queue_id: int) -> int:
        """Return the queue offset of the next message that a group or feature will read; -1 if a group has no stored offset."""
        own = self.own.get(topic)
        if own is not None and own.name == group:
            return own.next_offset(queue_id)
        return self._offsets.query(topic, group, queue_id)
