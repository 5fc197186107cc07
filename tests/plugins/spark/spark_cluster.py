"""Brokers that go away and come back, and streaming queries without a Spark, over a store's files or over the wire."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from served import SMALL, Served

import flintmq
from flintmq.config import load_config
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer

FIRST = "broker-a"


class Cluster(Served):
    """A name server and brokers, each of which can be away for a while; the first one is :data:`FIRST`."""

    def __init__(self, folder: Path, *settings: str, names: Sequence[str] = (FIRST,)) -> None:
        super().__init__(folder, *settings)
        self._brokers: dict[str, Any] = {}
        self._all = tuple(names)

    def store(self, name: str = FIRST) -> Path:
        """A broker's store."""
        return self.folder / name

    async def _start_broker(self) -> None:
        for name in self._all:
            await self._start_one(name)

    async def _start_one(self, name: str) -> None:
        overrides = [
            *SMALL,
            f"store.path={self.store(name)}",
            f"namesrv.addresses={self.namesrv}",
            f"broker.name={name}",
            *self.settings,
        ]
        self._brokers[name] = broker = flintmq.Broker(load_config(None, overrides, {}))
        await broker.__aenter__()
        self.address = self._brokers[self._all[0]].address if self._all[0] in self._brokers else broker.address

    async def _stop(self) -> None:
        try:
            for broker in self._brokers.values():
                await broker.__aexit__(None, None, None)
        finally:
            await self._names.__aexit__(None, None, None)

    def away(self, name: str = FIRST) -> None:
        """Stop a broker; its name server forgets it."""

        async def stop() -> None:
            await self._brokers.pop(name).__aexit__(None, None, None)

        self._thread.run(stop())

    def back(self, name: str = FIRST) -> None:
        """Start a broker again."""
        self._thread.run(self._start_one(name))

    def make_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic at every broker that is there, or change its number of queues; wait until routes say so."""

        async def create() -> None:
            async with AdminClient(self.namesrv) as admin:
                for broker in self._brokers.values():
                    await admin.create_topic(topic, queues=queues, address=broker.address)
                for _ in range(500):
                    try:
                        data = await admin.topic_route(topic)
                    except RefusedError:
                        continue
                    if [one.read_queue_nums for one in data.queue_datas] == [queues] * len(self._brokers):
                        return
            raise AssertionError(f"the name server does not hear of {topic}")

        self._thread.run(create())

    def put(
        self,
        topic: str,
        bodies: Sequence[bytes],
        queue_id: int = 0,
        name: str = FIRST,
        compress_over_bytes: int | None = None,
    ) -> list[bytes]:
        """Send messages to a queue of a broker; return their bodies. Compressed ones are sent one by one."""

        async def send() -> None:
            async with Producer("test", self.namesrv, compress_over_bytes=compress_over_bytes) as producer:
                queue = MessageQueue(name, queue_id, topic)
                messages = [Message(topic, body) for body in bodies]
                if compress_over_bytes is not None:
                    for message in messages:
                        await producer.send(message, queue, timeout_ms=30_000)
                    return
                for start in range(0, len(messages), 100):
                    await producer.send_batch(messages[start : start + 100], queue, timeout_ms=30_000)

        self._thread.run(send())
        return list(bodies)


class Query:
    """A streaming query reduced to its bookkeeping: an offset log, a log of commits, and a sink that takes each batch once.

    It calls the reader as Spark's MicroBatchExecution does: what is planned is kept before it is read, and a batch that was not
    committed is read again by a reader that knows nothing but the offsets.
    """

    def __init__(self, **options: str) -> None:
        self.options = options
        self.planned: list[str] = []
        """The first is where the query began, each further one a batch's end."""
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.committed = 0
        """How many batches are noted as done."""
        self.reader: Any = None

    def start(self, *, available_now: bool = False, **changed: str | None) -> Query:
        """Start, or start again after a stop or a kill, with some options changed (None: left out)."""
        from flintmq.plugins.spark.source import FlintMQDataSource

        self.stop()
        options = {**self.options, **changed}
        self.options = {name: value for name, value in options.items() if value is not None}
        source = FlintMQDataSource(self.options)
        self.reader = source.streamReader(source.schema())
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        return self

    def stop(self) -> None:
        """Stop, or be killed: nothing is kept but what is planned, and what the sink has."""
        if self.reader is not None:
            self.reader._transport.close()
            self.reader = None

    def plan(self) -> bool:
        """Plan a batch, if there is anything to do and none is left unfinished; return whether one is planned."""
        if not self.planned:
            self.planned.append(json.dumps(self.reader.initialOffset()))
        if len(self.planned) - 1 > self.committed:
            return True
        end = self.reader.latestOffset(json.loads(self.planned[-1]), self.reader.getDefaultReadLimit())
        if json.dumps(end) == self.planned[-1]:
            return False
        self.planned.append(json.dumps(end))
        return True

    def rows(self, batch: int) -> list[dict[str, Any]]:
        """What the tasks of a planned batch read, each in a copy."""
        start, end = (json.loads(text) for text in self.planned[batch : batch + 2])
        found: list[dict[str, Any]] = []
        for part in self.reader.partitions(start, end):
            reader, there = pickle.loads(pickle.dumps((self.reader, part)))
            for one in reader.read(there):
                found += one.to_pylist()
        return found

    def write(self) -> list[dict[str, Any]]:
        """Read the planned batch and write it to the sink, which takes each batch once; return what was read."""
        rows = self.rows(self.committed)
        self.sink.setdefault(self.committed, rows)
        return rows

    def commit(self) -> list[dict[str, Any]]:
        """Write the planned batch to the sink, and note it as done."""
        rows = self.write()
        self.committed += 1
        self.reader.commit(json.loads(self.planned[self.committed]))
        return rows

    def read(self) -> list[bytes]:
        """Run batches until there is nothing more; return the bodies that came."""
        found: list[bytes] = []
        while self.plan():
            found += [row["body"] for row in self.commit()]
        return found

    @property
    def bodies(self) -> list[bytes]:
        """All that the sink has."""
        return [row["body"] for rows in self.sink.values() for row in rows]
