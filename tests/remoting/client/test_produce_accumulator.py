"""Sends that leave in one batch: each caller must learn of its own message, in the order of its queue, whatever others do."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError, RemotingTimeoutError
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import decode_records
from flintmq.remoting.client.message import Message, decode_messages
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import SendResult
from flintmq.remoting.wire.command import RemotingCommand, encode_command, response

Test = Callable[[Any, Producer], Awaitable[None]]


def run(fake_peer: Any, fake_broker: Any, test: Test, **options: Any) -> None:
    """Run a test with a producer that gathers what one turn of the loop brings, and see that nothing is left of it."""

    async def with_producer() -> None:
        unhandled: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with fake_peer() as peer:
            broker = fake_broker(peer)
            async with Producer("pg", peer.address, **{"linger_ms": 0, **options}) as producer:
                await test(broker, producer)
                gatherer = producer._gatherer
            assert gatherer is not None
            assert len(gatherer) == 0
        assert not unhandled

    asyncio.run(with_producer())


def record_of(broker: Any, sent: SendResult) -> Any:
    """Return the record where a result says that it is."""
    (record,) = decode_records(broker.records[sent.queue.topic, sent.queue.queue_id][sent.queue_offset])
    return record


def bodies_of(asked: RemotingCommand) -> list[bytes]:
    return [item.body for item in decode_batch(asked.body)] if asked.code == 320 else [asked.body]


def sends(broker: Any) -> list[RemotingCommand]:
    return [asked for asked in broker.peer.requests if asked.code in (310, 320)]


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay_level=1),
        Message("T", b"x", properties={"TIMER_DELAY_MS": "5"}),
        Message("T", b"x", properties={"MSG_TYPE": "other"}),
        Message("%RETRY%g", b"x"),
        Message("T", bytes(100)),  # to be compressed
    ],
)
def test_concurrent_messages_that_are_not_allowed_in_batches_are_sent_in_separate_requests(
    fake_peer: Any, fake_broker: Any, message: Message
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        broker.topics.add("%RETRY%g")
        await asyncio.gather(*(producer.send(message) for _ in range(3)))
        in_order = await asyncio.gather(*(producer.send(message, sharding_key="k") for _ in range(3)))
        assert [asked.code for asked in sends(broker)] == [310] * 6
        assert len({sent.queue for sent in in_order}) == 1

    run(fake_peer, fake_broker, test, compress_over_bytes=100)


def test_a_batch_of_messages_is_sent_when_its_linger_time_ends(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        begin_s = asyncio.get_running_loop().time()
        first = asyncio.create_task(producer.send(Message("T", b"1")))
        await asyncio.sleep(0)
        assert not sends(broker)
        await asyncio.gather(first, producer.send(Message("T", b"2")))
        assert asyncio.get_running_loop().time() - begin_s >= 0.02
        assert [bodies_of(asked) for asked in sends(broker)] == [[b"1", b"2"]]

    run(fake_peer, fake_broker, test, linger_ms=20)


def test_each_caller_of_a_failed_batch_gets_a_separate_exception(fake_peer: Any, fake_broker: Any) -> None:
    """An exception that many tasks raise would gather the tracebacks of all of them."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda asked: response(asked, 16, "read only")
        outcomes = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True)
        assert len(sends(broker)) == 3, "a batch is tried again as one message is"
        for outcome in outcomes:
            assert isinstance(outcome, RefusedError)
            assert (outcome.code, outcome.reason, str(outcome)) == (16, "broker.refused", "read only")
        assert len({id(outcome) for outcome in outcomes}) == 3

    run(fake_peer, fake_broker, test)


def test_a_refused_message_does_not_fail_the_other_messages_of_its_batch(fake_peer: Any, fake_broker: Any) -> None:
    """The client or the broker may refuse a message; the others have other callers."""

    async def test(broker: Any, producer: Producer) -> None:
        def judge(asked: RemotingCommand) -> RemotingCommand:
            if b"bad" in bodies_of(asked):
                return response(asked, 13, "illegal")
            answer: RemotingCommand = (broker.send_batch if asked.code == 320 else broker.send)(asked)
            return answer

        broker.peer.answers[310] = broker.peer.answers[320] = judge
        messages = [Message("T", b"1"), Message("T", b"bad"), Message("T", b"", tags="a\x02b"), Message("T", b"2")]
        one, bad, wrong, two = await asyncio.gather(*map(producer.send, messages), return_exceptions=True)
        assert isinstance(one, SendResult)
        assert isinstance(two, SendResult)
        assert (record_of(broker, one).body, record_of(broker, two).body) == (b"1", b"2")
        assert isinstance(bad, RefusedError)
        assert isinstance(wrong, ValueError)
        with pytest.raises(ValueError, match="at most"):
            await producer.send(Message("T", bytes(1_001)))
        with pytest.raises(ValueError, match="not both"):
            await producer.send(Message("T", b""), one.queue, sharding_key="k")

    run(fake_peer, fake_broker, test, max_message_bytes=1_000)


