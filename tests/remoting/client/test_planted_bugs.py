"""The state machines find bugs: each of these is planted into the client, and a machine fails because of it.

Among them is every fault of this kind that the client once had. The examples are the same in each run of the tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase

from flintmq.core.errors import FlintError, RemotingError
from flintmq.remoting.client import consume_service, consumer, producer, pull_consumer, rebalancer, transaction_producer
from flintmq.remoting.client import offset_store as offset_stores
from flintmq.remoting.client.connection import ClientConnection
from flintmq.remoting.client.consume_service import ConsumeService
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.iteration import Iteration, LoopMessages
from flintmq.remoting.client.linger import Gatherer
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.rebalancer import Rebalancer
from flintmq.remoting.client.request_reply import Requests
from flintmq.remoting.client.sending import Sender
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.remoting.client.transport import RemotingClient
from flintmq.tests.remoting.client import test_consumer_machine as consumers
from flintmq.tests.remoting.client import test_producer_machine as producers
from flintmq.tests.remoting.client.test_pull_consumer_machine import PullConsumerMachine
from flintmq.tests.remoting.client.test_transaction_machine import TransactionMachine
from flintmq.tests.support.client_machine import ClientMachine, run_machine

EXAMPLES = 300
"""How many runs a machine has to find a bug."""
Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Bug:
    """A bug, and the machine that finds it."""

    name: str
    machine: type[ClientMachine]
    plant: Plant


BUGS: list[Bug] = []


def bug(machine: type[ClientMachine]) -> Callable[[Plant], Plant]:
    """Enter a function, which plants the bug of its name, into :data:`BUGS`."""

    def enter(plant: Plant) -> Plant:
        BUGS.append(Bug(plant.__name__, machine, plant))
        return plant

    return enter


# --- producers ---


@bug(producers.LingeringMachine)
def close_spins_over_tasks_that_have_ended(patch: pytest.MonkeyPatch) -> None:
    """Since Python 3.12 ``gather`` of finished tasks does not let the loop run."""

    async def close(self: Any) -> None:
        self.is_closed = True
        while len(self):
            for lane in list(self._lanes.values()):
                self._leave(lane)
            if not all(task.done() for task in self._tasks):
                await asyncio.gather(*self._tasks, return_exceptions=True)

    patch.setattr(Gatherer, "close", close)


@bug(producers.LingeringMachine)
def messages_that_come_while_a_batch_is_sent_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def send_all(self: Any, lane: Any) -> None:
        lane.leaving, lane.entries, lane.size_bytes = lane.entries, [], 0
        for prepared, entries in self._parts(lane.leaving):
            await self._send(prepared, entries, lane.key[2])
        self._forget(lane)

    patch.setattr(Gatherer, "_send_all", send_all)


@bug(producers.LingeringMachine)
def results_of_a_batch_are_in_another_order(patch: pytest.MonkeyPatch) -> None:
    from flintmq.remoting.client import linger

    original = linger.send_results
    patch.setattr(linger, "send_results", lambda *args: original(*args)[::-1])


@bug(producers.LingeringMachine)
def one_illegal_message_fails_its_whole_batch(patch: pytest.MonkeyPatch) -> None:
    async def send(self: Any, prepared: Any, entries: Any, queue: Any) -> None:
        try:
            stored = await self._sender.stored(prepared, queue, entries[0].timeout_ms)
            results = linger.send_results(prepared.msg_id.split(","), *stored)
        except FlintError as failure:
            for entry in entries:
                entry.fail(failure)
        else:
            for entry, result in zip(entries, results, strict=True):
                if not entry.stored.done():
                    entry.stored.set_result(result)

    from flintmq.remoting.client import linger

    patch.setattr(Gatherer, "_send", send)


@bug(producers.LingeringMachine)
def a_message_whose_caller_was_cancelled_fails_the_batch(patch: pytest.MonkeyPatch) -> None:
    async def send(self: Any, prepared: Any, entries: Any, queue: Any) -> None:
        results = linger.send_results(
            prepared.msg_id.split(","), *await self._sender.stored(prepared, queue, entries[0].timeout_ms)
        )
        for entry, result in zip(entries, results, strict=True):
            entry.stored.set_result(result)

    from flintmq.remoting.client import linger

    patch.setattr(Gatherer, "_send", send)


@bug(producers.ProducerMachine)
def what_is_stored_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sender, "_tries_elsewhere", lambda self, stored, route: True)


@bug(producers.ProducerMachine)
def a_named_queue_is_replaced_when_its_broker_fails(patch: pytest.MonkeyPatch) -> None:
    original = Sender.stored

    async def stored(self: Any, prepared: Any, queue: Any, timeout_ms: int) -> Any:
        try:
            return await original(self, prepared, queue, timeout_ms // 2)
        except RemotingError:
            return await original(self, prepared, None, timeout_ms // 2)

    patch.setattr(Sender, "stored", stored)


@bug(producers.ProducerMachine)
def a_cancelled_request_stays_in_flight(patch: pytest.MonkeyPatch) -> None:
    original = RemotingClient.invoke

    async def invoke(self: Any, *args: Any) -> Any:
        try:
            return await original(self, *args)
        except asyncio.CancelledError:
            self._in_flight += 1
            raise

    patch.setattr(RemotingClient, "invoke", invoke)


@bug(producers.ProducerMachine)
def a_connection_that_failed_is_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    def done(self: Any, address: str, task: Any) -> None:
        if not task.cancelled() and task.exception() is None:
            self._connecting.pop(address, None)

    patch.setattr(RemotingClient, "_connect_done", done)


@bug(producers.ProducerMachine)
def a_short_timeout_waits_for_a_longer_one(patch: pytest.MonkeyPatch) -> None:
    original = ClientConnection._expire_at

    def expire_at(self: Any, deadline_s: float) -> None:
        if self._expiry is None:
            original(self, deadline_s)

    patch.setattr(ClientConnection, "_expire_at", expire_at)


@bug(producers.ProducerMachine)
def a_lost_connection_tells_nobody(patch: pytest.MonkeyPatch) -> None:
    original = ClientConnection.connection_lost

    def lost(self: Any, exc: Exception | None) -> None:
        self.waiting.clear()
        original(self, exc)

    patch.setattr(ClientConnection, "connection_lost", lost)


@bug(producers.ProducerMachine)
def a_request_waits_for_its_reply_without_end(patch: pytest.MonkeyPatch) -> None:
    endless = SimpleNamespace(**{**vars(asyncio), "timeout": lambda _seconds: asyncio.timeout(None)})
    patch.setattr(producer, "asyncio", endless)


@bug(producers.ProducerMachine)
def requests_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Requests, "forget", lambda self, message: None)


@bug(producers.ProducerMachine)
def heartbeats_go_on_after_close(patch: pytest.MonkeyPatch) -> None:
    async def close(self: Any) -> None:
        await self.remoting.close()

    patch.setattr(ClientInstance, "close", close)


# --- transactions ---


@bug(TransactionMachine)
def what_a_check_raises_ends_the_loop(patch: pytest.MonkeyPatch) -> None:
    """``SystemExit`` and ``KeyboardInterrupt`` of a check."""

    async def outcome_of(function: Any, *args: Any) -> Any:
        return await function(*args)

    patch.setattr(transaction_producer, "outcome_of", outcome_of)


@bug(TransactionMachine)
def a_check_that_raises_rolls_back(patch: pytest.MonkeyPatch) -> None:
    original = transaction_producer.outcome_of

    async def outcome_of(function: Any, *args: Any) -> Any:
        try:
            return await original(function, *args)
        except Exception:
            return TransactionState.ROLLBACK

    patch.setattr(transaction_producer, "outcome_of", outcome_of)


@bug(TransactionMachine)
def a_half_message_is_committed_before_its_local_part(patch: pytest.MonkeyPatch) -> None:
    original = TransactionProducer.send_half

    async def send_half(self: Any, *args: Any, **options: Any) -> Any:
        sent = await original(self, *args, **options)
        await self.end(sent, TransactionState.COMMIT)
        return sent

    patch.setattr(TransactionProducer, "send_half", send_half)


@bug(TransactionMachine)
def brokers_cannot_ask_the_group(patch: pytest.MonkeyPatch) -> None:
    original = TransactionProducer.start

    async def start(self: Any) -> None:
        await original(self)
        self.client.transaction_checks.clear()

    patch.setattr(TransactionProducer, "start", start)


# --- pull consumers ---


@bug(PullConsumerMachine)
def seek_leaves_the_pull_that_is_under_way(patch: pytest.MonkeyPatch) -> None:
    """The position says where it was moved to, then goes back to where the pull ended."""

    def seek(self: Any, queue_offset: int) -> None:
        self._messages.clear()
        self._pull_queue_offset = queue_offset

    patch.setattr(pull_consumer._AssignedQueue, "seek", seek)


@bug(PullConsumerMachine)
def assign_leaves_a_pull_that_nobody_owns(patch: pytest.MonkeyPatch) -> None:
    def stop(self: Any) -> None:
        self._pull = None

    patch.setattr(pull_consumer._AssignedQueue, "stop", stop)


@bug(PullConsumerMachine)
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


@bug(PullConsumerMachine)
def a_poll_drops_what_is_more_than_it_may_return(patch: pytest.MonkeyPatch) -> None:
    def take(self: Any, max_messages: int) -> Any:
        taken = list(self._messages)[:max_messages]
        self._messages.clear()
        return taken

    patch.setattr(pull_consumer._AssignedQueue, "take", take)


# --- consumers ---


def begin_and_never_look(patch: pytest.MonkeyPatch) -> None:
    """Have a rebalancer not notice that the task of a queue has ended."""

    def begin(self: Any, held: Any) -> None:
        self.process_queues[held.queue] = held
        held.task = self._member.client.start_task(self._pull(held), "pull")

    patch.setattr(Rebalancer, "_begin", begin)


@bug(consumers.ConsumerMachine)
def queues_are_held_that_nobody_pulls(patch: pytest.MonkeyPatch) -> None:
    """``unsubscribe`` and ``subscribe`` within moments, during a rebalance."""
    begin_and_never_look(patch)
    patch.setattr(Rebalancer, "_may_begin", lambda self, queue: queue not in self.process_queues)


@bug(consumers.OrderlyMachine)
def the_task_of_a_queue_is_dead_and_nobody_looks(patch: pytest.MonkeyPatch) -> None:
    """``CancelledError`` of a listener."""
    begin_and_never_look(patch)
    patch.setattr(consume_service, "is_of_task", lambda failure: isinstance(failure, asyncio.CancelledError))


@bug(consumers.ConsumerMachine)
def cancelled_error_of_a_listener_kills_its_worker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consume_service, "is_of_task", lambda failure: isinstance(failure, asyncio.CancelledError))


@bug(consumers.ConsumerMachine)
def system_exit_of_a_listener_ends_the_loop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consume_service, "is_of_task", lambda failure: not isinstance(failure, Exception))


@bug(consumers.ThreadsMachine)
def stop_iteration_of_a_plain_listener_never_comes_back(patch: pytest.MonkeyPatch) -> None:
    def called(function: Any, argument: Any) -> Any:
        try:
            return function(argument)
        except StopIteration:
            raise
        except BaseException as failure:
            return consume_service.Raised(failure)

    patch.setattr(consume_service, "called", called)


@bug(consumers.OrderlyMachine)
def a_suspended_orderly_consumer_does_not_close(patch: pytest.MonkeyPatch) -> None:
    original = Rebalancer._released

    async def released(self: Any, held: Any, save: bool) -> None:
        if held.task is not None:
            await asyncio.wait([held.task])
        await original(self, held, save)

    patch.setattr(Rebalancer, "_released", released)


@bug(consumers.OrderlyMachine)
def a_listener_that_unsubscribes_waits_for_itself(patch: pytest.MonkeyPatch) -> None:
    async def drop_topic(self: Any, topic: str) -> None:
        for held in [held for queue, held in self.process_queues.items() if queue.topic == topic]:
            await self._release(held)

    patch.setattr(rebalancer, "ORDERLY_END_S", 1e9)
    patch.setattr(Rebalancer, "drop_topic", drop_topic)


@bug(consumers.IterationMachine)
def two_loops_share_the_message_that_one_has(patch: pytest.MonkeyPatch) -> None:
    """One that asks for its next message makes the other's count as consumed; where that one ends, it is lost."""
    original = Iteration.next_of

    async def next_of(self: Any, loop: Any) -> Any:
        if loop.handed is None and self._taken:
            loop.handed = next(iter(self._taken))
        return await original(self, loop)

    patch.setattr(Iteration, "next_of", next_of)


