"""The state machines find bugs that are planted into consumers; see ``test_planted_bugs.py``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from flintmq.remoting.client import consume_service, rebalancer
from flintmq.remoting.client.consume_service import ConsumeService
from flintmq.remoting.client.iteration import Iteration, LoopMessages
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.client.rebalancer import Rebalancer
from flintmq.tests.remoting.client import test_consumer_machine as consumers
from flintmq.tests.support.consumer_machine import ConsumerMachine
from flintmq.tests.support.planted_bugs import Bug, bug, find

BUGS: list[Bug] = []


# --- consumers ---


def begin_and_never_look(patch: pytest.MonkeyPatch) -> None:
    """Have a rebalancer not notice that the task of a queue has ended."""

    def begin(self: Any, held: Any) -> None:
        self.process_queues[held.queue] = held
        held.task = self._member.client.start_task(self._pull(held), "pull")

    patch.setattr(Rebalancer, "_begin", begin)


@bug(BUGS, consumers.QuietMachine)
def queues_are_held_that_nobody_pulls(patch: pytest.MonkeyPatch) -> None:
    """``unsubscribe`` and ``subscribe`` within moments, during a rebalance."""
    begin_and_never_look(patch)
    patch.setattr(Rebalancer, "_may_begin", lambda self, queue: queue not in self.process_queues)


@bug(BUGS, consumers.QuietOrderlyMachine)
def the_task_of_a_queue_is_dead_and_nobody_looks(patch: pytest.MonkeyPatch) -> None:
    """``CancelledError`` of a listener."""
    begin_and_never_look(patch)
    patch.setattr(consume_service, "is_of_task", lambda failure: isinstance(failure, asyncio.CancelledError))


@bug(BUGS, ConsumerMachine)
def system_exit_of_a_listener_ends_the_loop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consume_service, "is_of_task", lambda failure: not isinstance(failure, Exception))


@bug(BUGS, consumers.QuietThreadsMachine)
def stop_iteration_of_a_plain_listener_never_comes_back(patch: pytest.MonkeyPatch) -> None:
    def called(function: Any, argument: Any) -> Any:
        try:
            return function(argument)
        except StopIteration:
            raise
        except BaseException as failure:
            return consume_service.Raised(failure)

    patch.setattr(consume_service, "called", called)


@bug(BUGS, consumers.QuietOrderlyMachine)
def a_suspended_orderly_consumer_does_not_close(patch: pytest.MonkeyPatch) -> None:
    original = Rebalancer._released

    async def released(self: Any, held: Any, save: bool) -> None:
        if held.task is not None:
            await asyncio.wait([held.task])
        await original(self, held, save)

    patch.setattr(Rebalancer, "_released", released)


@bug(BUGS, consumers.QuietOrderlyMachine)
def a_listener_that_unsubscribes_waits_for_itself(patch: pytest.MonkeyPatch) -> None:
    async def drop_topic(self: Any, topic: str) -> None:
        for held in [held for queue, held in self.process_queues.items() if queue.topic == topic]:
            await self._release(held)

    patch.setattr(rebalancer, "ORDERLY_END_S", 1e9)
    patch.setattr(Rebalancer, "drop_topic", drop_topic)


@bug(BUGS, consumers.QuietIterationMachine)
def two_loops_share_the_message_that_one_has(patch: pytest.MonkeyPatch) -> None:
    """One that asks for its next message makes the other's count as consumed; where that one ends, it is lost."""
    original = Iteration.next_of

    async def next_of(self: Any, loop: Any) -> Any:
        if loop.handed is None and self._taken:
            loop.handed = next(iter(self._taken))
        return await original(self, loop)

    patch.setattr(Iteration, "next_of", next_of)


@bug(BUGS, consumers.QuietIterationMachine)
def the_message_of_a_loop_that_ended_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoopMessages, "__del__", lambda self: None)


@bug(BUGS, consumers.QuietIterationMachine)
def loops_do_not_end_with_their_consumer(patch: pytest.MonkeyPatch) -> None:
    original = Iteration.end

    def end(self: Any) -> None:
        original(self)
        self._has_ended = False

    patch.setattr(Iteration, "end", end)


@bug(BUGS, consumers.QuietMachine)
def messages_that_are_pulled_are_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProcessQueue, "commit_offset", property(lambda self: self.pull_queue_offset))


@bug(BUGS, consumers.QuietMachine)
def nothing_is_committed(patch: pytest.MonkeyPatch) -> None:
    async def commit_offsets(store: Any, held_queues: Any) -> None:
        pass

    patch.setattr(rebalancer, "commit_offsets", commit_offsets)


@bug(BUGS, consumers.QuietOrderlyMachine)
def an_orderly_message_that_failed_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    original = ConsumeService._tried

    async def tried(self: Any, held: Any, messages: Any) -> int:
        await original(self, held, messages)
        return len(messages)

    patch.setattr(ConsumeService, "_tried", tried)


@bug(BUGS, consumers.QuietMachine)
def members_are_not_noticed_that_leave(patch: pytest.MonkeyPatch) -> None:
    original = Rebalancer._assigned

    async def assigned(self: Any, topic: str) -> Any:
        found = await original(self, topic)
        return found if topic not in {queue.topic for queue in self.process_queues} else list(self.process_queues)

    patch.setattr(Rebalancer, "_assigned", assigned)


OLD_FUTURES = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="since Python 3.12 a future takes StopIteration, as a RuntimeError: it is no bug there",
)
MARKS = {"stop_iteration_of_a_plain_listener_never_comes_back": OLD_FUTURES}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", [pytest.param(one, id=one.name, marks=MARKS.get(one.name, ())) for one in BUGS])
def test_the_state_machine_tests_fail_for_each_bug_deliberately_added_to_the_consumer(
    planted: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine could pass by checking nothing; without the bug it passes in its own tests."""
    find(planted, monkeypatch)
