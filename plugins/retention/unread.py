"""Which groups have not consumed what lies in a file of the log, and what is kept for some of them (docs/store.md).

A group reads the topics in which it has stored an offset, those that its connected members subscribe to, and its retry topic.
In a queue of such a topic without an offset of the group all messages are unread: it has not come to them yet. What is on its
way to a group is unread as well: what waits for a delay level, a time or the end of a transaction, for a topic that the group
reads or for its retry topic. Nobody knows which topics a group reads that has stored nothing and is not connected, or that
keeps its offsets itself (broadcasting): nothing is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from flintmq.core.broker.readers import OwnReader, Readers
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import Alarm, ConsumeQueues, QueueReader
from flintmq.core.log_events import event_log
from flintmq.core.record import properties as props
from flintmq.core.record.record import Record
from flintmq.core.retention.retention import Bound, Deletion, LogFile, RetentionPolicy, bound_for_groups
from flintmq.plugins.retention.alarms import deleted_unexpired, retention_bound_won

log = event_log("flintmq.store")
ALARM_MS: Final = 3_600_000
"""How long it is told that a file went which was kept for a group: nothing makes that right again."""
LOOKED_AT_MAX: Final = 20_000
"""Waiting messages of one queue in one file of which it is found out whom they are for, some 10 µs each; those beyond count for
every named group."""
_SLICE_QUEUES: Final = 128
_SLICE_MESSAGES: Final = 64
_QUEUES_TOLD: Final = 8
_GROUPS_TOLD: Final = 5
GROUPS_REMEMBERED_MAX: Final = 10_000
"""Groups of which it is remembered for an hour what they lost."""


class ConsumerOffsets(Protocol):
    """The offsets of groups, as :class:`flintmq.core.broker.readers.Readers` has them."""

    def which_group_by_topic(self, topic: str) -> set[str]: ...

    def query(self, topic: str, group: str, queue_id: int) -> int: ...

    def remove_queue(self, topic: str, queue_id: int) -> None: ...


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


def describe(unread: Collection[Unread]) -> str:
    """Return in one phrase what groups have not consumed: the one that is furthest behind, and how much the others lack."""
    worst = max(unread, key=lambda one: one.messages)
    others = len(unread) - 1
    if not others:
        return str(worst)
    behind = sum(one.messages for one in unread) - worst.messages
    return f"{worst}, and {others} other groups have not consumed {behind} messages"


class FileContents(msgspec.Struct):
    """What is found out about a file of the log."""

    messages: int = 0
    """Messages in it that queues still have."""
    unread: list[Unread] = msgspec.field(default_factory=list)
    """The groups with unread messages in it."""
    seen: set[str] = msgspec.field(default_factory=set)
    """The named groups of which it is known what they read."""


class UnreadFinder:
    """Finds out what groups have not consumed of a file; made for one look. Loop thread.

    Args:
        queues: all consume queues.
        offsets: the groups' offsets.
        named: the groups of ``store.keep_for_groups``: for them it is found out whom waiting messages are for.
        look: returns the record at a place of the log.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        offsets: ConsumerOffsets,
        named: Collection[str],
        look: Callable[[int, int], Record | None],
    ) -> None:
        self._queues = queues
        self._offsets = offsets
        self._named = frozenset(named)
        self._look = look
        self._own: dict[str, OwnReader] = offsets.own if isinstance(offsets, Readers) else {}
        self._online = offsets.online() if isinstance(offsets, Readers) else {}
        self._readers: dict[str, set[str]] = {}

    def readers(self, topic: str) -> set[str]:
        """Return the groups that read a topic, as far as that is known."""
        found = self._readers.get(topic)
        if found is None:
            own = topic in self._own
            found = self._offsets.which_group_by_topic(topic) | (set() if own else self._online.get(topic, set()))
            if topic.startswith(RETRY_PREFIX) and topic.removeprefix(RETRY_PREFIX) in self._named:
                found.add(topic.removeprefix(RETRY_PREFIX))
            self._readers[topic] = found
        return found

    def next_unread(self, topic: str, queue_id: int, group: str) -> int:
        """Return the queue offset of the first message that a reader of a topic has not consumed."""
        return max(0, self._offsets.query(topic, group, queue_id))

    def find(self, file: LogFile, found: FileContents, *, counts: bool) -> Iterator[None]:
        """Add what is in a file to ``found``; yields now and then, for others to take their turn.

        Args:
            file: of the log.
            found: is added to.
            counts: whether all messages are counted.
        """
        by_group: dict[str, list[tuple[str, int, int]]] = {}
        for place, (topic, queue_id) in enumerate(list(self._queues.queues)):
            if place % _SLICE_QUEUES == _SLICE_QUEUES - 1:
                yield
            groups = self.readers(topic)
            if not topic.startswith(RETRY_PREFIX):
                found.seen |= groups & self._named
            queue = self._queues.find(topic, queue_id) if groups or counts else None
            if queue is None or queue.max_physical_offset_bytes <= file.start_offset_bytes:
                continue
            first = queue.first_from(lambda physical: physical < file.start_offset_bytes)
            behind = queue.first_from(lambda physical: physical < file.end_offset_bytes)
            if behind == first:
                continue
            found.messages += behind - first
            for group in groups:
                consumer_offset = self.next_unread(topic, queue_id, group)
                if consumer_offset < behind:
                    by_group.setdefault(group, []).append((topic, queue_id, behind - max(first, consumer_offset)))
            own = self._own.get(topic)
            if own is not None and self._named:
                start = max(first, own.next_offset(queue_id))
                yield from self._on_the_way(queue, own, start, behind, by_group)
        found.unread += [Unread(group, tuple(in_queues)) for group, in_queues in sorted(by_group.items())]

    def _on_the_way(
        self,
        queue: QueueReader,
        own: OwnReader,
        start: int,
        behind: int,
        by_group: dict[str, list[tuple[str, int, int]]],
    ) -> Iterator[None]:
        """Add the messages of a queue that wait for topics which named groups read."""
        counts: dict[str, int] = {}
        looked_at = 0
        while start < behind and looked_at < LOOKED_AT_MAX:
            units = list(queue.units(start, min(_SLICE_MESSAGES, behind - start)))
            if not units:
                break
            for queue_offset, unit in enumerate(units, start):
                record = None if own.is_done(queue_offset) else self._look(unit[0], unit[1])
                real_topic = record.properties.get(props.REAL_TOPIC) if record is not None else None
                for group in self.readers(real_topic) & self._named if real_topic else ():
                    counts[group] = counts.get(group, 0) + 1
            start += len(units)
            looked_at += len(units)
            yield
        if start < behind:
            for group in self._named:
                counts[group] = counts.get(group, 0) + behind - start
        for group, count in counts.items():
            by_group.setdefault(group, []).append((queue.topic, queue.queue_id, count))

    def first_kept(self, queue: QueueReader, *, all_groups: bool) -> int | None:
        """Return the physical offset of the first message of a queue that is kept for a group; None without one.

        Args:
            queue: of a topic.
            all_groups: whether it is kept for every reader; else for those that are named.
        """
        groups = self.readers(queue.topic)
        wanted = [
            self.next_unread(queue.topic, queue.queue_id, group)
            for group in groups
            if all_groups or group in self._named
        ]
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
            log.warning(
                "retention.keeps_nothing",
                "group %(group)s of store.keep_for_groups has stored no offset: nothing is kept for it",
                group=group,
            )
        self._silent = silent

    @staticmethod
    def named(unread: Sequence[Unread], policy: RetentionPolicy) -> list[Unread]:
        """Return those of groups that the policy names."""
        return [one for one in unread if one.group in policy.keep_for_groups]

    def note_lost(
        self, start_offset_bytes: int, unread: Sequence[Unread], bound: Bound, policy: RetentionPolicy
    ) -> None:
        """Tell that a file went although it was kept: one line, and an alarm for each group."""
        named = self.named(unread, policy)
        log.warning(
            "retention.bound_won",
            "commit log file %(file)020d was kept for a group and is deleted all the same: %(group)s; %(measured)s; "
            "see %(key)s",
            file=start_offset_bytes,
            group=describe(named),
            measured=bound.measured,
            key=bound.key,
        )
        for one in named:
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


