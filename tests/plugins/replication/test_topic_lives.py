"""Whatever happens to a topic, its queues say the same everywhere: at the master, after crashes and repairs, and at slaves.

Histories of sends, deletions, crashes, losses of queues and promotions; the model is a list of bodies for each queue.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.io import lazy_numpy
from flintmq.core.record.record import decode_record
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import rebuild
from flintmq.programs.doctor.report import Level
from flintmq.programs.doctor.verify import verify
from flintmq.testing.store import BY_HAND, batch, message, open_store, store_spec
from flintmq.tests.support.effort import examples

from .conftest import SECRET, Pair

lazy_numpy.load()

TOPICS: Final = ("A", "B")
QUEUES: Final = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
Queues = dict[tuple[str, int], list[bytes]]

TOPIC = st.sampled_from(TOPICS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), TOPIC, st.integers(0, 1), st.integers(1, 12)),
        st.tuples(st.just("batch"), TOPIC, st.integers(0, 1), st.integers(1, 12)),
        st.tuples(st.just("delete"), TOPIC),
        st.tuples(st.just("delete"), TOPIC),
        st.tuples(st.just("follow"), st.sampled_from((0, 7, 1_000))),
        st.tuples(st.sampled_from(("kill", "power cut", "lose queues", "stop", "repair", "promote"))),
    ),
    min_size=1,
    max_size=14,
)


def content(store: MessageStore) -> Queues:
    """What each queue gives, from queue offset 0 on."""
    found: Queues = {}
    for key in QUEUES:
        bodies: list[bytes] = []
        queue = store.consume_queues.find(*key)
        if queue is None:
            continue
        assert queue.min_queue_offset == 0
        while len(bodies) < queue.max_queue_offset:
            pulled = store.reader.get_message(*key, len(bodies), 32, None)
            for piece in pulled.slices:
                at = 0
                while at < len(piece):
                    record = decode_record(piece, at)
                    assert (record.topic, record.queue_id, record.queue_offset) == (*key, len(bodies))
                    bodies.append(record.body)
                    at += record.size_bytes
        if bodies:
            found[key] = bodies
    return found


class History:
    """A master, its slave, and what clients were told."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = map(str, count())
        self._bodies = (b"%d" % number for number in count())
        self.told: Queues = {}
        self.master = self.open(self._new())
        self.master.become_master()
        self.slave = self.open(self._new())
        self.connect()

    def _new(self) -> Path:
        return self._root / next(self._names)

    def open(self, path: Path) -> MessageStore:
        return open_store(path, strategy=BY_HAND, commit_log_file_bytes=8192)

    def connect(self) -> None:
        self.pair = Pair(
            self.master, self.slave, LinkSettings(heartbeat_s=5.0, housekeeping_s=20.0, batch_bytes=1000, secret=SECRET)
        )

    def copy(self, store: MessageStore, *lost: str) -> Path:
        """A killed broker's store, without some of its files."""
        path = self._new()
        shutil.copytree(store.root, path)
        for name in lost:
            there = path / name
            shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)
        return path

    def killed(self, *lost: str) -> None:
        path = self.copy(self.master, *lost)
        self.master.close()
        self.master = self.open(path)
        self.connect()

    def send(self, topic: str, queue_id: int, number: int, *, together: bool) -> None:
        messages = [message(topic, queue_id, next(self._bodies), keys=topic) for _ in range(number)]
        self.told.setdefault((topic, queue_id), []).extend(one.body for one in messages)
        self.master.put([batch(messages)] if together else messages)
        if number % 2:
            self.master.reput.forget()  # as if too much waited: it is read back from the log
        self.master.reput.run_all()

    def step(self, what: str, *how: object) -> None:
        match what, *how:
            case (("send" | "batch"), str(topic), int(queue_id), int(number)):
                self.send(topic, queue_id, number, together=what == "batch")
            case "delete", str(topic):
                self.master.delete_topic(topic)
                self.told = {key: bodies for key, bodies in self.told.items() if key[0] != topic}
            case "follow", int(piece_bytes):
                self.pair.settle(piece_bytes)
                assert content(self.slave) == self.told
            case ("kill",):
                self.killed()
            case ("power cut",):
                self.killed("flint/boot")
            case ("lose queues",):
                self.killed("consumequeue", "flint/boot")
            case ("stop",):
                self.master.close()
                self.master = self.open(self.master.root)
                self.connect()
            case ("repair",):
                self.master.close()
                repaired(self.master.root)
                self.master = self.open(self.master.root)
                self.connect()
            case ("promote",):
                self.pair.settle()
                self.master.close()
                self.slave.close()
                self.master = self.open(self.slave.root)
                self.master.become_master()
                self.slave = self.open(self._new())
                self.connect()
        assert content(self.master) == self.told

    def end(self) -> None:
        """Compare all ways to the queues."""
        self.pair.settle()
        assert content(self.slave) == self.told
        for topic in TOPICS:
            found = self.master.reader.query_message(topic, topic, 10_000, 0, 2**62)[0]
            bodies = {decode_record(piece).body for piece in found}
            assert bodies <= {body for key in QUEUES if key[0] == topic for body in self.told.get(key, ())}
        killed = [self.copy(store, *lost) for store in (self.master, self.slave) for lost in ((), ("consumequeue",))]
        for store in (self.master, self.slave):
            store.close()
            assert_sound(store.root)
            repaired(store.root)
        for path in (self.master.root, self.slave.root, *killed):
            store = self.open(path)
            assert content(store) == self.told
            store.close()
            assert_sound(path)


def repaired(path: Path) -> None:
    rebuild(path, store_spec(path, commit_log_file_bytes=8192).config, DELAY_LEVEL_MS)


def assert_sound(path: Path) -> None:
    report = verify(StoreFiles(path), DELAY_LEVEL_MS)
    assert [found for found in report.findings if found.level is not Level.NOTE] == []
    assert report.is_sound


@pytest.mark.slow
@given(steps=STEPS)
@settings(deadline=None, max_examples=examples(30))
def test_no_queue_offset_has_two_messages_after_random_topic_deletions_and_creations(
    steps: list[tuple[object, ...]],
) -> None:
    """For every history of two topics."""
    run(steps)


def run(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        history = History(Path(folder))
        stack.callback(lambda: (history.master.close(), history.slave.close()))
        for step in steps:
            history.step(*step)  # type: ignore[arg-type]
        history.end()


def histories() -> Iterator[list[tuple[object, ...]]]:
    """The ones that went wrong: a topic is made again before, after and while something else happens."""
    life = [("send", "A", 0, 5), ("send", "B", 0, 2)]
    for between in ("kill", "power cut", "lose queues", "stop", "repair", "promote"):
        yield [*life, ("follow", 0), ("delete", "A"), (between,), ("send", "A", 0, 3), (between,)]
        yield [*life, ("delete", "A"), (between,)]
        yield [*life, ("delete", "A"), ("batch", "A", 0, 3), ("delete", "A"), ("send", "A", 0, 8), (between,)]


@pytest.mark.parametrize("steps", [*histories()])
def test_a_topic_created_again_has_only_its_new_messages_on_master_and_slave(steps: list[tuple[object, ...]]) -> None:
    """The slave that followed both lives, the recovery and the repair gave the deleted messages."""
    run(steps)
