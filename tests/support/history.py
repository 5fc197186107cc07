"""Judge by what clients saw of a broker, or of a master and its slaves, whether any promise was broken while things broke.

Senders and readers note what they were answered in a :class:`History`; :func:`check` compares it with what is read at the end,
when all is healed. A message is *acknowledged* only when its answer was SUCCESS; what was answered FLUSH_DISK_TIMEOUT,
FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE or not at all is *unknown*, and may be there or not.

Every message is sent once, under a key of its own, and carries the key, its producer and its number.

See docs/internals/reliability.md, Acknowledgements and How it is tested.
"""

from __future__ import annotations

import enum
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import attrs


class Outcome(enum.Enum):
    """What a sender was answered."""

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    """It may be stored."""
    REFUSED = "refused"
    """It is not stored: SERVICE_NOT_AVAILABLE before anything was written."""


@attrs.frozen
class Sent:
    """A message, and what became of its send."""

    key: str
    """Unique."""
    producer: str
    number: int
    """Grows from one message of the producer to its next."""
    queue_id: int
    digest: str
    """Digest of the message's body."""
    outcome: Outcome
    queue_offset: int = -1
    """As answered; -1 without an answer."""


@attrs.frozen
class Read:
    """A message as a reader saw it."""

    reader: str
    """Who: for instance a broker's name and the reader's."""
    queue_id: int
    queue_offset: int
    key: str
    digest: str


@attrs.frozen
class Committed:
    """A consumer offset as a client saw it."""

    group: str
    queue_id: int
    consumer_offset: int
    is_command: bool = False
    """It was set, and may go back."""


@attrs.frozen
class Violation:
    """A promise that was broken."""

    kind: str
    """One of :data:`KINDS`."""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


KINDS: Final[Mapping[str, str]] = {
    "lost": "an acknowledged message is not there at the end",
    "elsewhere": "an acknowledged message lies at another place than its sender was told",
    "two values": "one queue offset had two messages, at different times or at different brokers",
    "altered": "a message is not what was sent",
    "invented": "a message is there that nobody sent",
    "misrouted": "a message is in another queue than it was sent to",
    "refused and stored": "a message is there whose sender was told that it is not",
    "taken back": "a message that somebody has read is not there at the end",
    "twice": "a message that was sent once is there twice",
    "hole": "queue offsets at the end are not 0, 1, 2, …",
    "out of order": "two messages of one producer are in a queue in another order than they were sent",
    "copies differ": "two brokers give out different messages at the end",
    "offset went back": "a consumer offset is smaller than it was",
}
"""Every kind of violation, and what it means."""


