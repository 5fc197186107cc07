"""A producer spreads messages, tries elsewhere when it may help, and says exactly what was stored."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.properties import string_to_properties
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import PartlySentError, SendStatus
from flintmq.remoting.client.unique_id import UniqueIdMaker, make_client_id
from flintmq.remoting.wire.command import RemotingCommand, response


def run(fake_peer: Any, fake_broker: Any, test: Callable[[Any, Producer], Awaitable[None]], **options: Any) -> None:
    async def with_producer() -> None:
        async with fake_peer() as peer:
            broker = fake_broker(peer)
            async with Producer("pg", peer.address, **options) as producer:
                await test(broker, producer)

    asyncio.run(with_producer())


def test_a_message_is_sent_with_all_its_properties(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        message = Message("T", b"body", tags="A", keys="k1 k2", properties={"user": "x"}, delay_level=3, flag=7)
        result = await producer.send(message)
        (asked,) = broker.peer.of_code(310)
        assert result.status is SendStatus.SEND_OK
        assert result.queue.topic == "T"
        assert (result.queue.broker_name, result.queue_offset, result.region_id) == ("broker-a", 0, "R")
        assert broker.sent_properties(asked) == {
            "user": "x",
            "KEYS": "k1 k2",
            "UNIQ_KEY": result.msg_id,
            "WAIT": "true",
            "DELAY": "3",
            "TAGS": "A",
        }
        assert asked.body == b"body"
        assert asked.ext_fields["h"] == "7"
        assert asked.ext_fields["n"] == "broker-a"

    run(fake_peer, fake_broker, test)


def test_messages_are_sent_to_the_queues_of_a_topic_in_round_robin_order(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        queues = await producer.queues("T")
        used = [(await producer.send(Message("T", b"%d" % number))).queue for number in range(4)]
        assert used[:2] == used[2:]
        assert set(used) == set(queues)
        assert (await producer.send(Message("T", b"x"), queues[1])).queue == queues[1]
        assert len(broker.peer.of_code(105)) == 1

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205])
def test_a_message_is_sent_again_after_a_retryable_refusal_of_the_broker(
    fake_peer: Any, fake_broker: Any, code: int
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        def refuse_twice(asked: RemotingCommand) -> RemotingCommand:
            return response(asked, code, "no") if len(broker.peer.of_code(310)) <= 2 else broker.send(asked)

        broker.peer.answers[310] = refuse_twice
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
        assert len(broker.peer.of_code(310)) == 3
        broker.peer.answers[310] = lambda asked: response(asked, code, "never")
        with pytest.raises(RefusedError, match="never") as refused:
            await producer.send(Message("T", b"x"))
        assert refused.value.code == code

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("code", [2, 13, 26])
def test_a_message_is_not_sent_again_after_a_refusal_that_is_not_retryable(
    fake_peer: Any, fake_broker: Any, code: int
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        broker.peer.answers[310] = lambda asked: response(asked, code, "no")
        with pytest.raises(RefusedError) as refused:
            await producer.send(Message("T", b"x"))
        assert refused.value.code == code
        assert len(broker.peer.of_code(310)) == 1

    run(fake_peer, fake_broker, test)


def test_a_send_is_retried_after_a_lost_connection(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        def hang_up_once(asked: RemotingCommand) -> RemotingCommand | None:
            if len(broker.peer.of_code(310)) > 1:
                return broker.send(asked)
            broker.peer.transports[0].abort()
            return None

        broker.peer.answers[310] = hang_up_once
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("status", list(SendStatus))
def test_a_send_returns_the_durability_status_that_the_broker_reports_for_the_stored_message(
    fake_peer: Any, fake_broker: Any, status: SendStatus
) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        def answer(asked: RemotingCommand) -> RemotingCommand:
            stored = broker.send(asked)
            stored.code = int(status.value)
            return stored

        broker.peer.answers[310] = answer
        assert (await producer.send(Message("T", b"x"))).status is status

    run(fake_peer, fake_broker, test)


def test_a_topic_created_by_a_send_has_at_most_the_number_of_queues_set_in_the_producer(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The auto-create topic tells where; with at most the producer's number of queues."""

    async def test(broker: Any, producer: Producer) -> None:
        with pytest.raises(RefusedError) as refused:
            await producer.send(Message("new", b"x"))
        assert refused.value.code == 17
        broker.topics.add("TBW102")
        broker.queue_nums = 8
        assert len(await producer.queues("new")) == 4
        await producer.send(Message("new", b"x"))
        (asked,) = broker.peer.of_code(310)
        assert (asked.ext_fields["b"], asked.ext_fields["c"]) == ("new", "TBW102")

    run(fake_peer, fake_broker, test)


