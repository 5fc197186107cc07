"""A name server and a broker in a thread of the test's process, for tests over the wire without a Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import flintmq
from flintmq.config import load_config
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.blocking import LoopThread
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.pull_consumer import PullConsumer

SMALL = (
    "listen.port=0",
    "listen.vip=false",
    "store.commit_log_file_bytes=1MiB",
    "store.consume_queue_file_bytes=20000",
    "index.max_hash_slot_num=1000",
    "index.max_index_num=4000",
    "nameserver.port=0",
    "broker.name=broker-a",
)


class Served:
    """A running name server with one broker; use it in a ``with`` statement."""

    def __init__(self, folder: Path, *settings: str, namesrv: str = "") -> None:
        """``namesrv``: another one's name server, with which the broker registers."""
        self.folder = folder
        self.settings = settings
        self._thread = LoopThread("served")
        self.namesrv = namesrv
        self.address = ""
        self.broker: Any = None
        self._names: Any = None

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._start())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.run(self._stop())
        finally:
            self._thread.stop()

    async def _start(self) -> None:
        if not self.namesrv:
            self._names = flintmq.NameServer(load_config(None, SMALL, {}))
            await self._names.__aenter__()
            self.namesrv = self._names.address
        await self._start_broker()

    async def _start_broker(self) -> None:
        overrides = [*SMALL, f"store.path={self.folder / 'store'}", f"namesrv.addresses={self.namesrv}", *self.settings]
        self.broker = flintmq.Broker(load_config(None, overrides, {}))
        await self.broker.__aenter__()
        self.address = self.broker.address

    async def _stop(self) -> None:
        try:
            await self._stop_broker()
        finally:
            if self._names is not None:
                await self._names.__aexit__(None, None, None)

    async def _stop_broker(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.__aexit__(None, None, None)

    def stop_broker(self) -> None:
        """Stops the broker; the name server goes on."""
        self._thread.run(self._stop_broker())

    def start_broker(self) -> None:
        """Starts it again, at the address that it had."""
        self.settings = (*self.settings, f"listen.port={self.address.rpartition(':')[2]}")
        self._thread.run(self._start_broker())

    @property
    def broker_name(self) -> str:
        named = [one.partition("=")[2] for one in (*SMALL, *self.settings) if one.startswith("broker.name=")]
        return named[-1]

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Creates a topic, or changes its number of queues; the name server knows it afterwards."""

        async def create() -> None:
            async with AdminClient(self.namesrv) as admin:
                await admin.create_topic(topic, queues=queues, address=self.address)
                for _ in range(200):
                    try:
                        data = await admin.topic_route(topic)
                    except RefusedError:
                        data = None
                    if data is not None and sum(one.read_queue_nums for one in data.queue_datas) >= queues:
                        return
            raise AssertionError(f"the name server does not hear of {topic}")

        self._thread.run(create())

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""

        async def delete() -> None:
            async with AdminClient(self.namesrv) as admin:
                await admin.delete_topic(topic)

        self._thread.run(delete())

    def send(self, topic: str, bodies: Sequence[bytes], queue_id: int = 0, **more: Any) -> None:
        """Sends messages to one queue, some at a time."""

        async def send() -> None:
            async with Producer("test", self.namesrv) as producer:
                queue = MessageQueue(self.broker_name, queue_id, topic)
                for start in range(0, len(bodies), 100):
                    messages = [Message(topic, body, **more) for body in bodies[start : start + 100]]
                    await producer.send_batch(messages, queue, timeout_ms=30_000)

        self._thread.run(send())

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """A group's consumer offset."""

        async def ask() -> int | None:
            async with PullConsumer(group, self.namesrv) as consumer:
                return await consumer.committed(MessageQueue("broker-a", queue_id, topic))

        return self._thread.run(ask())

    def messages(self, topic: str, queues: int = 4) -> list[Any]:
        """Every message of a topic, by queue."""

        async def read() -> list[Any]:
            found: list[Any] = []
            async with PullConsumer("test", self.namesrv) as consumer:
                for queue_id in range(queues):
                    queue = MessageQueue("broker-a", queue_id, topic)
                    at, end = 0, await consumer.max_offset(queue)
                    while at < end:
                        pulled = await consumer.pull(queue, at)
                        found += pulled.messages
                        at = pulled.next_begin_queue_offset
            return found

        return self._thread.run(read())
