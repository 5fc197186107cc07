"""Traces say what became of messages in the Java client's words, and neither hold up nor fail what they are about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import Message, MessageExt, decode_messages
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

TRACE = "RMQ_SYS_TRACE_TOPIC"


def traces(broker: Any, topic: str = TRACE) -> list[tuple[list[str], MessageExt]]:
    """Return the fields of every line in the trace topic, with the message that holds it."""
    return [
        (line.split("\x01"), message)
        for (name, _), records in list(broker.records.items())
        for record in records
        if name == topic
        for message in decode_messages(record)
        for line in message.body.decode().split("\x02")
        if line
    ]


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any], Awaitable[None]]) -> None:
    async def with_broker() -> None:
        async with fake_peer() as peer, asyncio.timeout(20):
            broker = fake_broker(peer)
            broker.topics.add(TRACE)
            await test(broker)

    asyncio.run(with_broker())


@pytest.mark.parametrize("linger_ms", [None, 0])
def test_a_tracing_producer_sends_a_trace_record_for_each_stored_message(
    fake_peer: Any, fake_broker: Any, linger_ms: float | None
) -> None:
    """The Java client traces a batch as one message, whose trace nobody finds by the id of a member."""

    async def test(broker: Any) -> None:
        async with Producer("pg", broker.peer.address, trace=True, linger_ms=linger_ms) as producer:
            messages = [Message("T", bytes(number), tags="A", keys=f"k{number} more") for number in range(3)]
            results = await asyncio.gather(*map(producer.send, messages))
            batch = await producer.send_batch([Message("T", b"one"), Message("T", b"two")])
            await producer.send(Message("T", b"later", delay_level=3))
        found = {fields[5]: (fields, message) for fields, message in traces(broker)}
        assert len(found) == 6
        for message, sent in zip(messages, results, strict=True):
            fields, holder = found[sent.msg_id]
            kind, _begin_ms, region, group, topic, _, tags, keys, address, length, cost_ms, what, offset_id, ok = fields
            assert (kind, region, group, topic, tags) == ("Pub", "R", "pg", "T", "A")
            assert (keys, address, length) == (" ".join(message.keys), broker.peer.address, str(len(message.body)))
            assert (what, offset_id, ok) == ("0", sent.offset_msg_id, "true")
            assert int(cost_ms) >= 0
            assert {sent.msg_id, *message.keys} <= set(holder.keys), "what it is found by"
        assert set(batch.msg_id.split(",")) <= set(found)
        assert sorted(fields[11] for fields, _ in found.values()) == ["0"] * 5 + ["3"]

    run(fake_peer, fake_broker, test)


def test_calls_of_a_message_listener_are_traced_with_their_success_or_failure(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        broker.topics.add("%RETRY%cg")
        for number in range(3):
            broker.put(
                "T", 0, b"%d" % number, f"UNIQ_KEY\x01id{number}" + ("\x02TRACE_ON\x01false" if number == 2 else "")
            )
        heard: list[bytes] = []

        def listen(message: MessageExt) -> None:
            heard.append(message.body)
            if message.body == b"1":
                raise ValueError("no")

        settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
        async with Consumer("cg", broker.peer.address, listen, settings=settings, trace="MyTraces") as consumer:
            broker.topics.add("MyTraces")
            await consumer.subscribe("T")
            await broker.peer.until(lambda: len(traces(broker, "MyTraces")) == 4)
        lines = [fields for fields, _ in traces(broker, "MyTraces")]
        before = {fields[5]: fields for fields in lines if fields[0] == "SubBefore"}
        after = {fields[2]: fields for fields in lines if fields[0] == "SubAfter"}
        assert set(before) == set(after) == {"id0", "id1"}
        for msg_id, succeeded, code in (("id0", "true", "0"), ("id1", "false", "2")):
            assert before[msg_id][3:] == ["cg", after[msg_id][1], msg_id, "0", "null"]
            assert (after[msg_id][4], after[msg_id][6], after[msg_id][8]) == (succeeded, code, "cg")

    run(fake_peer, fake_broker, test)


def test_a_transaction_is_traced_when_its_half_message_is_sent_and_when_the_transaction_ends(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def test(broker: Any) -> None:
        async with TransactionProducer(
            "pg", broker.peer.address, trace=True, check=lambda _: TransactionState.COMMIT
        ) as producer:
            result = await producer.send_in_transaction(Message("T", b"x"), lambda *_: TransactionState.ROLLBACK)
        pub, end = [fields for fields, _ in traces(broker)]
        assert (pub[0], pub[5], pub[11]) == ("Pub", result.sent.msg_id, "1")
        assert (end[0], end[5], end[9:]) == (
            "EndTransaction", result.sent.msg_id, ["2", result.sent.msg_id, "ROLLBACK_MESSAGE", "false"],
        )  # fmt: skip

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("trouble", ["refused", "silent", "no topic"])
def test_sends_succeed_although_their_trace_messages_cannot_be_sent(
    fake_peer: Any, fake_broker: Any, trouble: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must delay neither sends, however many there are, nor a close."""
    monkeypatch.setattr("flintmq.remoting.client.trace._CLOSE_TIMEOUT_S", 0.05)

    async def test(broker: Any) -> None:
        def answer(asked: RemotingCommand) -> RemotingCommand | None:
            if (asked.ext_fields or {})["b"] == TRACE:
                return response(asked, 16, "no") if trouble == "refused" else None
            stored: RemotingCommand = (broker.send_batch if asked.code == 320 else broker.send)(asked)
            return stored

        broker.peer.answers[310] = broker.peer.answers[320] = answer
        if trouble == "no topic":
            broker.topics.remove(TRACE)
        async with Producer("pg", broker.peer.address, trace=True, retries=0) as producer:
            for _ in range(3):
                await producer.send_batch([Message("T", b"x")] * 1_000)
            tracer = producer._tracer
            assert tracer is not None
            assert len(tracer._waiting) <= 2_048
        assert not tracer._waiting
        assert tracer._lost == 3_000
        assert not any(fields for fields in traces(broker))

    run(fake_peer, fake_broker, test)
    assert len([record for record in caplog.records if "traces of pg are lost" in record.getMessage()]) == 1


