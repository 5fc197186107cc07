"""Which groups have not consumed what lies in a file of the log, and what is kept for some of them (docs/store.md).

A group's topics are those in which it has stored an offset, and its retry topic. In a queue of such a topic without an offset
of the group all messages are unread where ``store.keep_for_groups`` names it: it has not come to them yet. Of a group that has
stored nothing, or that keeps its offsets itself (broadcasting), nobody knows what it reads: nothing is kept for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from flintmq.core.broker.alarms import retention_bound_won
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import Alarm, ConsumeQueues, QueueReader
from flintmq.core.retention.retention import Bound, Deletion, LogFile, RetentionPolicy, bound_for_groups

log = logging.getLogger("flintmq.store")
ALARM_MS: Final = 3_600_000
"""How long it is told that a file went which was kept for a group: nothing makes that right again."""
_SLICE_QUEUES: Final = 128
_QUEUES_TOLD: Final = 8


class ConsumerOffsets(Protocol):
    """The offsets of groups, as :class:`flintmq.core.broker.offsets.Readers` has them."""

    def which_group_by_topic(self, topic: str) -> set[str]: ...

    def query(self, topic: str, group: str, queue_id: int) -> int: ...


class Unread(msgspec.Struct, frozen=True):
    """The messages in one file that a group has not consumed, by its stored offsets."""

    group: str
    queues: tuple[tuple[str, int, int], ...]
    """(topic, queueId, messages)"""

    @property
    def messages(self) -> int:
        return sum(queue[2] for queue in self.queues)

    def __str__(self) -> str:
        told = ", ".join(f"{topic} queue {queue_id}: {count}" for topic, queue_id, count in self.queues[:_QUEUES_TOLD])
        more = f" and {len(self.queues) - _QUEUES_TOLD} queues more" if len(self.queues) > _QUEUES_TOLD else ""
        return f"group {self.group} has not consumed {self.messages} messages ({told}{more})"


def find_unread(
    file: LogFile,
    queues: ConsumeQueues,
    offsets: ConsumerOffsets,
    named: Collection[str],
    found: list[Unread],
    seen: set[str],
) -> Iterator[None]:
    """Add to ``found`` the groups with unread messages in a file; yields now and then, for others to take their turn.

    Args:
        file: of the log.
        queues: all consume queues.
        offsets: the groups' offsets.
        named: groups that have all messages of a queue to read in which they have no offset yet.
        found: is added to.
        seen: likewise, the named groups that have an offset anywhere.
    """
    by_group: dict[str, list[tuple[str, int, int]]] = {}
    for place, (topic, queue_id) in enumerate(list(queues.queues)):
        if place % _SLICE_QUEUES == _SLICE_QUEUES - 1:
            yield
        groups = readers_of(topic, offsets, named)
        seen |= offsets.which_group_by_topic(topic) & set(named)
        queue = queues.find(topic, queue_id) if groups else None
        if queue is None:
            continue
        first = queue.first_from(lambda physical: physical < file.start_offset_bytes)
        behind = queue.first_from(lambda physical: physical < file.end_offset_bytes)
        if behind == first:
            continue
        for group in groups:
            consumer_offset = next_unread(topic, queue_id, group, offsets, named)
            if consumer_offset is not None and consumer_offset < behind:
                by_group.setdefault(group, []).append((topic, queue_id, behind - max(first, consumer_offset)))
    found += [Unread(group, tuple(in_queues)) for group, in_queues in sorted(by_group.items())]


def readers_of(topic: str, offsets: ConsumerOffsets, named: Collection[str]) -> set[str]:
    """Return the groups that read a topic, as far as that is known."""
    groups = offsets.which_group_by_topic(topic)
    if topic.startswith(RETRY_PREFIX) and topic[len(RETRY_PREFIX) :] in named:
        return groups | {topic[len(RETRY_PREFIX) :]}
    return groups


def next_unread(topic: str, queue_id: int, group: str, offsets: ConsumerOffsets, named: Collection[str]) -> int | None:
    """Return the queue offset of the first message that a group has not consumed; None where it has not said."""
    consumer_offset = offsets.query(topic, group, queue_id)
    if consumer_offset >= 0:
        return consumer_offset
    return 0 if group in named else None


def first_kept(queue: QueueReader, offsets: ConsumerOffsets | None, named: Collection[str]) -> int | None:
    """Return the physical offset of the first message of a queue that a named group has not consumed; None without one."""
    if offsets is None or not named:
        return None
    groups = readers_of(queue.topic, offsets, named) & set(named)
    wanted = [next_unread(queue.topic, queue.queue_id, group, offsets, named) or 0 for group in groups]
    unit = queue.unit(max(min(wanted), queue.min_queue_offset)) if wanted else None
    return unit[0] if unit is not None else None


class KeptForGroups:
    """Decides what is kept for the groups that ``store.keep_for_groups`` names, and tells where it was not. Loop thread.

    Args:
        clock: for how long it is told.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost: dict[str, tuple[int, Alarm]] = {}
        """Group → when a file went that was kept for it, and the alarm."""
        self._silent: frozenset[str] = frozenset()

    def bound(self, deletion: Deletion, unread: Sequence[Unread], policy: RetentionPolicy) -> Bound | None:
        """Return why a file goes that a named group has not consumed; None where it is kept, or where no group is named."""
        if not self.named(unread, policy):
            return None
        return bound_for_groups(deletion, self._clock.now_ms(), policy)

    def note_seen(self, seen: Collection[str], policy: RetentionPolicy) -> None:
        """Warn of groups for which nothing can be kept, once for each until it has an offset."""
        silent = policy.keep_for_groups - set(seen)
        for group in sorted(silent - self._silent):
            log.warning("group %s of store.keep_for_groups has stored no offset: nothing is kept for it", group)
        self._silent = silent

    @staticmethod
    def named(unread: Sequence[Unread], policy: RetentionPolicy) -> list[Unread]:
        """Return those of groups that the policy names."""
        return [one for one in unread if one.group in policy.keep_for_groups]

    def note_lost(
        self, start_offset_bytes: int, unread: Sequence[Unread], bound: Bound, policy: RetentionPolicy
    ) -> None:
        """Tell that a file went although it was kept."""
        for one in self.named(unread, policy):
            log.warning(
                "commit log file %020d was kept for a group and is deleted all the same: %s; %s; see %s",
                *(start_offset_bytes, one, bound.measured, bound.key),
            )
            before = self._lost.get(one.group)
            messages = one.messages + (int(before[1].value) if before is not None and self._is_told(before[0]) else 0)
            self._lost[one.group] = (
                self._clock.now_ms(),
                retention_bound_won(one.group, messages, bound.measured, bound.key),
            )

    def _is_told(self, at_ms: int) -> bool:
        return self._clock.now_ms() - at_ms < ALARM_MS

    def alarms(self) -> list[Alarm]:
        """Return what the named groups lost in the last hour."""
        self._lost = {group: told for group, told in self._lost.items() if self._is_told(told[0])}
        return [alarm for _at_ms, alarm in self._lost.values()]
