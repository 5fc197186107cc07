"""More bugs that the client once had, see ``test_planted_bugs.py``: a machine, or a test, finds each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flintmq.core.record.record import RecordError
from flintmq.remoting.client import pull_consumer
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.broker_patience import BrokerPatience
from flintmq.remoting.client.consume_service import ConsumeService
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.instance import ClientInstance, InstanceUser
from flintmq.remoting.client.offset_store import FileOffsetStore
from flintmq.remoting.client.produce_accumulator import ProduceAccumulator
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.request_reply import Requests
from flintmq.remoting.client.route import RouteCache
from flintmq.remoting.client.troubles import Troubles
from flintmq.remoting.client.unreadable import UnreadableMessages
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.remoting.client import test_consumer_machine as consumers
from flintmq.tests.remoting.client import test_instance as instances
from flintmq.tests.remoting.client import test_producer_machine as producers
from flintmq.tests.remoting.client import test_promises as promises
from flintmq.tests.remoting.client import test_timeouts as timeouts
from flintmq.tests.remoting.client import test_troubles as troubles
from flintmq.tests.remoting.client import test_unreadable as unreadable
from flintmq.tests.remoting.client.test_admin_machine import AdminMachine
from flintmq.tests.remoting.client.test_pull_consumer_machine import PullConsumerMachine
from flintmq.tests.support.fake_broker import FakeBroker, FakePeer
from flintmq.tests.support.planted_bugs import Bug, bug, find

BUGS: list[Bug] = []


# --- messages that cannot be read ---


@bug(BUGS, PullConsumerMachine)
def an_answer_is_decoded_whole_or_not_at_all(patch: pytest.MonkeyPatch) -> None:
    """One damaged record stops its queue for good."""

    async def apart(self: Any, *args: Any) -> Any:
        raise RecordError("one of them is damaged")

    patch.setattr(BrokerApi, "_pulled_apart", apart)


@bug(BUGS, PullConsumerMachine)
def what_comes_behind_a_damaged_record_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """As Java's clients do."""
    original = BrokerApi._pulled_apart

    async def apart(self: Any, queue: Any, queue_offset: int, subscription: Any, max_messages: int, found: Any) -> Any:
        _, messages = await original(self, queue, queue_offset, subscription, max_messages, found)
        return found, messages

    patch.setattr(BrokerApi, "_pulled_apart", apart)


@bug(
    BUGS,
    lambda caplog: unreadable.test_unreadable_messages_are_sent_back_and_not_given_to_the_listener(
        FakePeer, FakeBroker, "checksum", False, caplog
    ),
)
def a_message_that_cannot_be_read_is_given_to_the_listener(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnreadableMessages, "is_withheld", lambda self, message: False)


# --- silence, and time ---


@bug(BUGS, producers.ProducerMachine)
def name_servers_have_a_time_of_their_own(patch: pytest.MonkeyPatch) -> None:
    """``send(timeout_ms=1000)`` takes 3 s where the name server hangs."""
    original = RouteCache.ask

    async def ask(self: Any, command: Any, timeout_ms: float | None = None) -> Any:
        return await original(self, command)

    patch.setattr(RouteCache, "ask", ask)


@bug(
    BUGS,
    lambda _caplog: timeouts.test_each_send_ends_at_its_own_timeout_if_queued_batches_have_different_timeouts(0, "key"),
)
def a_gathered_message_waits_for_those_before_it(patch: pytest.MonkeyPatch) -> None:
    """Behind a batch of another timeout, ``timeout_ms=300`` takes 3.3 s."""
    patch.setattr(ProduceAccumulator, "_expire_at", lambda self, lane, deadline_s: None)


@bug(BUGS, producers.LingeringMachine)
def a_gathered_message_waits_in_any_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProduceAccumulator, "_expire_at", lambda self, lane, deadline_s: None)


@bug(BUGS, lambda _caplog: timeouts.test_a_message_is_sent_in_time_if_the_linger_time_is_longer_than_the_send_timeout())
def a_message_lingers_until_its_time_is_over(patch: pytest.MonkeyPatch) -> None:
    def depart(self: Any, lane: Any, entry: Any) -> None:
        if lane.departure is None:
            lane.departure = entry.stored.get_loop().call_later(self._linger_s, self._leave, lane)

    patch.setattr(ProduceAccumulator, "_depart", depart)


