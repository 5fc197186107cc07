"""Messages that this client sends are consumed by the Java client with equal bytes and properties, and the reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.record.sys_flag import COMPRESSED
from flintmq.remoting.client import (
    AdminClient,
    Consumer,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    TransactionProducer,
    TransactionState,
    allocate_averagely,
    allocate_by_circle,
    allocate_by_consistent_hash,
)
from flintmq.remoting.client.compression import LZ4, METHOD_MASK, ZLIB, ZSTD

from .java_client import Consumed, JavaClient
from .sites import FLINTMQ, JAVA_53, LIMIT_S, SITES, Room, Sites, jars_of, until
from .test_sending import BODIES, ODD

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(180)]

KEYS = ["key", "ключ-7", *(f"order-{number}" for number in range(20)), " blank ", "\U0001f680"]


@pytest.fixture(scope="module", params=list(SITES))
def site_name(request: pytest.FixtureRequest) -> str:
    """The broker at which both clients meet."""
    return str(request.param)


@pytest.fixture(scope="module")
def java(site_name: str, sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """The Java client of the broker's line; of 4.9 at FlintMQ's."""
    work = tmp_path_factory.mktemp("java-client")
    jars = jars_of(site_name)
    with JavaClient(jars, work, sites.room(site_name, work).address) as client:
        yield client


@pytest.fixture
def room(site_name: str, sites: Sites, tmp_path: Path) -> Room:
    """A room at the broker that the Java client knows, too."""
    return sites.room(site_name, tmp_path)


def kinds(topic: str, properties: Mapping[str, str] = ODD) -> list[Message]:
    """A message of each kind; the last one is delayed. None is empty: Java's consumers stop at such a message for good."""
    plain = [
        Message(topic, body, tags="größe", keys=f"{name} zweiter-key", properties={**properties, "name": name}, flag=42)
        for name, body in BODIES.items()
        if body
    ]
    return [*plain, Message(topic, b"bare"), Message(topic, b"delayed", delay_level=1)]


def sent_by_user(properties: Any) -> dict[str, str]:
    """The properties that the sender named itself."""
    return {name: value for name, value in properties.items() if name in ODD or name == "name"}


def seen_by(message: MessageExt | Consumed) -> tuple[object, ...]:
    """Return the parts of a message that must be equal for both clients."""
    return (message.topic, message.body, message.tags, message.keys, message.flag, sent_by_user(message.properties))


def wanted(message: Message) -> tuple[object, ...]:
    """Return the sent message in the form of :func:`seen_by`."""
    return (message.topic, message.body, message.tags, message.keys, message.flag, dict(message.properties))


def test_the_java_client_consumes_messages_sent_by_the_flintmq_client(room: Room, java: JavaClient) -> None:
    async def run() -> None:
        topic = await room.topic()
        messages = kinds(topic)
        await java.join(room.group(), topic)
        async with Producer(room.group("p"), room.address, compress_over_bytes=100_000) as producer:
            sent = {(await producer.send(message)).msg_id: message for message in messages}
            batch = [Message(topic, b"batch %d" % number, tags="b", keys=f"k{number}") for number in range(5)]
            result = await producer.send_batch(batch)
            sent |= dict(zip(result.msg_id.split(","), batch, strict=True))
        found = await java.next(room.group(), len(sent))
        assert {message.msg_id: seen_by(message) for message in found} == {
            msg_id: wanted(message) for msg_id, message in sent.items()
        }
        # As this client sees it: the host and time of birth are one and the same for both.
        mine = {message.msg_id: message for message in await room.consume(topic, len(sent), group=room.group("py"))}
        for message in found:
            own = mine[message.msg_id]
            assert bool(own.sys_flag & COMPRESSED) == (own.body == BODIES["large"])
            assert (own.born_host, own.born_timestamp_ms, own.queue_id, own.queue_offset) == (
                message.born_host,
                message.born_timestamp_ms,
                message.queue_id,
                message.queue_offset,
            )
        await java.leave(room.group())

    asyncio.run(run())


