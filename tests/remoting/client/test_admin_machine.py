"""Any call of an admin client while any other is under way: what it says of brokers is so, and calls end in time."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.admin import AdminClient
from flintmq.tests.support.client_machine import Call, ClientMachine, run_machine
from flintmq.tests.support.effort import examples

QUESTION_S = 3.0
"""How long one request may take."""
LONG_S = 10.0
"""How long one request about a topic may take."""


class AdminMachine(ClientMachine):
    """One admin client, two brokers, one topic."""

    async def start_client(self) -> None:
        self.admin = AdminClient(self.cluster.address, clock=self.cluster.clock)

    async def close_clients(self) -> None:
        await self.admin.close()

    def queue(self, at: int) -> MessageQueue:
        return self.cluster.queues("T")[at]

    @rule(at=st.integers(0, 3), count=st.integers(1, 4))
    def put(self, at: int, count: int) -> None:
        for _ in range(count):
            self.cluster.put(self.queue(at), b"x")

    @rule(at=st.integers(0, 3), which=st.sampled_from(["min_offset", "max_offset"]))
    def offset(self, at: int, which: str) -> None:
        self.call(which, self._offset(self.queue(at), which), 2 * QUESTION_S)

    async def _offset(self, queue: MessageQueue, which: str) -> None:
        least = self.cluster.length(queue)
        told = await getattr(self.admin, which)(queue)
        most = self.cluster.length(queue)
        if not (least <= told <= most if which == "max_offset" else told == 0):
            self.failures.append(f"{which} of {queue} is {told}, not {least} to {most}")

    @rule()
    def masters(self) -> None:
        self.call("masters", self._masters(), QUESTION_S)

    async def _masters(self) -> None:
        was = {name: broker.peer.address for name, broker in self.cluster.brokers.items()}
        told = await self.admin.masters()
        if not self.is_disturbed and told != was:
            self.failures.append(f"the masters are {was}, not {told}")

    @rule(topic=st.sampled_from(["T", "Missing"]))
    def topic_route(self, topic: str) -> None:
        self.call("topic_route", self.admin.topic_route(topic), QUESTION_S)

    @rule(key=st.sampled_from(["k", "other"]))
    def query_by_key(self, key: str) -> None:
        self.call("query_by_key", self._query(key), QUESTION_S + self.brokers * LONG_S)

    async def _query(self, key: str) -> None:
        for message in await self.admin.query_by_key("T", key):
            if key not in message.keys:
                self.failures.append(f"{message} does not have the key {key}")

    @rule(at=st.integers(0, 3))
    def put_with_key(self, at: int) -> None:
        self.cluster.put(self.queue(at), b"x", "KEYS\x01k\x02")

    @rule()
    def close(self) -> None:
        self.call("close", self.admin.close())
        self.disturb_calls()
        self.is_closed = True

    is_closed = False

    def call(self, name: str, work: Any, within_s: float = float("inf")) -> Call:
        call = super().call(name, work, within_s)
        call.is_disturbed |= self.is_closed
        return call

    def check_calls(self) -> None:
        for call in self.calls:
            if call.task.done() and not call.task.cancelled() and (failure := call.task.exception()) is not None:
                assert call.is_disturbed or "Missing" in str(failure), f"{call} failed without a cause: {failure!r}"
        super().check_calls()

    def check_healed(self) -> None:
        """A client that was made before the faults gives the answers of one that is new."""
        self.pass_time(max(0.0, self.faulty_until_s - self.loop.time()))
        if self.is_closed:
            self.ends(self.admin.close())
            self.admin, self.is_closed = AdminClient(self.cluster.address, clock=self.cluster.clock), False
        for at in range(4):
            assert self.ends(self.admin.max_offset(self.queue(at))) == self.cluster.length(self.queue(at))
        with_key = sum(b"KEYS\x01k" in one for broker in self.cluster.brokers.values()
                       for queue in broker.records.values() for one in queue)  # fmt: skip
        found = self.ends(self.admin.query_by_key("T", "k", max_num=1_000))
        assert bool(found) == bool(with_key)  # both brokers give the same ids to their first messages
        assert len(found) <= with_key
        assert self.ends(self.admin.masters()) == {
            name: broker.peer.address for name, broker in self.cluster.brokers.items()
        }


def test_admin_clients() -> None:
    """What an admin client says is so, calls end in time, and close leaves nothing."""
    run_machine(AdminMachine, examples(60))
