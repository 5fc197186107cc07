"""Listeners get what they are made for: lists or single messages, and neither starves what else the loop has to do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumeResult as Result
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.command import response
from flintmq.tests.support import one_queue
from flintmq.tests.support.one_queue import Q0, NeverReturns, run, until_committed

FAST = attrs.evolve(one_queue.FAST, consume_batch_size=4)


def of_lists(broker: Any, listener: Any, settings: ConsumerSettings = FAST) -> Consumer:
    return Consumer("g", broker.peer.address, batch_listener=listener, settings=settings)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
def test_a_batch_listener_gets_available_messages_up_to_its_batch_size(
    fake_peer: Any, fake_broker: Any, in_thread: bool, orderly: bool
) -> None:
    """In the order of the queue, and without waiting for more."""

    async def test(broker: Any) -> None:
        for number in range(10):
            broker.put("T", 0, b"%d" % number)
        lists: list[list[bytes]] = []

        def plain(messages: list[MessageExt]) -> None:
            lists.append([message.body for message in messages])

        async def awaited(messages: list[MessageExt]) -> None:
            plain(messages)

        made = attrs.evolve(FAST, orderly=orderly, concurrency=1)
        async with of_lists(broker, plain if in_thread else awaited, made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 10)
        assert lists == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"]]
        assert broker.offsets["g", "T", 0] == 10

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize(
    ("outcome", "sent_back"),
    [(None, []), (Result.SUCCESS, []), (4, []), (1, [1, 2, 3]), (0, [0, 1, 2, 3]), (Result.LATER, [0, 1, 2, 3])],
)
def test_messages_that_a_batch_listener_did_not_consume_are_sent_back_to_the_broker(
    fake_peer: Any, fake_broker: Any, outcome: Any, sent_back: list[int]
) -> None:
    """RocketMQ's ``ackIndex`` counts the first messages of a batch as consumed and the others as failed."""

    async def test(broker: Any) -> None:
        for number in range(4):
            broker.put("T", 0, b"%d" % number)

        async def listen(messages: list[MessageExt]) -> Any:
            return outcome

        async with of_lists(broker, listen) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 4)
        places = [place for place, record in broker.by_place.items()]
        assert [places.index(int(asked.ext_fields["offset"])) for asked in broker.peer.of_code(36)] == sent_back

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("outcome", [5, -1, True, "SUCCESS", [1]])
def test_messages_are_sent_back_to_the_broker_if_the_listener_returns_an_invalid_value(
    fake_peer: Any, fake_broker: Any, outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Taken for a success, messages would be lost of which nobody knows whether they were consumed."""

    async def test(broker: Any) -> None:
        for number in range(4):
            broker.put("T", 0, b"%d" % number)

        async def listen(messages: list[MessageExt]) -> Any:
            return outcome

        async with of_lists(broker, listen) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 4)
        assert len(broker.peer.of_code(36)) == 4

    run(fake_peer, fake_broker, test)
    assert "returns a ConsumeResult, None or how many it has consumed, not" in caplog.text


def test_an_orderly_batch_is_retried_from_its_first_failed_message(fake_peer: Any, fake_broker: Any) -> None:
    """Nothing of the queue goes ahead of a message that is not consumed."""

    async def test(broker: Any) -> None:
        for number in range(5):
            broker.put("T", 0, b"%d" % number)
        seen: list[list[tuple[bytes, int]]] = []

        async def listen(messages: list[MessageExt]) -> int:
            seen.append([(message.body, message.reconsume_times) for message in messages])
            return 2 if len(seen) == 1 else len(messages)

        async with of_lists(broker, listen, attrs.evolve(FAST, orderly=True)) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 5)
        assert seen == [[(b"0", 0), (b"1", 0), (b"2", 0), (b"3", 0)], [(b"2", 1), (b"3", 1)], [(b"4", 0)]]

    run(fake_peer, fake_broker, test)


def test_messages_of_an_orderly_batch_become_dead_letters_after_their_last_retry(
    fake_peer: Any, fake_broker: Any
) -> None:
    """One that cannot be made a dead letter is tried again, and the others of its list are not lost over it."""

    async def test(broker: Any) -> None:
        for number in range(2):
            broker.put("T", 0, b"%d" % number)
        refused = iter([True, False, False])
        broker.peer.answers[36] = lambda asked: response(asked, 1 if next(refused, False) else 0, "no")
        tries: list[list[bytes]] = []

        async def listen(messages: list[MessageExt]) -> Result:
            tries.append([message.body for message in messages])
            return Result.LATER

        async with of_lists(broker, listen, attrs.evolve(FAST, orderly=True, max_reconsume_times=1)) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 2)
        assert tries == [[b"0", b"1"], [b"0", b"1"], [b"0"]]

    run(fake_peer, fake_broker, test)


def test_a_backlog_for_a_listener_that_never_awaits_does_not_block_the_event_loop_for_long(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Heartbeats and pulls share its loop; a backlog of a thousand messages must not keep them for seconds."""

    async def test(broker: Any) -> None:
        loop = asyncio.get_running_loop()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def listen(message: MessageExt) -> None:
            busy_until_s = loop.time() + 0.002
            while loop.time() < busy_until_s:
                pass

        for number in range(300):
            broker.put("T", 0, b"%d" % number)
        async with Consumer(
            "g", broker.peer.address, listen, settings=attrs.evolve(FAST, pull_batch_size=300)
        ) as consumer:
            await consumer.subscribe("T")
            await broker.peer.until(lambda: Q0 in consumer.process_queues)
            await broker.peer.until(lambda: bool(broker.peer.of_code(11)))
            counting, before = asyncio.ensure_future(count()), consumer.process_queues[Q0].commit_offset
            turns = 0
            await until_committed(broker, consumer, 300)
            counting.cancel()
            consumed = 300 - before
        assert turns >= consumed / (FAST.concurrency * 2), "a turn after 10 ms, and one call of each worker"

    run(fake_peer, fake_broker, test)


def test_pulling_pauses_at_the_cache_limit_of_a_slow_listener(fake_peer: Any, fake_broker: Any) -> None:
    """Pulling pauses at the limit, goes on when there is room, and what is held is never more than a pull above it."""

    async def test(broker: Any) -> None:
        for number in range(200):
            broker.put("T", 0, b"%d" % number)
        go = threading.Semaphore(0)

        def listen(messages: list[MessageExt]) -> None:
            go.acquire()

        made = attrs.evolve(FAST, max_cached_messages=20, pull_batch_size=8, concurrency=2)
        async with of_lists(broker, listen, made) as consumer:
            await consumer.subscribe("T")
            held = lambda: consumer.process_queues[Q0].info(locked=False).cached_msg_count  # noqa: E731
            await broker.peer.until(lambda: Q0 in consumer.process_queues and held() >= 20)
            most = 0
            for _ in range(200):
                most = max(most, held())
                go.release()
                await asyncio.sleep(0)
            await until_committed(broker, consumer, 200)
            assert most < 28

    run(fake_peer, fake_broker, test)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outcomes=st.lists(st.sampled_from([0, 1, 2, "raise", None]), max_size=40),
    concurrency=st.integers(1, 4),
    size=st.integers(1, 7),
)
def test_every_message_is_consumed_or_sent_back_exactly_once_if_some_listener_calls_fail(
    fake_peer: Any, fake_broker: Any, outcomes: list[Any], concurrency: int, size: int
) -> None:
    """However lists fail: what is committed in the end was taken by the listener, or by the broker."""

    async def test(broker: Any) -> None:
        for number in range(60):
            broker.put("T", 0, b"%d" % number)
        left = iter(outcomes)
        consumed: list[bytes] = []

        async def listen(messages: list[MessageExt]) -> int:
            await asyncio.sleep(0)
            outcome = next(left, None)
            if outcome == "raise":
                raise ValueError("on purpose")
            taken = len(messages) if outcome is None else min(outcome, len(messages))
            consumed.extend(message.body for message in messages[:taken])
            return taken

        made = attrs.evolve(FAST, concurrency=concurrency, consume_batch_size=size)
        async with of_lists(broker, listen, made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 60)
        places = list(broker.by_place)
        back = [b"%d" % places.index(int(asked.ext_fields["offset"])) for asked in broker.peer.of_code(36)]
        assert sorted(consumed + back, key=int) == [b"%d" % number for number in range(60)]

    run(fake_peer, fake_broker, test)


