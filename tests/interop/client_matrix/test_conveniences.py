"""The functions that the Python client adds to the protocol work at every broker."""

from __future__ import annotations

import asyncio

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client import (
    Consumer,
    ConsumeResult,
    Consumers,
    Message,
    MessageExt,
    Producer,
    TransactionProducer,
    TransactionState,
)

from .sites import LIMIT_S, Room, feature, until


@feature("more", "a namespace: separate topics and groups, with a retry and a transaction")
async def test_messages_are_sent_and_consumed_within_a_namespace(room: Room) -> None:
    namespace = room.name
    inside = await room.topic(queues=2, named=f"{namespace}%T")  # those who create topics know whole names
    seen: list[MessageExt] = []

    async def listen(message: MessageExt) -> ConsumeResult:
        seen.append(message)
        failed = message.body == b"0" and not message.reconsume_times
        return ConsumeResult.LATER if failed else ConsumeResult.SUCCESS

    def check(_message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer("p", room.address, check=check, namespace=namespace) as producer:
        for number in range(3):
            assert (await producer.send(Message("T", b"%d" % number))).queue.topic == "T"
        await producer.send_in_transaction(Message("T", b"half"), lambda *_: TransactionState.COMMIT)
    settings = room.settings()
    async with Consumer("g", room.address, listen, settings=settings, namespace=namespace) as consumer:
        await consumer.subscribe("T")
        await until(lambda: _is(len(seen) >= 5), "every message, and one of them again")
    assert {message.topic for message in seen} == {"T"}
    assert sorted(message.body for message in seen) == [b"0", b"0", b"1", b"2", b"half"]
    assert len(await room.stored(inside, 4)) == 4


@feature("more", "functions that are declared as handlers (`Consumers`)")
async def test_functions_declared_as_message_handlers_get_the_messages_of_their_topics(room: Room) -> None:
    first, second = await room.topic(which="t"), await room.topic(which="u")
    found: dict[str, set[bytes]] = {"one": set(), "lists": set()}
    consumers = Consumers(room.address)

    @consumers.handler(first, group=room.group("one"), settings=room.settings())
    @consumers.handler(second, group=room.group("one"))
    async def one(message: MessageExt) -> None:
        found["one"].add(message.body)

    @consumers.batch_handler(first, group=room.group("lists"), expression="a", settings=room.settings())
    async def lists(messages: list[MessageExt]) -> None:
        found["lists"] |= {message.body for message in messages}

    async with Producer(room.group("p"), room.address) as producer:
        await producer.send(Message(first, b"a", tags="a"))
        await producer.send(Message(first, b"b", tags="b"))
        await producer.send(Message(second, b"c"))
    async with consumers:
        await until(lambda: _is(found == {"one": {b"a", b"b", b"c"}, "lists": {b"a"}}), "every handler")


class Offsets:
    """Keeps offsets in memory, as a program would in its database."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}

    async def load(self, queue: MessageQueue) -> int | None:
        return self.kept.get(queue)

    async def save(self, offsets: dict[MessageQueue, int]) -> None:
        self.kept |= offsets


@feature("more", "offsets in the program's own store")
async def test_a_consumer_keeps_its_offsets_in_an_offset_store_supplied_by_the_application(room: Room) -> None:
    topic, offsets = await room.topic(queues=1), Offsets()
    async with Producer(room.group("p"), room.address) as producer:
        for number in range(4):
            await producer.send(Message(topic, b"%d" % number))
        assert len(await room.consume(topic, 4, group=room.group(), offset_store=offsets)) == 4
        assert max(offsets.kept.values()) == 4
        await producer.send(Message(topic, b"4"))
    (last,) = await room.consume(topic, 1, group=room.group(), offset_store=offsets)
    assert last.body == b"4"


@feature("more", "latency back-off, and a send to a second broker if the first did not make the message durable")
async def test_a_producer_with_latency_backoff_sends_to_every_queue_if_the_topic_is_on_a_single_broker(
    room: Room,
) -> None:
    topic = await room.topic()
    async with Producer(room.group(), room.address, latency_backoff=True, retry_when_not_durable=True) as producer:
        async with asyncio.timeout(LIMIT_S):
            results = [await producer.send(Message(topic, b"%d" % number)) for number in range(8)]
    assert len({result.queue for result in results}) == 4, "the only broker is used, whatever it was before"
    assert len(await room.stored(topic, 8)) == 8


async def _is(holds: bool) -> bool:
    return holds
