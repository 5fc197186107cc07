"""The state machines find bugs: each of these is planted into the client, and a machine fails because of it.

Among them is every fault of this kind that the client once had. The examples are the same in each run of the tests.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.core.errors import FlintError, RemotingError
from flintmq.remoting.client import producer, pull_consumer, transaction_producer
from flintmq.remoting.client.connection import ClientConnection
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.produce_accumulator import ProduceAccumulator
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.request_reply import Requests
from flintmq.remoting.client.sending import Sender
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.remoting.client.transport import RemotingClient
from flintmq.tests.remoting.client import test_producer_machine as producers
from flintmq.tests.remoting.client.test_pull_consumer_machine import PullConsumerMachine
from flintmq.tests.remoting.client.test_transaction_machine import TransactionMachine
from flintmq.tests.support.planted_bugs import Bug, bug, find

BUGS: list[Bug] = []


# --- producers ---


@bug(BUGS, producers.LingeringMachine)
def close_spins_over_tasks_that_have_ended(patch: pytest.MonkeyPatch) -> None:
    """Since Python 3.12 ``gather`` of finished tasks does not let the loop run."""

    async def close(self: Any) -> None:
        self.is_closed = True
        while len(self):
            for lane in list(self._lanes.values()):
                self._leave(lane)
            if not all(task.done() for task in self._tasks):
                await asyncio.gather(*self._tasks, return_exceptions=True)

    patch.setattr(ProduceAccumulator, "close", close)


@bug(BUGS, producers.LingeringMachine)
def messages_that_come_while_a_batch_is_sent_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def send_all(self: Any, lane: Any) -> None:
        lane.leaving, lane.entries, lane.size_bytes = lane.entries, [], 0
        for prepared, entries in self._parts(lane.leaving):
            await self._send(prepared, entries, lane.key[2])
        self._forget(lane)

    patch.setattr(ProduceAccumulator, "_send_all", send_all)


@bug(BUGS, producers.LingeringMachine)
def results_of_a_batch_are_in_another_order(patch: pytest.MonkeyPatch) -> None:
    from flintmq.remoting.client import produce_accumulator

    original = produce_accumulator.send_results
    patch.setattr(produce_accumulator, "send_results", lambda *args: original(*args)[::-1])


@bug(BUGS, producers.LingeringMachine)
def one_illegal_message_fails_its_whole_batch(patch: pytest.MonkeyPatch) -> None:
    async def send(self: Any, prepared: Any, entries: Any, queue: Any) -> None:
        try:
            stored = await self._sender.stored(prepared, queue, entries[0].timeout_ms)
            results = produce_accumulator.send_results(prepared.msg_id.split(","), *stored)
        except FlintError as failure:
            for entry in entries:
                entry.fail(failure)
        else:
            for entry, result in zip(entries, results, strict=True):
                if not entry.stored.done():
                    entry.stored.set_result(result)

    from flintmq.remoting.client import produce_accumulator

    patch.setattr(ProduceAccumulator, "_send", send)


@bug(BUGS, producers.LingeringMachine)
def a_message_whose_caller_was_cancelled_fails_the_batch(patch: pytest.MonkeyPatch) -> None:
    async def send(self: Any, prepared: Any, entries: Any, queue: Any) -> None:
        results = produce_accumulator.send_results(
            prepared.msg_id.split(","), *await self._sender.stored(prepared, queue, entries[0].timeout_ms)
        )
        for entry, result in zip(entries, results, strict=True):
            entry.stored.set_result(result)

    from flintmq.remoting.client import produce_accumulator

    patch.setattr(ProduceAccumulator, "_send", send)


@bug(BUGS, producers.ProducerMachine)
def what_is_stored_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sender, "_tries_elsewhere", lambda self, stored, route: True)


@bug(BUGS, producers.ProducerMachine)
def a_named_queue_is_replaced_when_its_broker_fails(patch: pytest.MonkeyPatch) -> None:
    original = Sender.stored

    async def stored(self: Any, prepared: Any, queue: Any, timeout_ms: int, *key: Any) -> Any:
        try:
            return await original(self, prepared, queue, timeout_ms // 2, *key)
        except RemotingError:
            return await original(self, prepared, None, timeout_ms // 2)

    patch.setattr(Sender, "stored", stored)


@bug(BUGS, producers.ProducerMachine)
def a_cancelled_request_stays_in_flight(patch: pytest.MonkeyPatch) -> None:
    original = RemotingClient.invoke

    async def invoke(self: Any, *args: Any) -> Any:
        try:
            return await original(self, *args)
        except asyncio.CancelledError:
            self._in_flight += 1
            raise

    patch.setattr(RemotingClient, "invoke", invoke)


@bug(BUGS, producers.ProducerMachine)
def a_short_timeout_waits_for_a_longer_one(patch: pytest.MonkeyPatch) -> None:
    original = ClientConnection._expire_at

    def expire_at(self: Any, deadline_s: float) -> None:
        if self._expiry is None:
            original(self, deadline_s)

    patch.setattr(ClientConnection, "_expire_at", expire_at)


@bug(BUGS, producers.ProducerMachine)
def a_lost_connection_tells_nobody(patch: pytest.MonkeyPatch) -> None:
    original = ClientConnection.connection_lost

    def lost(self: Any, exc: Exception | None) -> None:
        self.waiting.clear()
        original(self, exc)

    patch.setattr(ClientConnection, "connection_lost", lost)


@bug(BUGS, producers.ProducerMachine)
def a_request_waits_for_its_reply_without_end(patch: pytest.MonkeyPatch) -> None:
    endless = SimpleNamespace(**{**vars(asyncio), "timeout": lambda _seconds: asyncio.timeout(None)})
    patch.setattr(producer, "asyncio", endless)


@bug(BUGS, producers.ProducerMachine)
def requests_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Requests, "forget", lambda self, message: None)


@bug(BUGS, producers.ProducerMachine)
def heartbeats_go_on_after_close(patch: pytest.MonkeyPatch) -> None:
    async def close(self: Any) -> None:
        await self.remoting.close()

    patch.setattr(ClientInstance, "close", close)


# --- transactions ---


@bug(BUGS, TransactionMachine)
def a_check_that_raises_rolls_back(patch: pytest.MonkeyPatch) -> None:
    original = transaction_producer.outcome_of

    async def outcome_of(function: Any, *args: Any) -> Any:
        try:
            return await original(function, *args)
        except Exception:
            return TransactionState.ROLLBACK

    patch.setattr(transaction_producer, "outcome_of", outcome_of)


@bug(BUGS, TransactionMachine)
def a_half_message_is_committed_before_its_local_part(patch: pytest.MonkeyPatch) -> None:
    original = TransactionProducer.send_half

    async def send_half(self: Any, *args: Any, **options: Any) -> Any:
        sent = await original(self, *args, **options)
        await self.end(sent, TransactionState.COMMIT)
        return sent

    patch.setattr(TransactionProducer, "send_half", send_half)


@bug(BUGS, TransactionMachine)
def brokers_cannot_ask_the_group(patch: pytest.MonkeyPatch) -> None:
    original = TransactionProducer.start

    async def start(self: Any) -> None:
        await original(self)
        self.client.transaction_checks.clear()

    patch.setattr(TransactionProducer, "start", start)


# --- pull consumers ---


@bug(BUGS, PullConsumerMachine)
def seek_leaves_the_pull_that_is_under_way(patch: pytest.MonkeyPatch) -> None:
    """The position says where it was moved to, then goes back to where the pull ended."""

    def seek(self: Any, queue_offset: int) -> None:
        self._messages.clear()
        self._pull_queue_offset = queue_offset

    patch.setattr(pull_consumer._AssignedQueue, "seek", seek)


@bug(BUGS, PullConsumerMachine)
def assign_leaves_a_pull_that_nobody_owns(patch: pytest.MonkeyPatch) -> None:
    def stop(self: Any) -> None:
        self._pull = None

    patch.setattr(pull_consumer._AssignedQueue, "stop", stop)


@bug(BUGS, PullConsumerMachine)
def a_poll_does_not_look_whether_the_consumer_was_closed(patch: pytest.MonkeyPatch) -> None:
    """``Set of Tasks/Futures is empty``."""

    async def poll(self: Any, timeout_ms: int = 5_000, *, max_messages: int = 32) -> Any:
        self._check_open()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        while True:
            messages, failure = self._take(max_messages)
            left_s = deadline_s - loop.time()
            if messages or left_s <= 0:
                return messages
            if failure is not None:
                raise failure
            pulls = [one.pulling() for one in self._assigned.values()]
            await asyncio.wait(pulls, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    patch.setattr(PullConsumer, "poll", poll)


@bug(BUGS, PullConsumerMachine)
def a_poll_drops_what_is_more_than_it_may_return(patch: pytest.MonkeyPatch) -> None:
    def take(self: Any, max_messages: int) -> Any:
        taken = list(self._messages)[:max_messages]
        self._messages.clear()
        return taken

    patch.setattr(pull_consumer._AssignedQueue, "take", take)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", [pytest.param(one, id=one.name) for one in BUGS])
def test_the_state_machine_tests_fail_for_each_bug_deliberately_added_to_the_client(
    planted: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine could pass by checking nothing; without the bug it passes in its own tests."""
    find(planted, monkeypatch)
