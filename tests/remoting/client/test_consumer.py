"""A group consumer gets its share, loses nothing it has not consumed, and answers for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import JsonSyntaxError, RefusedError
from flintmq.remoting.client.broker_api import PullStatus
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import (
    BROADCASTING,
    FROM_FIRST,
    FROM_TIMESTAMP,
    ConsumerSettings,
)
from flintmq.remoting.client.consumer_settings import ConsumeResult as Result
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.offset_store import FileOffsetStore
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    HeartbeatData,
    ResetOffsetBody,
)
from flintmq.remoting.wire.command import request, response

FAST = ConsumerSettings(
    consume_from=FROM_FIRST, rebalance_interval_s=0.05, error_delay_s=0.01, retry_delay_s=0.005, lock_interval_s=0.05
)
Q0, Q1 = MessageQueue("broker-a", 0, "T"), MessageQueue("broker-a", 1, "T")


class Listener:
    """Remembers what it was handed; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[MessageExt] = []
        self.failures = failures
        self._arrived = asyncio.Condition()

    async def __call__(self, message: MessageExt) -> Result | None:
        async with self._arrived:
            self.messages.append(message)
            self._arrived.notify_all()
        if self.failures > 0:
            self.failures -= 1
            if self.failures % 2:
                return Result.LATER
            raise ValueError("listener failed on purpose")
        return None

    async def until(self, count: int) -> list[bytes]:
        async with asyncio.timeout(5), self._arrived:
            await self._arrived.wait_for(lambda: len(self.messages) >= count)
        return [message.body for message in self.messages]


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any], Awaitable[None]]) -> None:
    async def with_broker() -> None:
        async with fake_peer() as peer:
            await test(fake_broker(peer))

    asyncio.run(with_broker())


def member(broker: Any, listener: Any, settings: ConsumerSettings = FAST, **options: Any) -> Consumer:
    return Consumer("g", broker.peer.address, listener, settings=settings, **options)


