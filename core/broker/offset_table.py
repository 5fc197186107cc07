"""How far each group has consumed each queue, in memory.

An offset is put as it comes, even when it goes back: that is how offsets are reset. Nothing here becomes a path, so names
need no check, but they are counted; a topic has no ``@``, so ``topic@group`` can be taken apart again.

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

_log = client_log("flintmq.core.broker.offsets")  # the name that people filter by
_TOPICS_OF_PIECE: Final = 200


class _StoredOffsets(msgspec.Struct, rename="camel"):
    """``consumerOffset.json``: ``topic@group`` → queue id → consumer offset (``ConsumerOffsetManager``)."""

    offset_table: dict[str, dict[Int, Long]] = msgspec.field(default_factory=dict)


class OffsetTable:
    """Consumer offsets in memory. Loop thread.

    Args:
        entries_max: how many offsets are kept at most.
    """

    def __init__(self, *, entries_max: int = 1_000_000) -> None:
        self._entries_max = entries_max
        self._entries = 0
        self._table: dict[str, dict[str, dict[int, int]]] = {}
        self._topics: dict[str, set[str]] = {}
        """The topics that each group has offsets in."""
        self._dirty = False

    def __len__(self) -> int:
        return sum(len(groups) for groups in self._table.values())

    @property
    def entries(self) -> int:
        """Offsets that are kept: one for each queue of each group."""
        return self._entries

    def commit(self, topic: str, group: str, queue_id: int, consumer_offset: int, client: str = "") -> None:
        """Remember that the group continues at an offset. ``client`` is the sender of the offset, for the log.

        Raises:
            RefusedError: SYSTEM_ERROR; the group is new to the queue, and too many offsets are kept already.
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
        """Set an offset of a group of the broker itself, without a limit and without a line in the log."""
        queues = self._queues(topic, group)
        self._entries += queue_id not in queues
        queues[queue_id] = consumer_offset
        self._dirty = True

    def _queues(self, topic: str, group: str) -> dict[int, int]:
        """Return the offsets of a group in a topic, made where there are none."""
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
                "too many consumer offsets are kept already: none is kept for a group that is new to a queue",
                reason="offsets.full",
                measured=f"{self._entries} offsets",
                key="offsets.entries_max",
            )

    def cut(self, max_queue_offset: Callable[[str, int], int]) -> int:
        """Move every offset that lies behind its queue's end back to that end.

        A crash took the messages that were there. Messages that come now get their queue offsets again, and a group whose
        offset stayed would pass them over. RocketMQ leaves the offsets where they are.

        Args:
            max_queue_offset: the end of a topic's queue.

        Returns:
            How many offsets were moved.
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
                            "%(before_offset)d back to the queue's end, %(now_offset)d: a crash has taken the "
                            "messages between",
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
        """Return the stored offset, -1 when there is none."""
        try:
            return self._table[topic][group][queue_id]
        except KeyError:
            return -1

    def all(self) -> list[tuple[str, str, dict[int, int]]]:
        """Return topic, group and the offsets by queue of every group in every topic; the offsets are the table's own."""
        return [(topic, group, queues) for topic, groups in self._table.items() for group, queues in groups.items()]

    def query_all(self, topic: str, group: str) -> dict[int, int]:
        """Return every queue's offset of a group in a topic; a copy."""
        return dict(self._table.get(topic, {}).get(group, {}))

    def topics(self) -> list[str]:
        """Return the topics in which any group has offsets."""
        return list(self._table)

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """Topics the group has offsets in."""
        return set(self._topics.get(group, ()))

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that have offsets in the topic."""
        return set(self._table.get(topic, ()))

    def min_offset_in_all_groups(self, topic: str, without_groups: frozenset[str] = frozenset()) -> dict[int, int]:
        """Per queue the smallest offset of the topic's groups but these. Changes nothing (RocketMQ drops them)."""
        smallest: dict[int, int] = {}
        for group, queues in self._table.get(topic, {}).items():
            if group not in without_groups:
                for queue_id, consumer_offset in queues.items():
                    smallest[queue_id] = min(consumer_offset, smallest.get(queue_id, consumer_offset))
        return smallest

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Give the target group the source group's offsets in a topic, where there are any.

        Raises:
            RefusedError: SYSTEM_ERROR; too many offsets are kept already.
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
        """Forget a group in every topic."""
        for topic in self.which_topic_by_consumer(group):
            self.remove(topic, group)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic for every group. Raises StoreError; nothing was removed then."""
        if topic in self._table:
            self._note(topic)
            groups = self._table.pop(topic)
            self._entries -= sum(len(queues) for queues in groups.values())
            for group in groups:
                self._leave(group, topic)
            self._dirty = True

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget one queue for every group. Raises StoreError; nothing was removed then."""
        if topic in self._table:
            self._note(topic, queue_id=queue_id)
        for group, queues in list(self._table.get(topic, {}).items()):
            if queues.pop(queue_id, None) is not None:
                self._entries -= 1
                self._dirty = True
                if not queues:
                    self.remove(topic, group)

    def remove(self, topic: str, group: str) -> None:
        """Forget one group in one topic. Raises StoreError; nothing was removed then."""
        groups = self._table.get(topic, {})
        if group in groups:
            self._note(topic, group)
            self._entries -= len(groups.pop(group))
            self._leave(group, topic)
            self._dirty = True
            if not groups:
                del self._table[topic]

    def to_wire(self) -> dict[str, Any]:
        """Return what 43 answers and the file holds."""
        return {
            "offsetTable": {
                f"{topic}@{group}": dict(queues)
                for topic, groups in self._table.items()
                for group, queues in groups.items()
            }
        }

    def encoded(self, *, standard: bool) -> Iterator[bytes]:
        """Return the same as a body, in pieces that take a fraction of a millisecond each; what changes meanwhile may be in it.

        Args:
            standard: numbers that are keys come in quotes, and nothing is beyond ASCII.
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
        """Take over the file's table, or the master's on a slave; what that does not have is gone.

        Raises:
            JsonTypeError: a member is not of RocketMQ's type; nothing was changed.
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
        """Take note that offsets are going to be removed."""


def _encoded(topic: str, group: str, queues: Mapping[int, int], *, standard: bool) -> bytes:
    name, offsets = f"{topic}@{group}", msgspec.json.encode(queues)
    key = (
        msgspec.json.encode(name)
        if name.isascii()
        else fastjson.dumps(name, ascii_only=standard).encode("utf-8", "replace")
    )
    return b"%b:%b" % (key, offsets if standard else offsets.replace(b'"', b""))