@bug(
    BUGS,
    lambda _caplog: timeouts.test_a_send_retry_fetches_the_new_address_of_a_broker_whose_address_has_changed(
        FakePeer, FakeBroker
    ),
)
def a_failed_send_does_not_doubt_the_route(patch: pytest.MonkeyPatch) -> None:
    """After a broker comes back elsewhere, producers fail until the next look-up."""
    patch.setattr(RouteCache, "doubt", lambda self, topic: None)


@bug(BUGS, instances.test_failed_heartbeats_to_a_broker_are_logged_at_growing_intervals)
def each_heartbeat_that_fails_is_a_line(patch: pytest.MonkeyPatch) -> None:
    """8,000 in ten minutes."""
    patch.setattr(Troubles, "met", lambda self, subject, reason, may_pass=False: True)


def away(orderly: bool) -> None:
    troubles.test_an_unreachable_broker_does_not_stop_the_consumption_of_queues_of_another_broker(
        "refusing", 0, orderly
    )


@bug(BUGS, lambda _caplog: away(False))
def a_broker_that_is_away_keeps_others_from_storing_offsets(patch: pytest.MonkeyPatch) -> None:
    """What their queues gave comes again."""

    async def commit_all(self: Any, offsets: Any, *, wait: bool) -> None:
        for queue, consumer_offset in offsets.items():
            await self.commit(queue, consumer_offset, wait=wait)

    patch.setattr(BrokerApi, "commit_all", commit_all)


@bug(BUGS, lambda _caplog: away(True))
def a_broker_that_is_away_takes_the_locks_of_others(patch: pytest.MonkeyPatch) -> None:
    original = BrokerApi.lock

    async def lock(self: Any, queues: Any) -> Any:
        locked, failures = await original(self, queues)
        for failure in failures.values():
            raise failure
        return locked, failures

    patch.setattr(BrokerApi, "lock", lock)


# --- the life of a client ---


