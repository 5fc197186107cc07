"""The life of a consumer whose listener does what it should not: it goes on, calls the consumer, or does not return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.handlers import Consumers
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster
from flintmq.tests.support.one_queue import NeverReturns

QUEUE = MessageQueue("broker-0", 0, "T")
Test = Callable[[FakeCluster], Awaitable[None]]


def run(test: Test, *, leaves: int = 0) -> None:
    """Run a test against one broker with one queue, in virtual time; so many tasks may go on in the end."""
    cluster = FakeCluster(Choices(5), brokers=1, queue_nums=1)

    async def main() -> None:
        await cluster.start()
        await test(cluster)
        assert len(asyncio.all_tasks()) - 1 == leaves

    cluster.loop.run(main())
    assert not cluster.loop.errors, cluster.loop.errors


def member(cluster: FakeCluster, listener: Any, **settings: Any) -> Consumer:
    made = ConsumerSettings(consume_from=FROM_FIRST, **settings)
    return Consumer("g", cluster.address, listener, settings=made, clock=cluster.clock)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(200):
        while not condition():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("has_message", [True, False])
def test_closing_a_suspended_consumer_releases_its_queues(orderly: bool, has_message: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[bytes] = []
        consumer = member(cluster, lambda message: got.append(message.body), orderly=orderly)
        await consumer.start()
        await consumer.subscribe("T")
        await until(lambda: QUEUE in consumer.process_queues)
        consumer.suspend()
        if has_message:
            cluster.put(QUEUE, b"x")
        await asyncio.sleep(30)
        begun_s = cluster.loop.time()
        await consumer.close()
        assert cluster.loop.time() - begun_s < 6
        assert not cluster.brokers["broker-0"].locks

    run(test)


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("swallows", [1, 1_000])
def test_a_listener_that_ignores_its_cancellation_does_not_block_the_close_of_its_consumer(
    orderly: bool, swallows: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One that goes on all the same is named in the log."""
    stop = False

    async def test(cluster: FakeCluster) -> None:
        nonlocal stop
        begun = asyncio.Event()

        async def listen(_message: MessageExt) -> None:
            begun.set()
            for _ in range(swallows):
                try:
                    await asyncio.sleep(100 if not stop else 0)
                except asyncio.CancelledError:
                    continue
                if stop:
                    return

        cluster.put(QUEUE, b"x")
        consumer = member(cluster, listen, orderly=orderly)
        await consumer.start()
        await consumer.subscribe("T")
        await begun.wait()
        begun_s = cluster.loop.time()
        await consumer.close()
        assert cluster.loop.time() - begun_s < 50
        if swallows == 1:  # it has returned, which means that the message is consumed
            assert cluster.committed("g", QUEUE) == 1
        else:
            assert cluster.committed("g", QUEUE) in (None, 0)
            assert "although" in caplog.text
        stop = True
        await asyncio.sleep(200)

    run(test)


