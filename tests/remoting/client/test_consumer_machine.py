"""Any call of consumers of one group while any other is under way: listeners raise anything, and members come and go."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import BROADCASTING, FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.message import MessageExt
from flintmq.tests.support.client_machine import run_machine
from flintmq.tests.support.consumer_machine import MEMBERS, ConsumerMachine, Holding
from flintmq.tests.support.effort import examples


class OrderlyMachine(ConsumerMachine):
    """Queues are locked, and one message of a queue is consumed at a time."""

    orderly = True


class ThreadsMachine(ConsumerMachine):
    """The listener is a plain function."""

    plain = True


class BatchMachine(ConsumerMachine):
    """The listener takes lists; it acknowledges the first ones, or raises and acknowledges none."""

    options: ClassVar[dict[str, Any]] = {"consume_batch_size": 3}

    def listener(self, at: int) -> dict[str, Any]:
        async def listen(messages: list[MessageExt]) -> int:
            held = [self.holding(at, message) for message in messages]
            await asyncio.sleep(self.cluster.choices.below(5) / 10)
            for message, holding in zip(messages, held, strict=True):
                self.begun(at, message, holding)
            consumed = len(messages) if self.cluster.choices.below(2) else self.cluster.choices.below(len(messages) + 1)
            try:
                self.act(at, messages[0])
            except BaseException:
                self.failed.update(bytes(message.body) for message in messages)
                raise
            self.failed.update(bytes(message.body) for message in messages[consumed:])
            for message, holding in zip(messages[:consumed], held, strict=False):
                self.acknowledge(at, message, holding)
            return consumed

        return {"batch_listener": listen}


class BroadcastingMachine(ConsumerMachine):
    """Each member gets every message once, also one at which its listener fails; offsets are in files."""

    holders = MEMBERS

    async def start_client(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        await super().start_client()

    def scope(self, at: int) -> int:
        return at

    def begun(self, at: int, message: MessageExt, held: Holding | None) -> None:
        body = bytes(message.body)
        if held is not None and not self.is_disturbed:
            past = self.past[at, message.queue]
            if body in held.acknowledged or any(one.is_committed(body, held.begun_s) for one in past):
                self.failures.append(f"{body!r} comes again to member {at}")
        self.acknowledge(at, message, held)

    def _member(self, at: int) -> Consumer:
        member = Consumer(
            "g",
            self.cluster.address,
            settings=ConsumerSettings(
                message_model=BROADCASTING, consume_from=FROM_FIRST, concurrency=4, offset_folder=Path(self.folder.name)
            ),
            client_id=f"member-{at}",
            clock=self.cluster.clock,
            **self.listener(at),
        )
        self._watch(at, member)
        return member

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class LoopFailure(Exception):
    """Ends a loop."""


class IterationMachine(ConsumerMachine):
    """Members have no listeners: loops iterate over them, two at a time, and end by themselves or by an exception."""

    async def start_client(self) -> None:
        self.loops: list[tuple[Consumer, asyncio.Task[None]]] = []
        await super().start_client()
        for at in (0, 0, 1):
            self.iterate(at, 3, False)

    def listener(self, at: int) -> dict[str, Any]:
        return {}

    @rule(at=st.integers(0, MEMBERS - 1), count=st.integers(0, 6), raises=st.booleans())
    def iterate(self, at: int, count: int, raises: bool) -> None:
        """Begin a loop that ends at a message: the message comes again in another loop."""
        self.loops.append((self.members[at], self.loop.create_task(self._iterate(at, self.members[at], count, raises))))

    @rule(at=st.integers(0, MEMBERS - 1), queue=st.integers(0, 7), steps=st.integers(0, 60))
    def iterate_side_by_side(self, at: int, queue: int, steps: int) -> None:
        """Begin a loop while another one may have a message, at which it ends."""
        self.put(queue, 2)
        for _ in range(3):
            self.iterate(at, 0, False)
            self.run_steps(steps)
        self.pass_time(3.5)

    async def _iterate(self, at: int, member: Consumer, count: int, raises: bool) -> None:
        try:
            async for message in member:
                held = self.holding(at, message) if member is self.members[at] else None
                if held is not None:
                    self.begun(at, message, held)
                await asyncio.sleep(self.cluster.choices.below(5) / 10)
                if not count:
                    self.failed.add(bytes(message.body))
                    if raises:
                        raise LoopFailure
                    break
                count -= 1
                self.acknowledge(at, message, held)
        except LoopFailure:
            if not raises:
                self.failures.append("a loop ended by an exception of another one")

    def check_healed(self) -> None:
        """Loops that go on get what is left; another one joins them, as each of them may end."""
        self._replace_closed()
        for at in range(MEMBERS):
            self.iterate(at, 1_000_000, False)
        super().check_healed()
        for _, task in self.loops:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.failures.append(f"a loop ended: {task.exception()!r}")


FAULTS = ("cancel", "fail", "fail_and_refuse", "lose_route", "move", "refuse", "replace_closed")


def quiet(machine: type[ConsumerMachine]) -> type[ConsumerMachine]:
    """Return the machine without faults: what comes again has no excuse. Nobody joins in place of a member that leaves."""
    return type(f"Quiet{machine.__name__}", (machine,), dict.fromkeys(FAULTS))


QuietMachine, QuietOrderlyMachine = quiet(ConsumerMachine), quiet(OrderlyMachine)
QuietThreadsMachine, QuietIterationMachine = quiet(ThreadsMachine), quiet(IterationMachine)
QuietBroadcastingMachine = quiet(BroadcastingMachine)
MACHINES = [
    ConsumerMachine, OrderlyMachine, ThreadsMachine, BatchMachine, BroadcastingMachine, IterationMachine,
    QuietMachine, QuietOrderlyMachine, QuietThreadsMachine, QuietIterationMachine, QuietBroadcastingMachine,
]  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_consumers_skip_no_message_and_never_hang_after_random_calls_and_faults(
    machine: type[ConsumerMachine],
) -> None:
    """Every queue has a puller, nothing is skipped or comes again without a cause, calls end, and close leaves nothing."""
    run_machine(machine, examples(60))