@bug(
    BUGS,
    lambda caplog: instances.test_an_unclosed_client_warns_and_is_closed_when_it_is_garbage_collected(
        FakePeer, FakeBroker, instances.used_producer, "Producer of group shop", caplog
    ),
)
def a_client_that_is_dropped_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Its sockets and tasks live as long as the process."""
    patch.delattr(InstanceUser, "__del__")


@bug(
    BUGS,
    lambda caplog: instances.test_an_unclosed_client_warns_and_is_closed_when_it_is_garbage_collected(
        FakePeer, FakeBroker, instances.started_consumer, "Consumer of group bills", caplog
    ),
)
def the_tasks_of_a_member_know_its_consumer(patch: pytest.MonkeyPatch) -> None:
    """So a consumer that is dropped is never collected."""
    original = Consumer._join

    async def join(self: Any) -> None:
        await original(self)
        self.client.consumers[self.group] = lambda: self.member.describe()

    patch.setattr(Consumer, "_join", join)


@bug(BUGS, lambda _caplog: instances.test_a_closed_client_can_be_started_again("consumer"))
def a_closed_client_says_that_it_is_started_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientInstance, "open", lambda self: None)


@bug(BUGS, lambda _caplog: instances.test_a_closed_client_can_be_started_again("transactions"))
def brokers_are_told_once_of_a_transaction_producer(patch: pytest.MonkeyPatch) -> None:
    """After a close and a start they cannot ask it until its next heartbeat."""

    async def announce(self: Any, addresses: Any, timeout_ms: float) -> None:
        told = self.__dict__.setdefault("told", set())
        for address in set(addresses) - told:
            await self._tell(address)
            told.add(address)

    patch.setattr(Requests, "announce", announce)


@bug(BUGS, lambda _caplog: timeouts.test_a_hanging_broker_does_not_delay_calls_to_another_broker("transaction"))
def a_transaction_waits_for_a_broker_that_hangs(patch: pytest.MonkeyPatch) -> None:
    """All of its time, each time, although it goes to another one."""
    original = Requests.announce

    async def announce(self: Any, addresses: Any, timeout_ms: float) -> None:
        await original(self, addresses, 2 * timeout_ms)

    patch.setattr(Requests, "announce", announce)


@bug(
    BUGS, lambda _caplog: promises.test_two_consumers_of_one_group_cannot_use_one_client_instance(FakePeer, FakeBroker)
)
def two_members_of_a_group_share_a_client(patch: pytest.MonkeyPatch) -> None:
    """Each gets everything."""
    original = Consumer._join

    async def join(self: Any) -> None:
        before = self.client.consumers.pop(self.group, None)
        await original(self)
        if before is not None:
            self.client.consumers[self.group] = before

    patch.setattr(Consumer, "_join", join)


@bug(
    BUGS,
    lambda _caplog: promises.test_no_message_is_delivered_to_a_listener_after_its_consumer_is_suspended(
        FakePeer, FakeBroker, False
    ),
)
def a_pull_that_a_broker_holds_delivers_after_suspend(patch: pytest.MonkeyPatch) -> None:
    original = ConsumeService._pull

    async def pull(self: Any, held: Any, subscription: Any) -> Any:
        before, self._goes_on = self._goes_on, asyncio.Event()
        self._goes_on.set()
        try:
            return await original(self, held, subscription)
        finally:
            self._goes_on = before

    patch.setattr(ConsumeService, "_pull", pull)


@bug(BUGS, consumers.QuietBroadcastingMachine)
def offsets_of_broadcasting_are_not_found_again(patch: pytest.MonkeyPatch) -> None:
    async def load(self: Any, queue: Any) -> None:
        return None

    patch.setattr(FileOffsetStore, "load", load)


@bug(BUGS, consumers.ConsumerMachine)
def the_queues_of_a_broker_that_was_away_wait_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerPatience, "_back", lambda self, broker_name: self._away.pop(broker_name, None))


@bug(BUGS, PullConsumerMachine)
def a_poll_waits_for_a_pull_that_a_seek_has_ended(patch: pytest.MonkeyPatch) -> None:
    def stop(self: Any) -> None:
        pass

    patch.setattr(pull_consumer._AssignedQueue, "stop", stop)


# --- what admin clients change, and replies ---


@bug(BUGS, AdminMachine)
def a_topic_is_created_at_the_first_master_only(patch: pytest.MonkeyPatch) -> None:
    original = AdminClient._targets

    async def targets(self: Any, address: str | None, cluster: str | None) -> list[str]:
        return (await original(self, address, cluster))[:1]

    patch.setattr(AdminClient, "_targets", targets)


@bug(BUGS, AdminMachine)
def a_topic_that_is_deleted_keeps_its_route(patch: pytest.MonkeyPatch) -> None:
    async def delete_topic(self: Any, topic: str, *, cluster: str | None = None) -> None:
        for address in await self._targets(None, cluster):
            await self.invoke(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    patch.setattr(AdminClient, "delete_topic", delete_topic)


@bug(BUGS, AdminMachine)
def offsets_are_reset_in_the_queues_of_one_broker(patch: pytest.MonkeyPatch) -> None:
    original = AdminClient._ask_topic

    async def ask_topic(self: Any, *args: Any) -> Any:
        return (await original(self, *args))[:1]

    patch.setattr(AdminClient, "_ask_topic", ask_topic)


@bug(BUGS, producers.ProducerMachine)
def a_reply_goes_to_any_broker(patch: pytest.MonkeyPatch) -> None:
    """Which may not know the requester."""
    original = Producer.send

    async def send(self: Any, message: Any, queue: Any = None, **options: Any) -> Any:
        is_reply = message.topic.endswith("_REPLY_TOPIC")
        return await original(self, message, None if is_reply else queue, **options)

    patch.setattr(Producer, "send", send)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", [pytest.param(one, id=one.name) for one in BUGS])
def test_the_client_tests_detect_each_bug_injected_into_the_client(
    planted: Bug, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine or a test could pass by checking nothing; without the bug it passes."""
    find(planted, monkeypatch, caplog)