def test_send_batch_sends_all_its_messages_in_one_request(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        messages = [Message("T", b"%d" % number, tags="A", keys=[f"k{number}"], flag=number) for number in range(3)]
        result = await producer.send_batch(messages)
        (asked,) = broker.peer.of_code(320)
        items = decode_batch(asked.body)
        assert [(item.body, item.flag) for item in items] == [(b"0", 0), (b"1", 1), (b"2", 2)]
        ids = [string_to_properties(item.properties_bytes.decode())["UNIQ_KEY"] for item in items]
        assert result.msg_id.split(",") == ids
        assert len(result.offset_msg_id.split(",")) == 3
        assert asked.ext_fields["m"] == "true"
        assert broker.sent_properties(asked) == {"WAIT": "true"}

    run(fake_peer, fake_broker, test)


def test_an_invalid_batch_is_refused_before_it_is_sent(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        for messages in (
            [],
            [Message("T", b""), Message("U", b"")],
            [Message("T", b""), Message("T", b"", wait_store=False)],
            [Message("T", b"", delay_level=1)],
            [Message("%RETRY%g", b"")],
        ):
            with pytest.raises(ValueError, match="batch"):
                await producer.send_batch(messages)
        assert not broker.peer.of_code(320)

    run(fake_peer, fake_broker, test)


def test_a_message_that_cannot_be_stored_is_refused_before_it_is_sent(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        with pytest.raises(ValueError, match="11 bytes"):
            await producer.send(Message("T", bytes(11)))
        with pytest.raises(ValueError, match="properties of"):
            await producer.send(Message("T", b"", properties={"big": "x" * 32_768}))
        with pytest.raises(ValueError, match="separator"):
            await producer.send(Message("T", b"", properties={"a\x01": "x"}))
        with pytest.raises(ValueError, match="separator"):
            await producer.send(Message("T", b"", tags="a\x02b"))

    run(fake_peer, fake_broker, test, max_message_bytes=10)


def test_message_bodies_of_at_least_the_configured_size_are_compressed(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        await producer.send(Message("T", b"x" * 99))
        await producer.send(Message("T", b"x" * 100))
        short, long = broker.peer.of_code(310)
        assert (short.body, short.ext_fields["f"]) == (b"x" * 99, "0")
        assert (zlib.decompress(long.body), long.ext_fields["f"]) == (b"x" * 100, str(0x301))

    run(fake_peer, fake_broker, test, compress_over_bytes=100)


def test_send_oneway_sends_a_request_that_is_marked_as_oneway(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        await producer.send_oneway(Message("T", b"x"))
        await broker.peer.until(lambda: bool(broker.peer.of_code(310)))
        assert broker.peer.of_code(310)[0].is_oneway

    run(fake_peer, fake_broker, test)


def test_a_producer_registers_and_unregisters_its_group(fake_peer: Any, fake_broker: Any) -> None:
    async def with_producer() -> None:
        async with fake_peer() as peer:
            broker = fake_broker(peer)
            async with Producer("pg", peer.address) as producer:
                await producer.queues("T")
                assert await producer.client.send_heartbeats() == 1
            (heartbeat,) = peer.of_code(34)
            assert b'"producerDataSet":[{"groupName":"pg"}]' in heartbeat.body
            (left,) = peer.of_code(35)
            assert left.ext_fields["producerGroup"] == "pg"
            assert broker.members == {}

    asyncio.run(with_producer())


def test_an_unreachable_name_server_is_skipped(fake_peer: Any, fake_broker: Any) -> None:
    async def with_producer() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("pg", ["127.0.0.1:1", peer.address]) as producer:
                await producer.send(Message("T", b"x"))
                assert len(peer.of_code(105)) == 1
        async with Producer("pg", "127.0.0.1:1") as producer:
            with pytest.raises(RemotingError):
                await producer.send(Message("T", b"x"))
        with pytest.raises(ValueError, match="name server"):
            Producer("pg", " ; ")

    asyncio.run(with_producer())


class MonthClock:
    """A clock that is set by hand."""

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


def test_unique_message_ids_have_the_form_of_rocketmq() -> None:
    """Address, process, time since the first of the month and a counter: 32 digits, 56 with IPv6; never the same twice."""
    clock = MonthClock(1_701_388_800_000 + 86_400_000)  # early December 2023 in any time zone
    maker = UniqueIdMaker("10.0.0.1", clock)
    first, second = maker.make(), maker.make()
    assert len(first) == 32
    assert first.startswith("0A000001")
    assert first[:-4] == second[:-4]
    assert int(second[-4:], 16) == int(first[-4:], 16) + 1
    clock.ms += 5
    assert int(maker.make()[20:28], 16) == int(first[20:28], 16) + 5
    clock.ms += 40 * 86_400_000
    assert int(maker.make()[20:28], 16) < 32 * 86_400_000
    assert len(UniqueIdMaker("fd00::1", clock).make()) == 56


def test_client_ids_are_unique_unless_an_instance_name_is_given() -> None:
    assert make_client_id("1.2.3.4", "DEFAULT") == "1.2.3.4@DEFAULT"
    assert make_client_id("1.2.3.4") != make_client_id("1.2.3.4")


def test_messages_with_the_same_sharding_key_go_to_the_same_queue_in_order(fake_peer: Any, fake_broker: Any) -> None:
    """To the one that the Java client chooses for the key, however it is sent; and nothing else is tried."""

    async def test(broker: Any, producer: Producer) -> None:
        broker.queue_nums = 5
        route = await producer.client.routes.route("T")
        for key in ("order-1", "order-2", "", "Ω"):
            queue = route.queue_by_key(key)
            sent = [await producer.send(Message("T", b"x"), sharding_key=key) for _ in range(3)]
            sent.append(await producer.send_batch([Message("T", b"x")], sharding_key=key))
            sent += await producer.send_all([Message("T", b"x")], sharding_key=key)
            assert {result.queue for result in sent} == {queue}
            offsets = [result.queue_offset for result in sent]
            assert offsets == sorted(offsets)
            broker.peer.requests.clear()
            await producer.send_oneway(Message("T", b"x"), sharding_key=key)
            await broker.peer.until(lambda: bool(broker.peer.of_code(310)))
            assert broker.peer.of_code(310)[0].ext_fields["e"] == str(queue.queue_id)
        for send in (producer.send, producer.send_oneway, producer.request):
            with pytest.raises(ValueError, match="not both"):
                await send(Message("T", b"x"), queue, sharding_key="k")
        for send_many in (producer.send_batch, producer.send_all):
            with pytest.raises(ValueError, match="not both"):
                await send_many([Message("T", b"x")], queue, sharding_key="k")
        broker.peer.answers[310] = lambda asked: response(asked, 14, "no")
        broker.peer.requests.clear()
        with pytest.raises(RefusedError):
            await producer.send(Message("T", b"x"), sharding_key="k")
        assert len(broker.peer.of_code(310)) == 1, "another queue would break the order"

    run(fake_peer, fake_broker, test)


def test_send_all_splits_any_number_of_messages_into_batches(fake_peer: Any, fake_broker: Any) -> None:
    async def test(broker: Any, producer: Producer) -> None:
        messages = [Message("T", b"%02d" % number + bytes(100)) for number in range(10)]
        results = await producer.send_all(messages, (await producer.queues("T"))[0])
        assert len(results) > 1
        assert len(broker.peer.of_code(320)) == len(results)
        items = [item for asked in broker.peer.of_code(320) for item in decode_batch(asked.body)]
        assert [item.body for item in items] == [message.body for message in messages]
        assert results[0].queue_offset == 0
        assert sum(len(result.msg_id.split(",")) for result in results) == 10
        assert await producer.send_all([]) == []

    run(fake_peer, fake_broker, test, max_message_bytes=600)


def test_the_error_for_a_partly_sent_list_of_messages_contains_the_results_of_stored_batches(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Who sends all again would store the first ones twice."""

    async def test(broker: Any, producer: Producer) -> None:
        def refuse_the_third(asked: RemotingCommand) -> RemotingCommand:
            stored: RemotingCommand = broker.send_batch(asked)
            return stored if len(broker.peer.of_code(320)) < 3 else response(asked, 13, "no more")

        broker.peer.answers[320] = refuse_the_third
        messages = [Message("T", b"%02d" % number + bytes(100)) for number in range(10)]
        with pytest.raises(PartlySentError, match="send again from message") as failed:
            await producer.send_all(messages)
        first_two = [decode_batch(asked.body) for asked in broker.peer.of_code(320)[:2]]
        assert failed.value.stored_messages == sum(map(len, first_two))
        assert len(failed.value.results) == 2
        assert isinstance(failed.value.__cause__, RefusedError)
        with pytest.raises(RefusedError, match="no more"):
            await producer.send_all(messages)

    run(fake_peer, fake_broker, test, max_message_bytes=400)
