"""Finds the messages in a file of the log that groups have not consumed, and keeps files for named groups (docs/store.md).

A group reads the topics in which it has stored an offset, the topics to which its connected members subscribe, and its retry
topic. If a group has no offset in a queue of such a topic, all messages of this queue are unread. Waiting messages are unread
as well: they wait for a delay level, a time or the end of a transaction before they go to a topic that the group reads.

The broker does not know the topics of a group that has stored no offset and is not connected, or that stores its offsets at
the clients (broadcasting). Nothing is kept for such a group.
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
"""Time, in ms, after which an alarm about deleted messages ends. The alarm needs an end, because nothing can restore the
messages."""
LOOKED_AT_MAX: Final = 20_000
"""Maximum number of waiting messages whose real topic the broker reads, per queue and log file. A waiting message, such as a
delayed message, is stored in a system topic until it goes to its real topic. Reading the real topic of a message takes about 10
µs. Messages beyond the maximum count as unread for every group of ``store.keep_for_groups``."""
_SLICE_QUEUES: Final = 128
_SLICE_MESSAGES: Final = 64
_QUEUES_TOLD: Final = 8
_GROUPS_TOLD: Final = 5
GROUPS_REMEMBERED_MAX: Final = 10_000
"""Maximum number of groups for which the broker counts deleted messages that the groups had not consumed."""


class ConsumerOffsets(Protocol):
    """Reads the offsets of groups; :class:`flintmq.core.broker.readers.Readers` implements it."""

    def which_group_by_topic(self, topic: str) -> set[str]: ...

    def query(self, topic: str, group: str, queue_id: int) -> int: ...

    def remove_queue(self, topic: str, queue_id: int) -> None: ...


class Unread(msgspec.Struct, frozen=True):
    """The messages in a file that a group has not consumed, according to its stored offsets."""

    group: str
    queues: tuple[tuple[str, int, int], ...]
    """Queues in which the group has unread messages in a file of the log. An element has the topic, the queue id and the number
    of messages."""

    @property
    def messages(self) -> int:
        return sum(queue[2] for queue in self.queues)

    def __str__(self) -> str:
        told = ", ".join(f"{topic} queue {queue_id}: {count}" for topic, queue_id, count in self.queues[:_QUEUES_TOLD])
        more = f" and {len(self.queues) - _QUEUES_TOLD} queues more" if len(self.queues) > _QUEUES_TOLD else ""
        return f"group {self.group} has not consumed {self.messages} messages ({told}{more})"


def describe(unread: Collection[Unread]) -> str:
    """Return a phrase that names the group with the most unread messages, and the number of unread messages of the other
    groups."""
    worst = max(unread, key=lambda one: one.messages)
    others = len(unread) - 1
    if not others:
        return str(worst)
    behind = sum(one.messages for one in unread) - worst.messages
    return f"{worst}, and {others} other groups have not consumed {behind} messages"


class FileContents(msgspec.Struct):
    """The number of messages in a file of the log, and the groups that have not consumed all these messages."""

    messages: int = 0
    """Number of messages in the log file that still have a consume queue unit."""
    unread: list[Unread] = msgspec.field(default_factory=list)
    """Unread messages in the log file, with an element for each group that has unread messages."""
    seen: set[str] = msgspec.field(default_factory=set)
    """Groups of ``store.keep_for_groups`` that are known to read at least one topic."""


class UnreadFinder:
    """Finds the messages in a file that groups have not consumed. Each search uses a new object. Used only on the event loop's
    thread.

    Args:
        queues: all consume queues.
        offsets: the groups' offsets.
        named: the groups of ``store.keep_for_groups``; messages that wait for delivery are searched only for these groups.
        look: returns the record with a physical offset and a size.
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
        """Return the consumer groups that are known to read a topic."""
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
        """Add the numbers of messages and of unread messages in a file to ``found``. Each step of the iterator does a short
        part of the work.

        Args:
            file: a file of the commit log.
            found: the object to which the results are added.
            counts: whether messages that no group reads are counted, too.
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
        """Count the waiting messages in a queue of a system topic, such as delayed messages in the schedule topic. A message
        counts for each group of ``store.keep_for_groups`` that reads the message's real topic. The counts are added to
        ``by_group``. The generator yields after each slice of messages, so that other work can run."""
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
        """Return the physical offset of the first message in a queue that retention keeps because a consumer group has not
        consumed it; None if retention keeps no message of the queue for this reason.

        Args:
            queue: the consume queue.
            all_groups: whether the messages are kept for all consumer groups that read the topic. If False, they are kept only
                for the groups of the setting ``store.keep_for_groups``.
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
    """Decides which files are kept for the groups of ``store.keep_for_groups``, and raises an alarm if such a file is deleted.
    Used only on the event loop's thread.

    Args:
        clock: measures the duration of alarms.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost: dict[str, tuple[int, Alarm]] = {}
        """Last deletion of a log file although a group had unread messages in it, keyed by group. A value has the time of the
        deletion in ms since 1970, and the alarm about the deletion."""
        self._silent: frozenset[str] = frozenset()

    def bound(self, deletion: Deletion, unread: Sequence[Unread], policy: RetentionPolicy) -> Bound | None:
        """Return why a file is deleted although a group of ``store.keep_for_groups`` has not read all its messages; None if the
        file is kept or these groups have read its messages."""
        if not self.named(unread, policy):
            return None
        return bound_for_groups(deletion, self._clock.now_ms(), policy)

    def note_seen(self, seen: Collection[str], policy: RetentionPolicy) -> None:
        """Log a warning for each group of ``store.keep_for_groups`` that is not in ``seen``, the groups that have stored
        offsets. No messages are kept for a group without offsets.

        The warning about a group is logged once, not at each call. It can be logged again only after the group has stored an
        offset.
        """
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
        """Return the unread messages of the groups in ``store.keep_for_groups``, without those of other groups."""
        return [one for one in unread if one.group in policy.keep_for_groups]

    def note_lost(
        self, start_offset_bytes: int, unread: Sequence[Unread], bound: Bound, policy: RetentionPolicy
    ) -> None:
        """Log that a file is deleted although it was kept for groups, and raise an alarm for each of these groups."""
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
        """Return the alarms about messages that groups of ``store.keep_for_groups`` lost in the last hour."""
        self._lost = {group: told for group, told in self._lost.items() if self._is_told(told[0])}
        return [alarm for _at_ms, alarm in self._lost.values()]


class ForcedDeletions:
    """Counts the messages that were deleted before they had expired, because the disk was nearly full, and makes an alarm with
    the counts. Used only on the event loop's thread.

    Args:
        clock: measures the age of messages and the duration of the alarm.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = -ALARM_MS
        self._files = 0
        self._messages = 0
        self._youngest_ms: int | None = None
        """Store timestamp of the newest message that was deleted, in ms since 1970; None if the timestamp is unknown."""
        self._lost: dict[str, int] = {}
        """Number of deleted messages that a group had not consumed, keyed by group."""

    def note(self, file: LogFile, contents: FileContents) -> None:
        """Count the messages of a file that is deleted before they have expired, and log a warning."""
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
        """Return the alarm about messages deleted before they had expired; none if the last deletion is more than an hour
        ago."""
        now_ms = self._clock.now_ms()
        if not self._files or not self._is_told(now_ms):
            return []
        age = _age(self._youngest_ms, now_ms)
        return [deleted_unexpired(self._files, self._messages, age, groups_that_lose(self._lost))]


def _age(stored_ms: int | None, now_ms: int) -> str:
    return "of unknown age" if stored_ms is None else f"{(now_ms - stored_ms) / 3_600_000:.1f} hours old"


def groups_that_lose(lost: Mapping[str, int]) -> str:
    """Return a phrase that lists the groups that lose messages, in descending order of the number.

    Args:
        lost: number of messages that a group had not consumed, keyed by group.
    """
    if not lost:
        return "no group loses any, as far as is known"
    worst = sorted(lost.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{group} {messages}" for group, messages in worst[:_GROUPS_TOLD])
    more = f" and {len(worst) - _GROUPS_TOLD} groups more" if len(worst) > _GROUPS_TOLD else ""
    return f"groups that lose messages: {told}{more}"