@bug(consumers.IterationMachine)
def the_message_of_a_loop_that_ended_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoopMessages, "__del__", lambda self: None)


@bug(consumers.IterationMachine)
def loops_do_not_end_with_their_consumer(patch: pytest.MonkeyPatch) -> None:
    original = Iteration.end

    def end(self: Any) -> None:
        original(self)
        self._has_ended = False

    patch.setattr(Iteration, "end", end)


@bug(consumers.ConsumerMachine)
def messages_that_are_pulled_are_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProcessQueue, "commit_offset", property(lambda self: self.pull_queue_offset))


@bug(consumers.ConsumerMachine)
def nothing_is_committed(patch: pytest.MonkeyPatch) -> None:
    async def commit_offsets(store: Any, held_queues: Any) -> None:
        pass

    patch.setattr(consumer, "commit_offsets", commit_offsets)
    patch.setattr(rebalancer, "commit_offsets", commit_offsets)


@bug(consumers.BroadcastingMachine)
def offsets_of_broadcasting_are_not_found_again(patch: pytest.MonkeyPatch) -> None:
    async def load(self: Any, queue: Any) -> None:
        return None

    patch.setattr(offset_stores.FileOffsetStore, "load", load)


@bug(consumers.ConsumerMachine)
def a_message_that_is_not_sent_back_is_lost(patch: pytest.MonkeyPatch) -> None:
    async def try_later(self: Any, held: Any, messages: Any) -> None:
        held.done(messages)

    patch.setattr(ConsumeService, "_try_later", try_later)


