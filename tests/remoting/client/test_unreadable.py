"""One message that cannot be read stops no other: it comes with its stored bytes and the reason, or is sent back."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.core.record.record import decode_record, decode_records
from flintmq.remoting.client import compression as compression_module
from flintmq.remoting.client import message as message_module
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.admin_messages import view_message
from flintmq.remoting.client.compression import compress
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import BROADCASTING, FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.message import NO_ROOM, MessageExt, decode_messages
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.unreadable import UnreadableMessages
from flintmq.remoting.wire.command import RemotingCommand, response
from flintmq.tests.support.damage import (
    FALSE_ZLIB,
    UNKNOWN_METHOD,
    cut,
    false_checksum,
    topic_of_no_text,
    torn,
    without_magic,
    without_size,
)
from flintmq.tests.support.one_queue import FAST, Q0, run, until_committed

Damage = Callable[[bytes], bytes]
NOT_A_RECORD: dict[str, Damage] = {
    "torn": torn,
    "no size": without_size,
    "no magic": without_magic,
    "no topic": lambda record: topic_of_no_text(record, b"T"),
    "cut": cut,
    "nothing": lambda _record: b"\x00",
}
SYS_FLAGS = {"false zlib": FALSE_ZLIB, "unknown method": UNKNOWN_METHOD, "no lz4": 0x101, "no zstd": 0x201}
KINDS = [*SYS_FLAGS, "too long", "checksum", *NOT_A_RECORD]


@pytest.fixture(autouse=True)
def _no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra 'compression' is not installed."""

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(compression_module, "import_module", missing)
    monkeypatch.setattr(compression_module, "DECOMPRESSED_MAX_BYTES", 100_000)
    monkeypatch.setattr(message_module, "DECOMPRESSED_MAX_BYTES", 100_000)


def put(broker: Any, kind: str, topic: str = "T") -> bytes:
    """Store a message that cannot be read; return what is stored of its body."""
    body = zlib.compress(bytes(200_000)) if kind == "too long" else b"stored bytes"
    sys_flag = 0x301 if kind == "too long" else SYS_FLAGS.get(kind, 0)
    broker.put(topic, 0, body, "KEYS\x01k\x02TAGS\x01A", sys_flag=sys_flag)
    queue = broker.records[topic, 0]
    if kind == "checksum":
        queue[-1] = false_checksum(queue[-1])
        return decode_record(queue[-1], check_crc=False).body
    if kind in NOT_A_RECORD:
        queue[-1] = NOT_A_RECORD[kind](queue[-1])
        return bytes(queue[-1])
    return body


