"""The plain send and pull processors pass FlintMQ's test kit for request processors. A broker that uses them stores and serves
messages."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from flintmq_plain_processors.pull import PlainPull
from flintmq_plain_processors.send import PlainSend

import flintmq
from flintmq.protocol import RequestCode, ResponseCode, declared_by
from flintmq.testing.processor_kit import Sample, check_in_loop

SEND = {
    "producerGroup": "p",
    "topic": "Orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "1",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
}
SEND_V2 = dict(zip("abcdefgh", SEND.values(), strict=True))
PULL = {
    "consumerGroup": "readers",
    "topic": "Orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}


def batch(*bodies: bytes) -> bytes:
    """Return the body of a batch. Each message has its size, four unused fields, its body, and no properties."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0) for body in bodies
    )


@pytest.fixture
def loaded(tmp_path: Path) -> flintmq.LoadedConfig:
    """Return the configuration of a broker; the plugin is found by its entry point."""
    settings = [f"store.path={tmp_path / 'store'}", "store.commit_log_file_bytes=1MiB", "topics.default_queue_nums=1"]
    return flintmq.load_config(None, [*settings, "listen.port=0", "listen.vip=false"], {})


def test_both_plain_processors_pass_the_processor_kit(loaded: flintmq.LoadedConfig) -> None:
    """Messages can be sent with every request code for sends. Every request code for pulls returns the sent messages."""

    async def live() -> None:
        async with flintmq.Broker(loaded) as broker:
            sends = await check_in_loop(
                PlainSend(broker.api),
                declared_by(PlainSend),
                [
                    Sample(RequestCode.SEND_MESSAGE, SEND, b"one"),
                    Sample(RequestCode.SEND_MESSAGE_V2, SEND_V2, b"two"),
                    Sample(RequestCode.SEND_BATCH_MESSAGE, SEND_V2 | {"m": "true"}, batch(b"three", b"four")),
                ],
            )
            assert [(one.code, (one.ext_fields or {})["queueOffset"]) for one in sends] == [
                (0, "0"),
                (0, "1"),
                (0, "2"),
            ]
            assert (sends[2].ext_fields or {})["msgId"].count(",") == 1
            pulls = await check_in_loop(
                PlainPull(broker.api),
                declared_by(PlainPull),
                [
                    Sample(RequestCode.PULL_MESSAGE, PULL),
                    Sample(RequestCode.LITE_PULL_MESSAGE, PULL | {"queueOffset": "4"}),
                ],
            )
            assert [one.code for one in pulls] == [ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND]
            assert [(one.ext_fields or {})["nextBeginOffset"] for one in pulls] == ["4", "4"]
            assert all(body in pulls[0].body for body in (b"one", b"two", b"three", b"four"))

    asyncio.run(live())


def counted(monkeypatch: pytest.MonkeyPatch, processor: type, method: str, calls: list[str]) -> None:
    """Replace a method by a wrapper that appends the method's name to a list at each call."""
    original: Callable[..., object] = getattr(processor, method)

    def noted(*arguments: object) -> object:
        calls.append(method)
        return original(*arguments)

    noted.__dict__.update(vars(original))
    monkeypatch.setattr(processor, method, noted)


def test_clients_send_and_pull_through_the_plain_processors(
    loaded: flintmq.LoadedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull that waits is answered when a message arrives. The answer to the send of a delayed message has the queue to which
    the message was sent, not the schedule topic's queue."""
    calls: list[str] = []
    counted(monkeypatch, PlainSend, "send_v2", calls)
    counted(monkeypatch, PlainPull, "pull", calls)
    counted(monkeypatch, PlainPull, "_again", calls)

    async def live() -> None:
        async with (
            flintmq.Broker(loaded) as broker,
            flintmq.Producer("p", broker) as producer,
            flintmq.PullConsumer("readers", broker) as consumer,
        ):
            sent = await producer.send(flintmq.Message("Orders", b"first"))
            assert sent.queue_offset == 0
            await consumer.assign([sent.queue], consume_from="first")
            assert [one.body for one in await consumer.poll()] == [b"first"]
            waits = asyncio.create_task(consumer.poll())
            async with asyncio.timeout(10):
                while not broker.api.outlet.held:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            await producer.send(flintmq.Message("Orders", b"second"))
            assert [one.body for one in await waits] == [b"second"]
            delayed = await producer.send(flintmq.Message("Orders", b"later", delay_level=18))
            assert delayed.queue == sent.queue

    asyncio.run(live())
    assert calls.count("send_v2") == 3
    assert {"pull", "_again"} <= set(calls)
