"""Signed, encrypted, or without an event loop: the same client at every broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from flintmq.client import sync
from flintmq.remoting.client import AdminClient, Consumer, Message, Producer, RefusedError
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.server.tls import client_context

from .sites import LIMIT_S, Room, feature, signer, until
from .test_consuming import numbers
from .test_sending import ODD, user_properties


@asynccontextmanager
async def secured(room: Room) -> AsyncIterator[None]:
    """Return the broker that accepts only signed requests, after its registration at the name server."""
    with ExitStack() as held:
        await asyncio.to_thread(
            held.enter_context, room.site.secured()
        )  # each broker has a separate thread and event loop
        async with AdminClient(room.address) as admin:

            async def registered() -> bool:
                return "Secured" in (await admin.cluster_info()).cluster_addr_table

            await until(registered, "the broker to register")
        yield
        await asyncio.to_thread(held.close)


@feature("access", "signed requests (ACL): unsigned requests are refused")
async def test_signed_requests_are_accepted_and_unsigned_requests_refused(room: Room) -> None:
    async with secured(room):
        topic = await room.topic(queues=2, cluster="Secured", hooks=[signer()])
        async with Producer(room.group("p"), room.address) as stranger:
            with pytest.raises(RefusedError):
                await stranger.send(Message(topic, b"not signed"))
        seen: list[MessageExt] = []
        done = asyncio.Event()

        async def listen(message: MessageExt) -> None:
            seen.append(message)
            if len(seen) == 6:
                done.set()

        async with Producer(room.group("p"), room.address, hooks=[signer()]) as producer:
            for number in range(3):
                await producer.send(Message(topic, b"%d" % number, tags="größe", properties=ODD))
            await producer.send_batch([Message(topic, b"%d" % number, properties=ODD) for number in range(3, 6)])
        async with Consumer(room.group(), room.address, listen, settings=room.settings(), hooks=[signer()]) as consumer:
            await consumer.subscribe(topic)
            await asyncio.wait_for(done.wait(), LIMIT_S)
    assert sorted(numbers(seen)) == list(range(6))
    assert all(user_properties(message) == ODD for message in seen)


@feature("access", "encrypted (TLS), to broker and name server")
async def test_messages_pass_unchanged_over_tls(room: Room) -> None:
    topic = await room.topic(queues=1)
    tls = {"ssl_context": client_context(verify=False)}
    body = bytes(range(256)) * 4_000  # many records of TLS
    async with Producer(room.group("p"), room.address, **tls) as producer:
        await producer.send(Message(topic, body, properties=ODD))
    (message,) = await room.consume(topic, 1, **tls)
    assert (message.body, user_properties(message)) == (body, ODD)


@feature("access", "without an event loop: producer, listener, iteration, polls, transactions, admin")
async def test_synchronous_clients_can_send_and_consume_in_a_thread_without_an_event_loop(room: Room) -> None:
    topic = await room.topic(queues=2)
    await asyncio.to_thread(_use_without_a_loop, room, topic)


def _use_without_a_loop(room: Room, topic: str) -> None:
    settings = room.settings()
    seen: list[MessageExt] = []
    done = threading.Event()

    def listen(message: MessageExt) -> None:
        seen.append(message)
        if len(seen) == 7:
            done.set()

    with sync.Producer(room.group("p"), room.address) as producer:
        producer.send(Message(topic, b"0", tags="a", properties=ODD), sharding_key="k")
        producer.send_oneway(Message(topic, b"1"))
        producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        producer.send_all([Message(topic, b"4"), Message(topic, b"5")])
    with sync.TransactionProducer(
        room.group("t"), room.address, check=lambda _message: sync.TransactionState.ROLLBACK
    ) as producer:
        producer.send_in_transaction(Message(topic, b"6"), lambda _message, _id: sync.TransactionState.COMMIT)
        producer.send_in_transaction(Message(topic, b"7"), lambda _message, _id: sync.TransactionState.ROLLBACK)
    with sync.Consumer(room.group("l"), room.address, listen, settings=settings) as consumer:
        consumer.subscribe(topic)
        assert done.wait(LIMIT_S)
    assert sorted(numbers(seen)) == list(range(7))
    with sync.Consumer(room.group("i"), room.address, settings=settings) as consumer:
        consumer.subscribe(topic, "a")
        message = next(iter(consumer))
    assert (message.body, user_properties(message)) == (b"0", ODD)
    with sync.PullConsumer(room.group("h"), room.address) as by_hand:
        by_hand.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        found: list[MessageExt] = []
        while len(found) < 7:
            found += by_hand.poll()
        by_hand.commit()
    assert sorted(numbers(found)) == list(range(7))
    with sync.AdminClient(room.address) as admin:
        assert sum(queue.max_queue_offset for queue in admin.topic_stats(topic).values()) == 7


@feature("access", "traced: the trace topic shows the sends and deliveries of a message")
async def test_the_trace_topic_records_the_send_and_the_delivery_of_a_message(room: Room) -> None:
    topic = await room.topic(queues=1)
    async with Producer(room.group("p"), room.address, trace=True) as producer:
        sent = await producer.send(Message(topic, b"traced", keys="k-9"))
    await room.consume(topic, 1, trace=True)

    async def traced() -> bool:
        found = [m.body.decode() for m in await room.stored("RMQ_SYS_TRACE_TOPIC", 1) if sent.msg_id in m.body.decode()]
        return {text.partition("\x01")[0] for body in found for text in body.split("\x02")} >= {
            "Pub",
            "SubBefore",
            "SubAfter",
        }

    await until(traced, "the traces")
