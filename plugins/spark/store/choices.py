"""The queues that a query reads, as the query's checkpoint records them, and the parts of the log that the query has read for
these queues.

A position in the log does not show which topics a query has read before the position, so the checkpoint also records the
topics. If a topic is added to a query, all messages of the topic are read, as in a read from brokers. If a topic is left out
for a while and then added again, the query continues at the first unread message of the topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from flintmq.plugins.spark.decoder import RowFilter
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.options import ReadOptions


@attrs.frozen
class Choice:
    """The topics and queues that the options ``subscribe``, ``subscribePattern``, ``queues`` and ``includeSystemTopics``
    choose."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    queues: tuple[tuple[str, tuple[int, ...]], ...] = ()
    system_topics: bool = False

    @classmethod
    def of(cls, options: ReadOptions) -> Choice:
        """Return the choice of topics and queues that the options of a read make."""
        return cls(
            None if options.subscribe is None else tuple(sorted(options.subscribe)),
            None if options.subscribe_pattern is None else options.subscribe_pattern.pattern,
            tuple(sorted((topic, tuple(sorted(ids))) for topic, ids in (options.queues or {}).items())),
            options.include_system_topics,
        )

    def to_json(self) -> dict[str, Any]:
        """Return this choice of topics and queues as a JSON object, to be a part of an offset."""
        found: dict[str, Any] = {}
        if self.topics is not None:
            found["topics"] = list(self.topics)
        if self.pattern is not None:
            found["pattern"] = self.pattern
        if self.queues:
            found["queues"] = {topic: list(ids) for topic, ids in self.queues}
        if self.system_topics:
            found["system"] = True
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Choice:
        """Return the choice of topics and queues in the JSON of an offset. Raises CheckpointError if the JSON is not valid."""
        try:
            topics, queues = found.get("topics"), found.get("queues", {})
            return cls(
                None if topics is None else tuple(map(str, topics)),
                found.get("pattern"),
                tuple((topic, tuple(map(int, ids))) for topic, ids in queues.items()),
                bool(found.get("system")),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's choice of topics cannot be read: {str(found)[:200]}") from error

    def rows(self) -> RowFilter:
        """Return the filter of records that accepts the chosen topics and queues. Raises CheckpointError if the pattern for
        topics is not valid."""
        try:
            pattern = None if self.pattern is None else re.compile(self.pattern)
        except re.error as error:
            raise CheckpointError(
                f"the checkpoint's pattern of topics is not a regular expression: {self.pattern!r}: {error}"
            ) from error
        return RowFilter(
            topics=None if self.topics is None else frozenset(self.topics),
            topic_pattern=pattern,
            system_topics=self.system_topics,
            queues=tuple((topic, frozenset(ids)) for topic, ids in self.queues),
        )

    def holds(self, other: Choice) -> bool:
        """Return whether this choice of queues certainly includes all queues of another choice. The result is False if patterns
        would have to be compared."""
        if self == other:
            return True
        if self.topics is None or other.topics is None:
            return False
        mine, others = dict(self.queues), dict(other.queues)
        return all(
            topic in self.topics
            and (not mine or (bool(others) and set(others.get(topic, ())) <= set(mine.get(topic, ()))))
            for topic in other.topics
        )


@attrs.frozen
class Stretch:
    """A part of the log, and the topics and queues that a query has read in this part. The part begins at the previous part's
    end.

    There is one :class:`Choice` for each set of topics and queues that the query's options chose when the query read this part.
    A part has several choices if it was read again after the options had changed.
    """

    end: int
    choices: tuple[Choice, ...]

    def holds(self, choice: Choice) -> bool:
        """Return whether a query has read all topics and queues of ``choice`` in this part of the log."""
        if any(one.holds(choice) for one in self.choices):
            return True
        topics = choice.topics
        return topics is not None and all(
            any(one.holds(attrs.evolve(choice, topics=(topic,))) for one in self.choices) for topic in topics
        )

    def read_for(self, choice: Choice) -> Stretch:
        """Return this part of the log, marked as also read for the topics and queues of ``choice``."""
        left = tuple(one for one in self.choices if not choice.holds(one))
        return Stretch(self.end, (*left, choice))


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Remove empty parts from the parts of a log, and merge neighboring parts in which a query has read the same topics and
    queues."""
    found: list[Stretch] = []
    for one in stretches:
        if one.end <= (found[-1].end if found else 0):
            continue
        if found and set(found[-1].choices) == set(one.choices):
            found.pop()
        found.append(one)
    return tuple(found)


@attrs.frozen
class Unread:
    """A part of the log in which a query has not yet read all topics and queues that its options choose."""

    start: int
    end: int
    read: tuple[Choice, ...]
    """Topics and queues whose messages in this part of the log the query has already read. Each element has the topics and
    queues that an earlier run of the query chose in its options."""
    known: tuple[Choice, ...] = ()
    """Choices of topics and queues for which the query has already read messages that are before :attr:`start` in the log. For
    these choices, the query knows its position in each queue, and can detect that messages were deleted before it read them."""


def unread(stretches: Sequence[Stretch], choice: Choice) -> list[Unread]:
    """Return the parts of the log in which a query has not yet read all topics and queues of ``choice``."""
    found = []
    start = 0
    known: set[Choice] = set()
    for one in stretches:
        if not one.holds(choice):
            found.append(Unread(start, one.end, one.choices, tuple(known)))
        start = one.end
        known.update(one.choices)
    return found


def read_up_to(stretches: Sequence[Stretch], place: int, choice: Choice) -> tuple[Stretch, ...]:
    """Record that a query has read the topics and queues of ``choice`` in the whole log before ``place``. Return the new list
    of the parts of the log. A query reads a part of the log again if its options now include topics or queues that they
    excluded before.

    Args:
        stretches: the parts of the log, each with the topics and queues that a query has read in it.
        place: the physical offset up to which the query has read the messages of ``choice``.
        choice: the topics and queues.
    """
    found: list[Stretch] = []
    start = 0
    for one in stretches:
        border = min(max(place, start), one.end)
        if border > start:
            part = Stretch(border, one.choices)
            found.append(part if part.holds(choice) else part.read_for(choice))
        if border < one.end:
            found.append(one)
        start = one.end
    return joined(found)


def newly_read(before: Sequence[Stretch], after: Sequence[Stretch], end: int) -> list[Unread]:
    """Return the parts of the log before ``end`` that a query has read again, for further topics and queues, between two of its
    offsets. Each offset lists the parts of the log, and the topics and queues that the query has read in each part.

    Args:
        before: the list of the earlier offset.
        after: the list of the later offset.
        end: the physical offset at which the search ends.
    """
    found = []
    ends = sorted({min(one.end, end) for one in (*before, *after)})
    start = 0
    for stop in ends:
        earlier, later = _at(before, start), _at(after, start)
        if earlier is not None and later is not None and set(earlier.choices) != set(later.choices):
            found.append(Unread(start, stop, earlier.choices))
        start = stop
    return found


def _at(stretches: Sequence[Stretch], position: int) -> Stretch | None:
    return next((one for one in stretches if position < one.end), None)
