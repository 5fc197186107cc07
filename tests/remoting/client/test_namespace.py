"""Programs within a namespace see plain names; servers, and clients in other languages, see those of ``NamespaceUtil``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flintmq
from flintmq.client import (
    AdminClient,
    Consumer,
    ConsumeResult,
    ConsumerSettings,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    TransactionProducer,
    TransactionState,
)
from flintmq.remoting.client.allocation import allocate_by_consistent_hash
from flintmq.remoting.client.namespace import Namespace
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker

FROM_FIRST: Any = {"consume_from": "CONSUME_FROM_FIRST_OFFSET", "rebalance_interval_s": 0.1}


@pytest.mark.parametrize(
    ("resource", "wrapped"),
    [
        ("T", "ns%T"),
        ("ns%T", "ns%T"),
        ("nsT", "ns%nsT"),
        ("ns", "ns%ns"),
        ("other%T", "ns%other%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("%RETRY%ns%g", "%RETRY%ns%g"),
        ("TBW102", "TBW102"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("OFFSET_MOVED_EVENT", "OFFSET_MOVED_EVENT"),
        ("CID_ONSAPI_OWNER", "ns%CID_ONSAPI_OWNER"),
    ],
)
def test_names_wrapped_in_a_namespace_equal_those_of_the_java_client(resource: str, wrapped: str) -> None:
    """Java clients of the same namespace must use the same topics, so ``NamespaceUtil`` of 4.9.7 is the model."""
    assert Namespace("ns").wrap(resource) == wrapped
    assert Namespace("ns").unwrap(wrapped) == resource.replace("ns%", "")
    assert Namespace().wrap(resource) == Namespace().unwrap(resource) == resource


@given(
    st.text("ab_-", min_size=1, max_size=9),
    st.sampled_from(["", "%RETRY%", "%DLQ%"]),
    st.text("ab_-", min_size=1, max_size=9),
)
def test_wrapping_a_name_in_a_namespace_is_idempotent_and_unwrapping_restores_the_name(
    name: str, prefix: str, plain: str
) -> None:
    """Whatever the names: a message would go to a topic that nobody reads."""
    namespace = Namespace(name)
    wrapped = namespace.wrap(prefix + plain)
    assert namespace.unwrap(wrapped) == prefix + plain
    assert namespace.wrap(wrapped) == wrapped != prefix + plain


@pytest.mark.parametrize("name", ["with blank", "a%b", "x" * 300])
def test_an_invalid_namespace_is_refused(name: str) -> None:
    """When the client is made, and by the option's name."""
    with pytest.raises(ValueError, match="namespace"):
        Producer("g", "127.0.0.1:1", namespace=name)


def with_broker(tmp_path: Path, work: Callable[[EmbeddedBroker], Awaitable[None]], **options: Any) -> None:
    """Run a broker with a topic in the namespace, of two queues."""
    with EmbeddedBroker(tmp_path, **options) as broker:
        broker.create_topic("ns%T", 2)

        async def limited() -> None:
            async with asyncio.timeout(30):
                await work(broker)

        asyncio.run(limited())


@pytest.mark.parametrize("linger_ms", [None, 0])
def test_messages_are_sent_and_consumed_within_their_namespace(tmp_path: Path, linger_ms: float | None) -> None:
    """Sent of every kind, consumed by a group, by hand, and again after a failure: the broker alone sees whole names."""

    async def work(broker: EmbeddedBroker) -> None:
        servers = broker.name_server_address
        async with Producer("p", servers, namespace="ns", linger_ms=linger_ms) as producer:
            queues = await producer.queues("T")
            assert {queue.topic for queue in queues} == {"T"}
            sent = await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(3)))
            sent.append(await producer.send(Message("T", b"3"), queues[1]))
            sent.append(await producer.send(Message("T", b"4"), sharding_key="k"))
            batch = await producer.send_batch([Message("T", b"5"), Message("T", b"6")], queues[0])
            await producer.send_oneway(Message("T", b"7"))
            assert {result.queue.topic for result in (*sent, batch)} == {"T"}
        await asyncio.to_thread(broker.wait_for_messages, "ns%T", 8)
        bodies = {b"%d" % number for number in range(8)}

        found: dict[bytes, MessageExt] = {}
        done, again = asyncio.Event(), asyncio.Event()

        async def listen(message: MessageExt) -> ConsumeResult:
            if message.body == b"0" and not message.reconsume_times:
                return ConsumeResult.LATER
            if message.reconsume_times:
                again.set()
            found[message.body] = message
            if len(found) >= 7:
                done.set()
            return ConsumeResult.SUCCESS

        settings = ConsumerSettings(**FROM_FIRST, allocate=allocate_by_consistent_hash(), delay_level=1)
        async with Consumer("g", servers, listen, settings=settings, namespace="ns") as consumer:
            await consumer.subscribe("T")
            await done.wait()
            await again.wait()
            async with AdminClient(servers) as admin:
                assert (await admin.consumer_connections("ns%g", broker.address)).connection_set
        assert set(found) == bodies
        assert {message.topic for message in found.values()} == {"T"}
        committed = broker.broker.call(lambda: _committed(broker, "ns%g", "ns%T"))
        assert sum(committed) == 8

        async with PullConsumer("by-hand", servers, namespace="ns") as puller:
            await puller.assign("T", consume_from="CONSUME_FROM_FIRST_OFFSET")
            polled: list[MessageExt] = []
            while len(polled) < 8:
                polled += await puller.poll()
            await puller.commit()
            assert {message.topic for message in polled} == {"T"}
            assert set(puller.positions) == set(queues)
            assert await puller.committed(queues[0]) == puller.positions[queues[0]]
            await puller.seek(queues[0], 0)

    with_broker(tmp_path, work)


