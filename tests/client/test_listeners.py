"""A listener of the synchronous client may raise anything: its message comes again, and no other client notices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from flintmq.client import sync

FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.mark.parametrize(
    "failure", [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError, GeneratorExit, ValueError]
)
@pytest.mark.parametrize("orderly", [True, False])
def test_a_message_comes_again_whatever_its_listener_raised(
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


def test_a_listener_that_closes_its_consumer_gets_an_error(
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
