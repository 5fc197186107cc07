"""Sends that are gathered have the results, the order and the errors that each would have by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError, RemotingTimeoutError
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.properties import string_to_properties
from flintmq.remoting.client.message import Message, decode_messages
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import SendResult
from flintmq.remoting.wire.command import RemotingCommand, response


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any, Producer], Awaitable[None]], **options: Any) -> None:
    async def with_producer() -> None:
        async with fake_peer() as peer, asyncio.timeout(20):
            broker = fake_broker(peer)
            async with Producer("pg", peer.address, **{"linger_ms": 0, **options}) as producer:
                await test(broker, producer)

    asyncio.run(with_producer())


async def send_each(producer: Producer, *bodies: bytes, **options: Any) -> list[SendResult]:
    return await asyncio.gather(*(producer.send(Message("T", body), **options) for body in bodies))


def bodies_of(asked: RemotingCommand) -> list[bytes]:
    return [item.body for item in decode_batch(asked.body)] if asked.code == 320 else [asked.body]


def test_concurrent_sends_are_one_request_and_each_has_its_result(fake_peer: Any, fake_broker: Any) -> None:
    """The ids lead to the messages, at the broker as in the message itself."""

    async def test(broker: Any, producer: Producer) -> None:
        results = await send_each(producer, b"a", b"b", b"c")
        (asked,) = broker.peer.of_code(320)
        assert bodies_of(asked) == [b"a", b"b", b"c"]
        assert not broker.peer.of_code(310)
        items = decode_batch(asked.body)
        assert [result.msg_id for result in results] == [
            string_to_properties(item.properties_bytes.decode())["UNIQ_KEY"] for item in items
        ]
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert len({result.offset_msg_id for result in results}) == 3
        assert {result.queue for result in results} == {results[0].queue}

    run(fake_peer, fake_broker, test)


def test_a_message_alone_is_sent_as_ever(fake_peer: Any, fake_broker: Any) -> None:
    """A batch of one would cost more, at the broker too."""

    async def test(broker: Any, producer: Producer) -> None:
        (result,) = await send_each(producer, b"a")
        (asked,) = broker.peer.of_code(310)
        assert string_to_properties(asked.ext_fields["i"])["UNIQ_KEY"] == result.msg_id
        assert not broker.peer.of_code(320)

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (Message("T", b"x", delay_level=3), {}),
        (Message("T", b"x", properties={"TIMER_DELAY_MS": "100"}), {}),
        (Message("T", b"x", properties={"DELAY": "3"}), {}),
        (Message("%RETRY%g", b"x"), {}),
        (Message("T", b"x" * 100), {"compress_over_bytes": 100}),
    ],
)
def test_what_no_batch_can_hold_goes_by_itself(
    fake_peer: Any, fake_broker: Any, message: Message, options: dict[str, Any]
) -> None:
    """Brokers refuse a batch with such a message; the others in it would be refused along with it."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.topics.add("%RETRY%g")
        await asyncio.gather(
            producer.send(message), producer.send(message), *(producer.send(Message("T", b"a")) for _ in "ab")
        )
        assert len(broker.peer.of_code(310)) == 2
        (batch,) = broker.peer.of_code(320)
        assert bodies_of(batch) == [b"a", b"a"]

    run(fake_peer, fake_broker, test, **options)


def test_only_what_belongs_together_is_one_request(fake_peer: Any, fake_broker: Any) -> None:
    """A batch has one topic, one queue, one promise of durability, and one time limit."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.topics.add("U")
        first, second = await producer.queues("T")
        kinds: list[tuple[Message, dict[str, Any]]] = [
            (Message("T", b"topic T"), {}),
            (Message("U", b"topic U"), {}),
            (Message("T", b"first queue"), {"queue": first}),
            (Message("T", b"second queue"), {"queue": second}),
            (Message("T", b"not durable", wait_store=False), {}),
            (Message("T", b"in a hurry"), {"timeout_ms": 1_000}),
        ]
        await asyncio.gather(*(producer.send(message, **options) for message, options in kinds * 2))
        found = [bodies_of(asked) for asked in broker.peer.of_code(320)]
        assert sorted(found) == sorted([message.body] * 2 for message, _ in kinds)
        assert [
            asked.ext_fields["e"] for asked in broker.peer.of_code(320) if bodies_of(asked)[0] == b"second queue"
        ] == ["1"]

    run(fake_peer, fake_broker, test)


def test_a_batch_leaves_when_it_is_full(fake_peer: Any, fake_broker: Any) -> None:
    """A producer that lingers long must neither hold more than a batch, nor send more than a broker takes."""

    async def test(broker: Any, producer: Producer) -> None:
        sending = [asyncio.ensure_future(producer.send(Message("T", bytes(40_000)))) for _ in range(14)]
        await broker.peer.until(lambda: len(broker.peer.of_code(320)) == 2)
        assert [len(bodies_of(asked)) for asked in broker.peer.of_code(320)] == [6, 6]
        assert [task.done() for task in sending[12:]] == [False, False], "these two wait for more, or for their time"
        await producer.close()
        assert len(await asyncio.gather(*sending)) == 14

    run(fake_peer, fake_broker, test, linger_ms=60_000)


def test_keyed_messages_stay_in_order_though_they_wait(fake_peer: Any, fake_broker: Any) -> None:
    """A broker with several threads may store the second of two requests first: the next waits for the answer."""

    async def test(broker: Any, producer: Producer) -> None:
        held: list[RemotingCommand] = []
        broker.peer.answers[320] = held.append
        tasks = [asyncio.ensure_future(producer.send(Message("T", b"%d" % n), sharding_key="k")) for n in range(2)]
        await broker.peer.until(lambda: len(held) == 1)
        tasks += [asyncio.ensure_future(producer.send(Message("T", b"%d" % n), sharding_key="k")) for n in range(2, 5)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(held) == 1
        broker.peer.answers[320] = broker.send_batch
        broker.peer.push(broker.send_batch(held[0]))
        results = await asyncio.gather(*tasks)
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
        assert [bodies_of(asked) for asked in broker.peer.of_code(320)] == [[b"0", b"1"], [b"2", b"3", b"4"]]

    run(fake_peer, fake_broker, test)


def test_who_is_cancelled_takes_the_message_back_unless_it_has_left(fake_peer: Any, fake_broker: Any) -> None:
    """And the others of the batch do not notice."""

    async def test(broker: Any, producer: Producer) -> None:
        tasks = [asyncio.ensure_future(producer.send(Message("T", body))) for body in (b"a", b"b", b"c")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert [bodies_of(asked) for asked in broker.peer.of_code(320)] == [[b"a", b"c"]]
        assert [outcomes[0].queue_offset, outcomes[2].queue_offset] == [0, 1]  # type: ignore[union-attr]
        alone = asyncio.ensure_future(producer.send(Message("T", b"d")))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        await send_each(producer, b"e")
        assert [bodies_of(asked) for asked in broker.peer.of_code(310)] == [[b"e"]]

    run(fake_peer, fake_broker, test)


def test_a_refusal_is_everybodys(fake_peer: Any, fake_broker: Any) -> None:
    """The batch is stored together, or not at all."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda asked: response(asked, 13, "no room")
        outcomes = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RefusedError] * 3

    run(fake_peer, fake_broker, test)


