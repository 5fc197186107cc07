"""Any call of an admin client while any other is under way: what it says of brokers is so, and calls end in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.admin import AdminClient
from flintmq.tests.support.client_machine import Call, ClientMachine, run_machine
from flintmq.tests.support.effort import examples

QUESTION_S = 3.0
"""How long one request may take."""
LONG_S = 10.0
"""How long one request about a topic may take."""
NEW = ("New", "Other")
"""Topics that come and go."""
GROUPS = ("group", "another")


class AdminMachine(ClientMachine):
    """One admin client, two brokers, one topic."""

    async def start_client(self) -> None:
        self.changing: Counter[str] = Counter()
        """Calls under way that change a topic or a group, by its name."""
        self.changed: Counter[str] = Counter()
        """Calls that have begun to change it, since the beginning."""
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

    # --- calls that change something ---

    async def _alone(self, name: str, work: Coroutine[Any, Any, Any]) -> bool:
        """Do work that changes something of a name; return whether nothing else changed it meanwhile."""
        self.changing[name] += 1
        self.changed[name] += 1
        begun = self.changed[name]
        was_alone = self.changing[name] == 1
        try:
            await work
            return was_alone and self.changed[name] == begun
        finally:
            self.changing[name] -= 1

    @rule(topic=st.sampled_from(NEW), queues=st.integers(1, 8), at=st.integers(-2, 1))
    def create_topic(self, topic: str, queues: int, at: int) -> None:
        self.call("create_topic", self._create_topic(topic, queues, at), QUESTION_S + self.brokers * LONG_S)

    async def _create_topic(self, topic: str, queues: int, at: int) -> None:
        brokers = list(self.cluster.brokers.values())
        address = brokers[at].peer.address if at >= 0 else None
        if not await self._alone(topic, self.admin.create_topic(topic, queues=queues, address=address)):
            return
        made = [broker for broker in brokers if broker.created.get(topic) == queues]
        wanted = [brokers[at]] if at >= 0 else brokers
        if not made or not (self.is_disturbed or set(wanted) <= set(made)):
            self.failures.append(f"{topic} was created, and is at {[broker.name for broker in made]}")

    @rule(topic=st.sampled_from(NEW))
    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", self._delete_topic(topic), QUESTION_S + (self.brokers + 1) * LONG_S)

    async def _delete_topic(self, topic: str) -> None:
        if not await self._alone(topic, self.admin.delete_topic(topic)):
            return
        if topic in self.cluster.topics:
            self.failures.append(f"{topic} was deleted, and is known to the name server")
        left = [broker.name for broker in self.cluster.brokers.values() if topic in broker.created]
        if left and not self.is_disturbed:
            self.failures.append(f"{topic} was deleted, and is at {left}")

    @rule(group=st.sampled_from(GROUPS))
    def create_group(self, group: str) -> None:
        self.call("create_group", self._create_group(group), QUESTION_S + self.brokers * LONG_S)

    async def _create_group(self, group: str) -> None:
        if await self._alone(group, self.admin.create_group(SubscriptionGroupConfig(group_name=group))):
            there = [broker for broker in self.cluster.brokers.values() if group in broker.created_groups]
            if not there or not (self.is_disturbed or len(there) == self.brokers):
                self.failures.append(f"{group} was created, and is at {[broker.name for broker in there]}")

    @rule(group=st.sampled_from(GROUPS), remove_offset=st.booleans())
    def delete_group(self, group: str, remove_offset: bool) -> None:
        topic_s = QUESTION_S + (self.brokers + 1) * LONG_S
        within_s = QUESTION_S + self.brokers * LONG_S + 2 * topic_s
        self.call("delete_group", self._delete_group(group, remove_offset), within_s)

    async def _delete_group(self, group: str, remove_offset: bool) -> None:
        if not await self._alone(group, self.admin.delete_group(group, remove_offset=remove_offset)):
            return
        if self.is_disturbed:
            return
        left = [broker.name for broker in self.cluster.brokers.values() if group in broker.created_groups]
        offsets = [queue for queue in self.cluster.queues("T") if self.cluster.committed(group, queue) is not None]
        if left or (offsets and remove_offset):
            self.failures.append(f"{group} was deleted, and is at {left}, with offsets of {offsets}")

    @rule(group=st.sampled_from(GROUPS), timestamp_ms=st.sampled_from([-1, 5]))
    def reset_offset(self, group: str, timestamp_ms: int) -> None:
        within_s = QUESTION_S + self.brokers * LONG_S
        self.call("reset_offset", self._reset_offset(group, timestamp_ms), within_s)

    async def _reset_offset(self, group: str, timestamp_ms: int) -> None:
        told: dict[MessageQueue, int] = {}

        async def reset() -> None:
            told.update(await self.admin.reset_offset("T", group, timestamp_ms))

        if not await self._alone(group, reset()):
            return
        if not self.is_disturbed and set(told) != set(self.cluster.queues("T")):
            self.failures.append(f"the offsets of {group} were reset in {list(told)} only")
        for queue, queue_offset in told.items():
            if self.cluster.committed(group, queue) != queue_offset:
                self.failures.append(f"{group} is at {self.cluster.committed(group, queue)}, not {queue_offset}")

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
        self.ends(self._create_topic("New", 3, -2))
        self.ends(self._create_group("group"))
        assert all(broker.created.get("New") == 3 for broker in self.cluster.brokers.values())
        self.ends(self._reset_offset("group", -1))
        self.ends(self._delete_group("group", True))
        self.ends(self._delete_topic("New"))
        assert not any({"New"} & broker.created.keys() or broker.offsets.get(("group", "T", 0))
                       for broker in self.cluster.brokers.values())  # fmt: skip
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


def test_an_admin_client_returns_correct_answers_in_time_during_random_calls_and_server_faults() -> None:
    """Answers must be true, calls must end in time, and close must leave no resources."""
    run_machine(AdminMachine, examples(60))
