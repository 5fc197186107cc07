"""Messages that are sent while a query is being killed."""

from __future__ import annotations

import asyncio
import threading

from flintmq.core.errors import RefusedError
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer

QUEUES = 4
BATCH = 200


class Load(threading.Thread):
    """Sends numbered messages to a topic: some at once, the rest a few at a time until all are sent.

    Args:
        namesrv: the name server.
        topic: created first.
        messages: how many in all.
        pause_s: between two batches of those that come while the query runs.
    """

    def __init__(self, namesrv: str, topic: str, messages: int, pause_s: float = 0.05) -> None:
        super().__init__(daemon=True)
        self._namesrv = namesrv
        self._topic = topic
        self._messages = messages
        self._pause_s = pause_s
        self.half_sent = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:
            self.error = error
        finally:
            self.half_sent.set()

    async def _send(self) -> None:
        async with AdminClient(self._namesrv) as admin:
            await admin.create_topic(self._topic, queues=QUEUES)
            await self._until_routed(admin)
        async with Producer("load", self._namesrv) as producer:
            queues = await producer.queues(self._topic)
            for start in range(0, self._messages, BATCH):
                numbers = range(start, min(start + BATCH, self._messages))
                messages = [Message(self._topic, str(number).encode()) for number in numbers]
                await producer.send_batch(messages, queues[start // BATCH % len(queues)], timeout_ms=30_000)
                if start >= self._messages // 2:
                    self.half_sent.set()
                    await asyncio.sleep(self._pause_s)

    async def _until_routed(self, admin: AdminClient) -> None:
        for _ in range(600):
            try:
                if await admin.topic_route(self._topic):
                    return
            except RefusedError:
                await asyncio.sleep(0.1)
        raise AssertionError(f"the name server does not hear of {self._topic}")

    def ended(self, timeout_s: float = 120.0) -> None:
        """Waits for the end; raises what went wrong."""
        self.join(timeout_s)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def killed_four_times(namesrv: str, topic: str, folder: object, messages: int = 24_000) -> None:
    """The promise of the source over the wire: kills in the middle of batches lose no row and repeat none.

    Args:
        namesrv: of the broker, whichever it is.
        topic: to be created and filled.
        folder: for checkpoint and table; a path.
        messages: how many are sent, half of them while the query runs.
    """
    from pathlib import Path

    from spark_stream import StreamJob, end_streams

    assert isinstance(folder, Path)
    load = Load(namesrv, topic, messages)
    load.start()
    assert load.half_sent.wait(120)
    options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
    job = StreamJob(folder, options)
    try:
        for _ in range(4):
            job.killed_in_a_batch(after=2)
        load.ended()
        found = job.finished()
    finally:
        end_streams()
        load.join(120)
    assert found == {"rows": messages, "places": messages, "bodies": messages, "empty": 0}
