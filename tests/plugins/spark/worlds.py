"""Brokers small enough for thousands of histories: one that is a store's files, and two that answer without sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RemotingConnectError
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.route_data import BrokerData, ClusterInfo, QueueData, TopicRouteData
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.wire.bodies import TopicList, TopicOffset, TopicStatsTable
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.remoting.wire.json_body import dumps
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store
from flintmq.tests.support.records import RecordFields, encode_all

_READ_AND_WRITE = 6
_PULLED_MAX = 5
"""Messages in an answer: so a range takes several."""


class World(Protocol):
    """What a history does to brokers."""

    brokers: tuple[str, ...]
    options: dict[str, str]
    """Where a query reads."""

    def make(self, topic: str, queues: int) -> None:
        """Create a topic, or change its number of queues."""

    def delete(self, topic: str) -> None:
        """Delete a topic."""

    def put(self, topic: str, queue_id: int, broker: str, bodies: Sequence[bytes]) -> None:
        """Store messages."""

    def expire(self, chance: Any) -> set[bytes]:
        """Have retention delete some of the oldest messages; return which of all there are left."""

    def away(self, broker: str) -> None:
        """Stop a broker."""

    def back(self, broker: str) -> None:
        """Start it again."""

    def readable(self) -> set[bytes]:
        """Every message that a new reader could read, with all brokers back."""

    def close(self) -> None:
        """End."""


class _Queue:
    def __init__(self) -> None:
        self.first = 0
        self.records: list[tuple[bytes, bytes, int]] = []
        """Encoded, the body, and the store time."""

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class WireWorld:
    """A name server and two brokers behind :class:`ClientInstance`'s requests."""

    brokers = ("a", "b")

    def __init__(self) -> None:
        self.options = {"nameServer": "127.0.0.1:1"}
        self._widths: dict[tuple[str, str], int] = {}
        self._queues: dict[MessageQueue, _Queue] = {}
        self._away: set[str] = set()
        self._now_ms = 1_700_000_000_000
        self._place = 0

    # --- what a history does ---

    def make(self, topic: str, queues: int) -> None:
        for broker in self.brokers:
            if broker not in self._away:
                self._widths[broker, topic] = queues

    def delete(self, topic: str) -> None:
        for broker in self.brokers:
            if broker not in self._away:
                self._widths.pop((broker, topic), None)
                for queue in [one for one in self._queues if (one.broker_name, one.topic) == (broker, topic)]:
                    del self._queues[queue]

    def put(self, topic: str, queue_id: int, broker: str, bodies: Sequence[bytes]) -> None:
        if broker in self._away or queue_id >= self._widths.get((broker, topic), 0):
            return
        queue = self._queues.setdefault(MessageQueue(broker, queue_id, topic), _Queue())
        for body in bodies:
            self._now_ms += 1
            fields = RecordFields(
                topic.encode(), body, queue_id=queue_id, queue_offset=queue.end, store_timestamp_ms=self._now_ms
            )
            record, _ = encode_all([fields], self._place)
            self._place += len(record)
            queue.records.append((record, body, self._now_ms))

    def expire(self, chance: Any) -> set[bytes]:
        for queue in self._queues.values():
            gone = chance.randrange(len(queue.records) + 1) if chance.random() < 0.5 else 0
            queue.first += gone
            del queue.records[:gone]
        return {body for queue in self._queues.values() for _, body, _ in queue.records}

    def away(self, broker: str) -> None:
        self._away.add(broker)

    def back(self, broker: str) -> None:
        self._away.discard(broker)

    def readable(self) -> set[bytes]:
        return {
            body
            for queue, held in self._queues.items()
            if queue.queue_id < self._widths.get((queue.broker_name, queue.topic), 0)
            for _, body, _ in held.records
        }

    def close(self) -> None:
        pass

    # --- what clients ask ---

    def instance(self) -> ClientInstance:
        """A client whose requests are answered here."""
        made = ClientInstance(self.options["nameServer"])
        made.remoting.invoke = self._answer  # type: ignore[method-assign]
        return made

    async def _answer(self, address: str, asked: RemotingCommand, _timeout_ms: float) -> RemotingCommand:
        fields = asked.ext_fields or {}
        if address == self.options["nameServer"]:
            return self._of_name_server(asked, fields.get("topic", ""))
        broker = address.partition(":")[0]
        if broker in self._away:
            raise RemotingConnectError(f"broker {broker} is away")
        topic = fields["topic"]
        width = self._widths.get((broker, topic))
        if asked.code == RequestCode.GET_TOPIC_STATS_INFO:
            if width is None:
                return response(asked, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            return response(asked, 0, body=self._stats(broker, topic, width))
        queue_id = int(fields["queueId"])
        queue = self._queues.get(MessageQueue(broker, queue_id, topic), _Queue())
        if asked.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            earliest_ms = queue.records[0][2] if queue.records else -1
            return response(asked, 0, header={"timestamp": str(earliest_ms)})
        if asked.code == RequestCode.GET_MAX_OFFSET:
            return response(asked, 0, header={"offset": str(queue.end)})
        assert asked.code == RequestCode.PULL_MESSAGE, asked.code
        if width is None:
            return response(asked, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        if queue_id >= width:
            return response(asked, ResponseCode.SYSTEM_ERROR, "queueId is illegal")
        return self._pull(asked, queue, int(fields["queueOffset"]), int(fields["maxMsgNums"]))

    def _of_name_server(self, asked: RemotingCommand, topic: str) -> RemotingCommand:
        here = [broker for broker in self.brokers if broker not in self._away]
        datas = {name: BrokerData(broker_addrs={0: f"{name}:1"}, broker_name=name, cluster="c") for name in here}
        if asked.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return response(asked, 0, body=dumps(ClusterInfo(broker_addr_table=datas, cluster_addr_table={"c": here})))
        if asked.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            known = sorted({name for broker, name in self._widths if broker in here})
            return response(asked, 0, body=TopicList(None, known).encode())
        holders = [name for name in here if (name, topic) in self._widths]
        if not holders:
            return response(asked, ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
        queues = [
            QueueData(
                broker_name=name,
                perm=_READ_AND_WRITE,
                read_queue_nums=self._widths[name, topic],
                write_queue_nums=self._widths[name, topic],
            )
            for name in holders
        ]
        route = TopicRouteData(broker_datas=[datas[name] for name in holders], queue_datas=queues)
        return response(asked, 0, body=dumps(route))

    def _stats(self, broker: str, topic: str, width: int) -> bytes:
        table = TopicStatsTable()
        for queue, held in self._queues.items():
            if (queue.broker_name, queue.topic) == (broker, topic) and queue.queue_id < width:
                last_ms = held.records[-1][2] if held.records else 0
                table.offset_table[queue] = TopicOffset(last_ms, held.end, held.first)
        return table.encode()

    @staticmethod
    def _pull(asked: RemotingCommand, queue: _Queue, at: int, count: int) -> RemotingCommand:
        some = queue.records[at - queue.first :][: min(count, _PULLED_MAX)] if queue.first <= at < queue.end else []
        begin = at if some else queue.first if at < queue.first else queue.end
        code = ResponseCode.SUCCESS
        if not some:
            code = ResponseCode.PULL_NOT_FOUND if at == queue.end else ResponseCode.PULL_OFFSET_MOVED
        header = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(begin + len(some)),
            "minOffset": str(queue.first),
            "maxOffset": str(queue.end),
        }
        return response(asked, code, header=header, body=b"".join(record for record, _, _ in some))


class FileWorld:
    """A store with small files. A broker that is away has closed it."""

    brokers = ("a",)

    def __init__(self, folder: Path) -> None:
        self._root = folder / "store"
        self._clock = ManualClock()
        self._store: Any = None
        self._widths: dict[str, int] = {}
        self._bodies: dict[bytes, tuple[str, int]] = {}
        """To the topic and where in the log."""
        self.options = {"path": str(self._root), "visibility": "dispatched", "brokerName": "a"}
        self.back("a")
        self.put("other", 0, "a", [b"first"])  # a store that has no log yet is none

    def make(self, topic: str, queues: int) -> None:
        self._widths[topic] = queues
        self._tell()

    def delete(self, topic: str) -> None:
        if self._store is None:
            return
        self._widths.pop(topic, None)
        self._store.delete_topic(topic)
        self._store.reput.run_all()
        self._bodies = {body: place for body, place in self._bodies.items() if place[0] != topic}
        self._tell()

    def _tell(self) -> None:
        config = self._root / "config"
        config.mkdir(exist_ok=True)
        (config / "topics.json").write_text(json.dumps({"topicConfigTable": {topic: {} for topic in self._widths}}))

    def put(self, topic: str, queue_id: int, broker: str, bodies: Sequence[bytes]) -> None:
        if self._store is None or (topic != "other" and queue_id >= self._widths.get(topic, 0)):
            return
        for body in bodies:
            self._clock.advance_ms(1)
            stored = self._store.put([message(topic, queue_id, body)])
            self._bodies[body] = topic, stored.results[0].commit_log_offset_bytes
        self._store.reput.run_all()

    def expire(self, chance: Any) -> set[bytes]:
        files = sorted((self._root / "commitlog").iterdir())
        if len(files) > 2 and self._store is not None:
            files[0].unlink()
            self.away("a")  # the store has the file mapped, and would go on with it
            self.back("a")
            begin = int(files[1].name)
            self._bodies = {body: place for body, place in self._bodies.items() if place[1] >= begin}
        return set(self._bodies)

    def away(self, broker: str) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def back(self, broker: str) -> None:
        if self._store is None:
            self._store = open_store(
                self._root,
                strategy=BY_HAND,
                clock=self._clock,
                commit_log_file_bytes=4096,
                consume_queue_file_bytes=400,
            )

    def readable(self) -> set[bytes]:
        return {body for body, place in self._bodies.items() if place[0] != "other"}

    def close(self) -> None:
        self.away("a")
