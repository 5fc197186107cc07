"""The state machine of consumers of one group: what all kinds of listeners have in common."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial
from typing import Any, ClassVar

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

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
COMMIT_S = 7.0
"""A message that was acknowledged so long ago is committed."""
TOPICS = ("T", "U")


@attrs.define(eq=False)
class Holding:
    """A time in which one member held one queue."""

    begun_s: float
    ended_s: float = float("inf")
    acknowledged: dict[bytes, float] = attrs.field(factory=dict)
    """Body → when the listener acknowledged it."""
    last_queue_offset: int = -1
    """Queue offset of the last acknowledged message; -1 if there is none."""

    def is_committed(self, body: bytes, at_s: float) -> bool:
        """Return whether the commit must have come that says that a message was acknowledged, by this time."""
        acknowledged_s = self.acknowledged.get(body, float("inf"))
        return acknowledged_s + COMMIT_S <= min(self.ended_s, at_s)


class ConsumerMachine(ClientMachine):
    """Two members of one group. In the end each message was delivered, and each queue is held and pulled by one member."""

    orderly: ClassVar[bool] = False
    plain: ClassVar[bool] = False
    """Whether the listener is a plain function, for threads."""
    options: ClassVar[dict[str, Any]] = {}
    """Further settings."""
    holders: ClassVar[int] = 1
    """How many members hold a queue."""

    async def start_client(self) -> None:
        self.cluster.topics |= set(TOPICS)
        self.next_failure: list[type[BaseException] | str] = []
        self.delivered: Counter[tuple[int, bytes]] = Counter()
        """How often each member got a message; all members are 0 where they share the queues."""
        self.failed: set[bytes] = set()
        """Messages that a listener did not acknowledge at some time: they come again."""
        self.holdings: dict[tuple[Consumer, MessageQueue], Holding] = {}
        """The latest of each."""
        self.past: defaultdict[tuple[int, MessageQueue], list[Holding]] = defaultdict(list)
        self.put_bodies: list[bytes] = []
        self.queue_of: dict[bytes, MessageQueue] = {}
        self.members: list[Consumer] = []
        for at in range(MEMBERS):
            self.members.append(self._member(at))
        for member in self.members:
            await member.start()
            for topic in TOPICS:
                await member.subscribe(topic)

    def scope(self, at: int) -> int:
        """Return the number of those who share the messages that a member gets."""
        return 0

    # --- what listeners do ---

    def act(self, at: int, message: MessageExt) -> None:
        """Do what the next listener is to do: nothing, raise, or call its consumer."""
        if not self.next_failure:
            return
        action = self.next_failure.pop()
        if not isinstance(action, str):
            raise action
        if action == "unsubscribe":
            self.call("unsubscribe", self.members[at].unsubscribe("U"))
        elif action == "suspend":
            self.members[at].suspend()
            self.loop.call_later(2, self.members[at].resume)

    def holding(self, at: int, message: MessageExt) -> Holding | None:
        """Return in which holding a member gets a message now.

        A listener is to ask when it is called: at its end, the queue may have been given up and begun again.
        """
        return self.holdings.get((self.members[at], self.queue_of[bytes(message.body)]))

    def begun(self, at: int, message: MessageExt, held: Holding | None) -> None:
        """Check that a message may be delivered that comes in a holding."""
        body = bytes(message.body)
        queue = self.queue_of[body]
        if held is None or self.is_disturbed or body in self.failed:
            return
        if body in held.acknowledged:
            self.failures.append(f"{body!r} of {queue} was acknowledged, and comes again to the same member")
        before = self.put_bodies_of(queue)
        before = before[: before.index(body) + 1]
        if not self.failed.intersection(before) and all(
            any(past.is_committed(one, held.begun_s) for past in self.past[self.scope(at), queue]) for one in before
        ):
            self.failures.append(f"{body!r} of {queue} was acknowledged and committed, and comes again")
        if self.orderly and message.queue_offset > held.last_queue_offset + 1 > 0:
            self.failures.append(f"{queue} gave {message.queue_offset} after {held.last_queue_offset}")

    def put_bodies_of(self, queue: MessageQueue) -> list[bytes]:
        """Return what was put into a queue."""
        return [body for body in self.put_bodies if self.queue_of[body] == queue]

    def acknowledge(self, at: int, message: MessageExt, held: Holding | None) -> None:
        """Take note that a listener has a message behind it."""
        body = bytes(message.body)
        self.delivered[self.scope(at), body] += 1
        if held is not None:
            held.acknowledged[body] = self.loop.time()
            held.last_queue_offset = message.queue_offset

    def _listen(self, at: int, message: MessageExt, held: Holding | None = None) -> ConsumeResult:
        held = held or self.holding(at, message)
        self.begun(at, message, held)
        try:
            self.act(at, message)
        except BaseException:
            self.failed.add(bytes(message.body))
            raise
        self.acknowledge(at, message, held)
        return ConsumeResult.SUCCESS

    def listener(self, at: int) -> dict[str, Any]:
        """Return the listener of a member, by the name of the parameter."""

        async def listen(message: MessageExt) -> ConsumeResult:
            held = self.holding(at, message)
            await asyncio.sleep(self.cluster.choices.below(5) / 10)
            if self.next_failure and self.next_failure[-1] == "unsubscribe and wait":
                self.next_failure.pop()
                await self.members[at].unsubscribe("U")
            return self._listen(at, message, held)

        return {"listener": partial(self._listen, at) if self.plain else listen}

    def _member(self, at: int) -> Consumer:
        member = Consumer(
            "g",
            self.cluster.address,
            settings=ConsumerSettings(
                consume_from=FROM_FIRST,
                orderly=self.orderly,
                concurrency=4,
                commit_interval_s=COMMIT_S - 2,
                **self.options,
            ),
            clock=self.cluster.clock,
            **self.listener(at),
        )
        self._watch(at, member)
        return member

    def _watch(self, at: int, member: Consumer) -> None:
        """Take note of when a member holds a queue."""
        rebalancer: Any = member.rebalancer
        begin, release = rebalancer._begin, rebalancer._release

        def begun(held: Any) -> None:
            holding = Holding(self.loop.time())
            self.holdings[member, held.queue] = holding
            self.past[self.scope(at), held.queue].append(holding)
            begin(held)

        def released(held: Any, **options: Any) -> Any:
            holding = self.holdings[member, held.queue]
            holding.ended_s = min(holding.ended_s, self.loop.time())
            return release(held, **options)

        rebalancer._begin, rebalancer._release = begun, released

    async def close_clients(self) -> None:
        for member in self.members:
            await member.close()

    @rule(at=st.integers(0, 7), count=st.integers(1, 3))
    def put(self, at: int, count: int) -> None:
        queue = (self.cluster.queues("T") + self.cluster.queues("U"))[at]
        for _ in range(count):
            body = b"%d" % len(self.put_bodies)
            self.put_bodies.append(body)
            self.queue_of[body] = queue
            self.cluster.put(queue, body)

    @rule(failure=st.sampled_from([*FAILURES, "unsubscribe", "suspend", "unsubscribe and wait"]), at=st.integers(0, 7))
    def fail_next(self, failure: Any, at: int) -> None:
        """Have the listener raise something, or call its consumer, at its next message."""
        if self.plain and failure == "unsubscribe and wait":
            failure = "unsubscribe"
        self.next_failure.append(failure)
        self.put(at, 1)

    @rule(at=st.integers(0, 7))
    def fail_in_every_way(self, at: int) -> None:
        """Have the listener do everything at the next messages; it unsubscribes last."""
        for failure in ("unsubscribe and wait", *FAILURES):
            self.fail_next(failure, at)
        self.pass_time(0.2)

    @rule(at=st.integers(0, 7))
    def fail_and_refuse(self, at: int) -> None:
        """Have the listener fail while brokers refuse to take messages back."""
        self.refuse(50)
        for _ in range(3):
            self.fail_next(ValueError, at)
        self.pass_time(3.5)

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
            for _ in range(1 + self.cluster.choices.below(4)):
                await self.members[at].unsubscribe("T")
                await asyncio.sleep(self.cluster.choices.below(3) / 1000)
                await self.members[at].subscribe("T")
                await asyncio.sleep(self.cluster.choices.below(15) / 1000)

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
        if not self.running():
            self._replace_closed()

    def _replace_closed(self) -> None:
        for at, member in enumerate(self.members):
            if not member.is_started:
                self.ends(member.close())  # the call that began it may have been cancelled
                self.members[at] = self._member(at)
                self.ends(self.members[at].start())

    def check_healed(self) -> None:
        """After some rebalances every queue has one member that pulls it, and everything is delivered."""
        self.next_failure.clear()
        self._replace_closed()
        for member in self.members:
            for topic in TOPICS:
                self.ends(member.subscribe(topic))
            member.resume()
        self.pass_time(150.0)
        for topic in TOPICS:
            for queue in self.cluster.queues(topic):
                holders = [member for member in self.members if queue in member.process_queues]
                assert len(holders) == self.holders, f"{queue} is held by {len(holders)} members"
                for holder in holders:
                    task = holder.process_queues[queue].task
                    assert task is not None
                    assert not task.done(), f"nobody pulls {queue}"
        wanted = {(self.scope(at), body) for at in range(MEMBERS) for body in self.put_bodies}
        missing = wanted - set(self.delivered)
        assert not missing, f"never delivered: {missing}"