def test_canceling_the_send_of_a_message_in_a_sent_batch_does_not_affect_the_other_messages(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda asked: None
        tasks = [asyncio.create_task(producer.send(Message("T", b"%d" % number))) for number in range(3)]
        await broker.peer.until(lambda: bool(sends(broker)))
        tasks[1].cancel()
        broker.peer.push(broker.send_batch(sends(broker)[0]))
        first, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(first, SendResult)
        assert isinstance(last, SendResult)
        assert (first.queue_offset, last.queue_offset) == (0, 2)

    run(fake_peer, fake_broker, test)


def test_the_next_batch_of_a_queue_is_sent_after_the_answer_to_the_previous_batch(
    fake_peer: Any, fake_broker: Any
) -> None:
    """A broker may handle two requests of one connection at once, and a batch that is tried again would come after."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[310] = broker.peer.answers[320] = lambda asked: None
        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(producer.send(Message("T", b"%d" % number), sharding_key="k")))
            await broker.peer.until(lambda: bool(sends(broker)))
        assert [bodies_of(asked) for asked in sends(broker)] == [[b"0"]]
        broker.peer.push(response(sends(broker)[0], 14, "no"))
        await broker.peer.until(lambda: len(sends(broker)) == 2)
        broker.peer.push(broker.send_batch(sends(broker)[1]))
        first, *others = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, RefusedError)
        assert [record_of(broker, sent).body for sent in others] == [b"1", b"2", b"3", b"4", b"5"]

    run(fake_peer, fake_broker, test)


def test_a_message_whose_timeout_has_passed_is_not_sent(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[310] = lambda asked: None
        first = asyncio.create_task(producer.send(Message("T", b"1"), sharding_key="k", timeout_ms=500))
        await broker.peer.until(lambda: bool(sends(broker)))
        behind = [
            producer.send(Message("T", b"2"), sharding_key="k", timeout_ms=1),
            producer.send(Message("T", b"3"), sharding_key="k", timeout_ms=5_000),
            producer.send(Message("T", b"4"), sharding_key="k", timeout_ms=5_000),
        ]
        lost, late, *stored = await asyncio.gather(first, *behind, return_exceptions=True)
        assert isinstance(lost, RemotingTimeoutError)
        assert isinstance(late, RemotingTimeoutError)
        assert [bodies_of(asked) for asked in sends(broker)] == [[b"1"], [b"3", b"4"]]
        assert all(isinstance(sent, SendResult) for sent in stored)

    run(fake_peer, fake_broker, test)


def test_closing_a_producer_sends_messages_waiting_for_a_batch_and_refuses_later_sends(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The messages belong to other tasks, so they are sent although the body of the statement raised."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[310] = lambda asked: None
        task = asyncio.create_task(producer.send(Message("T", b"x"), sharding_key="k"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        await broker.peer.until(lambda: bool(sends(broker)))
        with pytest.raises(RemotingError, match="closed"):
            await producer.send(Message("T", b"x"))
        broker.peer.push(broker.send(sends(broker)[0]))
        await closing
        assert record_of(broker, await task).body == b"x"
        with pytest.raises(RemotingError, match="closed"):
            await producer.send(Message("T", b"x"))

    run(fake_peer, fake_broker, test, linger_ms=3_600_000)


def test_canceling_the_close_of_a_producer_ends_every_waiting_send_with_an_error(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[310] = broker.peer.answers[320] = lambda asked: None
        await producer.queues("T")
        keyed = [asyncio.create_task(producer.send(Message("T", b"k"), sharding_key="k")) for _ in range(3)]
        free = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        await broker.peer.until(lambda: len(sends(broker)) == 2)
        closing.cancel()
        for outcome in await asyncio.gather(closing, *keyed, *free, return_exceptions=True):
            assert isinstance(outcome, RemotingError | asyncio.CancelledError)

    run(fake_peer, fake_broker, test, linger_ms=3_600_000)


def test_messages_of_a_sharding_key_keep_their_order_while_the_route_is_fetched(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        tasks = [asyncio.create_task(producer.send(Message("T", b"%03d" % n), sharding_key="k")) for n in range(50)]
        while not tasks[49].done():
            tasks.append(asyncio.create_task(producer.send(Message("T", b"%03d" % len(tasks)), sharding_key="k")))
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks)
        assert [record_of(broker, sent).body for sent in results] == [b"%03d" % n for n in range(len(tasks))]
        assert [sent.queue_offset for sent in results] == list(range(len(tasks)))
        assert len(broker.peer.of_code(105)) == 1
        with pytest.raises(RefusedError):
            await producer.send(Message("nowhere", b""), sharding_key="k")

    run(fake_peer, fake_broker, test)


class Trial:
    """Sends at random through a broker that answers late, in any order, refuses and hangs up."""

    def __init__(self, broker: Any, producer: Producer, chance: random.Random) -> None:
        self.broker, self.producer, self.chance = broker, producer, chance
        self.answers: list[asyncio.Task[None]] = []
        self.sent: dict[bytes, Any] = {}
        for code in (310, 320):
            broker.peer.answers[code] = self.answer

    def answer(self, asked: RemotingCommand) -> RemotingCommand | None:
        kind = self.chance.random()
        if kind < 0.1:
            return response(asked, self.chance.choice([2, 13, 14]), "no")
        if kind < 0.12:
            self.broker.peer.transports[-1].abort()
            return None
        stored: RemotingCommand = (self.broker.send_batch if asked.code == 320 else self.broker.send)(asked)
        if kind < 0.5:
            return stored
        self.answers.append(asyncio.create_task(self.later(stored)))
        return None

    async def later(self, answer: RemotingCommand) -> None:
        for _ in range(self.chance.randrange(20)):
            await asyncio.sleep(0)
        for transport in self.broker.peer.transports:
            transport.write(encode_command(answer))

    async def send(self, number: int) -> None:
        chance = self.chance
        key = chance.choice([None, None, "a", "b", "c"])
        message = Message(
            chance.choice("TTTU"), b"%s-%05d" % ((key or "-").encode(), number), delay_level=chance.random() < 0.1,
            properties={"user": "x"} if chance.random() < 0.3 else {}, wait_store=key is not None or chance.random() < 0.8,
        )  # fmt: skip
        task = asyncio.create_task(
            self.producer.send(message, sharding_key=key, timeout_ms=chance.choice([5_000, 5_000, 6_000]))
        )
        self.sent[message.body] = task
        for _ in range(chance.choice([0, 0, 0, 1, 5])):
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            task.cancel()

    def check(self) -> None:
        """What was stored is where its result says, in order; what was refused or given up in time is nowhere twice."""
        order: dict[Any, list[tuple[int, bytes]]] = defaultdict(list)
        for body, task in self.sent.items():
            if task.cancelled() or isinstance(task.exception(), RemotingError | RefusedError):
                continue
            sent = task.result()
            assert record_of(self.broker, sent).body == body
            if not body.startswith(b"-"):
                order[sent.queue, body[:1]].append((sent.queue_offset, body))
        for found in order.values():
            assert found == sorted(found), "in the order of the sends"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), linger_ms=st.sampled_from([0, 0, 1]), count=st.integers(1, 120))
def test_each_successful_send_result_has_the_position_of_its_stored_message_despite_random_faults(
    fake_peer: Any, fake_broker: Any, seed: int, linger_ms: int, count: int
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        broker.topics.add("U")
        trial = Trial(broker, producer, random.Random(seed))
        for number in range(count):
            await trial.send(number)
        await asyncio.gather(*trial.sent.values(), return_exceptions=True)
        await asyncio.gather(*trial.answers)
        trial.check()
        broker.peer.answers.update({310: broker.send, 320: broker.send_batch})
        again = await asyncio.gather(*(producer.send(Message("T", b"again")) for _ in range(5)))
        assert [record_of(broker, sent).body for sent in again] == [b"again"] * 5, "and it goes on working"

    run(fake_peer, fake_broker, test, linger_ms=linger_ms, linger_max_bytes=300)


async def send_each(producer: Producer, *bodies: bytes, **options: Any) -> list[SendResult]:
    return await asyncio.gather(*(producer.send(Message("T", body), **options) for body in bodies))


def test_concurrent_sends_share_a_request_and_each_send_gets_its_own_result(fake_peer: Any, fake_broker: Any) -> None:
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


def test_a_message_without_concurrent_sends_is_sent_as_a_single_message_and_not_as_a_batch(
    fake_peer: Any, fake_broker: Any
) -> None:
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
def test_a_message_not_allowed_in_a_batch_is_sent_alone_and_concurrent_messages_are_batched(
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


def test_messages_with_different_topics_or_queues_or_timeouts_are_sent_in_separate_batches(
    fake_peer: Any, fake_broker: Any
) -> None:
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


def test_a_full_batch_is_sent_before_its_linger_ends(fake_peer: Any, fake_broker: Any) -> None:
    """A producer that lingers long must neither hold more than a batch, nor send more than a broker takes."""

    async def test(broker: Any, producer: Producer) -> None:
        sending = [asyncio.ensure_future(producer.send(Message("T", bytes(40_000)))) for _ in range(14)]
        await broker.peer.until(lambda: len(broker.peer.of_code(320)) == 2)
        assert [len(bodies_of(asked)) for asked in broker.peer.of_code(320)] == [6, 6]
        assert [task.done() for task in sending[12:]] == [False, False], "these two wait for more, or for their time"
        await producer.close()
        assert len(await asyncio.gather(*sending)) == 14

    run(fake_peer, fake_broker, test, linger_ms=60_000)


def test_messages_of_a_sharding_key_stay_in_order_while_a_batch_is_unanswered(fake_peer: Any, fake_broker: Any) -> None:
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


def test_canceling_a_send_before_its_batch_is_sent_removes_the_message_from_the_batch(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The other messages of the batch are sent as usual."""

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


def test_every_send_in_a_batch_fails_if_the_broker_refuses_the_batch(fake_peer: Any, fake_broker: Any) -> None:
    """The batch is stored together, or not at all."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda asked: response(asked, 2, "no room")
        outcomes = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RefusedError] * 3

    run(fake_peer, fake_broker, test)


def test_an_invalid_message_fails_only_its_own_send(fake_peer: Any, fake_broker: Any) -> None:
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


def test_every_send_in_a_batch_times_out_if_the_broker_does_not_answer(fake_peer: Any, fake_broker: Any) -> None:
    """It is not known whether any of them is stored; a broker that does not answer is not asked twice within the time."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[320] = lambda _: None
        outcomes = await asyncio.gather(
            *(producer.send(Message("T", b"x"), timeout_ms=30) for _ in range(2)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [RemotingTimeoutError] * 2

    run(fake_peer, fake_broker, test)


def test_closing_the_client_of_a_producer_fails_every_unanswered_send(fake_peer: Any, fake_broker: Any) -> None:
    """Each sender must learn of it, whether its message was already sent or not."""

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
def test_each_send_result_has_the_queue_offset_at_which_the_message_of_that_send_is_stored(
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
        assert len(gatherer) == 0

    run(fake_peer, fake_broker, test)


def test_a_negative_linger_time_is_refused(fake_peer: Any, fake_broker: Any) -> None:
    """The refusal says what the numbers mean."""
    with pytest.raises(ValueError, match="and must be 0 or more"):
        Producer("pg", "127.0.0.1:1", linger_ms=-1)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="tasks that begin at once came with Python 3.12")
def test_batched_sends_succeed_in_an_event_loop_with_an_eager_task_factory(fake_peer: Any, fake_broker: Any) -> None:
    """A task that has ended before ``create_task`` returns must not be waited for, nor count as under way."""

    async def test(broker: Any, producer: Producer) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
        sends_ = [producer.send(Message("T", b"%d" % number), sharding_key=f"{number % 3}") for number in range(20)]
        results = await asyncio.gather(*sends_, *(producer.send(Message("T", b"x")) for _ in range(5)))
        assert len({result.msg_id for result in results}) == 25

    run(fake_peer, fake_broker, test)
    run(fake_peer, fake_broker, test, linger_ms=5)
