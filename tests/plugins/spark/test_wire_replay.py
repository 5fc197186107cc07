"""Micro-batches over the wire as Spark runs them, with crashes: what is planned is kept first, and read again after a crash."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from served import Served

from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Limit
from flintmq.plugins.spark.wire_transport import WireTransport

TOPIC = "replay"


class Query:
    """A streaming query reduced to its bookkeeping: an offset log, a commit log, and a sink that takes each batch once."""

    def __init__(self, served: Served) -> None:
        self.options = ReadOptions.parse({"nameServer": served.namesrv, "subscribe": TOPIC})
        self.planned: list[str] = []
        """Offsets as Spark keeps them: the first is where the query began, each further one a batch's end."""
        self.sink: dict[int, list[tuple[int, int, bytes]]] = {}
        self.transport = WireTransport(self.options)
        self.is_checked = True

    def crash(self) -> None:
        """Forgets all that is not kept."""
        self.transport.close()
        self.transport = WireTransport(self.options)
        self.is_checked = False

    def rows(self, batch: int) -> list[tuple[int, int, bytes]]:
        """What the tasks of a planned batch read, each in a copy."""
        start, end = (json.loads(text) for text in self.planned[batch : batch + 2])
        found = []
        for part in self.transport.plan(start, end):
            for one in pickle.loads(pickle.dumps(self.transport)).read(part):
                columns: dict[str, Any] = one.to_pydict()
                found += list(zip(columns["queueId"], columns["queueOffset"], columns["body"], strict=True))
        return found

    def step(self, chance: random.Random) -> bool:
        """Plans and runs a batch, with a crash in between or not; False when there was nothing to do."""
        if not self.planned:
            self.planned.append(json.dumps(self.transport.initial("earliest")))
        if len(self.planned) - 1 > len(self.sink):  # a crash left it unfinished
            self.sink[len(self.sink)] = self.rows(len(self.sink))
            return True
        start = json.loads(self.planned[-1])
        if not self.is_checked:
            start = self.transport.checked(start)
            self.is_checked = True
        end = self.transport.limited(start, self.transport.latest(), Limit(max_rows=chance.randrange(1, 300)))
        if end == start:
            return False
        self.planned.append(json.dumps(end))
        if chance.random() < 0.4:
            if chance.random() < 0.5:
                self.rows(len(self.sink))  # tasks ran, their rows went nowhere
            self.crash()
            return True
        self.sink[len(self.sink)] = self.rows(len(self.sink))
        return True


@pytest.mark.parametrize("seed", range(3))
def test_a_query_loses_no_message_and_repeats_no_message_after_crashes_of_the_query(tmp_path: Path, seed: int) -> None:
    """Messages come meanwhile and queues are added; at the end each is in one batch, and each batch reads the same again."""
    chance = random.Random(seed)
    sent: Counter[bytes] = Counter()
    with Served(tmp_path) as served:
        served.create_topic(TOPIC, queues=2)
        query = Query(served)
        try:
            for turn in range(25):
                if turn in (5, 15):
                    served.create_topic(TOPIC, queues=2 + turn // 5)
                queue_id = chance.randrange(5 if turn > 15 else 3 if turn > 5 else 2)
                bodies = [f"{turn}:{number}".encode() for number in range(chance.randrange(1, 200))]
                served.send(TOPIC, bodies, queue_id)
                sent.update(bodies)
                query.step(chance)
            while query.step(chance):
                pass
            came = [row for batch in query.sink.values() for row in batch]
            assert Counter(body for _, _, body in came) == sent
            assert len({(queue_id, queue_offset) for queue_id, queue_offset, _ in came}) == len(came)
            again = chance.sample(sorted(query.sink), 5)
            assert all(query.rows(batch) == query.sink[batch] for batch in again)
        finally:
            query.transport.close()