def test_a_producer_sends_trace_messages_only_if_tracing_is_enabled(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any) -> None:
        async with Producer("pg", broker.peer.address) as producer:
            await producer.send(Message("T", b"x"))
        assert not traces(broker)
        async with Producer("pg", broker.peer.address, trace=True) as producer:
            await producer.send(Message(TRACE, b"nor are traces\x01"))
        assert len(traces(broker)) == 1

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 200))])
def test_each_send_is_traced_once_even_if_it_ends_while_the_producer_is_closing(seed: int) -> None:
    """Two tasks that write the same lines would take them, and others, out of the line of those that wait."""
    cluster = FakeCluster(Choices(seed), topics=("T", TRACE))

    async def main() -> list[str]:
        await cluster.start()
        client = ClientInstance(cluster.address, clock=cluster.clock)
        producer = Producer("pg", client=client, trace=True)
        await producer.start()
        sends = []
        for _ in range(20):
            sends.append(asyncio.create_task(producer.send(Message("T", b"x"))))
            await asyncio.sleep(0.001)
        await asyncio.sleep(cluster.choices.below(150) / 1000)
        sends += [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(20)]
        closing = asyncio.create_task(producer.close())
        for _ in range(20):
            await asyncio.sleep(cluster.choices.below(10) / 1000)
            sends.append(asyncio.create_task(producer.send(Message("T", b"x"))))
        await closing
        stored = [(await send).msg_id for send in sends]
        await producer.start()
        stored.append((await producer.send(Message("T", b"x"))).msg_id)
        await producer.close()
        assert len(asyncio.all_tasks()) == 1 + sum(
            task.get_name() in ("heartbeats", "routes") for task in asyncio.all_tasks()
        )
        await client.close()
        return stored

    stored = cluster.loop.run(main())
    assert not cluster.loop.errors, cluster.loop.errors
    found = [fields[5] for broker in cluster.brokers.values() for fields, _ in traces(broker)]
    assert sorted(found) == sorted(stored)
