"""Histories of brokers and of a query, as seeds have them: each message that exists arrives once, or the query tells the loss.

Topics are created, deleted, made again, shrunk and grown; brokers are away for a while; retention deletes; the driver is killed
between planning, writing and committing; the checkpoint is put back by a batch; options change between runs.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("pyspark")

from spark_cluster import Query
from worlds import FileWorld, WireWorld, World

from flintmq.plugins.spark import wire_transport
from flintmq.plugins.spark.errors import CheckpointError, DataLossError, SparkPluginError
from flintmq.plugins.spark.store import piece_reader, places, transport
from flintmq.plugins.spark.store.queue_units import QueueUnits
from flintmq.plugins.spark.wire import client, offsets, pulling, queue_lives
from flintmq.plugins.spark.wire.client import WireClient
from flintmq.plugins.spark.wire.contacts import Contacts

TOPICS = ("x", "y", "z")
STEPS = 30
MakeWorld = Callable[[], World]


class Wrong(AssertionError):
    """A message came twice, or is missing without a word."""


class History:
    """One query over one world, as a seed has it."""

    def __init__(self, world: World, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = world
        self.numbers = iter(range(10**9))
        self.sent: set[bytes] = set()
        self.at_risk: set[bytes] = set()
        """What retention deleted after the query began."""
        self.told = False
        """Whether the query has said that something is gone."""
        self.changed = True
        """Whether messages were deleted since the last batch was read."""
        self.log: list[str] = []
        world.make("x", 2)
        self.put("x")
        self.query = Query(**world.options, **self.options(), startingOffsets="earliest").start()

    def options(self) -> dict[str, str]:
        found = {"failOnDataLoss": "true", "maxOffsetsPerTrigger": str(self.chance.choice((1, 3, 7, 1000)))}
        return {**found, "subscribePattern": self.chance.choice(("[xyz]", "[xyz]", "[xy]", "x"))}

    def put(self, topic: str) -> None:
        queue_id, broker = self.chance.randrange(4), self.chance.choice(self.world.brokers)
        numbers = (next(self.numbers) for _ in range(self.chance.randrange(1, 12)))
        bodies = [f"{topic}-{broker}-{queue_id}-{number}".encode() for number in numbers]
        self.world.put(topic, queue_id, broker, bodies)

    # --- what may happen ---

    def step(self) -> None:
        actions = (self.send, self.send, self.topic, self.topic, self.broker, self.expire, *[self.run] * 5, self.kill)
        action = self.chance.choice(
            (*actions, self.kill_after_writing, self.put_back, self.restart, self.available_now)
        )
        self.log.append(action.__name__)
        action()

    def send(self) -> None:
        for topic in TOPICS:
            self.put(topic)

    def topic(self) -> None:
        topic = self.chance.choice(TOPICS)
        # What retention deleted before cannot be told from what goes with the topic.
        self.at_risk = {body for body in self.at_risk if not body.startswith(topic.encode())}
        if self.chance.random() < 0.35:
            self.world.delete(topic)
            self.changed = True
            if self.chance.random() < 0.4:
                return
        self.world.make(topic, self.chance.randrange(1, 5))
        self.changed = True
        for _ in range(self.chance.randrange(6)):
            self.put(topic)

    def broker(self) -> None:
        name = self.chance.choice(self.world.brokers)
        if self.chance.random() < 0.6:
            self.world.away(name)
        else:
            self.world.back(name)
        self.changed = True

    def expire(self) -> None:
        before = self.world.readable()
        left = self.world.expire(self.chance)
        self.at_risk |= self.known_to_query(before - left)
        self.changed = True

    def known_to_query(self, bodies: set[bytes]) -> set[bytes]:
        """Those of queues of which the query has a place; over the wire, if it reads them now."""
        if not self.query.planned:
            return set()
        places = json.loads(self.query.planned[-1])
        if places["transport"] == "store":
            choices = [places["of"], *(choice for part in places.get("read", ()) for choice in part["of"])]
            return {body for body in bodies if any(chr(body[0]) in choice["pattern"] for choice in choices)}
        found = {body for body in bodies if self.is_read(body)}
        names = {
            f"{topic}-{broker}-{queue_id}-".encode()
            for topic, brokers in places["queues"].items()
            for broker, queues in brokers.items()
            for queue_id in queues
        }
        return {body for body in found if body.startswith(tuple(names))}

    def is_read(self, body: bytes) -> bool:
        return body.split(b"-")[0].decode() in self.query.options["subscribePattern"]

    def run(self) -> None:
        def batch() -> None:
            is_new = len(self.query.planned) - 1 <= self.query.committed
            if self.query.plan():
                rows = self.query.commit()
                if is_new and len(rows) > int(self.query.options["maxOffsetsPerTrigger"]):
                    raise Wrong(f"{len(rows)} rows, not {self.query.options['maxOffsetsPerTrigger']}")

        self.attempt(batch)

    def kill(self) -> None:
        """Between planning and writing."""
        self.attempt(self.query.plan)
        self.restart()

    def kill_after_writing(self) -> None:
        """Between writing and committing: the batch is read again."""
        query = self.query

        def write() -> None:
            if query.plan():
                again = query.committed in query.sink
                rows = query.write()
                if again and not self.changed and rows != query.sink[query.committed]:
                    raise Wrong("a batch that was read again has other rows")
                self.changed = False

        self.attempt(write)
        self.restart()

    def put_back(self) -> None:
        """The checkpoint is one of a batch ago, and so is what the sink has."""
        if len(self.query.planned) > 2 and self.query.committed == len(self.query.planned) - 1:
            self.query.planned.pop()
            self.query.committed -= 1
            self.query.sink.pop(self.query.committed)
            self.at_risk = self.known_to_query(self.at_risk)
        self.restart()

    def available_now(self) -> None:
        self.attempt(lambda: self.query.start(available_now=True))
        for _ in range(self.chance.randrange(1, 6)):
            self.run()
        self.restart()

    def restart(self) -> None:
        self.attempt(lambda: self.query.start(**(self.options() if self.chance.random() < 0.4 else {})))

    # --- what must hold ---

    def attempt(self, action: Callable[[], Any]) -> None:
        """Do something; where the query says that messages are gone, it goes on without them from then on."""
        try:
            action()
        except (DataLossError, CheckpointError) as loss:
            self.log.append(f"told: {loss}")
            self.told = True
            self.query.start(failOnDataLoss="false")
        except SparkPluginError as error:
            self.log.append(f"{type(error).__name__}: {error}")  # a broker is away: it is tried again later
            self.query.start()
        counts = Counter(self.query.bodies)
        if counts and max(counts.values()) > 1:
            raise Wrong(f"came twice: {[body for body, count in counts.items() if count > 1][:9]}")

    def finish(self) -> None:
        """Bring all brokers back, read everything, and compare."""
        for name in self.world.brokers:
            self.world.back(name)
        self.attempt(lambda: self.query.start(subscribePattern="[xyz]"))
        for _ in range(4):
            self.attempt(self.query.read)
        here = set(self.query.bodies)
        missing = self.world.readable() - here
        if missing:
            raise Wrong(f"did not come: {sorted(missing)[:9]}")
        if not self.told and self.at_risk - here:
            raise Wrong(f"deleted without a word: {sorted(self.at_risk - here)[:9]}")


def run(world: World, seed: int) -> None:
    """Run a history. Raises Wrong."""
    history = History(world, seed)
    try:
        for _ in range(STEPS):
            history.step()
        history.finish()
    except Wrong as wrong:
        raise Wrong(f"seed {seed}: {wrong}; {history.log}") from wrong
    finally:
        history.query.stop()
        world.close()


def run_all(make: MakeWorld, seeds: Iterable[int]) -> None:
    """Run histories, each in a world of its own. Raises Wrong."""
    for seed in seeds:
        run(make(), seed)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    """Makes worlds that clients reach without sockets, and without waiting."""
    worlds: list[WireWorld] = []

    async def make_instance(_name_server: str | None, _broker_addr: str | None) -> Any:
        return worlds[-1].instance()

    def make() -> World:
        worlds.append(WireWorld())
        return worlds[-1]

    monkeypatch.setattr(WireClient, "_make", staticmethod(make_instance))
    monkeypatch.setattr(client, "PAUSE_S", 0.0)
    monkeypatch.setattr(pulling, "PATIENCE_PAUSE_S", 0.0)
    # Tasks and AvailableNow wait for a broker that is away for minutes; it comes back by a later step of the history.
    monkeypatch.setattr(pulling, "again", lambda ask, **_patience: client.again(ask))
    monkeypatch.setattr(Contacts, "is_waited_for", lambda _contacts: False)
    logging.getLogger("flintmq.spark").setLevel(logging.ERROR)
    yield make
    logging.getLogger("flintmq.spark").setLevel(logging.NOTSET)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    """Makes worlds of files."""
    numbers = iter(range(10**9))

    def make() -> World:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return FileWorld(folder)

    logging.getLogger("flintmq.spark").setLevel(logging.ERROR)
    yield make
    logging.getLogger("flintmq.spark").setLevel(logging.NOTSET)


@pytest.mark.parametrize("kind", ["wire", "files"])
@pytest.mark.parametrize(
    "part",
    [0, *(pytest.param(part, marks=pytest.mark.slow if part == 1 else pytest.mark.longest) for part in range(1, 21))],
)
def test_each_message_of_a_random_scenario_is_read_once_or_reported_as_data_loss(
    request: pytest.FixtureRequest, kind: str, part: int
) -> None:
    """A few histories of each; a hundred with --slow, two thousand with --longest."""
    make: MakeWorld = request.getfixturevalue(kind)
    run_all(make, range(3) if part == 0 else range(part * 100, part * 100 + 100))


Plant = Callable[[pytest.MonkeyPatch], None]


def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """Replaces a function by one that is made of it."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(owner, name, make(getattr(owner, name)))

    return plant


