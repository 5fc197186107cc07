"""Any call of consumers of one group while any other is under way: listeners raise anything, and members come and go."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumeResult, ConsumerSettings
from flintmq.remoting.client.message import MessageExt
from flintmq.tests.support.client_machine import ClientMachine

FAILURES: tuple[type[BaseException], ...] = (
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    StopIteration,
    asyncio.CancelledError,
    RuntimeError,
)
MEMBERS = 2
TOPICS = ("T", "U")


class ConsumerMachine(ClientMachine):
    """Two members of one group. In the end each message was delivered, and each queue is held and pulled by one member."""

    orderly: ClassVar[bool] = False
    plain: ClassVar[bool] = False
    """Whether the listener is a plain function, for threads."""

    async def start_client(self) -> None:
        self.cluster.topics |= set(TOPICS)
        self.next_failure: list[type[BaseException] | str] = []
        self.delivered: Counter[bytes] = Counter()
        self.in_order: dict[MessageQueue, list[bytes]] = {}
        self.put_bodies: list[bytes] = []
        self.members: list[Consumer] = []
        for _ in range(MEMBERS):
            self.members.append(self._member())
        for member in self.members:
            await member.start()
            await member.subscribe("T")

    def _member(self) -> Consumer:
        holder: list[Consumer] = []

        def act(message: MessageExt) -> None:
            if not self.next_failure:
                return
            action = self.next_failure.pop()
            if not isinstance(action, str):
                raise action
            if action == "unsubscribe":
                self.call("unsubscribe", holder[0].unsubscribe("U"))
            elif action == "suspend":
                holder[0].suspend()
                self.loop.call_later(2, holder[0].resume)

        def done(message: MessageExt) -> ConsumeResult:
            act(message)
            self.delivered[bytes(message.body)] += 1
            return ConsumeResult.SUCCESS

        async def done_async(message: MessageExt) -> ConsumeResult:
            await asyncio.sleep(self.cluster.choices.below(5) / 10)
            if self.next_failure and self.next_failure[-1] == "unsubscribe and wait":
                self.next_failure.pop()
                await holder[0].unsubscribe("U")
            return done(message)

        member = Consumer(
            "g",
            self.cluster.address,
            done if self.plain else done_async,
            settings=ConsumerSettings(consume_from=FROM_FIRST, orderly=self.orderly, concurrency=4),
            clock=self.cluster.clock,
        )
        holder.append(member)
        return member

    async def close_clients(self) -> None:
        for member in self.members:
            await member.close()

    @rule(at=st.integers(0, 7), count=st.integers(1, 3))
    def put(self, at: int, count: int) -> None:
        queue = (self.cluster.queues("T") + self.cluster.queues("U"))[at]
        for _ in range(count):
            self.put_bodies.append(b"%d" % len(self.put_bodies))
            self.cluster.put(queue, self.put_bodies[-1])

    @rule(failure=st.sampled_from([*FAILURES, "unsubscribe", "suspend", "unsubscribe and wait"]))
    def fail_next(self, failure: Any) -> None:
        """Have the listener raise something, or call its consumer, at its next message."""
        if self.plain and failure == "unsubscribe and wait":
            failure = "unsubscribe"
        self.next_failure.append(failure)

    @rule(at=st.integers(0, MEMBERS - 1))
    def subscribe(self, at: int) -> None:
        self.call("subscribe", self.members[at].subscribe("U"))

    @rule(at=st.integers(0, MEMBERS - 1))
    def unsubscribe(self, at: int) -> None:
        self.call("unsubscribe", self.members[at].unsubscribe("U"))

    @rule(at=st.integers(0, MEMBERS - 1))
    def unsubscribe_and_subscribe(self, at: int) -> None:
        """Both within moments, during whatever is under way."""

        async def both() -> None:
            await self.members[at].unsubscribe("T")
            await asyncio.sleep(self.cluster.choices.below(3) / 1000)
            await self.members[at].subscribe("T")

        self.call("unsubscribe, subscribe", both())

    @rule(at=st.integers(0, MEMBERS - 1))
    def suspend(self, at: int) -> None:
        self.members[at].suspend()

    @rule(at=st.integers(0, MEMBERS - 1))
    def resume(self, at: int) -> None:
        self.members[at].resume()

    @rule(at=st.integers(0, MEMBERS - 1))
    def rebalance(self, at: int) -> None:
        self.call("rebalance", self.members[at].rebalance())

    @rule(at=st.integers(0, MEMBERS - 1))
    def commit(self, at: int) -> None:
        self.call("commit", self.members[at].commit())

    @rule(at=st.integers(0, MEMBERS - 1))
    def close_one(self, at: int) -> None:
        self.call("close", self.members[at].close())

    @precondition(lambda self: not all(member.is_started for member in self.members))
    @rule()
    def replace_closed(self) -> None:
        """Another member joins in place of one that has left."""
        for at, member in enumerate(self.members):
            if not member.is_started and not self.running():
                self.members[at] = self._member()
                self.ends(self.members[at].start())

    def check_healed(self) -> None:
        """After some rebalances every queue has one member that pulls it, and everything is delivered."""
        self.next_failure.clear()
        for at, member in enumerate(self.members):
            if not member.is_started:
                self.members[at] = self._member()
                self.ends(self.members[at].start())
            for topic in TOPICS:
                self.ends(self.members[at].subscribe(topic))
            self.members[at].resume()
        self.pass_time(150.0)
        for topic in TOPICS:
            for queue in self.cluster.queues(topic):
                holders = [member for member in self.members if queue in member.process_queues]
                assert len(holders) == 1, f"{queue} is held by {len(holders)} members"
                task = holders[0].process_queues[queue].task
                assert task is not None
                assert not task.done(), f"nobody pulls {queue}"
        missing = set(self.put_bodies) - set(self.delivered)
        assert not missing, f"never delivered: {missing}"


class OrderlyMachine(ConsumerMachine):
    """Queues are locked, and one message of a queue is consumed at a time."""

    orderly = True


class ThreadsMachine(ConsumerMachine):
    """The listener is a plain function."""

    plain = True


@pytest.mark.parametrize("machine", [ConsumerMachine, OrderlyMachine, ThreadsMachine])
def test_consumers(machine: type[ConsumerMachine]) -> None:
    """Every queue has a puller, nothing is skipped, calls end, and close leaves nothing."""
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))