@pytest.mark.parametrize("tags", ["*", "A"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_poll_returns_unreadable_messages_with_their_stored_body_and_the_reason(
    fake_peer: Any, fake_broker: Any, kind: str, place: int, tags: str
) -> None:
    """In order and once, with the stored bytes and the reason of the one that cannot be read, wherever it lies."""

    async def test(broker: Any) -> None:
        stored = b""
        for number in range(5):
            if number == place:
                stored = put(broker, kind)
            else:
                broker.put("T", 0, b"%d" % number, "TAGS\x01A")
        async with PullConsumer("g", broker.peer.address) as consumer:
            await consumer.assign([Q0], tags, consume_from=FROM_FIRST)
            found: list[MessageExt] = []
            while len(found) < 5:
                found += await consumer.poll(5_000)
            assert [message.queue_offset for message in found] == [0, 1, 2, 3, 4]
            assert {message.topic for message in found} == {"T"}
            assert consumer.positions == {Q0: 5}
            for number, message in enumerate(found):
                assert bool(message.body_error) is (number == place)
                assert message.body == (stored if number == place else b"%d" % number)
                looked_at = (message.properties, message.msg_id, message.keys, message.born_host, message.store_host)
                assert all(one is not None for one in looked_at)

    run(fake_peer, fake_broker, test)


def test_polling_reaches_the_end_of_a_queue_that_contains_only_unreadable_messages(
    fake_peer: Any, fake_broker: Any
) -> None:
    """Each is delivered by itself, and the queue ends."""

    async def test(broker: Any) -> None:
        stored = [put(broker, kind) for kind in KINDS]
        async with PullConsumer("g", broker.peer.address) as consumer:
            await consumer.assign([Q0], consume_from=FROM_FIRST)
            found: list[MessageExt] = []
            while len(found) < len(KINDS):
                found += await consumer.poll(5_000)
            assert [message.body for message in found] == stored
            assert all(message.body_error for message in found)
            assert await consumer.poll(0) == []

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("damaged", [False, True])
def test_the_total_size_of_decompressed_bodies_of_a_pull_answer_is_bounded(
    fake_peer: Any, fake_broker: Any, damaged: bool
) -> None:
    """32 small messages can become gigabytes: what one answer has no room for comes with the next one."""

    async def test(broker: Any) -> None:
        lengths_bytes = [10, 60_000, 40_000, 1, 99_999, 0, 100_000, 100_001, 50_000, 50_000, 50_000]
        for number, length_bytes in enumerate(lengths_bytes):
            if damaged and number % 3 == 0:
                put(broker, "checksum")
            broker.put("T", 0, zlib.compress(bytes(length_bytes)), sys_flag=0x301)
        broker.put("T", 0, b"plain")
        count = len(broker.records["T", 0])
        async with PullConsumer("g", broker.peer.address) as consumer:
            found: list[MessageExt] = []
            while len(found) < count:
                result = await consumer.pull(Q0, len(found))
                assert result.next_begin_queue_offset == len(found) + len(result.messages)
                unpacked = [len(one.body) for one in result.messages if one.sys_flag and not one.body_error]
                assert sum(unpacked) <= 100_000
                found += result.messages
        assert [message.queue_offset for message in found] == list(range(count))
        packed = [message for message in found if message.sys_flag]
        assert [len(one.body) for one in packed if not one.body_error] == [n for n in lengths_bytes if n <= 100_000]
        assert [one.body_error for one in packed if one.body_error] == [
            "the decompressed body is longer than 100000 bytes"
        ]

    run(fake_peer, fake_broker, test)


def test_the_total_size_of_decompressed_bodies_of_a_query_is_bounded(fake_peer: Any, fake_broker: Any) -> None:
    """Its messages are all shown; those for which there is no room say so."""

    async def test(broker: Any) -> None:
        for _ in range(3):
            broker.put("T", 0, zlib.compress(bytes(60_000)), "KEYS\x01k", sys_flag=0x301)
        async with AdminClient(broker.peer.address) as admin:
            found = await admin.query_by_key("T", "k")
            assert [len(one.body) for one in found if not one.body_error] == [60_000]
            assert {one.body_error for one in found if one.body_error} == {NO_ROOM}
            for one in found:
                assert len((await view_message(admin, one.offset_msg_id)).body) == 60_000

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lists", [False, True])
def test_unreadable_messages_are_sent_back_and_not_given_to_the_listener(
    fake_peer: Any, fake_broker: Any, kind: str, lists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are sent back as if it had failed at them, and the group goes on."""

    async def test(broker: Any) -> None:
        for number in range(5):
            if number == 2:
                put(broker, kind)
            else:
                broker.put("T", 0, b"%d" % number)
        got: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)

        async def listen_to_lists(messages: list[MessageExt]) -> None:
            got.extend(message.body for message in messages)

        consumer = Consumer(
            "g",
            broker.peer.address,
            None if lists else listen,
            batch_listener=listen_to_lists if lists else None,
            settings=FAST,
        )
        async with consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 5)
        assert sorted(got) == [b"0", b"1", b"3", b"4"]
        (sent_back,) = broker.peer.of_code(36)
        assert sent_back.ext_fields["delayLevel"] == "0"
        assert broker.offsets["g", "T", 0] == 5

    run(fake_peer, fake_broker, test)
    (line,) = [one for one in caplog.records if "cannot be read and is not given to the listener" in one.getMessage()]
    assert "at offset 2 of" in line.getMessage()


@pytest.mark.parametrize("lists", [False, True])
def test_a_listener_receives_unreadable_messages_if_the_consumer_settings_allow_this(
    fake_peer: Any, fake_broker: Any, lists: bool
) -> None:
    """The message has the error, and the result of the listener counts."""

    async def test(broker: Any) -> None:
        broker.put("T", 0, b"0")
        stored = put(broker, "false zlib")
        got: list[tuple[bytes, str]] = []

        async def listen(message: MessageExt) -> None:
            got.append((message.body, message.body_error))

        async def listen_to_lists(messages: list[MessageExt]) -> None:
            for message in messages:
                await listen(message)

        made = attrs.evolve(FAST, unreadable="deliver")
        consumer = Consumer(
            "g",
            broker.peer.address,
            None if lists else listen,
            batch_listener=listen_to_lists if lists else None,
            settings=made,
        )
        async with consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 2)
        assert [body for body, _ in sorted(got)] == [b"0", stored]
        assert "not a zlib stream" in dict(got)[stored]
        assert not broker.peer.of_code(36)

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("tries", [None, 3])
def test_an_unreadable_orderly_message_becomes_a_dead_letter_at_once(
    fake_peer: Any, fake_broker: Any, tries: int | None
) -> None:
    """Tried again here it would hold up its queue, and never be read."""

    async def test(broker: Any) -> None:
        for number in range(3):
            if number == 1:
                put(broker, "unknown method")
            else:
                broker.put("T", 0, b"%d" % number)
        got: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)

        made = attrs.evolve(FAST, orderly=True, max_reconsume_times=tries)
        async with Consumer("g", broker.peer.address, listen, settings=made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 3)
        assert got == [b"0", b"2"]
        (sent_back,) = broker.peer.of_code(36)
        assert (sent_back.ext_fields["delayLevel"], sent_back.ext_fields["maxReconsumeTimes"]) == ("-1", "0")

    run(fake_peer, fake_broker, test)


def test_a_broadcasting_consumer_skips_an_unreadable_message(
    fake_peer: Any, fake_broker: Any, tmp_path: Path, caplog: Any
) -> None:
    """Broadcasting has no retries, so a log line must remain, as for every failed message."""

    async def test(broker: Any) -> None:
        put(broker, "checksum")
        broker.put("T", 0, b"1")
        got: list[bytes] = []
        made = attrs.evolve(FAST, message_model=BROADCASTING, offset_folder=tmp_path)
        async with Consumer("g", broker.peer.address, lambda one: got.append(one.body), settings=made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 2)
        assert got == [b"1"]
        assert not broker.peer.of_code(36)

    run(fake_peer, fake_broker, test)
    assert "cannot be read and is not given to the listener: it is damaged: its checksum is 0x" in caplog.text


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_skips_an_unreadable_message_after_the_broker_refuses_every_send_back(
    fake_peer: Any, fake_broker: Any, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """After as many tries as a message has: else it would hold up for good what its queue commits."""

    async def test(broker: Any) -> None:
        for number in range(3):
            if number == 1:
                put(broker, "torn")
            else:
                broker.put("T", 0, b"%d" % number)
        broker.peer.answers[36] = lambda asked: response(asked, 1, "look message by offset failed, -1")
        got: list[bytes] = []

        async def listen(message: MessageExt) -> None:
            got.append(message.body)

        made = attrs.evolve(FAST, orderly=orderly, max_reconsume_times=3)
        async with Consumer("g", broker.peer.address, listen, settings=made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 3)
        assert sorted(got) == [b"0", b"2"]
        assert len(broker.peer.of_code(36)) == 4

    run(fake_peer, fake_broker, test)
    lines = [one for one in caplog.records if "nor sent back, and is skipped" in one.getMessage()]
    assert [line.levelname for line in lines] == ["ERROR"]
    assert "at offset 1 of" in lines[0].getMessage()


@pytest.mark.parametrize("code", [2, 14, 16])
def test_sending_back_an_unreadable_message_is_retried_while_the_broker_is_busy(
    fake_peer: Any, fake_broker: Any, code: int
) -> None:
    """That passes: nothing is passed over for it."""

    async def test(broker: Any) -> None:
        put(broker, "false zlib")
        answers = [code] * 6

        def send_back(asked: RemotingCommand) -> RemotingCommand:
            return response(asked, answers.pop() if answers else 0, "not now")

        broker.peer.answers[36] = send_back
        made = attrs.evolve(FAST, max_reconsume_times=1)
        async with Consumer("g", broker.peer.address, lambda _message: None, settings=made) as consumer:
            await consumer.subscribe("T")
            await until_committed(broker, consumer, 1)
        assert len(broker.peer.of_code(36)) == 7

    run(fake_peer, fake_broker, test)


def test_an_iteration_over_a_consumer_skips_unreadable_messages(fake_peer: Any, fake_broker: Any) -> None:
    """Without a listener, too."""

    async def test(broker: Any) -> None:
        put(broker, "no lz4")
        broker.put("T", 0, b"1")
        async with Consumer("g", broker.peer.address, settings=FAST) as consumer:
            await consumer.subscribe("T")
            async for message in consumer:
                assert message.body == b"1"
                break
            await broker.peer.until(lambda: len(broker.peer.of_code(36)) == 1)

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_returns_unreadable_messages_with_the_reason(fake_peer: Any, fake_broker: Any, kind: str) -> None:
    """They are listed beside the readable messages that have the same key."""

    async def test(broker: Any) -> None:
        broker.put("T", 0, b"0", "KEYS\x01k")
        stored = put(broker, kind)
        broker.put("T", 0, b"2", "KEYS\x01k")
        async with AdminClient(broker.peer.address) as admin:
            found = await admin.query_by_key("T", "k")
            by_body = {message.body: message.body_error for message in found}
            assert by_body.pop(b"0") == ""
            if kind in ("no size", "cut", "nothing"):  # nobody can tell where the next record begins
                (error,) = by_body.values()
                assert error.startswith("the record cannot be read: ")
            else:
                assert by_body.pop(b"2") == ""
                assert list(by_body) == [stored]
                assert all(by_body.values())

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("withholds", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 32])
def test_an_unreadable_message_that_is_to_be_sent_back_never_shares_a_batch_with_other_messages(
    fake_peer: Any, fake_broker: Any, withholds: bool, size: int
) -> None:
    """Each that the listener does not get is alone, whatever stands around it."""

    async def test(broker: Any) -> None:
        chosen = random.Random(size)
        unreadable = UnreadableMessages(ConsumerSettings(unreadable="retry" if withholds else "deliver"))
        for _ in range(40):
            broker.records.clear()
            count = chosen.randrange(9)
            for _ in range(count):
                broker.put("T", 0, b"x", sys_flag=FALSE_ZLIB if chosen.random() < 0.4 else 0)
            messages = decode_messages(b"".join(broker.records["T", 0]))
            units = unreadable.units(messages, size)
            assert [message for unit in units for message in unit] == messages
            assert all(0 < len(unit) <= size for unit in units)
            for unit in units:
                assert len(unit) == 1 or not any(unreadable.is_withheld(message) for message in unit)

    run(fake_peer, fake_broker, test)


@pytest.mark.parametrize("value", ["first", "", None, "RETRY"])
def test_an_invalid_value_of_the_setting_for_unreadable_messages_is_refused(value: Any) -> None:
    """When it is made, with what fits."""
    with pytest.raises(ValueError, match=r"unreadable is .*, and must be one of 'retry', 'deliver'"):
        ConsumerSettings(unreadable=value)


def test_readable_messages_are_decoded_only_once(
    fake_peer: Any, fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are examined singly only if an answer has an unreadable record, because this takes time."""

    async def test(broker: Any) -> None:
        packed, sys_flag = compress(b"hello" * 100)
        broker.put("T", 0, packed, sys_flag=sys_flag)
        broker.put("T", 0, b"", sys_flag=sys_flag)
        broker.put("T", 0, b"plain")
        monkeypatch.setattr(message_module, "messages_apart", None)
        records = b"".join(broker.records["T", 0])
        assert len(decode_records(records)) == 3
        assert [message.body for message in decode_messages(records)] == [b"hello" * 100, b"", b"plain"]

    run(fake_peer, fake_broker, test)