def test_the_flintmq_client_consumes_messages_sent_by_the_java_client(room: Room, java: JavaClient) -> None:
    async def run() -> None:
        topic = await room.topic()
        # Java's producer sends no property without a value.
        messages = kinds(topic, {name: value for name, value in ODD.items() if value.strip()})
        sent = {(await java.send(message))[0]: wanted(message) for message in messages}
        await java.call("batch", topic, b"one", b"\xff\x00", b"three")
        await java.join(room.group("java"), topic)
        found = await room.consume(topic, len(sent) + 3)
        theirs = {(m.queue_id, m.queue_offset): m for m in await java.next(room.group("java"), len(found))}
        assert {m.msg_id: seen_by(m) for m in found if m.tags != "batch"} == sent
        assert sorted(m.body for m in found if m.tags == "batch") == [b"one", b"three", b"\xff\x00"]
        for message in found:  # a batch of 5.3's client has one id for all, as that client sees it, too
            other = theirs[message.queue_id, message.queue_offset]
            assert (message.msg_id, message.born_host, seen_by(message)) == (
                other.msg_id,
                other.born_host,
                seen_by(other),
            )
        assert [m.body[:1] for m in found if m.sys_flag & COMPRESSED] == [BODIES["large"][:1]]
        await java.leave(room.group("java"))

    asyncio.run(run())


@pytest.mark.parametrize("method", ["ZLIB", "LZ4", "ZSTD"])
def test_the_flintmq_client_reads_messages_compressed_by_the_java_client_of_rocketmq_5(
    sites: Sites, tmp_path: Path, method: str
) -> None:
    """With the extra 'compression' as it was sent; without it the stored bytes come, with the reason."""
    room = sites.room(FLINTMQ, tmp_path)

    async def run(java: JavaClient) -> None:
        topic = await room.topic()
        await java.call("compress", method)
        await java.send(Message(topic, BODIES["large"], keys="packed"))
        await java.send(Message(topic, b"plain"))
        packed, plain = sorted(await room.stored(topic, 2), key=lambda one: one.body == b"plain")
        assert plain.body == b"plain"
        assert (
            packed.sys_flag & (COMPRESSED | METHOD_MASK)
            == COMPRESSED | {"LZ4": LZ4, "ZSTD": ZSTD, "ZLIB": ZLIB}[method]
        )
        package = {"LZ4": "lz4", "ZSTD": "zstandard"}.get(method, "zlib")
        if find_spec(package) is not None:
            assert (packed.body, packed.body_error) == (BODIES["large"], "")
        else:
            assert f"compressed with {package}, which is not installed" in packed.body_error
            assert len(packed.body) < len(BODIES["large"])

    with JavaClient(jars_of(JAVA_53), tmp_path / "java", room.address) as java:
        asyncio.run(run(java))


def test_java_and_flintmq_clients_choose_the_same_queue_for_a_sharding_key(room: Room, java: JavaClient) -> None:
    async def run() -> None:
        topic = await room.topic(queues=7)
        async with Producer(room.group(), room.address) as producer:
            for key in KEYS:
                mine = await producer.send(Message(topic, b"x"), sharding_key=key)
                _, theirs = await java.send(Message(topic, b"y"), sharding_key=key)
                assert mine.queue.queue_id == theirs, key

    asyncio.run(run())


def test_java_and_flintmq_consumers_retry_failed_messages_sent_by_the_other_kind_of_client(
    room: Room, java: JavaClient
) -> None:
    """Java retries a message that Python sent and Java failed to consume, and the reverse."""

    async def run() -> None:
        topic = await room.topic(queues=1)
        await java.join(room.group("java"), topic)
        tries: list[MessageExt] = []
        done = asyncio.Event()

        async def listen(message: MessageExt) -> ConsumeResult:
            tries.append(message)
            if message.reconsume_times == 0:
                return ConsumeResult.LATER
            done.set()
            return ConsumeResult.SUCCESS

        async with (
            Producer(room.group("p"), room.address) as producer,
            Consumer(room.group("py"), room.address, listen, settings=room.settings()) as consumer,
        ):
            await consumer.subscribe(topic)
            message = Message(topic, b"again", tags="fail-once", keys="k", properties=ODD)
            sent = await producer.send(message)
            first, second = await java.next(room.group("java"), 2)
            await asyncio.wait_for(done.wait(), LIMIT_S)
        for before, after in ((first, second), (tries[0], tries[1])):
            assert (before.reconsume_times, after.reconsume_times) == (0, 1)
            assert before.msg_id == after.msg_id == sent.msg_id
            assert seen_by(before) == seen_by(after) == wanted(message)
        await java.leave(room.group("java"))

    asyncio.run(run())


