"""Settings and messages are checked when they are made: a mistake is found where it is, with the value and what fits."""

from __future__ import annotations

import asyncio
import pwd
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.errors import FlintError, InvalidArgumentError
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.message import Message


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("consume_from", "earliest", "CONSUME_FROM_FIRST_OFFSET"),
        ("message_model", "broadcast", "BROADCASTING"),
        ("consume_from_timestamp_ms", -1, "0"),
        ("consume_from_timestamp_ms", "2026", "a whole number"),
        ("concurrency", 0, "from 1"),
        ("concurrency", 2.5, "a whole number"),
        ("concurrency", True, "a whole number"),
        ("consume_batch_size", 0, "from 1"),
        ("max_reconsume_times", "16", "a whole number"),
        ("delay_level", 99, "from -1 to 18"),
        ("consume_timeout_s", -1, "0 or more"),
        ("consume_timeout_s", float("nan"), "0 or more"),
        ("pull_batch_size", 0, "from 1"),
        ("max_cached_messages", 0, "1 or more"),
        ("suspend_ms", None, "a whole number"),
        ("rebalance_interval_s", "20", "a number"),
        ("orderly", "yes", "True or False"),
        ("offset_folder", 5, "a pathlib.Path"),
        ("allocate", "averagely", "allocate_averagely"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_value(name: str, value: Any, fits: str) -> None:
    with pytest.raises(InvalidArgumentError) as failure:
        ConsumerSettings(**{name: value})
    assert str(failure.value).startswith(f"{name} is {value!r}, and must be ")
    assert fits in str(failure.value)
    assert isinstance(failure.value, ValueError)
    assert isinstance(failure.value, FlintError)


def test_the_offset_folder_setting_accepts_a_string() -> None:
    assert ConsumerSettings(offset_folder="/x").offset_folder == Path("/x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"body": "text"}, "body is 'text', and must be bytes: encode it, 'text'.encode()"),
        ({"body": None}, "body is None, and must be bytes"),
        ({"body": "x" * 1_000_000}, "body is 'xxx"),
        ({"topic": ""}, "topic is '', and must be the name of a topic"),
        ({"topic": b"T"}, "topic is b'T', and must be a text"),
        ({"tags": 5}, "tags is 5, and must be a text"),
        ({"tags": None}, "tags is None, and must be a text"),
        ({"keys": 5}, "keys is 5, and must be a text or a sequence of texts: keys='5'"),
        ({"keys": (1, 2)}, "keys is (1, 2), and must be texts"),
        ({"keys": b"k"}, "must be texts"),
        ({"properties": {"a": 1}}, "property 'a' is 1, and names and values must be texts"),
        ({"properties": {1: "a"}}, "property 1 is 'a', and names and values must be texts"),
        ({"properties": [("a", "b")]}, "properties is [('a', 'b')], and must be a mapping"),
        ({"delay_level": 99}, "delay_level is 99, and must be a number from 0 to 18"),
        ({"delay_level": -1}, "delay_level is -1"),
        ({"delay_level": "5"}, "delay_level is '5'"),
        ({"flag": 2**31}, "flag is 2147483648, and must be a number of 32 bits"),
    ],
)
def test_creating_a_message_with_invalid_arguments_raises_invalid_argument_error(
    arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgumentError) as failure:
        Message(**{"topic": "T", "body": b"x", **arguments})
    assert says in str(failure.value)
    assert len(str(failure.value)) < 400


def test_changing_a_bytearray_does_not_change_the_body_of_a_message_created_from_the_bytearray() -> None:
    body = bytearray(b"abc")
    message = Message("T", body)  # type: ignore[arg-type]
    body[0] = 0
    assert message.body == b"abc"
    assert type(Message("T", memoryview(b"abc")).body) is bytes  # type: ignore[arg-type]


def test_an_operating_system_user_without_a_name_and_home_folder_can_consume(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run under ids that no file names; only broadcasting needs a folder."""

    def unknown(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)

    async def run() -> None:
        async with Consumer("g", "127.0.0.1:1", print, settings=ConsumerSettings()):
            pass
        broadcasting = ConsumerSettings(message_model="BROADCASTING")
        with pytest.raises(InvalidArgumentError, match=r"no home folder.*set ConsumerSettings\.offset_folder"):
            Consumer("g", "127.0.0.1:1", print, settings=broadcasting)

    asyncio.run(run())


def test_broadcasting_offsets_are_stored_in_the_home_folder_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    async def run() -> None:
        consumer = Consumer("g", "127.0.0.1:1", print, settings=ConsumerSettings(message_model="BROADCASTING"))
        assert str(consumer._offsets._path).startswith(f"{tmp_path}/.rocketmq_offsets/")  # type: ignore[attr-defined]
        await consumer.close()

    asyncio.run(run())