@bug(consumers.BatchMachine)
def the_rest_of_a_list_counts_as_consumed(patch: pytest.MonkeyPatch) -> None:
    original = ConsumeService._consumed

    async def consumed(self: Any, messages: Any) -> int:
        return len(messages) if await original(self, messages) else 0

    patch.setattr(ConsumeService, "_consumed", consumed)


@bug(consumers.OrderlyMachine)
def an_orderly_message_that_failed_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    original = ConsumeService._tried

    async def tried(self: Any, held: Any, messages: Any) -> int:
        await original(self, held, messages)
        return len(messages)

    patch.setattr(ConsumeService, "_tried", tried)


@bug(consumers.ConsumerMachine)
def members_are_not_noticed_that_leave(patch: pytest.MonkeyPatch) -> None:
    original = Rebalancer._assigned

    async def assigned(self: Any, topic: str) -> Any:
        found = await original(self, topic)
        return found if topic not in {queue.topic for queue in self.process_queues} else list(self.process_queues)

    patch.setattr(Rebalancer, "_assigned", assigned)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [pytest.param(one, id=one.name) for one in BUGS])
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine passes without the bug, in its own tests."""
    planted.plant(monkeypatch)
    with pytest.raises((AssertionError, SystemExit, KeyboardInterrupt, ValueError, RuntimeError)) as found:
        run_machine(
            planted.machine,
            EXAMPLES,
            phases=[Phase.generate],
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
    print(planted.name, repr(found.value)[:300])