def test_a_message_that_cannot_be_sent_is_nobody_elses_concern(fake_peer: Any, fake_broker: Any) -> None:
    """A mistake of one caller is told to this caller, before the batch."""

    async def test(broker: Any, producer: Producer) -> None:
        wrong = Message("T", b"x", tags="with\x01separator")
        outcomes = await asyncio.gather(
            producer.send(Message("T", b"a")),
            producer.send(wrong),
            producer.send(Message("T", b"b")),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], ValueError)
        assert [bodies_of(asked) for asked in broker.peer.of_code(320)] == [[b"a", b"b"]]

    run(fake_peer, fake_broker, test)


def test_no_answer_in_time(fake_peer: Any, fake_broker: Any) -> None:
    """It is not known whether any of them is stored; a broker that does not answer is not asked twice within the time."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda _: None
        outcomes = await asyncio.gather(
            *(producer.send(Message("T", b"x"), timeout_ms=30) for _ in range(2)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [RemotingTimeoutError] * 2

    run(fake_peer, fake_broker, test)


def test_a_client_that_is_closed_meanwhile_leaves_nobody_waiting(fake_peer: Any, fake_broker: Any) -> None:
    """Of a shared client, say: senders are told, whether their message has left or not."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda _: None
        left = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(2)]
        await broker.peer.until(lambda: bool(broker.peer.of_code(320)))
        await producer.client.close()
        outcomes = await asyncio.gather(*left, return_exceptions=True)
        assert all(isinstance(outcome, RemotingError) for outcome in outcomes), outcomes
        await producer.close()
        with pytest.raises(RemotingConnectError):
            await producer.send(Message("T", b"x"))

    run(fake_peer, fake_broker, test, retries=0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans(), st.sampled_from([10, 50_000])), max_size=60)
)
def test_every_result_is_of_its_own_message(
    fake_peer: Any, fake_broker: Any, sends: list[tuple[int, int, bool, int]]
) -> None:
    """However sends come, are keyed and cancelled: what a caller is told is where its own message lies, and nothing is lost."""

    async def test(broker: Any, producer: Producer) -> None:
        async def one(number: int, pause: int, key: int, is_cancelled: bool, size_bytes: int) -> None:
            for _ in range(pause):
                await asyncio.sleep(0)
            body = b"%06d" % number + bytes(size_bytes)
            task = asyncio.ensure_future(producer.send(Message("T", body), sharding_key=str(key) if key else None))
            if is_cancelled:
                await asyncio.sleep(0)
                task.cancel()
            try:
                result = await task
            except asyncio.CancelledError:
                return
            kept.append((result, body))

        kept: list[tuple[SendResult, bytes]] = []
        await asyncio.gather(*(one(number, *sent) for number, sent in enumerate(sends)))
        assert len(kept) >= sum(not sent[2] for sent in sends)
        for result, body in kept:
            (found,) = decode_messages(broker.records["T", result.queue.queue_id][result.queue_offset])
            assert (found.body, found.msg_id, found.offset_msg_id) == (body, result.msg_id, result.offset_msg_id)
        gatherer = producer._gatherer
        assert gatherer is not None
        await gatherer.close()
        assert not gatherer._lanes
        assert not gatherer._sending

    run(fake_peer, fake_broker, test)


def test_a_negative_linger_is_refused(fake_peer: Any, fake_broker: Any) -> None:
    """The refusal says what the numbers mean."""
    with pytest.raises(ValueError, match="0 gathers what is sent at the same time"):
        Producer("pg", "127.0.0.1:1", linger_ms=-1)
