"""The checker is checked first: a small model of a master and its slave, right, then wrong in every way that came to mind."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest

from flintmq.tests.support.history import KINDS, Committed, History, Outcome, Read, Sent, check

QUEUES = 2


@attrs.define
class Stored:
    """A message in a model's log."""

    key: str
    producer: str
    number: int
    queue_id: int
    queue_offset: int
    digest: str


class Model:
    """A sync master with one slave, in a few lines. Methods are what a planted bug replaces.

    Everything before ``flushed`` survives a power cut; everything before ``held`` is at the slave.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = History()
        self.log: list[Stored] = []
        self.slave: list[Stored] = []
        self.flushed = 0
        self.waiting: list[Sent] = []
        self.numbers = dict.fromkeys("abc", 0)
        self.committed = [0] * QUEUES

    # what a broker does

    def offset_for(self, queue_id: int) -> int:
        return sum(one.queue_id == queue_id for one in self.log)

    def append(self, one: Stored) -> None:
        self.log.append(one)

    def flush(self) -> None:
        self.flushed = len(self.log)

    def replicate(self) -> None:
        if self.random.random() < 0.7:
            self.slave += self.log[len(self.slave) : self.flushed]

    def is_safe(self, at: int) -> bool:
        return at < min(self.flushed, len(self.slave))

    def readable(self) -> int:
        return min(self.flushed, len(self.slave))

    def power_cut(self) -> None:
        del self.log[self.flushed :]

    def fail_over(self) -> None:
        self.log = list(self.slave)
        self.flushed = len(self.log)

    def catch_up(self) -> None:
        self.flush()
        self.slave += self.log[len(self.slave) :]

    def offset_after_crash(self, committed: int) -> int:
        return committed

    # what clients do

    def send(self) -> None:
        producer = self.random.choice("abc")
        self.numbers[producer] += 1
        number, queue_id = self.numbers[producer], self.random.randrange(QUEUES)
        key = f"{producer}{number}"
        stored = Stored(key, producer, number, queue_id, self.offset_for(queue_id), f"body of {key}")
        self.append(stored)
        self.waiting.append(
            Sent(key, producer, number, queue_id, f"body of {key}", Outcome.ACKNOWLEDGED, stored.queue_offset)
        )

    def answer(self) -> None:
        keys = {one.key: at for at, one in reversed(list(enumerate(self.log)))}
        for sent in list(self.waiting):
            if sent.key in keys and self.is_safe(keys[sent.key]):
                self.history.note(sent)
                self.waiting.remove(sent)

    def give_up(self) -> None:
        for sent in self.waiting:
            self.history.note(attrs.evolve(sent, outcome=Outcome.UNKNOWN, queue_offset=-1))
        self.waiting.clear()

    def read(self) -> None:
        for one in self.log[: self.readable()][-3:]:
            self.history.note(Read("reader", one.queue_id, one.queue_offset, one.key, one.digest))

    def commit(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        self.committed[queue_id] += 1
        self.history.note(Committed("group", queue_id, self.committed[queue_id]))

    def crash(self) -> None:
        self.give_up()
        if self.random.random() < 0.5:
            self.power_cut()
            del self.slave[len(self.log) :]
        else:
            self.fail_over()
        self.committed = [self.offset_after_crash(one) for one in self.committed]
        for queue_id, offset in enumerate(self.committed):
            self.history.note(Committed("group", queue_id, offset))

    def run(self, steps: int = 300) -> History:
        for _ in range(steps):
            kinds: list[Callable[[], None]] = [
                self.send,
                self.flush,
                self.replicate,
                self.answer,
                self.read,
                self.commit,
            ]
            self.random.choices([*kinds, self.crash], [6, 3, 3, 4, 2, 1, 0.3])[0]()
        self.give_up()
        self.catch_up()
        for name, log in (("master", self.log), ("slave", self.slave)):
            ordered = sorted(log, key=lambda one: (one.queue_id, one.queue_offset))
            self.history.note_all(
                name, [Read(name, one.queue_id, one.queue_offset, one.key, one.digest) for one in ordered]
            )
        return self.history


@pytest.mark.parametrize("seed", range(20))
def test_the_history_checker_finds_no_violation_in_a_correct_cluster(seed: int) -> None:
    """A checker that cries wolf is switched off; and the model must meet crashes, or it proves nothing."""
    history = Model(seed).run()
    assert [str(violation) for violation in check(history)] == []
    assert history.count(Outcome.ACKNOWLEDGED) > 20
    assert history.count(Outcome.UNKNOWN) > 0


class AckBeforeFlush(Model):
    def is_safe(self, at: int) -> bool:
        return at < len(self.slave) or at < len(self.log)


class AckBeforeSlave(Model):
    def is_safe(self, at: int) -> bool:
        return at < self.flushed


class ShowBeforeFlush(Model):
    def readable(self) -> int:
        return len(self.log)


class ShowBeforeSlave(Model):
    def readable(self) -> int:
        return self.flushed


class ForgetOffsetsAfterCut(Model):
    """Queue offsets go on where they were, as if nothing had been cut."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.next = [0] * QUEUES

    def offset_for(self, queue_id: int) -> int:
        self.next[queue_id] += 1
        return self.next[queue_id] - 1