def test_closing_a_consumer_with_a_hanging_orderly_listener_leaves_the_queue_locked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its queue is not unlocked: who has it next would consume the message while this listener still may."""

    async def test(cluster: FakeCluster) -> None:
        listen = NeverReturns()
        cluster.put(QUEUE, b"x")
        consumer = member(cluster, listen, orderly=True)
        await consumer.start()
        await consumer.subscribe("T")
        await listen.begun.wait()
        begun_s = cluster.loop.time()
        await consumer.close()
        assert 30 <= cluster.loop.time() - begun_s < 40
        assert "has not finished a message of" in caplog.text
        assert QUEUE in cluster.brokers["broker-0"].locks
        assert cluster.committed("g", QUEUE) in (None, 0)

    run(test)


def test_closing_a_consumer_logs_the_number_of_its_concurrent_listeners_that_did_not_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "flintmq.client")

    async def test(cluster: FakeCluster) -> None:
        listen = NeverReturns()
        cluster.put(QUEUE, b"x")
        async with member(cluster, listen) as consumer:
            await consumer.subscribe("T")
            await listen.begun.wait()
        assert "1 listeners of g are abandoned" in caplog.text

    run(test)


def test_a_consumer_keeps_the_lock_of_a_reassigned_queue_until_the_running_listener_returns() -> None:
    """The broker forgets a lock after 60 s, and would give the queue to another member in the midst of a message."""

    async def test(cluster: FakeCluster) -> None:
        begun, go_on, is_others = asyncio.Event(), asyncio.Event(), False

        def share(_client: str, _members: Any, queues: Any) -> list[MessageQueue]:
            return [] if is_others else list(queues)

        async def listen(_message: MessageExt) -> None:
            begun.set()
            await go_on.wait()

        cluster.put(QUEUE, b"x")
        consumer = member(cluster, listen, orderly=True, close_timeout_s=300, allocate=share)
        async with consumer:
            await consumer.subscribe("T")
            await begun.wait()
            is_others = True
            await consumer.rebalance()
            locks_before = len(cluster.brokers["broker-0"].peer.of_code(41))
            await asyncio.sleep(200)
            assert len(cluster.brokers["broker-0"].peer.of_code(41)) - locks_before >= 9
            assert QUEUE in cluster.brokers["broker-0"].locks
            go_on.set()
            await until(lambda: not cluster.brokers["broker-0"].locks)
            assert cluster.committed("g", QUEUE) == 1

    run(test)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_listener_can_call_every_method_of_its_consumer_except_close(orderly: bool) -> None:
    """Everything but close, which tells it where else to."""

    async def test(cluster: FakeCluster) -> None:
        raised: list[BaseException] = []
        done = asyncio.Event()

        async def listen(message: MessageExt) -> None:
            if message.topic != "T":
                return
            consumer.suspend()
            consumer.resume()
            await consumer.commit()
            await consumer.rebalance()
            await consumer.subscribe("U")
            await consumer.unsubscribe("U")
            await consumer.unsubscribe("T")
            try:
                await consumer.close()
            except RuntimeError as failure:
                raised.append(failure)
            done.set()

        cluster.topics.add("U")
        cluster.put(QUEUE, b"x")
        consumer = member(cluster, listen, orderly=orderly)
        async with consumer:
            await consumer.subscribe("T")
            async with asyncio.timeout(100):
                await done.wait()
            await until(lambda: QUEUE not in consumer.process_queues)
        assert "another task or thread" in str(raised[0])
        assert cluster.committed("g", QUEUE) in ((1,) if orderly else (None, 0, 1))

    run(test)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_message_is_retried_if_its_listener_cancels_the_task_in_which_the_listener_runs(
    orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker that dies of it is replaced, and so is the task of a queue."""

    async def test(cluster: FakeCluster) -> None:
        got: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)
            if len(got) <= 2:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(1)

        for number in range(3):
            cluster.put(QUEUE, b"%d" % number)
        async with member(cluster, listen, orderly=orderly, concurrency=1) as consumer:
            await consumer.subscribe("T")
            await until(lambda: len(got) >= 5 and cluster.committed("g", QUEUE) == 3)
        assert sorted(set(got)) == [b"0", b"1", b"2"]

    run(test)
    assert ("another one takes its place" in caplog.text) is not orderly


def test_concurrent_calls_of_close_return_only_after_the_consumer_is_fully_closed() -> None:
    async def test(cluster: FakeCluster) -> None:
        begun = asyncio.Event()

        async def listen(_message: MessageExt) -> None:
            begun.set()
            await asyncio.sleep(10)

        cluster.put(QUEUE, b"x")
        consumer = member(cluster, listen, orderly=True)
        await consumer.start()
        await consumer.subscribe("T")
        await begun.wait()
        await asyncio.gather(consumer.close(), consumer.close())
        assert cluster.committed("g", QUEUE) == 1
        assert not cluster.brokers["broker-0"].members["g"]

    run(test)