class ForcedDeletions:
    """Tells which messages were deleted because the disk was nearly full, before they had expired. Loop thread.

    Args:
        clock: for how long it is told.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = -ALARM_MS
        self._files = 0
        self._messages = 0
        self._youngest_ms: int | None = None
        """When the newest of them was stored, in ms since 1970; None where that is unknown."""
        self._lost: dict[str, int] = {}
        """Group → messages that it had not consumed."""

    def note(self, file: LogFile, contents: FileContents) -> None:
        """Take note of a file that goes, and write one line."""
        now_ms = self._clock.now_ms()
        if not self._is_told(now_ms):
            self._files, self._messages, self._youngest_ms, self._lost = 0, 0, None, {}
        self._last_ms = now_ms
        self._files += 1
        self._messages += contents.messages
        if file.newest_ms is not None:
            self._youngest_ms = max(file.newest_ms, self._youngest_ms or 0)
        for one in contents.unread:
            if one.group in self._lost or len(self._lost) < GROUPS_REMEMBERED_MAX:
                self._lost[one.group] = self._lost.get(one.group, 0) + one.messages
        lost = {one.group: one.messages for one in contents.unread}
        log.warning(
            "retention.deleted_unexpired",
            "commit log file %(file)020d goes before it has expired, because the disk is nearly full: %(messages)d "
            "messages, the newest is %(age)s; %(groups)s",
            file=file.start_offset_bytes,
            messages=contents.messages,
            age=_age(file.newest_ms, now_ms),
            groups=groups_that_lose(lost),
        )

    def _is_told(self, now_ms: int) -> bool:
        return now_ms - self._last_ms < ALARM_MS

    def alarms(self) -> list[Alarm]:
        """Return what went until an hour ago."""
        now_ms = self._clock.now_ms()
        if not self._files or not self._is_told(now_ms):
            return []
        age = _age(self._youngest_ms, now_ms)
        return [deleted_unexpired(self._files, self._messages, age, groups_that_lose(self._lost))]


def _age(stored_ms: int | None, now_ms: int) -> str:
    return "of unknown age" if stored_ms is None else f"{(now_ms - stored_ms) / 3_600_000:.1f} hours old"


def groups_that_lose(lost: Mapping[str, int]) -> str:
    """Return in words which groups lose messages, those that lose most first.

    Args:
        lost: how many messages each group had not consumed.
    """
    if not lost:
        return "no group loses any, as far as is known"
    worst = sorted(lost.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{group} {messages}" for group, messages in worst[:_GROUPS_TOLD])
    more = f" and {len(worst) - _GROUPS_TOLD} groups more" if len(worst) > _GROUPS_TOLD else ""
    return f"groups that lose messages: {told}{more}"
