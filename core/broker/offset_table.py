"""Keeps the consumer offsets in memory: the queue offset at which each group continues in each queue.

An offset is stored even if it is lower than before, because that is how offsets are reset. Names of groups and topics are not
checked, because they do not become paths of files. The number of offsets is limited. A topic contains no ``@``, so
``topic@group`` can be split again.

See docs/internals/algorithms.md, Groups and offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io import fastjson
from flintmq.core.io.typed_json import Int, Long, read_as
from flintmq.core.log_events import client_log
from flintmq.core.response_code import ResponseCode

if TYPE_CHECKING:
    pass

# Operators filter log lines by the logger's name, so the logger keeps a name that differs from the module's name.
_log = client_log("flintmq.core.broker.offsets")
_TOPICS_OF_PIECE: Final = 200


class _StoredOffsets(msgspec.Struct, rename="camel"):
    """The content of ``consumerOffset.json``: consumer offsets keyed by ``topic@group`` and queue id."""

    offset_table: dict[str, dict[Int, Long]] = msgspec.field(default_factory=dict)


class OffsetTable:
    """Consumer offsets in memory, keyed by topic, group and queue id. Used only on the event loop's thread.

    Args:
        entries_max: limit of offsets that clients commit.
    """

    def __init__(self, *, entries_max: int = 1_000_000) -> None:
        self._entries_max = entries_max
        self._entries = 0
        self._table: dict[str, dict[str, dict[int, int]]] = {}
        self._topics: dict[str, set[str]] = {}
        """Topics in which a group has offsets, keyed by group."""
        self._dirty = False

    def __len__(self) -> int:
        return sum(len(groups) for groups in self._table.values())

    @property
    def entries(self) -> int:
        """Number of consumer offsets in the table, one for each queue of each group."""
        return self._entries

    def commit(self, topic: str, group: str, queue_id: int, consumer_offset: int, client: str = "") -> None:
        """Store the consumer offset of a group in a queue.

        Args:
            topic: the topic.
            group: the group.
            queue_id: the queue.
            consumer_offset: queue offset of the next message that the group shall get.
            client: address of the sender, for the log.

        Raises:
            RefusedError: SYSTEM_ERROR; the group has no offset in the queue yet, and the table is full.
        """
        try:
            queues = self._table[topic][group]
            before = queues[queue_id]
        except KeyError:
            self._check_room(1)
            self.put(topic, group, queue_id, consumer_offset)
            return
        if before == consumer_offset:
            return
        if consumer_offset < before:
            _log.warning(
                "offset.back",
                "consumer offset of %(group)s in %(topic)s queue %(queue_id)d goes back from %(before_offset)d to "
                "%(now_offset)d (%(client)s)",
                group=group,
                topic=topic,
                queue_id=queue_id,
                before_offset=before,
                now_offset=consumer_offset,
                client=client,
            )
        queues[queue_id] = consumer_offset
        self._dirty = True

    def put(self, topic: str, group: str, queue_id: int, consumer_offset: int) -> None:
        """Store the consumer offset of a group in a queue, without a log line and even if the table is full.

        The broker calls this method directly for the consumer groups that it uses itself. Offsets that clients commit are
        stored with :meth:`commit`, which checks the limit of stored offsets.
        """
        queues = self._queues(topic, group)
        self._entries += queue_id not in queues
        queues[queue_id] = consumer_offset
        self._dirty = True

    def _queues(self, topic: str, group: str) -> dict[int, int]:
        """Return the consumer offsets of a group in a topic, keyed by queue id. A missing entry is created."""
        groups = self._table.setdefault(topic, {})
        if group not in groups:
            self._topics.setdefault(group, set()).add(topic)
            groups[group] = {}
        return groups[group]

    def _leave(self, group: str, topic: str) -> None:
        topics = self._topics[group]
        topics.discard(topic)
        if not topics:
            del self._topics[group]

    def _check_room(self, more: int) -> None:
        if self._entries + more > self._entries_max:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "too many consumer offsets are stored: no offset can be added for another group and queue",
                reason="offsets.full",
                measured=f"{self._entries} offsets",
                key="offsets.entries_max",
            )

    def cut(self, max_queue_offset: Callable[[str, int], int]) -> int:
        """Set every consumer offset that is greater than its queue's end to that end; return the number of changed offsets.

        Such offsets remain if a crash lost messages. New messages get the queue offsets of the lost messages, and the group
        would skip them. RocketMQ does not change these offsets.

        Args:
            max_queue_offset: returns the end of a queue for a topic and a queue id.
        """
        moved = 0
        for topic, groups in self._table.items():
            for group, queues in groups.items():
                for queue_id, consumer_offset in queues.items():
                    end = max_queue_offset(topic, queue_id)
                    if consumer_offset > end:
                        _log.warning(
                            "offset.cut",
                            "the consumer offset of %(group)s in %(topic)s queue %(queue_id)d is moved from "
                            "%(before_offset)d back to the queue's end, %(now_offset)d: a crash has lost the "
                            "messages between them",
                            group=group,
                            topic=topic,
                            queue_id=queue_id,
                            before_offset=consumer_offset,
                            now_offset=end,
                        )
                        queues[queue_id] = end
                        moved += 1
        self._dirty = self._dirty or moved > 0
        return moved

    def query(self, topic: str, group: str, queue_id: int) -> int:
        """Return the consumer offset of a group in a queue; -1 if no offset is stored."""
        try:
            return self._table[topic][group][queue_id]
        except KeyError:
            return -1

    def all(self) -> list[tuple[str, str, dict[int, int]]]:
        """Return topic, group and consumer offsets (keyed by queue id, not copied) for each group in each topic."""
        return [(topic, group, queues) for topic, groups in self._table.items() for group, queues in groups.items()]

    def query_all(self, topic: str, group: str) -> dict[int, int]:
        """Return a copy of the consumer offsets of a group in a topic, keyed by queue id."""
        return dict(self._table.get(topic, {}).get(group, {}))

    def topics(self) -> list[str]:
        """Return the topics in which any group has consumer offsets."""
        return list(self._table)

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """Return the topics in which a group has consumer offsets."""
        return set(self._topics.get(group, ()))

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that have consumer offsets in a topic."""
        return set(self._table.get(topic, ()))

    def min_offset_in_all_groups(self, topic: str, without_groups: frozenset[str] = frozenset()) -> dict[int, int]:
        """Return the smallest consumer offset in each queue of a topic, keyed by queue id, without the offsets of the given
        groups.

        The table is not changed. RocketMQ's corresponding method deletes the offsets of these groups.
        """
        smallest: dict[int, int] = {}
        for group, queues in self._table.get(topic, {}).items():
            if group not in without_groups:
                for queue_id, consumer_offset in queues.items():
                    smallest[queue_id] = min(consumer_offset, smallest.get(queue_id, consumer_offset))
        return smallest

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Replace the target group's offsets in a topic by a copy of the source group's offsets, if the source group has
        offsets.

        Raises:
            RefusedError: SYSTEM_ERROR; the additional offsets would exceed the limit of the table.
        """
        groups = self._table.get(topic, {})
        queues = groups.get(source_group)
        if queues:
            more = len(queues) - len(groups.get(target_group, ()))
            self._check_room(more)
            self._queues(topic, target_group)
            groups[target_group] = dict(queues)
            self._entries += more
            self._dirty = True

    def remove_group(self, group: str) -> None:
        """Remove the consumer offsets of a group in every topic."""
        for topic in self.which_topic_by_consumer(group):
            self.remove(topic, group)

    def remove_topic(self, topic: str) -> None:
        """Remove the consumer offsets of every group in a topic. Raises StoreError, without removals, if the disk fails."""
        if topic in self._table:
            self._note(topic)
            groups = self._table.pop(topic)
            self._entries -= sum(len(queues) for queues in groups.values())
            for group in groups:
                self._leave(group, topic)
            self._dirty = True

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove the consumer offsets of every group in a queue. Raises StoreError, without removals, if the disk fails."""
        if topic in self._table:
            self._note(topic, queue_id=queue_id)
        for group, queues in list(self._table.get(topic, {}).items()):
            if queues.pop(queue_id, None) is not None:
                self._entries -= 1
                self._dirty = True
                if not queues:
                    self.remove(topic, group)

    def remove(self, topic: str, group: str) -> None:
        """Remove the consumer offsets of a group in a topic. Raises StoreError, without removals, if the disk fails."""
        groups = self._table.get(topic, {})
        if group in groups:
            self._note(topic, group)
            self._entries -= len(groups.pop(group))
            self._leave(group, topic)
            self._dirty = True
            if not groups:
                del self._table[topic]

    def to_wire(self) -> dict[str, Any]:
        """Return all consumer offsets in the form of ``consumerOffset.json`` and the answer to GET_ALL_CONSUMER_OFFSET (43)."""
        return {
            "offsetTable": {
                f"{topic}@{group}": dict(queues)
                for topic, groups in self._table.items()
                for group, queues in groups.items()
            }
        }

    def encoded(self, *, standard: bool) -> Iterator[bytes]:
        """Yield all consumer offsets as the JSON of :meth:`to_wire`, in pieces that take a fraction of a millisecond each.

        Offsets that change between two pieces may be included.

        Args:
            standard: whether numeric keys are quoted, as standard JSON requires, and characters outside ASCII are escaped.
        """
        yield b'{"offsetTable":{'
        comma = b""
        every = iter(list(self._table))
        while names := list(itertools.islice(every, _TOPICS_OF_PIECE)):
            found = [(topic, *one) for topic in names for one in list(self._table.get(topic, {}).items())]
            if found:
                yield comma + b",".join([_encoded(*one, standard=standard) for one in found])
                comma = b","
        yield b"}}"

    def replace(self, value: Mapping[str, Any]) -> None:
        """Replace all consumer offsets by the offsets in the file or, on a slave, by the master's offsets.

        Raises:
            JsonTypeError: a member does not have RocketMQ's type; nothing was changed.
        """
        table: dict[str, dict[str, dict[int, int]]] = {}
        topics: dict[str, set[str]] = {}
        entries = 0
        for name, offsets in read_as(value, _StoredOffsets).offset_table.items():
            topic, found, group = name.partition("@")
            if found and topic and group:
                table.setdefault(topic, {})[group] = offsets
                topics.setdefault(group, set()).add(topic)
                entries += len(offsets)
        self._table, self._topics, self._entries, self._dirty = table, topics, entries, True

    def _note(self, topic: str, group: str | None = None, queue_id: int | None = None) -> None:
        """Do nothing. A subclass that keeps a journal overrides this method, to record in the journal that consumer offsets
        will be removed."""


def _encoded(topic: str, group: str, queues: Mapping[int, int], *, standard: bool) -> bytes:
    name, offsets = f"{topic}@{group}", msgspec.json.encode(queues)
    key = (
        msgspec.json.encode(name)
        if name.isascii()
        else fastjson.dumps(name, ascii_only=standard).encode("utf-8", "replace")
    )
    return b"%b:%b" % (key, offsets if standard else offsets.replace(b'"', b""))