class History:
    """What was seen, in the order in which it was noted. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent: list[Sent] = []
        self.reads: list[Read] = []
        self.committed: list[Committed] = []
        self.final: dict[str, list[Read]] = {}
        """Per broker everything that can be read of it at the end, in the order of its queues."""

    def note(self, seen: Sent | Read | Committed) -> None:
        """Add what a client saw."""
        with self._lock:
            if isinstance(seen, Sent):
                self.sent.append(seen)
            elif isinstance(seen, Read):
                self.reads.append(seen)
            else:
                self.committed.append(seen)

    def note_all(self, broker: str, reads: Iterable[Read]) -> None:
        """Set what can be read of a broker when all is healed."""
        with self._lock:
            self.final[broker] = list(reads)

    def count(self, outcome: Outcome) -> int:
        """Return how many sends ended so."""
        with self._lock:
            return sum(one.outcome is outcome for one in self.sent)

    def to_text(self) -> str:
        """Return a line for each event, its fields separated by tabs, to be kept where a check failed."""
        lines = [_line("sent", one) for one in self.sent]
        lines += [_line("read", one) for one in self.reads]
        lines += [_line("committed", one) for one in self.committed]
        lines += [f"{_line('final', one)}\t{broker}" for broker, reads in self.final.items() for one in reads]
        return "\n".join(lines) + "\n"


def _line(kind: str, event: Sent | Read | Committed) -> str:
    values = attrs.astuple(event)
    return "\t".join([kind, *(str(value.value if isinstance(value, Outcome) else value) for value in values)])


def check(history: History) -> list[Violation]:
    """Return every broken promise, the worst first; none when all were kept.

    Raises:
        ValueError: nothing was read at the end, so that nothing can be said.
    """
    if not history.final:
        raise ValueError("the history has no final reads")
    found: list[Violation] = []
    by_key = {one.key: one for one in history.sent}
    for broker, reads in history.final.items():
        found += _lost(broker, reads, history.sent)
        found += _contents(broker, reads, by_key)
        found += _places(broker, reads, by_key)
        found += _taken_back(broker, reads, history.reads)
    found += _two_values(history)
    found += _copies(history.final)
    found += _contents("readers", history.reads, by_key)
    found += _went_back(history.committed)
    order = list(KINDS)
    return sorted(dict.fromkeys(found), key=lambda violation: order.index(violation.kind))


def _lost(broker: str, reads: list[Read], sent: list[Sent]) -> list[Violation]:
    places = {read.key: (read.queue_id, read.queue_offset) for read in reads}
    found = []
    for one in sent:
        place = places.get(one.key)
        if one.outcome is not Outcome.ACKNOWLEDGED:
            continue
        if place is None:
            found.append(Violation("lost", f"{one.key}, queue {one.queue_id} offset {one.queue_offset}, at {broker}"))
        elif one.queue_offset >= 0 and place != (one.queue_id, one.queue_offset):
            told = (one.queue_id, one.queue_offset)
            found.append(Violation("elsewhere", f"{one.key} at {place}, its sender was told {told}, at {broker}"))
    return found


def _contents(broker: str, reads: list[Read], by_key: Mapping[str, Sent]) -> list[Violation]:
    found = []
    for read in reads:
        sent = by_key.get(read.key)
        where = f"{read.key}, queue {read.queue_id} offset {read.queue_offset}, at {broker}"
        if sent is None:
            found.append(Violation("invented", where))
            continue
        if sent.digest != read.digest:
            found.append(Violation("altered", where))
        if sent.queue_id != read.queue_id:
            found.append(Violation("misrouted", f"{where}; sent to queue {sent.queue_id}"))
        if sent.outcome is Outcome.REFUSED:
            found.append(Violation("refused and stored", where))
    return found


def _places(broker: str, reads: list[Read], by_key: Mapping[str, Sent]) -> list[Violation]:
    found = []
    seen: set[str] = set()
    queues: dict[int, list[Read]] = defaultdict(list)
    for read in reads:
        if read.key in seen:
            found.append(Violation("twice", f"{read.key}, queue {read.queue_id}, at {broker}"))
        seen.add(read.key)
        queues[read.queue_id].append(read)
    for queue_id, of_queue in queues.items():
        queue_offsets = sorted(read.queue_offset for read in of_queue)
        if queue_offsets != list(range(len(queue_offsets))):
            hole = next((at for at, queue_offset in enumerate(queue_offsets) if at != queue_offset), 0)
            found.append(Violation("hole", f"queue {queue_id} at offset {hole}, at {broker}"))
        newest: dict[str, int] = {}
        for read in sorted(of_queue, key=lambda one: one.queue_offset):
            sent = by_key.get(read.key)
            if sent is None:
                continue
            if sent.number <= newest.get(sent.producer, -1):
                found.append(Violation("out of order", f"{read.key}, queue {queue_id}, at {broker}"))
            newest[sent.producer] = max(sent.number, newest.get(sent.producer, -1))
    return found


def _taken_back(broker: str, reads: list[Read], earlier: list[Read]) -> list[Violation]:
    keys = {read.key for read in reads}
    return [
        Violation("taken back", f"{read.key}, queue {read.queue_id} offset {read.queue_offset}, not at {broker}")
        for read in earlier
        if read.key not in keys
    ]


def _two_values(history: History) -> list[Violation]:
    values: dict[tuple[int, int], tuple[str, str]] = {}
    found = []
    events = [(read, read.reader) for read in history.reads]
    events += [(read, broker) for broker, reads in history.final.items() for read in reads]
    acknowledged = [one for one in history.sent if one.outcome is Outcome.ACKNOWLEDGED and one.queue_offset >= 0]
    events += [(Read("sender", s.queue_id, s.queue_offset, s.key, s.digest), "its sender") for s in acknowledged]
    for read, reader in events:
        place = (read.queue_id, read.queue_offset)
        key, first = values.setdefault(place, (read.key, reader))
        if key != read.key:
            detail = f"queue {place[0]} offset {place[1]} is {key} to {first}, {read.key} to {reader}"
            found.append(Violation("two values", detail))
    return found


def _copies(final: Mapping[str, list[Read]]) -> list[Violation]:
    brokers = sorted(final)
    first = {(read.queue_id, read.queue_offset): (read.key, read.digest) for read in final[brokers[0]]}
    found = []
    for broker in brokers[1:]:
        other = {(read.queue_id, read.queue_offset): (read.key, read.digest) for read in final[broker]}
        places = [place for place in sorted(first.keys() | other.keys()) if first.get(place) != other.get(place)]
        if places:
            detail = f"{brokers[0]} and {broker}: {len(places)} places, the first is {places[0]}"
            found.append(Violation("copies differ", detail))
    return found


def _went_back(committed: list[Committed]) -> list[Violation]:
    newest: dict[tuple[str, int], int] = {}
    found = []
    for one in committed:
        before = newest.get((one.group, one.queue_id), -1)
        if one.consumer_offset < before and not one.is_command:
            detail = f"{one.group}, queue {one.queue_id}: {before}, then {one.consumer_offset}"
            found.append(Violation("offset went back", detail))
        newest[(one.group, one.queue_id)] = one.consumer_offset
    return found