def _drops_missing(original: Any) -> Any:
    """An offset has the places of the queues that are there now, and no others."""

    def moved(self: Any, queues: Any, edges: Any, began: Any = None) -> Any:
        found = original(self, queues, edges, began)
        return attrs.evolve(found, queues={queue: at for queue, at in found.queues.items() if queue in edges})

    return moved


def _without_field(field: str, value: Any) -> Callable[[Any], Any]:
    """An offset loses one of its fields when a batch is planned."""
    return lambda original: lambda *words: attrs.evolve(original(*words), **{field: value})


PLANTS: dict[str, tuple[str, Plant]] = {
    "the place of a queue that is away is dropped": (
        "wire",
        _replaced(offsets.WireOffset, "moved", _drops_missing),
    ),
    "a topic made again is not noticed": (
        "wire",
        _replaced(queue_lives.QueueLives, "_remade", lambda _: lambda *_words: set()),
    ),
    "a planned batch of a topic made again is read": (
        "wire",
        _replaced(queue_lives.QueueLives, "still_there", lambda _: lambda _self, ranges, _end: list(ranges)),
    ),
    "every topic with new messages counts as made again": (
        "wire",
        _replaced(
            queue_lives.QueueLives,
            "_remade",
            lambda _: (
                lambda _self, offset, edges: {
                    one for one, edge in edges.items() if edge.max_queue_offset > offset.queues[one] > 0
                }
            ),
        ),
    ),
    "the time of what was seen stays that of the start": (
        "wire",
        _replaced(offsets, "newest_ms", lambda _: lambda _edges: {}),
    ),
    "where new queues begin is not kept": ("wire", _replaced(offsets.WireOffset, "moved", _without_field("began", {}))),
    "new queues begin at their end": (
        "wire",
        _replaced(
            wire_transport,
            "ranges_between",
            lambda original: (
                lambda start, end, first_: original(
                    {queue: at if at else end.get(queue, 0) for queue, at in start.items()}, end, first_
                )
            ),
        ),
    ),
    "a limit gives each queue one message more than it says": (
        "wire",
        _replaced(
            wire_transport,
            "limited_rows",
            lambda original: lambda ranges, rows: {queue: at + 1 for queue, at in original(ranges, rows).items()},
        ),
    ),
    "what retention deleted is passed over": (
        "wire",
        _replaced(queue_lives.QueueLives, "settled", lambda _: lambda _self, offset, _edges: offset),
    ),
    "a pull loses the first record of an answer": (
        "wire",
        _replaced(
            pulling,
            "_wanted",
            lambda original: lambda *words: attrs.evolve(found := original(*words), starts=found.starts[1:]),
        ),
    ),
    "a place beyond the end of a queue is not noticed": (
        "wire",
        _replaced(pulling, "_ends_before", lambda _: lambda _answer, _wanted: False),
    ),
    "the history of an added topic is not read": (
        "files",
        _replaced(transport, "unread", lambda _: lambda *_words: []),
    ),
    "the history of an added topic is read with what was read before": (
        "files",
        _replaced(
            transport,
            "newly_read",
            lambda original: lambda *words: [attrs.evolve(one, read=()) for one in original(*words)],
        ),
    ),
    "what was left out for a while is forgotten": (
        "files",
        _replaced(places.StoreOffset, "of", lambda _: lambda self, choice: attrs.evolve(self, choice=choice)),
    ),
    "a part of a history counts as all of it": (
        "files",
        _replaced(
            places,
            "read_up_to",
            lambda original: lambda stretches, _place, choice: original(stretches, stretches[-1].end, choice),
        ),
    ),
    "the record that ends a batch is read twice": (
        "files",
        _replaced(
            transport,
            "whole_pieces",
            lambda original: (
                lambda log, start, end, *, by_units_to: original(
                    log, start, min(end + 100, log.end), by_units_to=by_units_to
                )
            ),
        ),
    ),
    "a batch begins behind its first record": (
        "files",
        _replaced(
            piece_reader.PieceReader,
            "_all",
            lambda original: lambda self, data, piece: original(self, data, piece)[int(piece.start > 0) :],
        ),
    ),
    "retention is not noticed": ("files", _replaced(QueueUnits, "may_have_had", lambda _: lambda *_words: False)),
}


@pytest.mark.longest
@pytest.mark.parametrize("name", PLANTS)
def test_random_scenarios_detect_each_bug_injected_into_the_code_of_the_spark_data_source(
    request: pytest.FixtureRequest, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The histories notice it when the code is wrong; so they say something when it is right."""
    kind, plant = PLANTS[name]
    make: MakeWorld = request.getfixturevalue(kind)
    plant(monkeypatch)
    with pytest.raises(Wrong):
        run_all(make, range(400))
