"""Cancelling what a producer does, at any point, leaves nothing behind: no promise, task, half frame or lost exception."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError, RemotingError
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.remoting.wire.command import RemotingCommand, encode_command, response

EXPECTED = (RemotingError, RefusedError, TimeoutError, asyncio.CancelledError)


class Weather:
    """Has a peer answer at once, later, never, with a refusal, or hang up; until it is fair."""

    def __init__(self, broker: Any, chance: random.Random) -> None:
        self.broker, self.chance = broker, chance
        self.later: set[asyncio.Task[None]] = set()
        self.usual = dict(broker.peer.answers)
        for code in (105, 310, 320, 34):
            broker.peer.answers[code] = self.answer

    def answer(self, asked: RemotingCommand) -> RemotingCommand | None:
        kind = self.chance.random()
        if kind < 0.05 and self.broker.peer.transports:
            self.broker.peer.transports[0].abort()
            return None
        if kind < 0.1:
            return None
        if kind < 0.15:
            return response(asked, 14, "no")
        answer: RemotingCommand = self.usual[asked.code](asked)
        if kind < 0.6:
            return answer
        task = asyncio.create_task(self.push(answer))
        self.later.add(task)
        return None

    async def push(self, answer: RemotingCommand) -> None:
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)
        for transport in self.broker.peer.transports:
            transport.write(encode_command(answer))

    async def clear_up(self) -> None:
        self.broker.peer.answers.update(self.usual)
        await asyncio.gather(*self.later)


def work_of(producer: TransactionProducer, chance: random.Random) -> Coroutine[Any, Any, object]:
    """Return something that a producer can do."""
    topic, options = chance.choice("TTTTTU"), {"timeout_ms": chance.choice([5, 40, 60])}
    key = chance.choice([None, None, "a", "b"])
    match chance.randrange(7):
        case 0:
            return producer.send_batch([Message(topic, b"x")] * 3, sharding_key=key, **options)
        case 1:
            return producer.send_oneway(Message(topic, b"x"), sharding_key=key)
        case 2:
            return producer.request(Message(topic, b"x"), sharding_key=key, **options)
        case 3:
            return producer.send_in_transaction(Message(topic, b"x"), lambda *_: TransactionState.COMMIT, **options)
        case _:
            return producer.send(Message(topic, b"x"), sharding_key=key, **options)


async def give_up(work: Coroutine[Any, Any, object], turns: int, chance: random.Random) -> None:
    """Begin something, and end it after some turns of the loop: by a cancellation, or a timeout of asyncio's."""
    if chance.random() < 0.3:
        async with asyncio.timeout(chance.random() * 0.01):
            await work
        return
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    if chance.random() < 0.6:
        task.cancel()
    await task


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**9),
    turns=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    linger_ms=st.sampled_from([None, 0, 2]),
    close_turns=st.integers(0, 30),
)
def test_canceled_producer_calls_leave_no_running_tasks_and_no_unretrieved_exceptions(
    fake_peer: Any, fake_broker: Any, seed: int, turns: list[int], linger_ms: float | None, close_turns: int
) -> None:
    async def test() -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        chance = random.Random(seed)
        async with fake_peer() as peer, asyncio.timeout(20):
            broker = fake_broker(peer)
            weather = Weather(broker, chance)
            producer = TransactionProducer(
                "pg", peer.address, linger_ms=linger_ms, retries=1, trace=True, check=lambda _: TransactionState.COMMIT
            )
            await producer.start()
            outcomes = await asyncio.gather(
                *(give_up(work_of(producer, chance), count, chance) for count in turns), return_exceptions=True
            )
            assert not [one for one in outcomes if isinstance(one, BaseException) and not isinstance(one, EXPECTED)]
            await weather.clear_up()
            assert (await producer.send(Message("T", b"and now"))).queue.topic == "T", "it goes on working"
            assert len(producer.client.requests) == 0
            remoting = producer.client.remoting
            tracer = producer._tracer
            assert tracer is not None
            await peer.until(lambda: remoting._in_flight == 0 and not tracer._waiting)
            assert not any(connection.waiting for connection in remoting._connections.values())
            pending = [asyncio.create_task(producer.send(Message("T", b"x"), sharding_key="k")) for _ in range(3)]
            await asyncio.gather(give_up(producer.close(), close_turns, chance), return_exceptions=True)
            await producer.close()
            for outcome in await asyncio.gather(*pending, return_exceptions=True):
                assert not isinstance(outcome, BaseException) or isinstance(outcome, EXPECTED)
            assert producer._gatherer is None or len(producer._gatherer) == 0
            await peer.until(lambda: not peer.transports)
            assert asyncio.all_tasks() == {asyncio.current_task()}
        del outcomes, pending
        gc.collect()
        await asyncio.sleep(0)
        assert not unhandled

    asyncio.run(test())


@pytest.mark.parametrize("linger_ms", [None, 0])
def test_a_producer_is_closed_if_the_body_of_its_async_with_statement_raises_an_exception(
    fake_peer: Any, fake_broker: Any, linger_ms: float | None
) -> None:
    """Sends that other tasks make after it must end with a result or an error."""

    async def test() -> None:
        async with fake_peer() as peer, asyncio.timeout(10):
            broker = fake_broker(peer)
            peer.answers[310] = lambda _: None
            sending: list[asyncio.Task[object]] = []
            producer = Producer("pg", peer.address, linger_ms=linger_ms)

            async def raise_inside() -> None:
                async with producer:
                    sending.append(asyncio.create_task(producer.send(Message("T", b"x"), timeout_ms=50)))
                    await peer.until(lambda: bool(broker.peer.of_code(310)))
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await raise_inside()
            with pytest.raises(RemotingError):
                await sending[0]
            with pytest.raises(RemotingError, match="closed"):
                await producer.send(Message("T", b"x"))
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(test())
