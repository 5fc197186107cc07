"""A listener of the synchronous client may raise anything: its message comes again, and no other client notices."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from flintmq.client import sync

FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.mark.parametrize(
    "failure", [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError, GeneratorExit, ValueError]
)
@pytest.mark.parametrize("orderly", [True, False])
def test_a_message_is_retried_after_any_exception_of_its_listener(
    failure: type[BaseException], orderly: bool, name_server: str, create_topic: Callable[[str, int], None]
) -> None:
    """Orderly at the same member at once, else by the retry topic; calls of other clients work meanwhile, and close ends."""
    topic = f"Raising{failure.__name__}{orderly}"
    create_topic(topic, 1)
    seen: list[bytes] = []
    failed: list[bytes] = []
    enough = threading.Event()

    def listener(message: sync.MessageExt) -> None:
        if not failed:
            failed.append(message.body)
            raise failure("no")
        seen.append(message.body)
        if len(seen) == (3 if orderly else 2):
            enough.set()

    settings = sync.ConsumerSettings(consume_from=FROM_FIRST, orderly=orderly, retry_delay_s=0.01, concurrency=1)
    with sync.Producer("p", name_server) as producer:
        for number in range(3):
            producer.send(sync.Message(topic, b"%d" % number))
        with sync.Consumer(f"g-{topic}", name_server, listener, settings=settings) as consumer:
            consumer.subscribe(topic)
            assert enough.wait(20)
            assert len(producer.queues(topic)) == 1
    assert failed == [b"0"]
    assert seen == ([b"0", b"1", b"2"] if orderly else [b"1", b"2"])


def test_closing_a_consumer_from_its_own_synchronous_listener_raises_runtime_error(
    name_server: str, create_topic: Callable[[str, int], None]
) -> None:
    """It would wait for its own end: the error says what to do, and the consumer can be closed by others."""
    create_topic("ClosedByListener", 1)
    raised: list[BaseException] = []
    tried = threading.Event()

    def listener(_message: sync.MessageExt) -> None:
        try:
            consumer.close()
        except RuntimeError as error:
            raised.append(error)
        tried.set()

    settings = sync.ConsumerSettings(consume_from=FROM_FIRST, orderly=True)
    with sync.Producer("p", name_server) as producer:
        producer.send(sync.Message("ClosedByListener", b"0"))
    with sync.Consumer("g-closed", name_server, listener, settings=settings) as consumer:
        consumer.subscribe("ClosedByListener")
        assert tried.wait(20)
    assert "another task or thread" in str(raised[0])


def test_closing_all_consumers_in_a_synchronous_message_handler_is_an_error(
    name_server: str, create_topic: Callable[[str, int], None]
) -> None:
    create_topic("ClosedByFunction", 1)
    raised: list[BaseException] = []
    tried = threading.Event()
    consumers = sync.Consumers(name_server)

    @consumers.handler("ClosedByFunction", group="g-functions", settings=sync.ConsumerSettings(consume_from=FROM_FIRST))
    def close(_message: sync.MessageExt) -> None:
        try:
            consumers.close()
        except RuntimeError as error:
            raised.append(error)
        tried.set()

    with sync.Producer("p", name_server) as producer:
        producer.send(sync.Message("ClosedByFunction", b"0"))
    with consumers:
        assert tried.wait(20)
    assert "another task or thread" in str(raised[0])


def test_a_program_exits_although_its_listener_hangs(
    name_server: str, create_topic: Callable[[str, int], None]
) -> None:
    """Close abandons the message, and the end of the process waits for the thread within bounds, and says so."""
    create_topic("NeverReturns", 1)
    with sync.Producer("p", name_server) as producer:
        producer.send(sync.Message("NeverReturns", b"0"))
    script = f"""
import threading
from flintmq.client.sync import Consumer, ConsumerSettings
from flintmq.remoting.client import daemon_threads
daemon_threads.wait_for_all.__defaults__ = (0.3,)
begun = threading.Event()
def listener(message):
    begun.set()
    threading.Event().wait()
settings = ConsumerSettings(consume_from={FROM_FIRST!r})
with Consumer("g-never", {name_server!r}, listener, settings=settings) as consumer:
    consumer.subscribe("NeverReturns")
    begun.wait()
print("closed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "closed\n")
    assert "functions of clients have not returned: g-never-listener_0" in done.stderr


def test_a_hanging_transaction_check_does_not_block_other_clients(
    name_server: str, create_topic: Callable[[str, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the loop's own threads, which look up addresses for all clients, nor the close of its producer."""
    go_on, entered = threading.Event(), threading.Semaphore(0)

    def check(_message: sync.MessageExt) -> sync.TransactionState:
        entered.release()
        go_on.wait(60)
        return sync.TransactionState.ROLLBACK

    with sync.TransactionProducer("p-hung", name_server, check=check) as producer:
        inner = producer._inner
        asked = [producer._loop.start(inner._check(None)) for _ in range(40)]  # type: ignore[arg-type]
        for _ in range(8):
            assert entered.acquire(timeout=20)
        assert not entered.acquire(blocking=False)
        assert producer._loop.run(asyncio.to_thread(len, "abc")) == 3
    go_on.set()
    for one in asked[:8]:
        assert one.result(20) is sync.TransactionState.ROLLBACK
