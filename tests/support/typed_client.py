"""The types of every public name, as mypy and pyright see them (``tools/typecheck.sh``). Nothing runs this.

Names are imported when they are used, and the synchronous client's methods are derived from the asynchronous ones: were a type
lost on the way, nobody's program would fail, and nobody's mistake would be found. An ignored error that does not occur is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

import attrs

import flintmq
from flintmq import client as aio
from flintmq.client import sync


async def look_up(message: aio.MessageExt) -> aio.TransactionState:
    """Answer a broker's question about a transaction."""
    return aio.TransactionState.COMMIT if message.keys else aio.TransactionState.UNKNOWN


async def book(message: aio.Message, msg_id: str) -> aio.TransactionState:
    """Do the local part of a transaction."""
    return aio.TransactionState.COMMIT if message.body and msg_id else aio.TransactionState.ROLLBACK


async def awaited(message: aio.Message, queue: aio.MessageQueue) -> None:
    """Say the types of the asynchronous library."""
    signer = aio.AclSigner("key", "secret")
    hook: aio.RpcHook = signer
    async with aio.Producer("p", "localhost:9876", hooks=[hook], linger_ms=1) as producer:
        assert_type(producer, aio.Producer)
        assert_type(producer.client, aio.ClientInstance)
        assert_type(producer.client.remoting, aio.RemotingClient)
        assert_type(await producer.queues("T"), tuple[aio.MessageQueue, ...])
        sent = await producer.send(message, sharding_key="k")
        assert_type(sent, aio.SendResult)
        assert_type(sent.status, aio.SendStatus)
        assert_type(await producer.send_batch([message], queue), aio.SendResult)
        assert_type(await producer.send_all([message]), list[aio.SendResult])
        assert_type(await producer.request(message), aio.MessageExt)
    async with aio.TransactionProducer("p", check=look_up, retries=1, client_id="one") as transactional:
        assert_type(transactional, aio.TransactionProducer)
        ended = await transactional.send_in_transaction(message, book)
        assert_type(ended, aio.TransactionResult)
        assert_type(ended.state, aio.TransactionState)
    async with aio.Consumer("g", listener=None, settings=aio.ConsumerSettings()) as consumer:
        assert_type(consumer.settings, aio.ConsumerSettings)
        async for received in consumer:
            assert_type(received, aio.MessageExt)
            assert_type((received.tags, received.keys, received.body), tuple[str, tuple[str, ...], bytes])
            assert_type(aio.make_reply(received, b""), aio.Message)
    async with aio.PullConsumer("g", client=producer.client) as pulling:
        assert_type(await pulling.poll(), list[aio.MessageExt])
        assert_type(await pulling.committed(queue), int | None)
        pulled = await pulling.pull(queue, 0)
        assert_type(pulled, aio.PullResult)
        assert_type(pulled.status, aio.PullStatus)
    async with aio.AdminClient("localhost:9876", heartbeat_interval_s=5) as admin:
        assert_type(await admin.topic_list(), list[str])
        assert_type((await admin.invoke("localhost:10911", 28, {"n": 1})).body, bytes)
        assert_type(await admin.query_by_key("T", "k"), list[aio.MessageExt])
        assert_type(await admin.reset_offset("T", "g", 0), dict[aio.MessageQueue, int])


async def listen(_message: aio.MessageExt) -> aio.ConsumeResult:
    """Answer as an asynchronous listener does."""
    return aio.ConsumeResult.SUCCESS


async def handlers(received: aio.MessageExt, members: list[str], queues: list[aio.MessageQueue]) -> None:
    """A declared function stays what it is; a strategy is one whoever made it."""
    consumers = aio.Consumers("localhost:9876", client_id="one")

    @consumers.handler("T", group="g")
    async def handle(message: aio.MessageExt) -> None:
        message.body.decode()

    await handle(received)
    strategies: list[aio.AllocateStrategy] = [
        aio.allocate_averagely,
        aio.allocate_by_circle,
        aio.allocate_by_config(queues),
        aio.allocate_by_consistent_hash(),
        aio.allocate_by_machine_room({"room"}),
        aio.allocate_nearby(lambda queue: queue.broker_name, lambda member: member),
    ]
    assert_type(strategies[0]("one", members, queues), list[aio.MessageQueue])


def waiting_handlers(received: sync.MessageExt, members: list[str], queues: list[sync.MessageQueue]) -> None:
    """The same without an event loop."""
    consumers = sync.Consumers("localhost:9876", client_id="one")

    @consumers.handler("T", group="g")
    def handle(message: sync.MessageExt) -> sync.ConsumeResult:
        return sync.ConsumeResult.SUCCESS if message.body else sync.ConsumeResult.LATER

    assert_type(handle(received), sync.ConsumeResult)
    strategies: list[sync.AllocateStrategy] = [
        sync.allocate_averagely,
        sync.allocate_by_circle,
        sync.allocate_by_config(queues),
        sync.allocate_by_consistent_hash(),
        sync.allocate_by_machine_room({"room"}),
        sync.allocate_nearby(lambda queue: queue.broker_name, lambda member: member),
    ]
    assert_type(strategies[0]("one", members, queues), list[sync.MessageQueue])