def test_a_consumer_with_two_listeners_is_refused() -> None:
    """Which of them would get a message?"""
    with pytest.raises(ValueError, match="a listener or a batch_listener, not both"):
        Consumer("g", "127.0.0.1:1", lambda _: None, batch_listener=lambda _: None)


@pytest.mark.parametrize("in_thread", [False, True])
def test_other_messages_of_a_queue_are_consumed_while_a_listener_call_for_one_message_hangs(
    fake_peer: Any, fake_broker: Any, in_thread: bool
) -> None:
    """Its message is sent back once, and what the listener says of it later changes nothing."""

    async def test(broker: Any) -> None:
        for number in range(3):
            broker.put("T", 0, b"%d" % number)
        let_go, plain_let_go = asyncio.Event(), threading.Event()
        ended: list[bytes] = []

        async def hang(message: MessageExt) -> Result:
            if message.body == b"0":
                await let_go.wait()
            ended.append(message.body)
            return Result.LATER if message.body == b"0" else Result.SUCCESS

        def plain(message: MessageExt) -> Result:
            if message.body == b"0":
                plain_let_go.wait(20)
            ended.append(message.body)
            return Result.LATER if message.body == b"0" else Result.SUCCESS

        made = attrs.evolve(FAST, consume_timeout_s=0.1)
        async with Consumer("g", broker.peer.address, plain if in_thread else hang, settings=made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 3)
            assert len(broker.peer.of_code(36)) == 1
            let_go.set()
            plain_let_go.set()
            await broker.peer.until(lambda: b"0" in ended)
            broker.put("T", 0, b"3")
            await until_committed(broker, consumer, 4)
        assert len(broker.peer.of_code(36)) == 1

    run(fake_peer, fake_broker, test)