def test_a_consumer_gets_messages_and_commits_their_offsets(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        for number in range(5):
            broker.put("T", number % 2, b"%d" % number, "TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01id")
        listener = Listener()
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            assert sorted(await listener.until(5)) == [b"0", b"1", b"2", b"3", b"4"]
            broker.put("T", 0, b"late")
            await listener.until(6)
        assert broker.offsets == {("g", "T", 0): 4, ("g", "T", 1): 2}
        message = listener.messages[0]
        assert (message.tags, message.keys, message.msg_id) == ("A", ("k1", "k2"), "id")
        assert message.queue in (Q0, Q1)
        assert message.born_host == "127.0.0.1:10911"
        (left,) = broker.peer.of_code(35)
        assert left.ext_fields["consumerGroup"] == "g"
        heartbeat = HeartbeatData.decode(broker.peer.of_code(34)[0].body)
        topics = [wanted.topic for wanted in heartbeat.consumer_data_set[0].subscription_data_set]
        assert sorted(topics) == ["%RETRY%g", "T"]

    run(fake_peer, fake_broker, test)


def test_a_consumer_continues_at_the_stored_offset(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        for number in range(4):
            broker.put("T", 0, b"%d" % number)
        broker.offsets["g", "T", 0] = 2
        listener = Listener()
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            assert await listener.until(2) == [b"2", b"3"]

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize(("consume_from", "first"), [(None, b"new"), (FROM_FIRST, b"0"), (FROM_TIMESTAMP, b"1")])
def test_a_new_group_begins_at_its_consume_from_position(
    fake_peer: Any, fake_broker: Any, consume_from: Any, first: bytes
) -> None:
    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        for number in range(2):
            broker.put("T", 0, b"%d" % number)
        listener = Listener()
        settings = attrs.evolve(FAST, consume_from=consume_from or ConsumerSettings().consume_from)
        async with member(broker, listener, settings) as consumer:
            await consumer.subscribe("T")
            await broker.peer.until(lambda: bool(broker.peer.of_code(11)))
            broker.put("T", 0, b"new")
            assert (await listener.until(1))[0] == first

    run(fake_peer, fake_broker, test)


def test_a_consumer_continues_at_a_valid_offset_if_its_stored_offset_is_beyond_the_end_of_the_queue(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        broker.offsets["g", "T", 0] = 99
        listener = Listener()
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            await broker.peer.until(lambda: any(held.ext_fields["queueId"] == "0" for held in broker.held))
            broker.put("T", 0, b"x")
            assert await listener.until(1) == [b"x"]

    run(fake_peer, fake_broker, test)


def test_a_consumer_skips_a_message_whose_unsubscribed_tag_has_the_hash_of_a_subscribed_tag(
    fake_peer: Any, fake_broker: Any
) -> None:
    """A broker compares hashes, and "Aa" has the hash of "BB". What is passed over counts as consumed."""

    async def test(broker: Any) -> None:
        for tag in ("Aa", "BB", "Aa", "BB"):
            broker.put("T", 0, tag.encode(), f"TAGS\x01{tag}")
        listener = Listener()
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T", "Aa || other")
            assert await listener.until(2) == [b"Aa", b"Aa"]
        assert broker.offsets["g", "T", 0] == 4

    run(fake_peer, fake_broker, test)


def test_group_members_divide_the_queues_after_the_broker_announces_a_new_member(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        settings = attrs.evolve(FAST, rebalance_interval_s=60.0)
        first, second = Listener(), Listener()
        async with member(broker, first, settings, client_id="1") as one:
            await one.subscribe("T")
            await broker.peer.until(lambda: len(broker.held) == 2)
            async with member(broker, second, settings, client_id="2") as two:
                await two.subscribe("T")
                await broker.peer.until(lambda: len(broker.members["g"]) == 2 and len(broker.held) == 3)
                broker.peer.push(request(40, {"consumerGroup": "g"}, oneway=True))
                await broker.peer.until(lambda: set(one.process_queues) == {Q0} and set(two.process_queues) == {Q1})
                broker.put("T", 0, b"zero")
                broker.put("T", 1, b"one")
                assert await first.until(1) == [b"zero"]
                assert await second.until(1) == [b"one"]

    run(fake_peer, fake_broker, test)


def test_the_only_member_of_a_group_gets_every_queue_if_the_broker_lists_that_member_repeatedly(
    fake_peer: Any, fake_broker: Any
) -> None:
    """A Java broker lists a reconnected member twice for two minutes, until it notices the lost connection."""

    async def test(broker: Any) -> None:
        async with Consumer("g", broker.peer.address, Listener(), settings=FAST, client_id="me") as consumer:
            broker.members["g"] += ["me", "me"]
            await consumer.subscribe("T")
            await consumer.rebalance()
            assert {queue for queue in consumer.process_queues if queue.topic == "T"} == {Q0, Q1}

    run(fake_peer, fake_broker, test)


def test_messages_that_a_listener_failed_to_consume_are_sent_back_to_the_broker(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        broker.put("T", 0, b"x", "UNIQ_KEY\x01id")
        listener = Listener(failures=1)
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            await broker.peer.until(lambda: Q0 in consumer.process_queues)
            await broker.peer.until(lambda: consumer.process_queues[Q0].commit_offset == 1)
        (asked,) = broker.peer.of_code(36)
        assert asked.ext_fields["offset"] == "0"
        assert asked.ext_fields["originMsgId"] == "id"
        assert (asked.ext_fields["group"], asked.ext_fields["maxReconsumeTimes"]) == ("g", "16")
        assert broker.offsets["g", "T", 0] == 1

    run(fake_peer, fake_broker, test)


def test_a_message_that_cannot_be_sent_back_is_retried_in_the_client(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.put("T", 0, b"x")
        broker.peer.answers[36] = lambda asked: response(asked, 1, "no")
        listener = Listener(failures=2)
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            await listener.until(3)
        assert broker.offsets["g", "T", 0] == 1

    run(fake_peer, fake_broker, test)


def test_a_retried_message_has_its_original_topic(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.topics.add("%RETRY%g")
        broker.put("%RETRY%g", 0, b"again", "RETRY_TOPIC\x01T", reconsume_times=1)
        listener = Listener()
        async with member(broker, listener):
            await listener.until(1)
        assert (listener.messages[0].topic, listener.messages[0].reconsume_times) == ("T", 1)

    run(fake_peer, fake_broker, test)


def test_an_orderly_message_is_delivered_only_after_the_previous_message_is_consumed(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        for number in range(3):
            broker.put("T", 0, b"%d" % number)
        listener = Listener(failures=2)
        async with member(broker, listener, attrs.evolve(FAST, orderly=True), client_id="me") as consumer:
            await consumer.subscribe("T")
            assert await listener.until(5) == [b"0", b"0", b"0", b"1", b"2"]
            assert broker.locks == {Q0: "me"}
            assert [message.reconsume_times for message in listener.messages] == [0, 1, 2, 0, 0]
        assert broker.locks == {}
        assert broker.offsets["g", "T", 0] == 3
        assert not broker.peer.of_code(36)

    run(fake_peer, fake_broker, test)


def test_an_orderly_message_becomes_a_dead_letter_after_its_last_retry(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        broker.put("T", 0, b"bad")
        broker.put("T", 0, b"good")
        listener = Listener(failures=3)
        settings = attrs.evolve(FAST, orderly=True, max_reconsume_times=2)
        async with member(broker, listener, settings) as consumer:
            await consumer.subscribe("T")
            assert await listener.until(4) == [b"bad"] * 3 + [b"good"]
        (asked,) = broker.peer.of_code(36)
        assert asked.ext_fields["delayLevel"] == "-1"

    run(fake_peer, fake_broker, test)


def test_a_queue_locked_by_another_member_is_not_consumed(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        broker.locks[Q0] = "another"
        broker.put("T", 0, b"x")
        listener = Listener()
        async with member(broker, listener, attrs.evolve(FAST, orderly=True)) as consumer:
            await consumer.subscribe("T")
            await broker.peer.until(lambda: len(broker.peer.of_code(41)) >= 2)
            assert not listener.messages
            broker.locks.clear()
            await listener.until(1)
            broker.locks[Q0] = "another"
            await consumer.rebalancer.renew_locks()
            assert consumer.process_queues == {}

    run(fake_peer, fake_broker, test)


def test_broadcasting_members_get_all_messages_and_store_offsets_in_a_file(
    fake_peer: Any, fake_broker: Any, tmp_path: Path
) -> None:
    async def test(broker: Any) -> None:
        settings = attrs.evolve(FAST, message_model=BROADCASTING, offset_folder=tmp_path)
        for number in range(4):
            broker.put("T", number % 2, b"%d" % number)
        for name in ("1", "2"):
            listener = Listener(failures=1)
            async with member(broker, listener, settings, client_id=name) as consumer:
                await consumer.subscribe("T")
                assert sorted(await listener.until(4)) == [b"0", b"1", b"2", b"3"]
        broker.put("T", 0, b"new")
        listener = Listener()
        async with member(broker, listener, settings, client_id="1") as consumer:
            await consumer.subscribe("T")
            assert await listener.until(1) == [b"new"]
        stored = ResetOffsetBody.decode((tmp_path / "1" / "g" / "offsets.json").read_bytes())
        assert stored.offset_table == {Q0: 3, Q1: 2}
        assert broker.offsets == {}
        assert not broker.peer.of_code(36)

    run(fake_peer, fake_broker, test)


def test_loading_a_damaged_offset_file_raises_an_error_with_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text("{{")
    with pytest.raises(JsonSyntaxError, match=r"offsets\.json"):
        asyncio.run(FileOffsetStore(path).load(Q0))


def test_an_iteration_commits_a_message_only_when_the_next_message_is_requested(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The message that a loop is broken at comes again."""

    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        for number in range(3):
            broker.put("T", 0, b"%d" % number)
        seen = []
        async with member(broker, None) as consumer:
            await consumer.subscribe("T")
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == 2:
                    break
        assert seen == [b"0", b"1"]
        assert broker.offsets["g", "T", 0] == 1
        with pytest.raises(TypeError, match="listener"):
            await anext(aiter(member(broker, Listener())))

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_new_iteration_over_a_consumer_begins_with_the_unfinished_message_of_the_last_iteration(
    fake_peer: Any, fake_broker: Any, orderly: bool
) -> None:
    """Closing ends the loop, in this task and in another one, although messages were not consumed."""

    async def test(broker: Any) -> None:
        broker.queue_nums = 1
        for number in range(2):
            broker.put("T", 0, b"%d" % number)
        consumer = member(broker, None, attrs.evolve(FAST, orderly=orderly))
        assert not consumer.is_started
        await consumer.start()
        assert consumer.is_started
        await consumer.subscribe("T")
        for _ in range(2):
            async with asyncio.timeout(5):
                async for message in consumer:
                    assert message.body == b"0"
                    break
        seen: list[bytes] = []

        async def iterate() -> None:
            async for message in consumer:
                seen.append(message.body)  # noqa: PERF401 - seen while the loop goes on

        iterating = asyncio.create_task(iterate())
        await broker.peer.until(lambda: len(seen) == 2)
        waiting = asyncio.create_task(consumer.consumption.iteration.messages().next_message())
        async with asyncio.timeout(5):
            await consumer.close()
            await iterating
            assert await waiting is None
        assert seen == [b"0", b"1"]
        assert broker.offsets["g", "T", 0] == 2, "both were consumed: the next one had been asked for"

    run(fake_peer, fake_broker, test)


def test_pulled_messages_are_not_sent_back_when_the_interpreter_exits(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The interpreter begins no thread any more: that is no failure of the messages that are still pulled."""
    caplog.set_level("INFO", "flintmq.client")

    async def test(broker: Any) -> None:
        broker.put("T", 0, b"0")

        def listen(message: MessageExt) -> None:
            raise AssertionError("no thread is left for it")

        async with member(broker, listen) as consumer:
            consumer.consumption._threads.end()
            await consumer.subscribe("T")
            await broker.peer.until(lambda: "is left to others" in caplog.text)
        assert not broker.peer.of_code(36)
        assert broker.offsets.get(("g", "T", 0), 0) == 0

    run(fake_peer, fake_broker, test)


def test_a_listener_that_is_not_a_coroutine_function_runs_in_a_thread(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        broker.put("T", 0, b"x")

        def listen(message: MessageExt) -> None:
            loop.call_soon_threadsafe(done.set)

        async with member(broker, listen) as consumer:
            await consumer.subscribe("T")
            await asyncio.wait_for(done.wait(), 5)

    run(fake_peer, fake_broker, test)


def test_a_consumer_consumes_from_the_new_offset_after_the_broker_requests_an_offset_reset(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        for number in range(3):
            broker.put("T", 0, b"%d" % number)
        listener = Listener()
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            await listener.until(3)
            header = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
            body = ResetOffsetBody({Q0: 1, MessageQueue("elsewhere", 0, "T"): 0}).encode()
            broker.peer.push(request(220, header, body, oneway=True))
            assert (await listener.until(5))[3:] == [b"1", b"2"]

    run(fake_peer, fake_broker, test)


def test_a_consumer_answers_requests_of_the_broker_about_its_state(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.put("T", 0, b"x")
        listener = Listener()
        async with member(broker, listener, client_id="me") as consumer:
            await consumer.subscribe("T", "*")
            await listener.until(1)
            peer = broker.peer
            about = {"consumerGroup": "g", "clientId": "me"}
            peer.push(request(221, {"topic": "T", "group": "g"}, opaque=1))
            peer.push(request(307, about, opaque=2))
            peer.push(request(309, {**about, "brokerName": "broker-a"}, broker.by_place[0], opaque=3))
            peer.push(request(307, {**about, "consumerGroup": "other"}, opaque=4))
            await peer.until(lambda: len(peer.responses) == 4)
            answers = {answer.opaque: answer for answer in peer.responses}
            assert GetConsumerStatusBody.decode(answers[1].body).message_queue_table == {Q0: 1, Q1: 0}
            info = ConsumerRunningInfo.decode(answers[2].body)
            assert info.mq_table[Q0].commit_consumer_offset == 1
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.status_table["T"].consume_ok_tps > 0
            result = ConsumeMessageDirectlyResult.decode(answers[3].body)
            assert result.consume_result == "CR_SUCCESS"
            assert len(listener.messages) == 2
            assert (answers[4].code, answers[4].remark) == (
                1,
                "this client has no consumer of group other [group.unknown]",
            )

    run(fake_peer, fake_broker, test)


def test_subscribing_with_a_filter_that_the_broker_refuses_raises_an_error(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.peer.answers[46] = lambda asked: response(asked, 23, "no SQL")
        async with member(broker, Listener()) as consumer:
            with pytest.raises(RefusedError, match="no SQL"):
                await consumer.subscribe("T", "a >", "SQL92")
            assert "T" not in consumer.subscriptions

    run(fake_peer, fake_broker, test)


def test_unsubscribing_from_a_topic_commits_its_offsets_and_releases_its_queues(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Other members continue from the committed offsets, and other topics are still consumed."""

    async def test(broker: Any) -> None:
        broker.put("T", 0, b"0")
        listener = Listener()
        async with member(broker, listener) as consumer:
            await consumer.subscribe("T")
            await listener.until(1)
            await broker.peer.until(lambda: consumer.process_queues[Q0].commit_offset == 1)
            await consumer.unsubscribe("T")
            assert "T" not in consumer.subscriptions
            assert not [queue for queue in consumer.process_queues if queue.topic == "T"]
            await broker.peer.until(lambda: broker.offsets.get(("g", "T", 0)) == 1)
            await consumer.rebalance()
            assert not [queue for queue in consumer.process_queues if queue.topic == "T"]

    run(fake_peer, fake_broker, test)


def test_a_pull_consumer_pulls_from_the_requested_offset_and_commits_the_given_offset(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        for number in range(3):
            broker.put("T", 0, b"%d" % number, f"TAGS\x01{'AB'[number % 2]}")
        async with PullConsumer("g", broker.peer.address) as consumer:
            assert await consumer.queues("T") == (Q0, Q1)
            assert await consumer.committed(Q0) is None
            result = await consumer.pull(Q0, 0, expression="A", max_messages=2)
            assert result.status is PullStatus.FOUND
            assert [message.body for message in result.messages] == [b"0"]
            assert (result.next_begin_queue_offset, result.max_queue_offset) == (2, 3)
            await consumer.commit(Q0, 2)
            assert await consumer.committed(Q0) == 2
            assert (await consumer.pull(Q0, 3)).status is PullStatus.NO_NEW_MESSAGE
            assert (await consumer.pull(Q0, 9)).status is PullStatus.OFFSET_ILLEGAL
            assert await consumer.max_offset(Q0) == 3
            assert await consumer.min_offset(Q0) == 0
            assert await consumer.search_offset(Q0, 5) == 1
            broker.peer.answers[11] = lambda asked: response(asked, 16, "not readable")
            with pytest.raises(RefusedError, match="not readable"):
                await consumer.pull(Q0, 0)

    run(fake_peer, fake_broker, test)