def test_java_and_flintmq_consumers_get_only_committed_transactions_of_both_kinds_of_clients(
    room: Room, java: JavaClient
) -> None:
    async def run() -> None:
        topic = await room.topic(queues=1)
        await java.join(room.group("java"), topic)
        for state in ("ROLLBACK_MESSAGE", "COMMIT_MESSAGE"):
            await java.send(Message(topic, f"java {state}".encode(), tags="t", keys="k"), transaction=state)
        check = TransactionState.ROLLBACK
        async with TransactionProducer(room.group("t"), room.address, check=lambda _message: check) as producer:
            for outcome in (TransactionState.ROLLBACK, TransactionState.COMMIT):
                message = Message(topic, f"python {outcome.name}".encode(), tags="t", keys="k")
                await producer.send_in_transaction(message, lambda _message, _id, outcome=outcome: outcome)
            found = await java.next(room.group("java"), 2)
        mine = await room.consume(topic, 2)
        for messages in (found, mine):
            assert sorted(message.body for message in messages) == [b"java COMMIT_MESSAGE", b"python COMMIT"]
            assert {(message.tags, message.keys) for message in messages} == {("t", ("k",))}
        await java.leave(room.group("java"))

    asyncio.run(run())


STRATEGIES = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": allocate_by_consistent_hash(),
}


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_java_and_python_members_of_a_group_share_the_queues_of_a_topic(
    room: Room, java: JavaClient, strategy: str
) -> None:
    """Each queue has one member of either language: no message is consumed twice, and none is left."""

    async def run() -> None:
        topic, group = await room.topic(queues=8), room.group()
        seen: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            seen.append(message.body)

        members = [
            Consumer(
                group,
                room.address,
                listen,
                settings=room.settings(allocate=STRATEGIES[strategy]),
                client_id=f"{name}@python",
            )
            for name in ("0", "zz")  # one before the Java member's, one behind it
        ]
        await java.join(group, topic, strategy=strategy)
        for member in members:
            await member.subscribe(topic)
            await member.start()

        async def shared_out() -> bool:
            """Return whether each member has the queues that the strategy gives it for all three: no queue moves later."""
            answer = await admin.consumer_connections(group, broker)
            ids = sorted(connection.client_id for connection in answer.connection_set)
            if len(ids) != 3:
                return False
            shares = {each: {q.queue_id for q in STRATEGIES[strategy](each, ids, queues)} for each in ids}
            held = {m.client.client_id: {q.queue_id for q in m.process_queues if q.topic == topic} for m in members}
            (theirs,) = set(ids) - held.keys()
            held[theirs] = await java.held(group, topic)
            return held == shares

        try:
            async with Producer(room.group("p"), room.address) as producer, AdminClient(room.address) as admin:
                queues = await producer.queues(topic)
                broker = next(iter((await admin.masters()).values()))
                await until(shared_out, "the queues to be shared out")
                for number in range(80):
                    await producer.send(Message(topic, b"%d" % number), queues[number % 8])
            theirs = len(await java.held(group, topic)) * 10
            found = [message.body for message in await java.next(group, theirs)]

            async def consumed() -> bool:
                return len(seen) + len(found) >= 80

            await until(consumed, "every message")
            assert sorted([*seen, *found]) == sorted(b"%d" % number for number in range(80))
        finally:
            await asyncio.gather(*(member.close() for member in members))
            await java.leave(group)

    asyncio.run(run())
