"""Any call of a pull consumer while any other is under way: a position that is told is the position that is pulled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.record.record import HEAD_V4_BYTES
from flintmq.remoting.client.consumer_settings import FROM_FIRST
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.tests.support.client_machine import ClientMachine, run_machine
from flintmq.tests.support.damage import cut, false_checksum, torn, without_size
from flintmq.tests.support.effort import examples

MESSAGES = 12


class PullConsumerMachine(ClientMachine):
    """Two queues at each of two brokers; what a poll returns is compared with the positions at that moment."""

    async def start_client(self) -> None:
        self.consumer = PullConsumer("g", self.cluster.address, clock=self.cluster.clock)
        for queue in self.cluster.queues("T"):
            for number in range(MESSAGES):
                self.cluster.put(queue, b"%d" % number)
        self.expected: dict[MessageQueue, int] = {}
        """The offset of the next message that a poll must return."""
        self.moving: dict[MessageQueue, int] = {}
        """How many calls are under way that may move a queue."""
        await self.consumer.assign("T", consume_from=FROM_FIRST)
        self.expected = dict(self.consumer.positions)

    async def close_clients(self) -> None:
        await self.consumer.close()

    def queue(self, at: int) -> MessageQueue:
        return self.cluster.queues("T")[at % 4]

    @rule(at=st.integers(0, 3), count=st.integers(1, 5))
    def put(self, at: int, count: int) -> None:
        for number in range(count):
            self.cluster.put(self.queue(at), b"more %d" % number)

    @rule(at=st.integers(0, 3), damage=st.sampled_from([false_checksum, torn, without_size, cut]))
    def damage(self, at: int, damage: Callable[[bytes], bytes]) -> None:
        """Have a queue's last message be one that cannot be read; it is polled like any other."""
        queue = self.queue(at)
        records = self.cluster.brokers[queue.broker_name].records[queue.topic, queue.queue_id]
        if len(records[-1]) > HEAD_V4_BYTES:  # it is not cut already
            records[-1] = damage(records[-1])

    @rule(timeout_ms=st.sampled_from([0, 50, 5_000]), max_messages=st.integers(1, 8))
    def poll(self, timeout_ms: int, max_messages: int) -> None:
        self.call("poll", self._poll(timeout_ms, max_messages))

    async def _poll(self, timeout_ms: int, max_messages: int) -> None:
        try:
            messages = await self.consumer.poll(timeout_ms, max_messages=max_messages)
        except ValueError as failure:
            if "no queue is assigned" not in str(failure):
                raise
            return
        for message in messages:
            queue = message.queue
            expected = self.expected.get(queue, message.queue_offset)
            if message.queue_offset != expected and not self.moving.get(queue):
                self.failures.append(f"{queue} gave {message.queue_offset}, not {expected}")
            self.expected[queue] = message.queue_offset + 1

    @rule(at=st.integers(0, 3), queue_offset=st.integers(0, MESSAGES))
    def seek(self, at: int, queue_offset: int) -> None:
        self.call("seek", self._seek(self.queue(at), queue_offset))

    async def _seek(self, queue: MessageQueue, queue_offset: int) -> None:
        self.moving[queue] = self.moving.get(queue, 0) + 1
        before = self.expected.get(queue)
        try:
            await self.consumer.seek(queue, queue_offset)
        except ValueError:
            return
        else:
            if self.moving[queue] == 1 and self.expected.get(queue) == before:
                self.expected[queue] = queue_offset
                if self.consumer.positions.get(queue) not in (queue_offset, None):
                    self.failures.append(
                        f"{queue} was moved to {queue_offset} and is at {self.consumer.positions[queue]}"
                    )
            else:
                self.expected.pop(queue, None)
        finally:
            self.moving[queue] -= 1

    @rule(at=st.integers(0, 3), queue_offset=st.integers(0, MESSAGES), steps=st.integers(0, 80))
    def seek_after_poll(self, at: int, queue_offset: int, steps: int) -> None:
        """Move a queue of which a pull is under way that a poll has left, then poll again."""
        self.poll(0, 1)
        self.run_steps(steps)
        self.seek(at, queue_offset)
        self.pass_time(0.2)
        self.poll(50, 8)
        self.pass_time(0.2)

    @rule(count=st.integers(0, 4))
    def assign(self, count: int) -> None:
        self.call("assign", self._assign(self.cluster.queues("T")[:count] if count else "T"))

    async def _assign(self, queues: Any) -> None:
        every = self.cluster.queues("T")
        for queue in every:
            self.moving[queue] = self.moving.get(queue, 0) + 1
        try:
            await self.consumer.assign(queues, consume_from=FROM_FIRST)
            self.expected.clear()
        finally:
            for queue in every:
                self.moving[queue] -= 1

    @rule()
    def commit(self) -> None:
        self.call("commit", self.consumer.commit())

    @rule()
    def close(self) -> None:
        self.call("close", self.consumer.close())

    def check_healed(self) -> None:
        """Polls return everything that is left, up to the end of each queue."""
        self.pass_time(max(0.0, self.faulty_until_s - self.loop.time()))
        self.ends(self.consumer.close())
        self.consumer = PullConsumer("g", self.cluster.address, clock=self.cluster.clock)
        self.ends(self._assign("T"))
        self.expected = dict(self.consumer.positions)
        for _ in range(80):
            self.ends(self._poll(50, 3))
        lengths = {queue: self.cluster.length(queue) for queue in self.cluster.queues("T")}
        assert self.expected == lengths, f"polled up to {self.expected} of {lengths}"


def test_polls_return_the_messages_at_the_current_offsets_of_the_consumer_despite_server_faults() -> None:
    """Polls give what the positions say, calls end, and close leaves nothing."""
    run_machine(PullConsumerMachine, examples(100))
