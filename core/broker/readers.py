"""Who reads a topic: groups, by what they have stored and said, and features of the broker itself."""

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
"""Stand for groups: the broker reads topics of its own. No group can be called so."""


class OwnReader(msgspec.Struct, frozen=True):
    """A feature of the broker that reads a topic where messages wait under their real topic's name."""

    name: str
    """Stands for a group."""
    next_offset: Callable[[int], int]
    """Returns for a queue id the queue offset of the first message that the feature still needs."""
    is_done: Callable[[int], bool]
    """Returns whether the feature is done with a message behind that, by its queue offset."""


class Readers:
    """Which groups have read how far, for the cleaner (see :class:`flintmq.plugins.retention.cleaner.ConsumerOffsets`).
    Loop thread.

    A group reads the topics in which it has stored an offset, and its retry topic. Groups that broadcast keep their offsets
    themselves, and are not seen here.

    Args:
        offsets: the groups' offsets.
        groups: the table of groups; None where there is none.
        consumers: those that are connected; likewise.
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
        """The topics that features of the broker read, and who does."""

    def add(
        self,
        topic: str,
        next_offset: Callable[[int], int],
        *,
        name: str = DELAYED_DELIVERY,
        is_done: Callable[[int], bool] = lambda queue_offset: False,
    ) -> None:
        """Take note that a feature of the broker reads a topic.

        Args:
            next_offset: returns for a queue id the queue offset of the first message that it still needs.
            name: what it is called in the log.
            is_done: returns whether it is done with a message behind that, by its queue offset.
        """
        self.own[topic] = OwnReader(name, next_offset, is_done)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget how far groups have come in a queue that is gone."""
        self._offsets.remove_queue(topic, queue_id)

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that read a topic, whether they are connected or not."""
        if topic in self.own:
            return {self.own[topic].name}
        found = self._offsets.which_group_by_topic(topic)
        if topic.startswith(RETRY_PREFIX) and self._groups is not None:
            group = topic.removeprefix(RETRY_PREFIX)
            found |= {group} if group in self._groups else set()
        return found

    def online(self) -> dict[str, set[str]]:
        """Return the groups that are connected, by the topics that they subscribe to; without those that broadcast."""
        found: dict[str, set[str]] = {}
        for info in self._consumers or ():
            if not info.is_broadcasting:
                for topic in info.subscriptions:
                    found.setdefault(topic, set()).add(info.group_name)
        return found

    def query(self, topic: str, group: str, queue_id: int) -> int:
        """Return the queue offset of the next message a group will read; -1 when it has not said so."""
        own = self.own.get(topic)
        if own is not None and own.name == group:
            return own.next_offset(queue_id)
        return self._offsets.query(topic, group, queue_id)