class BeginOffsetsAnew(Model):
    def fail_over(self) -> None:
        super().fail_over()
        self.log = self.log[:-3] if len(self.log) > 3 else self.log
        self.slave, self.flushed = list(self.log), len(self.log)


class SlaveSkipsOne(Model):
    """A slave that goes on one record too far after a reconnection."""

    def replicate(self) -> None:
        begin = len(self.slave)
        if self.flushed - begin > 4:
            self.slave.append(self.log[begin + 1])
        super().replicate()


class SlaveKeepsItsTail(Model):
    """A slave that follows a master which was restored from an older copy."""

    def power_cut(self) -> None:
        del self.log[max(0, len(self.log) - 10) :]
        self.flushed = len(self.log)

    def crash(self) -> None:
        slave = list(self.slave)
        super().crash()
        self.slave = slave


class StoreTwice(Model):
    """A send that is repeated inside of the broker."""

    def append(self, one: Stored) -> None:
        super().append(one)
        if self.random.random() < 0.1:
            super().append(attrs.evolve(one, queue_offset=one.queue_offset + 1))


class FlipABit(Model):
    def append(self, one: Stored) -> None:
        super().append(attrs.evolve(one, digest="body of another") if self.random.random() < 0.05 else one)


class WrongQueue(Model):
    def append(self, one: Stored) -> None:
        if self.random.random() < 0.05:
            other = (one.queue_id + 1) % QUEUES
            one = attrs.evolve(one, queue_id=other, queue_offset=self.offset_for(other))
        super().append(one)


class OvertakeOnTheWay(Model):
    """Two messages of one producer change places."""

    def append(self, one: Stored) -> None:
        super().append(one)
        last = self.log[-2:]
        if len(last) == 2 and len(self.log) > self.flushed + 1 and last[0].queue_id == last[1].queue_id:
            first, second = last
            self.log[-2:] = [
                attrs.evolve(second, queue_offset=first.queue_offset),
                attrs.evolve(first, queue_offset=second.queue_offset),
            ]


class InventOne(Model):
    """Garbage that a recovery takes for a message."""

    def power_cut(self) -> None:
        super().power_cut()
        self.log.append(Stored("garbage", "x", 1, 0, self.offset_for(0), "?"))
        self.flush()


class ForgetConsumers(Model):
    def offset_after_crash(self, committed: int) -> int:
        return max(0, committed - 2)


class StoreWhatIsRefused(Model):
    def give_up(self) -> None:
        for sent in self.waiting:
            self.history.note(attrs.evolve(sent, outcome=Outcome.REFUSED, queue_offset=-1))
        self.waiting.clear()


class SlaveTakesWrites(Model):
    """Two masters: what was sent to the slave lies where the master has something else."""

    def catch_up(self) -> None:
        self.slave.append(Stored("a0", "a", 10_000, 0, sum(one.queue_id == 0 for one in self.slave), "body of a0"))
        self.history.note(Sent("a0", "a", 10_000, 0, "body of a0", Outcome.UNKNOWN))


BUGS: dict[type[Model], set[str]] = {
    AckBeforeFlush: {"lost"},
    AckBeforeSlave: {"lost"},
    ShowBeforeFlush: {"taken back", "two values"},
    ShowBeforeSlave: {"taken back", "two values"},
    ForgetOffsetsAfterCut: {"hole"},
    BeginOffsetsAnew: {"lost", "taken back", "two values"},
    SlaveSkipsOne: {"copies differ", "hole", "lost", "twice"},
    SlaveKeepsItsTail: {"copies differ", "two values", "lost"},
    StoreTwice: {"twice"},
    FlipABit: {"altered"},
    WrongQueue: {"misrouted"},
    OvertakeOnTheWay: {"out of order", "elsewhere"},
    InventOne: {"invented"},
    ForgetConsumers: {"offset went back"},
    StoreWhatIsRefused: {"refused and stored"},
    SlaveTakesWrites: {"copies differ"},
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_history_checker_finds_each_planted_bug(bug: type[Model]) -> None:
    """Each within a few runs, and by the name of what it breaks."""
    found: set[str] = set()
    for seed in range(10):
        found |= {violation.kind for violation in check(bug(seed).run())}
    assert found & BUGS[bug], found


def test_every_kind_of_error_in_a_message_history_can_be_caused_by_a_simulated_bug() -> None:
    """A check that no bug needs may be a check that does nothing."""
    assert set().union(*BUGS.values()) == set(KINDS)


def test_the_history_checker_raises_an_error_for_an_empty_history() -> None:
    """An empty history has no violation, and proves nothing."""
    with pytest.raises(ValueError, match="no final reads"):
        check(History())


def test_the_text_of_a_history_has_a_line_for_every_event() -> None:
    """A failure is explained by the whole history, so its text holds every event."""
    history = Model(1).run(50)
    lines = history.to_text().splitlines()
    counts = len(history.sent) + len(history.reads) + len(history.committed) + sum(map(len, history.final.values()))
    assert len(lines) == counts
    assert all(line.count("\t") >= 3 for line in lines)