def test_calling_close_again_after_a_canceled_close_finishes_closing_the_consumer() -> None:
    """Otherwise the member would keep its queues, and on a shared client it would pull them forever."""

    async def test(cluster: FakeCluster) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def listen(_message: MessageExt) -> None:
            begun.set()
            await go_on.wait()

        cluster.put(QUEUE, b"x")
        consumer = member(cluster, listen, orderly=True)
        await consumer.start()
        await consumer.subscribe("T")
        await begun.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await consumer.close()
        go_on.set()
        await consumer.close()
        assert cluster.committed("g", QUEUE) == 1
        assert not cluster.brokers["broker-0"].locks
        assert not cluster.brokers["broker-0"].members["g"]

    run(test)


def test_closing_all_consumers_in_a_message_handler_is_an_error_and_closes_no_consumer() -> None:
    async def test(cluster: FakeCluster) -> None:
        consumers = Consumers(cluster.address, clock=cluster.clock)
        from_first = ConsumerSettings(consume_from=FROM_FIRST)
        raised: list[BaseException] = []
        others: list[bytes] = []

        @consumers.handler("U", group="other", settings=from_first)
        async def take(message: MessageExt) -> None:
            others.append(message.body)

        @consumers.handler("T", group="g", settings=from_first)
        async def close(_message: MessageExt) -> None:
            try:
                await consumers.close()
            except RuntimeError as failure:
                raised.append(failure)

        cluster.topics.add("U")
        cluster.put(QUEUE, b"x")
        async with consumers:
            await until(lambda: bool(raised))
            cluster.put(MessageQueue("broker-0", 0, "U"), b"goes on")
            await until(lambda: others == [b"goes on"])

    run(test)


def test_a_transaction_check_can_close_its_producer() -> None:
    """It runs in a task of the connections that are closed."""

    async def test(cluster: FakeCluster) -> None:
        closed = asyncio.Event()

        async def check(_message: MessageExt) -> TransactionState:
            await producer.close()
            closed.set()
            return TransactionState.UNKNOWN

        producer = TransactionProducer("p", cluster.address, check=check, clock=cluster.clock)
        await producer.start()
        await producer.send_in_transaction(Message("T", b"x"), lambda *_: TransactionState.UNKNOWN)
        async with asyncio.timeout(60):
            await closed.wait()
        await asyncio.sleep(1)
        assert not producer.client.remoting._connections

    run(test)


def test_an_error_is_raised_or_logged_if_a_transaction_callback_returns_no_transaction_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A local part or a check that forgets its return leaves the transaction undecided, and says so."""

    async def test(cluster: FakeCluster) -> None:
        answers: list[Any] = [None, "COMMIT", TransactionState.COMMIT]
        async with TransactionProducer(
            "p", cluster.address, check=lambda _message: answers.pop(0), clock=cluster.clock
        ) as producer:
            with pytest.raises(TypeError, match=r"a local transaction must return a TransactionState, not None"):
                await producer.send_in_transaction(Message("T", b"x"), lambda *_: None)  # type: ignore[arg-type, return-value]
            await until(lambda: cluster.length(QUEUE) == 1)
        assert "the check must return a TransactionState, not None" in caplog.text
        assert "the check must return a TransactionState, not 'COMMIT'" in caplog.text

    run(test)


def test_a_client_hook_with_coroutine_methods_is_refused() -> None:
    """Nobody would await it: requests would leave without a signature."""

    class Hook:
        async def before_request(self, _address: str, _command: Any) -> None: ...

        def after_response(self, _address: str, _command: Any, _answer: Any) -> None: ...

    with pytest.raises(TypeError, match="before_request is a coroutine function"):
        Consumer("g", "127.0.0.1:9876", hooks=[Hook()])  # type: ignore[list-item]


def test_iterating_over_an_unstarted_consumer_is_an_error() -> None:
    """It would wait for good, without a word."""

    async def test(cluster: FakeCluster) -> None:
        consumer = member(cluster, None)
        with pytest.raises(RuntimeError, match="consumer of g is not started"):
            async for _ in consumer:
                pass
        async with consumer:
            assert [message async for message in consumer.messages(timeout_ms=10)] == []
        assert [message async for message in consumer] == [], "the loop over one that is closed ends"

    run(test)