async def _committed(broker: EmbeddedBroker, group: str, topic: str) -> list[int]:
    offsets = broker.broker.state.offsets
    return [offsets.query(topic, group, queue_id) for queue_id in range(2)]


def test_topics_and_groups_with_the_same_name_in_two_namespaces_are_separate(tmp_path: Path) -> None:
    """The reason for them: the same names, and each program has its own topic and its own group."""

    async def work(broker: EmbeddedBroker) -> None:
        await asyncio.to_thread(broker.create_topic, "other%T", 1)
        servers = broker.name_server_address
        for namespace in ("ns", "other"):
            async with Producer("p", servers, namespace=namespace) as producer:
                await producer.send(Message("T", namespace.encode()))
        for namespace in ("ns", "other"):
            async with Consumer("g", servers, settings=ConsumerSettings(**FROM_FIRST), namespace=namespace) as consumer:
                await consumer.subscribe("T")
                async with contextlib.aclosing(aiter(consumer)) as messages:  # type: ignore[type-var]
                    assert (await anext(messages)).body == namespace.encode()

    with_broker(tmp_path, work)


def test_orderly_consumers_lock_queues_within_a_namespace(tmp_path: Path) -> None:
    """Locks name topic and group in a body, and come back in one."""

    async def work(broker: EmbeddedBroker) -> None:
        settings = ConsumerSettings(**FROM_FIRST, orderly=True)
        seen = asyncio.Event()

        async def listen(message: MessageExt) -> None:
            seen.set()

        broker.put([flintmq.Message("ns%T", b"x")])
        async with Consumer("g", broker.name_server_address, listen, settings=settings, namespace="ns") as consumer:
            await consumer.subscribe("T")
            await seen.wait()
            assert {queue.topic for queue in consumer.process_queues} <= {"T", "%RETRY%g"}

    with_broker(tmp_path, work)


def test_transactions_are_checked_within_a_namespace(tmp_path: Path) -> None:
    """The broker finds the producer by its whole group, which the half message names."""
    clock = VirtualClock()

    async def work(broker: EmbeddedBroker) -> None:
        asked: list[str] = []

        def check(message: flintmq.MessageExt) -> TransactionState:
            asked.append(message.topic)
            return TransactionState.COMMIT

        async with TransactionProducer("p", broker.name_server_address, check=check, namespace="ns") as producer:
            await producer.send_in_transaction(Message("T", b"at once"), lambda *_: TransactionState.COMMIT)
            await producer.send_in_transaction(Message("T", b"later"), lambda *_: TransactionState.UNKNOWN)
            await asyncio.to_thread(broker.wait_for_messages, "ns%T", 1)
            await asyncio.to_thread(clock.advance, "61s")
            found = await asyncio.to_thread(broker.wait_for_messages, "ns%T", 2)
        assert [message.body for message in found] == [b"at once", b"later"]
        assert asked == ["T"]

    with_broker(tmp_path, work, clock=clock)


def test_requests_get_replies_within_a_namespace(tmp_path: Path) -> None:
    """The topic of replies is a broker's own: a reply that was wrapped would go nowhere."""

    async def work(broker: EmbeddedBroker) -> None:
        servers = broker.name_server_address
        async with (
            Producer("asks", servers, namespace="ns") as asks,
            Producer("replies", servers, namespace="ns") as replies,
        ):

            async def answer(message: MessageExt) -> None:
                await replies.reply(message, b"42")

            async with Consumer(
                "g", servers, answer, settings=ConsumerSettings(**FROM_FIRST), namespace="ns"
            ) as consumer:
                await consumer.subscribe("T")
                assert (await asks.request(Message("T", b"?"), timeout_ms=10_000)).body == b"42"

    with_broker(tmp_path, work)


def test_an_admin_client_with_a_namespace_is_refused() -> None:
    """Half of its calls would mean one thing, and half another."""
    with pytest.raises(ValueError, match="whole names"):
        AdminClient("127.0.0.1:1", namespace="ns")
