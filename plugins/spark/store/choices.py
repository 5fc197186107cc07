"""Which queues a query reads, as its checkpoint keeps it, and up to where the log has been read for which of them.

A place in the log alone does not tell of which topics it is one. A topic that is added to a query has its history read, as over
the wire; one that was left out for a while goes on where it stopped.
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
    """What ``subscribe``, ``subscribePattern``, ``queues`` and ``includeSystemTopics`` say."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    queues: tuple[tuple[str, tuple[int, ...]], ...] = ()
    system_topics: bool = False

    @classmethod
    def of(cls, options: ReadOptions) -> Choice:
        """Return the choice of a read."""
        return cls(
            None if options.subscribe is None else tuple(sorted(options.subscribe)),
            None if options.subscribe_pattern is None else options.subscribe_pattern.pattern,
            tuple(sorted((topic, tuple(sorted(ids))) for topic, ids in (options.queues or {}).items())),
            options.include_system_topics,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form in which an offset keeps it."""
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
        """Read it back. Raises CheckpointError."""
        try:
            topics, queues = found.get("topics"), found.get("queues", {})
            return cls(
                None if topics is None else tuple(map(str, topics)),
                found.get("pattern"),
                tuple((topic, tuple(map(int, ids))) for topic, ids in queues.items()),
                bool(found.get("system")),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's choice of topics is none: {str(found)[:200]}") from error

    def rows(self) -> RowFilter:
        """Return the filter that lets through what is chosen. Raises CheckpointError."""
        try:
            pattern = None if self.pattern is None else re.compile(self.pattern)
        except re.error as error:
            raise CheckpointError(f"the checkpoint's pattern of topics is none: {self.pattern!r}: {error}") from error
        return RowFilter(
            topics=None if self.topics is None else frozenset(self.topics),
            topic_pattern=pattern,
            system_topics=self.system_topics,
            queues=tuple((topic, frozenset(ids)) for topic, ids in self.queues),
        )

    def holds(self, other: Choice) -> bool:
        """Return whether it surely has all that another has."""
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
    """A part of the log up to a physical offset, which has been read for some choices."""

    end: int
    choices: tuple[Choice, ...]

    def holds(self, choice: Choice) -> bool:
        """Return whether all was read that a choice has."""
        if any(one.holds(choice) for one in self.choices):
            return True
        topics = choice.topics
        return topics is not None and all(
            any(one.holds(attrs.evolve(choice, topics=(topic,))) for one in self.choices) for topic in topics
        )

    def read_for(self, choice: Choice) -> Stretch:
        """Return the stretch, read for one more choice."""
        left = tuple(one for one in self.choices if not choice.holds(one))
        return Stretch(self.end, (*left, choice))


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Return stretches in order, without empty ones; those side by side with the same choices as one."""
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
    """A part of the log in which messages of a choice were not read yet."""

    start: int
    end: int
    read: tuple[Choice, ...]
    """Whose messages were."""
    known: tuple[Choice, ...] = ()
    """What was read of the log before it: the queues of which the query has a place."""


def unread(stretches: Sequence[Stretch], choice: Choice) -> list[Unread]:
    """Return what is to be read of a part of the log for a choice."""
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
    """Return what has been read when all before a place has been for a choice."""
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
    """Return the parts of the log before a place that were read for one more choice between two offsets."""
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