def test_a_suspended_consumer_keeps_its_queues_and_consumes_again_after_resume(
    fake_peer: Any, fake_broker: Any
) -> None:
    """It is a member still, with heartbeats and queues, and goes on where it was."""

    async def test(broker: Any) -> None:
        seen: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            seen.append(message.body)

        async with Consumer("g", broker.peer.address, listen, settings=attrs.evolve(FAST, suspend_ms=1)) as consumer:
            consumer.suspend()
            await consumer.subscribe("T")
            await broker.peer.until(lambda: Q0 in consumer.process_queues)
            broker.put("T", 0, b"0")
            for _ in range(50):
                await asyncio.sleep(0)
            assert seen == []
            assert not broker.peer.of_code(35)
            consumer.resume()
            await until_committed(broker, consumer, 1)
        assert seen == [b"0"]

    run(fake_peer, fake_broker, test)


def test_closing_a_consumer_in_its_listener_is_an_error(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It would wait for itself for ever."""

    async def test(broker: Any) -> None:
        broker.put("T", 0, b"0")

        async def listen(message: MessageExt) -> None:
            await consumer.close()

        async with Consumer("g", broker.peer.address, listen, settings=FAST) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 1)

    run(fake_peer, fake_broker, test)
    assert "close() was called by this consumer's listener" in caplog.text


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("close_timeout_s", [0.0, 10.0])
def test_closing_a_consumer_waits_for_running_listeners_if_configured(
    fake_peer: Any, fake_broker: Any, close_timeout_s: float, in_thread: bool
) -> None:
    """A program that ends in good order bills nobody twice; what no listener has begun comes to another member."""

    async def test(broker: Any) -> None:
        for number in range(8):
            broker.put("T", 0, b"%d" % number)
        begun, finished = asyncio.Event(), []
        loop, goes_on = asyncio.get_running_loop(), threading.Event()

        def in_a_thread(message: MessageExt) -> None:
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait(10)
            finished.append(message.body)

        async def on_the_loop(message: MessageExt) -> None:
            await asyncio.to_thread(in_a_thread, message)

        made = attrs.evolve(FAST, concurrency=1, close_timeout_s=close_timeout_s)
        consumer = Consumer("g", broker.peer.address, in_a_thread if in_thread else on_the_loop, settings=made)
        await consumer.start()
        await consumer.subscribe("T")
        await begun.wait()
        closing = asyncio.ensure_future(consumer.close())
        for _ in range(20):
            await asyncio.sleep(0)
        goes_on.set()
        await closing
        assert broker.offsets.get(("g", "T", 0), 0) == (1 if close_timeout_s else 0)
        if close_timeout_s:
            assert finished == [b"0"]

    run(fake_peer, fake_broker, test)


def test_a_hanging_listener_delays_the_close_of_its_consumer_by_at_most_close_timeout_s(
    fake_peer: Any, fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Supervisors kill what does not end."""

    async def test(broker: Any) -> None:
        broker.put("T", 0, b"0")
        listen = NeverReturns()
        made = attrs.evolve(FAST, close_timeout_s=0.05)
        async with Consumer("g", broker.peer.address, listen, settings=made) as consumer:
            await consumer.subscribe("T")
            await listen.begun.wait()
        assert not broker.offsets.get(("g", "T", 0))

    run(fake_peer, fake_broker, test)
    assert "longer than close_timeout_s" in caplog.text


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 12), max_size=12))
def test_canceling_iterations_over_a_consumer_loses_no_message(
    fake_peer: Any, fake_broker: Any, turns: list[int]
) -> None:
    """A web request that ends in the middle of a loop: the next loop begins with the message that was not finished."""

    async def test(broker: Any) -> None:
        for number in range(8):
            broker.put("T", 0, b"%d" % number)
        finished: list[bytes] = []

        async def loop() -> None:
            async for message in consumer:
                await asyncio.sleep(0)
                finished.append(message.body)

        async with Consumer("g", broker.peer.address, settings=FAST) as consumer:
            await consumer.subscribe("T")
            await broker.peer.until(lambda: Q0 in consumer.process_queues)
            for count in turns:
                looping = asyncio.ensure_future(loop())
                for _ in range(count):
                    await asyncio.sleep(0)
                looping.cancel()
                await asyncio.gather(looping, return_exceptions=True)
            looping = asyncio.ensure_future(loop())
            await broker.peer.until(lambda: set(finished) == {b"%d" % number for number in range(8)})
            looping.cancel()
            await asyncio.gather(looping, return_exceptions=True)
        assert len(finished) <= 8 + len(turns), "at most the one message of each loop that was cut short came twice"

    run(fake_peer, fake_broker, test)