def waited_for(message: sync.Message, queue: sync.MessageQueue) -> None:
    """Say the types of the synchronous library."""
    with sync.Producer("p", "localhost:9876", retries=1, hooks=[sync.AclSigner("key", "secret")]) as producer:
        assert_type(producer, sync.Producer)
        assert_type(producer.queues("T"), tuple[sync.MessageQueue, ...])
        sent = producer.send(message, timeout_ms=1)
        assert_type(sent, sync.SendResult)
        assert_type(sent.status, sync.SendStatus)
        assert_type(producer.send_batch([message]), sync.SendResult)
        assert_type(producer.send_all([message]), list[sync.SendResult])
        assert_type(producer.request(message), sync.MessageExt)
    with sync.TransactionProducer("p", check=lambda asked: sync.TransactionState.COMMIT, retries=1) as transactional:
        ended = transactional.send_in_transaction(message, lambda _message, _id: sync.TransactionState.COMMIT)
        assert_type(ended, sync.TransactionResult)
    settings = sync.ConsumerSettings(concurrency=2)
    with sync.Consumer("g", listener=lambda received: sync.ConsumeResult.SUCCESS, settings=settings) as consumer:
        assert_type(consumer.settings, sync.ConsumerSettings)
        for received in consumer.messages(timeout_ms=1):
            assert_type(received, sync.MessageExt)
            assert_type(sync.make_reply(received, b""), sync.Message)
    with sync.PullConsumer("g", client=producer.client) as pulling:
        assert_type(pulling.poll(), list[sync.MessageExt])
        assert_type(pulling.max_offset(queue), int)
        assert_type(pulling.positions, Mapping[sync.MessageQueue, int])
        pulled = pulling.pull(queue, 0)
        assert_type(pulled, sync.PullResult)
        assert_type(pulled.status, sync.PullStatus)
    with sync.AdminClient("localhost:9876") as admin:
        assert_type(admin.query_by_key("T", "k"), list[sync.MessageExt])
        assert_type(admin.runtime_info("localhost:10911"), dict[str, str])
        assert_type(admin.invoke("localhost:10911", 28).ext_fields, dict[str, str] | None)


def kept_elsewhere(offsets: sync.OffsetStore, kept: aio.OffsetStore) -> sync.Consumer:
    """Return a consumer whose offsets are kept by somebody else."""
    aio.Consumer("g", offset_store=kept)
    return sync.Consumer("g", offset_store=offsets)


def signed(hook: sync.RpcHook) -> sync.AdminClient:
    """Return a client whose requests are signed."""
    return sync.AdminClient("localhost:9876", hooks=[hook])


def encoded(codec: aio.Codec, other: sync.Codec) -> None:
    """Say the types of what bodies are made."""
    numbers = aio.JsonCodec(list[int])
    assert_type(numbers, sync.JsonCodec[list[int]])
    assert_type(numbers.decode(b"[1]"), list[int])
    assert_type(numbers.message("T", [1]), aio.Message)
    aio.Consumer("g", codec=numbers)
    sync.Consumer("g", codec=other)
    aio.PullConsumer("g", codec=codec)


def failures() -> None:
    """Say the types of errors, which are the same at each door."""
    try:
        pass
    except aio.InvalidArgumentError as wrong:
        assert_type(wrong, sync.InvalidArgumentError)
    except aio.PartlySentError as partly:
        assert_type(partly, sync.PartlySentError)
        assert_type(partly.results, tuple[sync.SendResult, ...])
    except aio.RefusedError as refused:
        assert_type(refused, sync.RefusedError)
        assert_type((refused.code, refused.remark), tuple[int, str])
    except aio.RemotingTimeoutError as late:
        assert_type(late, sync.RemotingTimeoutError)
    except aio.RemotingConnectError as unreachable:
        assert_type(unreachable, sync.RemotingConnectError)
    except aio.RemotingError as lost:
        assert_type(lost, sync.RemotingError)
    except aio.CodecError as unreadable:
        assert_type(unreadable, sync.CodecError)
    except aio.FlintError as other:
        assert_type(other, sync.FlintError)


def embedded() -> None:
    """Say the types of what the root gives out beside the client library."""
    try:
        config = flintmq.load_config(None, ["listen.port=0"], {})
    except flintmq.ConfigError as mistake:
        assert_type(mistake, flintmq.ConfigError)
        raise
    assert_type(config, flintmq.LoadedConfig)
    assert_type(config.config, flintmq.BrokerConfig)
    with flintmq.NameServer(config) as server, flintmq.Broker(config) as broker:
        assert_type(server.address, str)
        assert_type(broker, flintmq.Broker)
        assert_type(broker.put([flintmq.Message("T", b"")])[0].message_id, str)
    assert_type(flintmq.Producer("p"), aio.Producer)
    assert_type(flintmq.AnonymousBufferPool(2, 4096).borrow(), memoryview | None)


@attrs.frozen
class Settings:
    """The section of a plugin."""

    wait_ms: int = flintmq.option(5, minimum=1)


class Strategy(flintmq.GroupCommit):
    """A strategy that is made of a built-in one."""


def now_s(clock: flintmq.Clock) -> float:
    """Return the time of a clock."""
    return clock.monotonic_s()


class Plugin:
    """A marked function keeps its type."""

    @flintmq.hookimpl
    def flintmq_stopping(self, reason: str) -> int:
        """Return a length."""
        return len(reason)


assert_type(Plugin().flintmq_stopping("x"), int)


def mistakes(producer: sync.Producer) -> None:
    """Name mistakes that must be found."""
    sync.Producer(1)  # type: ignore[arg-type]
    sync.Producer("p", retries="2")  # type: ignore[arg-type]
    sync.Producer("p", client_ids="2")  # type: ignore[call-arg]
    aio.Producer("p", client_ids="2")  # type: ignore[call-arg]
    aio.Consumer("p", heartbeat_interval_s="2")  # type: ignore[arg-type]
    aio.TransactionProducer("p", check=look_up, retry=2)  # type: ignore[call-arg]
    producer.send("text")  # type: ignore[arg-type]
    producer.send(sync.Message("T", b""), timeout=1)  # type: ignore[call-arg]
    producer.close(1)  # type: ignore[call-arg]
