"""Functions that are declared as handlers get their topics' messages, and mistakes are told when they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.errors import RefusedError
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.handlers import Consumers
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.wire.command import response

FAST = ConsumerSettings(consume_from=FROM_FIRST, rebalance_interval_s=0.05)


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any, Consumers], Awaitable[None]]) -> None:
    async def with_broker() -> None:
        async with fake_peer() as peer, asyncio.timeout(20):
            broker = fake_broker(peer)
            broker.topics |= {"U"}
            for topic in "TU":
                for number in range(2):
                    broker.put(topic, number % 2, b"%s %d" % (topic.encode(), number))
            await test(broker, Consumers(peer.address))

    asyncio.run(with_broker())


def test_each_message_handler_gets_the_messages_of_its_topic(fake_peer: Any, fake_broker: Any) -> None:
    """Groups of one topic and of two, of single messages and of lists, of coroutine functions and of plain ones."""

    async def test(broker: Any, consumers: Consumers) -> None:
        found: dict[str, set[bytes]] = {"one": set(), "other": set(), "lists": set(), "plain": set()}

        @consumers.handler("T", group="two", settings=FAST)
        async def one(message: MessageExt) -> None:
            found["one"].add(message.body)

        @consumers.handler("U", group="two")
        async def other(message: MessageExt) -> None:
            found["other"].add(message.body)

        @consumers.batch_handler("T", group="lists", settings=FAST)
        async def lists(messages: list[MessageExt]) -> int:
            found["lists"] |= {message.body for message in messages}
            return len(messages)

        @consumers.handler("T", group="plain", settings=FAST)
        @consumers.handler("U", group="plain")
        def plain(message: MessageExt) -> None:
            found["plain"].add(message.body)

        async with consumers:
            of_t, of_u = {b"T 0", b"T 1"}, {b"U 0", b"U 1"}
            await broker.peer.until(lambda: found == {"one": of_t, "other": of_u, "lists": of_t, "plain": of_t | of_u})
            assert broker.peer.connections_made == 1, "one client for all of them"
        plain(one_message := type("Message", (), {"body": b"called by a test"})())
        assert one_message.body in found["plain"]
        assert {asked.ext_fields["consumerGroup"] for asked in broker.peer.of_code(35)} == {"two", "lists", "plain"}

    run(fake_peer, fake_broker, test)


def test_message_handlers_leave_their_consumer_group_when_they_are_canceled_or_closed(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Both ways, at the end of ``asyncio.run`` and by ``close``, must leave the group."""

    async def test(broker: Any, consumers: Consumers) -> None:
        came = asyncio.Event()

        @consumers.handler("T", group="g", settings=FAST)
        async def handle(_message: MessageExt) -> None:
            came.set()

        running = asyncio.ensure_future(consumers.run())
        await came.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(broker.peer.of_code(35)) == 1
        heartbeats = len(broker.peer.of_code(34))
        again = Consumers(broker.peer.address)
        again.handler("T", group="g", settings=FAST)(handle)
        running = asyncio.ensure_future(again.run())
        await broker.peer.until(lambda: len(broker.peer.of_code(34)) > heartbeats)  # a broker is known, and can be told
        await again.close()
        await running
        assert len(broker.peer.of_code(35)) == 2

    run(fake_peer, fake_broker, test)


def test_a_failed_start_of_message_handlers_leaves_no_consumer_running(fake_peer: Any, fake_broker: Any) -> None:
    """A broker that refuses one filter must not leave the other group half consuming."""

    async def test(broker: Any, consumers: Consumers) -> None:
        broker.peer.answers[46] = lambda asked: response(asked, 1, "no such property")
        consumers.handler("T", group="good", settings=FAST)(lambda _: None)
        consumers.handler("U", group="bad", expression="a >", expression_type="SQL92", settings=FAST)(lambda _: None)
        with pytest.raises(RefusedError, match="no such property"):
            await consumers.start()
        assert not consumers.client.consumers
        await consumers.close()

    run(fake_peer, fake_broker, test)


def test_an_invalid_message_handler_is_refused_by_the_decorator(fake_peer: Any, fake_broker: Any) -> None:
    """At the decorator, with the group's name."""

    async def asynchronous(_message: MessageExt) -> None:
        """Do nothing."""

    async def test(broker: Any, consumers: Consumers) -> None:
        consumers.handler("T", group="g", settings=FAST)(asynchronous)
        for topic, settings, function, mistake in (
            ("T", None, asynchronous, "has a function for topic T already"),
            ("U", ConsumerSettings(), asynchronous, "other settings"),
            ("U", None, lambda _: None, "do not mix coroutine functions with plain functions"),
        ):
            with pytest.raises(ValueError, match=f"group g.*{mistake}"):
                consumers.handler(topic, group="g", settings=settings)(function)
        with pytest.raises(ValueError, match="functions that take lists with functions"):
            consumers.batch_handler("U", group="g")(asynchronous)  # type: ignore[type-var]
        async with consumers:
            with pytest.raises(ValueError, match="before the consumers are started"):
                consumers.handler("T", group="late")(asynchronous)

    run(fake_peer, fake_broker, test)
