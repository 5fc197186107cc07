"""A body is a value where a consumer has a codec: of any kind of model, when it is asked for, and never at others' expense."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import attrs
import msgspec
import pytest

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client.codec import JsonCodec
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.handlers import Consumers
from flintmq.remoting.client.message import CodecError, MessageExt
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

QUEUE = MessageQueue("broker-0", 0, "T")
FROM_FIRST = ConsumerSettings(consume_from="first", concurrency=1)


class OfMsgspec(msgspec.Struct):
    number: int


@dataclass
class OfDataclass:
    number: int


@attrs.define
class OfAttrs:
    number: int


class OfTypedDict(TypedDict):
    number: int


def of_pydantic() -> type:
    pydantic = pytest.importorskip("pydantic")
    made: type = pydantic.create_model("OfPydantic", number=(int, ...))
    return made


MODELS: list[Callable[[], Any]] = [lambda: OfMsgspec, lambda: OfDataclass, lambda: OfAttrs, of_pydantic]


@pytest.mark.parametrize("model_of", MODELS)
def test_the_json_codec_encodes_and_decodes_a_value_of_a_model_class(model_of: Callable[[], Any]) -> None:
    model = model_of()
    codec = JsonCodec(model)
    value = model(number=7)
    assert codec.encode(value) == b'{"number":7}'
    assert codec.decode(b'{"number":7}') == value
    message = codec.message("T", value, tags="new", keys="a b", properties={"c": "d"}, delay="1s")
    assert (message.body, message.tags, message.keys) == (b'{"number":7}', "new", ("a", "b"))
    assert message.properties == {"c": "d", "TIMER_DELAY_MS": "1000"}
    for body in (b'{"number":"x"}', b"{", b"", b"\xff", b"[" * 100_000):
        with pytest.raises(CodecError, match=f"does not decode as {model.__name__}"):
            codec.decode(body)


def test_the_json_codec_decodes_values_of_generic_types_and_untyped_json() -> None:
    assert JsonCodec(list[int]).decode(b"[1, 2]") == [1, 2]
    assert JsonCodec(OfTypedDict).decode(b'{"number": 1}') == {"number": 1}
    assert JsonCodec().decode(b'{"a": [1, null]}') == {"a": [1, None]}
    assert JsonCodec().encode({"a": 1}) == b'{"a":1}'
    with pytest.raises(CodecError, match="does not decode as JSON"):
        JsonCodec().decode(b"no")
    with pytest.raises(CodecError, match="object is not encoded as JSON"):
        JsonCodec().encode(object())


def test_many_threads_can_decode_values_with_one_codec_object_at_the_same_time() -> None:
    codec, found = JsonCodec(OfMsgspec), set()

    def decode(number: int) -> None:
        found.add(codec.decode(b'{"number":%d}' % number).number)

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == set(range(20))


# --- consumers ---


def run(test: Callable[[FakeCluster], Any]) -> None:
    cluster = FakeCluster(Choices(5), brokers=1, queue_nums=1)

    async def main() -> None:
        await cluster.start()
        async with asyncio.timeout(500):
            await test(cluster)

    cluster.loop.run(main())
    assert not cluster.loop.errors


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "kind", ["plain", "async", "plain list", "async list", "plain orderly", "loop", "poll", "pull", "handler"]
)
def test_every_kind_of_consumer_decodes_message_bodies_with_its_codec(kind: str) -> None:
    """Redelivered messages are built again, so their values must be decoded as well."""

    async def test(cluster: FakeCluster) -> None:
        for number in range(2):
            cluster.put(QUEUE, b'{"number":%d}' % number)
        codec, got, failed = JsonCodec(OfMsgspec), list[int](), list[int]()

        def take(given: Any) -> None:
            for message in given if isinstance(given, list) else [given]:
                if not failed and kind not in ("loop", "poll", "pull"):
                    failed.append(message.value.number)
                    raise ValueError("again")
                assert message.value is message.value
                got.append(message.value.number)

        async def take_async(given: Any) -> None:
            take(given)

        options: dict[str, Any] = {"codec": codec, "clock": cluster.clock}
        function = take_async if kind.startswith("async") else take
        if kind in ("poll", "pull"):
            async with PullConsumer("g", cluster.address, **options) as puller:
                await puller.assign("T", consume_from="first")
                if kind == "poll":
                    take(await puller.poll())
                else:
                    take(list((await puller.pull(QUEUE, 0)).messages))
        elif kind == "handler":
            consumers = Consumers(cluster.address, clock=cluster.clock)
            assert consumers.handler("T", group="g", settings=FROM_FIRST, codec=codec)(take) is take
            async with consumers:
                await until(lambda: len(got) == 2)
        elif kind == "loop":
            async with Consumer("g", cluster.address, settings=FROM_FIRST, **options) as consumer:
                await consumer.subscribe("T")
                async for message in consumer:
                    take(message)
                    if len(got) == 2:
                        break
        else:
            listener = {"batch_listener" if kind.endswith("list") else "listener": function}
            settings = attrs.evolve(FROM_FIRST, orderly=kind.endswith("orderly"))
            async with Consumer("g", cluster.address, settings=settings, **listener, **options) as consumer:
                await consumer.subscribe("T")
                await until(lambda: set(got) == {0, 1})
        assert set(got) == {0, 1}

    run(test)


def test_a_message_whose_body_cannot_be_decoded_is_retried_and_does_not_block_other_messages() -> None:
    """The message is told of in full, and comes again like any that its listener failed at; its bytes are there."""

    async def test(cluster: FakeCluster) -> None:
        for body in (b'{"number":0}', b"no json", b'{"number":2}'):
            cluster.put(QUEUE, body)
        got, failed, bytes_of = list[int](), list[str](), list[bytes]()

        def take(message: MessageExt) -> None:
            try:
                got.append(message.value.number)
            except CodecError as failure:
                failed.append(str(failure))
                bytes_of.append(message.body)
                if message.reconsume_times < 2:
                    raise

        settings = attrs.evolve(FROM_FIRST, commit_interval_s=1)
        async with Consumer(
            "g", cluster.address, take, settings=settings, codec=JsonCodec(OfMsgspec), clock=cluster.clock
        ) as consumer:
            await consumer.subscribe("T")
            await until(lambda: len(failed) == 3)
        assert got == [0, 2]
        assert bytes_of == [b"no json"] * 3
        assert "a body of 7 bytes does not decode as OfMsgspec" in failed[0]
        assert "T: message" in failed[0]
        assert cluster.committed("g", QUEUE) == 3

    run(test)


@pytest.mark.parametrize("failure", [ValueError, SystemExit, StopIteration])
def test_a_message_is_retried_if_its_decoding_raises_an_exception_of_any_type(failure: type[BaseException]) -> None:
    async def test(cluster: FakeCluster) -> None:
        for number in range(3):
            cluster.put(QUEUE, b"%d" % number)
        got: list[object] = []

        class Codec:
            def decode(self, body: bytes) -> object:
                if body == b"1" and len(got) < 2:
                    raise failure("no")
                return int(body)

        def take(message: MessageExt) -> None:
            got.append(message.value)

        async with Consumer("g", cluster.address, take, settings=FROM_FIRST, codec=Codec(), clock=cluster.clock) as it:
            await it.subscribe("T")
            await until(lambda: len(got) == 3)
        assert got == [0, 2, 1]

    run(test)


def test_reading_the_value_of_a_message_raises_codec_error_if_the_consumer_has_no_codec() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.put(QUEUE, b"x")
        async with PullConsumer("g", cluster.address, clock=cluster.clock) as puller:
            await puller.assign("T", consume_from="first")
            (message,) = await puller.poll()
        with pytest.raises(CodecError, match="give the consumer one"):
            message.value  # noqa: B018

    run(test)
