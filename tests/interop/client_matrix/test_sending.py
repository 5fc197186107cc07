"""A producer's functions work at every broker: messages arrive with the bytes and properties that were sent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict

import pytest

from flintmq.core.record.properties import TIMER_DELAY_MS
from flintmq.core.record.sys_flag import COMPRESSED
from flintmq.remoting.client import (
    Consumer,
    Message,
    MessageExt,
    Producer,
    RefusedError,
    SendStatus,
    TransactionProducer,
    TransactionState,
)

from .sites import JAVA_49, JAVA_53, Room, feature, until

BODIES = {
    "empty": b"",
    "text": "Grüße, 世界 \U0001f680".encode(),
    "binary": bytes(range(256)) * 8,
    "large": bytes(1 << 20),
}
ODD = {"a b": "c d", "=": "&?#", "名": "值 \U0001f680", "quote\"'": 'tab\tand "quotes"', "empty-ish": " "}


def user_properties(message: MessageExt) -> dict[str, str]:
    """The properties that the sender set itself."""
    return {name: value for name, value in message.properties.items() if name in ODD}


@feature(
    "send",
    "synchronous, to the queues in turn",
    differs={JAVA_53: "yes, but an empty body is refused"},
)
async def test_messages_are_sent_to_all_queues_in_turn_and_stored_unchanged(room: Room) -> None:
    topic = await room.topic()
    bodies = {name: body for name, body in BODIES.items() if body or room.site.name != JAVA_53}
    started_ms = time.time_ns() // 1_000_000
    async with Producer(room.group(), room.address) as producer:
        sent = [
            await producer.send(Message(topic, body, tags="größe", keys=f"{name} k_2", properties=ODD, flag=7))
            for name, body in bodies.items()
        ]
        if room.site.name == JAVA_53:
            with pytest.raises(RefusedError, match="NullPointerException"):
                await producer.send(Message(topic, b""))
    assert {result.status for result in sent} == {SendStatus.SEND_OK}
    assert len({result.queue for result in sent}) == len(bodies)
    found = {message.msg_id: message for message in await room.stored(topic, len(bodies))}
    assert [found[result.msg_id].body for result in sent] == list(bodies.values())
    for name, result in zip(bodies, sent, strict=True):
        message = found[result.msg_id]
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
        assert (message.tags, message.keys, message.flag) == ("größe", (name, "k_2"), 7)
        assert user_properties(message) == ODD
        assert message.offset_msg_id == result.offset_msg_id
        assert message.born_host.startswith("127.0.0.1:")
        assert started_ms <= message.born_timestamp_ms <= message.store_timestamp_ms + 1
        assert message.reconsume_times == 0


@feature("send", "one-way")
async def test_one_way_messages_are_stored(room: Room) -> None:
    topic = await room.topic()
    async with Producer(room.group(), room.address) as producer:
        for number in range(20):
            await producer.send_oneway(Message(topic, b"%d" % number, tags="t"))
        seen = await room.consume(topic, 20)
    assert sorted(int(message.body) for message in seen) == list(range(20))
    assert {message.tags for message in seen} == {"t"}


@feature("send", "a batch, stored together")
async def test_messages_of_a_batch_are_stored_together(room: Room) -> None:
    topic = await room.topic()
    messages = [
        Message(topic, body, tags=name, keys=(name,), properties={"n": name, **ODD}) for name, body in BODIES.items()
    ]
    async with Producer(room.group(), room.address) as producer:
        result = await producer.send_batch(messages)
    found = await room.stored(topic, 4)
    assert [(message.queue, message.queue_offset) for message in found] == [
        (result.queue, result.queue_offset + step) for step in range(4)
    ]
    assert [message.body for message in found] == list(BODIES.values())
    assert [message.tags for message in found] == list(BODIES)
    assert all(user_properties(message) == ODD for message in found)
    assert [message.msg_id for message in found] == result.msg_id.split(",")
    assert [message.offset_msg_id for message in found] == result.offset_msg_id.split(",")


@feature("send", "any number of messages, split into batches")
async def test_a_producer_splits_a_long_list_of_messages_into_batches(room: Room) -> None:
    topic = await room.topic(queues=1)
    messages = [Message(topic, b"%06d" % number + bytes(2_000)) for number in range(3_000)]
    async with Producer(room.group(), room.address) as producer:
        results = await producer.send_all(messages, timeout_ms=20_000)
    assert len(results) == 2
    assert [message.body for message in await room.stored(topic, 3_000)] == [message.body for message in messages]


@feature("send", "by sharding key, in order")
async def test_messages_of_one_sharding_key_stay_in_order(room: Room) -> None:
    topic = await room.topic(queues=8)
    async with Producer(room.group(), room.address) as producer:
        for step in range(10):
            await asyncio.gather(
                *(producer.send(Message(topic, b"%d" % step, keys=k), sharding_key=k) for k in ("a", "b", "ключ", "d4"))
            )
    by_key = defaultdict(list)
    for message in await room.stored(topic, 40):
        by_key[message.keys[0]].append((message.queue_id, message.queue_offset, int(message.body)))
    for found in by_key.values():
        assert len({queue_id for queue_id, _, _ in found}) == 1
        assert [step for _, _, step in sorted(found)] == list(range(10))


@feature("send", "compressed")
async def test_compressed_messages_are_consumed_unchanged(room: Room) -> None:
    topic = await room.topic(queues=1)
    bodies = [b"x" * 100_000, b"short", bytes(range(256)) * 400]
    async with Producer(room.group(), room.address, compress_over_bytes=1_000) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, tags="z"))
    found = await room.stored(topic, 3)
    assert [message.body for message in found] == bodies
    assert [bool(message.sys_flag & COMPRESSED) for message in found] == [True, False, True]
    assert all(message.store_size_bytes < 5_000 for message in found)


@feature("send", "collected into batches with concurrent sends (`linger_ms`)")
async def test_concurrent_sends_are_combined_into_batches_and_each_send_gets_the_result_of_its_message(
    room: Room,
) -> None:
    topic = await room.topic()
    async with Producer(room.group(), room.address, linger_ms=2) as producer:
        messages = [
            Message(topic, b"%d" % number, tags="t", keys=f"k{number}", properties=ODD) for number in range(300)
        ]
        results = await asyncio.gather(*map(producer.send, messages))
    found = {message.msg_id: message for message in await room.stored(topic, 300)}
    assert len(found) == len({result.msg_id for result in results}) == 300
    for message, result in zip(messages, results, strict=True):
        got = found[result.msg_id]
        assert (got.body, got.keys, got.queue, got.queue_offset, got.offset_msg_id) == (
            message.body,
            message.keys,
            result.queue,
            result.queue_offset,
            result.offset_msg_id,
        )
        assert user_properties(got) == ODD


@feature("send", "delayed by level")
async def test_a_message_with_a_delay_level_is_delivered_later(room: Room) -> None:
    topic = await room.topic(queues=1)
    async with Producer(room.group(), room.address) as producer:
        await producer.send(Message(topic, b"later", tags="a", keys="k", properties=ODD, delay_level=1))
        await producer.send(Message(topic, b"now"))
        now, later = await room.consume(topic, 2)
    assert (now.body, later.body) == (b"now", b"later")
    assert (later.tags, later.keys, user_properties(later)) == ("a", ("k",), ODD)
    assert 950 <= later.store_timestamp_ms - later.born_timestamp_ms < 10_000


@feature("send", "delayed to a time (TIMER_DELAY_MS)", differs={JAVA_49: "delivered at once: 4.9 has no timers"})
async def test_a_timer_message_is_delivered_after_its_delay(room: Room) -> None:
    topic = await room.topic(queues=1)
    timed = Message(topic, b"later", tags="a", properties={TIMER_DELAY_MS: "1500", **ODD})
    async with Producer(room.group(), room.address) as producer:
        await producer.send(timed)
        await producer.send(Message(topic, b"now"))
        seen = {message.body: message for message in await room.consume(topic, 2)}
    waited_ms = seen[b"later"].store_timestamp_ms - seen[b"later"].born_timestamp_ms
    assert (seen[b"later"].tags, user_properties(seen[b"later"])) == ("a", ODD)
    if room.site.name == JAVA_49:
        assert waited_ms < 1_000
    else:
        assert 1_400 <= waited_ms < 20_000


@feature("send", "in a transaction: committed, rolled back, and undecided until the broker's check")
async def test_only_committed_transactions_are_delivered(room: Room) -> None:
    topic = await room.topic(queues=1)
    asked: Counter[bytes] = Counter()

    def check(message: MessageExt) -> TransactionState:
        asked[message.body] += 1
        if asked[message.body] == 1:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if message.body == b"asked, yes" else TransactionState.ROLLBACK

    async with TransactionProducer(room.group("p"), room.address, check=check) as producer:
        plan = {
            b"committed": TransactionState.COMMIT,
            b"rolled back": TransactionState.ROLLBACK,
            b"asked, no": TransactionState.UNKNOWN,
            b"asked, yes": TransactionState.UNKNOWN,
        }
        for body, state in plan.items():
            message = Message(topic, body, tags="a", keys="k", properties=ODD)
            result = await producer.send_in_transaction(message, lambda _message, _id, state=state: state)
            assert (result.state, result.sent.status) == (state, SendStatus.SEND_OK)
        seen = await room.consume(topic, 2)
        await until(lambda: _is_two(asked[b"asked, no"]), "the second check of the one that is rolled back")
    assert [message.body for message in seen] == [b"committed", b"asked, yes"]
    assert all((m.tags, m.keys, user_properties(m)) == ("a", ("k",), ODD) for m in seen)
    assert {message.body for message in await room.stored(topic, 2)} == {b"committed", b"asked, yes"}
    assert asked.keys() == {b"asked, no", b"asked, yes"}


async def _is_two(count: int) -> bool:
    return count >= 2


@feature("send", "a request that is replied to")
async def test_a_producer_gets_the_reply_of_a_consumer_to_its_request_message(room: Room) -> None:
    topic = await room.topic(queues=2)
    async with Producer(room.group("p"), room.address) as producer:

        async def answer(message: MessageExt) -> None:
            await producer.reply(message, b"re: " + message.body, {"status": "ok"})

        async with Consumer(room.group(), room.address, answer, settings=room.settings()) as consumer:
            await consumer.subscribe(topic)
            replies = await asyncio.gather(
                *(producer.request(Message(topic, b"q%d" % n, properties=ODD), timeout_ms=30_000) for n in range(4))
            )
    assert [reply.body for reply in replies] == [b"re: q%d" % number for number in range(4)]
    assert {reply.properties["status"] for reply in replies} == {"ok"}


@feature("send", "a refusal, if the topic is not writable")
async def test_a_send_to_a_read_only_topic_is_refused(room: Room) -> None:
    topic = await room.topic(perm=4)
    async with Producer(room.group(), room.address) as producer:
        with pytest.raises(RefusedError, match="no queue to write to"):
            await producer.send(Message(topic, b""))


@feature("send", "to a missing topic, which the broker creates")
async def test_a_send_to_an_unknown_topic_creates_it(room: Room) -> None:
    topic = room.group("new")
    async with Producer(room.group(), room.address, default_topic_queue_nums=3) as producer:
        sent = await producer.send(Message(topic, b"first"))
        assert sent.status is SendStatus.SEND_OK
        seen = await room.consume(topic, 1)
    assert seen[0].body == b"first"
    assert {message.queue_id for message in await room.stored(topic, 1)} <= {0, 1, 2}
