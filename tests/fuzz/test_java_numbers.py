"""A number in a property or a header field is what Java's parse functions make of it, in every way that a message comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import strict_java
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_odd_numbers import Asker
from test_processors import config_of

import flintmq
from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.errors import RefusedError
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.java_number import number_or, parse_int, parse_long
from flintmq.core.record.properties import properties_to_string
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.remoting.wire.fast_json import FAST_JSON
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from flintmq.tests.support.effort import examples

DIGITS = "0123456789"
ODD = [
    "3", "+3", "-3", "0", "+0", "-0", "003", "-003", "٣", "３", "+٣", "٣3", "\U0001d7db", "𝟛3", " 3", "3 ", "\t3", "1_0", "3.0",
    "1e3", "3e0", "0x3", "3L", "", "x", "+", "-", "+-3", "--3", "19", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999", "null", "true", "NaN",
    "3\u200b", "²", "①", "0" * 50 + "3", "٠" * 50 + "3", "9" * 5_000, "\ud800", "3\0", "1,000", "Infinity",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(2**64), 2**64).map(str),
    st.text(st.sampled_from([*DIGITS, "+", "-", "_", " ", ".", "e", "٣", "３", "𝟛", "\n"]), max_size=24),
    st.text(max_size=6),
)


def told(parse: Callable[[str], int], text: str) -> int | None:
    try:
        return parse(text)
    except ValueError:
        return None


@given(texts)
@settings(max_examples=examples(500))
@example("0" * 5_000 + "7")
def test_parse_int_and_parse_long_give_the_same_results_as_java_for_random_texts(text: str) -> None:
    """Signs, scripts, zeros, ranges, and what Python takes beside them."""
    assert told(parse_int, text) == strict_java.parse(text, 32)
    assert told(parse_long, text) == strict_java.parse(text, 64)
    assert number_or(text, -7) == (-7 if (read := strict_java.parse(text, 32)) is None else read)


@pytest.mark.parametrize("text", ODD)
def test_a_fixed_list_of_unusual_number_texts_is_parsed_as_by_java(text: str) -> None:
    """Each of those that a real broker was asked about."""
    assert told(parse_int, text) == strict_java.parse(text, 32)
    assert told(parse_long, text) == strict_java.parse(text, 64)


V1 = {
    "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
    "bornTimestamp": "17", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
}  # fmt: skip
V2 = dict(zip("abcdefghijk", V1.values(), strict=True))
PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip
# (code, model, fields, the field, attribute, bits, what an unreadable one does)
FIELDS = [
    (310, SendMessageRequestHeaderV2, V2, "e", "queue_id", 32, "refused"),
    (310, SendMessageRequestHeaderV2, V2, "g", "born_timestamp_ms", 64, "refused"),
    (310, SendMessageRequestHeaderV2, V2, "j", "reconsume_times", 32, "refused"),
    (320, SendMessageRequestHeaderV2, V2, "h", "flag", 32, "refused"),
    (10, SendMessageRequestHeader, V1, "queueId", "queue_id", 32, "refused"),
    (10, SendMessageRequestHeader, V1, "reconsumeTimes", "reconsume_times", 32, "absent"),
    (10, SendMessageRequestHeader, V1, "maxReconsumeTimes", "max_reconsume_times", 32, "absent"),
    (11, PullMessageRequestHeader, PULL, "queueOffset", "queue_offset", 64, "refused"),
]


def in_one_call(code: int, fields: dict[str, str]) -> Any:
    """The header by the short way of the hot path; None where that leaves it to the general way."""
    frame = encode_command(request(code, fields, language="JAVA", version=407))
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
    try:
        return FAST_JSON[header[: header.find(b",")]].decode(header).ext
    except (msgspec.MsgspecError, UnicodeError):
        return None


@pytest.mark.parametrize("case", FIELDS, ids=lambda case: f"{case[0]}-{case[3]}")
@given(text=texts)
@settings(max_examples=examples(100), deadline=None)
def test_numbers_in_header_fields_are_parsed_as_in_java(case: tuple[Any, ...], text: str) -> None:
    """By the short way and by the general one; what Java does not read is refused, or as if it were not there."""
    code, model, fields, name, attribute, bits, unreadable = case
    wanted = strict_java.parse(text, bits)
    given_fields = fields | {name: text}
    if wanted is None and unreadable == "refused":
        with pytest.raises(RefusedError) as refused:
            decode_header(model, given_fields)
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    else:
        found = getattr(decode_header(model, given_fields), attribute)
        assert found == wanted if wanted is not None else not found, "it is as if it were not there"
    if text.isprintable():
        header = in_one_call(code, given_fields)
        assert header is None or getattr(header, attribute) == wanted


@pytest.mark.parametrize("text", ODD)
def test_the_fast_header_decoder_accepts_only_numbers_that_it_parses_like_java(text: str) -> None:
    """It reads numbers with the decoder's own rules, which take decimal fractions and exponents."""
    for code, _, fields, name, attribute, bits, _ in FIELDS:
        header = in_one_call(code, fields | {name: text}) if "\ud800" not in text else None
        if header is not None and text != "null":
            assert getattr(header, attribute) == strict_java.parse(text, bits), (code, name)
        assert in_one_call(code, fields) is not None


async def deliver(broker: flintmq.Broker, way: str, text: str) -> tuple[int, str]:
    """Send a message with a delay level in some way; return the code and the topic in which it lies (empty for none)."""
    state = broker.state
    before = state.store.watermarks.wrote
    properties = {"DELAY": text, "UNIQ_KEY": "U"} | ({"TRAN_MSG": "true", "PGROUP": "P"} if way == "half" else {})
    try:
        if way == "in process":
            await broker.put([flintmq.Message("T", b"x", properties={"DELAY": text})])
        else:
            asker = Asker(broker.server)
            held = properties_to_string(properties)
            item = encode_batch([BatchItem(0, b"x", held.encode("utf-8", "replace"))])
            code, fields, body = {
                "10": (10, V1 | {"properties": held}, b"x"),
                "310": (310, V2 | {"i": held}, b"x"),
                "half": (310, V2 | {"i": held}, b"x"),
                "batch": (320, V2 | {"i": held, "m": "true"}, encode_batch([BatchItem(0, b"x", b"")])),
                "in a batch": (320, V2 | {"m": "true"}, item),
            }[way]
            remark = await asker.ask(code, fields, body)
            asker.close()
            if remark is not None:
                return (1 if "[delay.malformed" in remark else 13 if "[batch.delay" in remark else -1), ""
    except RefusedError as error:
        return error.code, ""
    finally:
        state.dispatch()
    record = state.store.reader.message_at(before)
    assert record is not None
    if way == "half":
        assert record.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
        return 0, SCHEDULE_TOPIC if parse_int(text) > 0 else "T"
    return 0, record.topic


@pytest.mark.parametrize("way", ["10", "310", "half", "batch", "in a batch", "in process"])
def test_every_kind_of_send_request_parses_the_delay_level_property_as_java_does(way: str, tmp_path: Path) -> None:
    """What RocketMQ takes waits, what it refuses is not stored; a batch, which cannot wait, is refused for a level above 0."""

    async def run() -> None:
        async with flintmq.Broker(config_of(tmp_path / "store")) as broker:
            broker.state.topics.create_in_send_back("T", 4)
            for text in ODD:
                if not text or "\0" in text or "\ud800" in text:
                    continue  # an entry without a value is left out; the others are no text of a property
                level = strict_java.parse(text, 32)
                found = await deliver(broker, way, text)
                if level is None:
                    assert found == (ResponseCode.SYSTEM_ERROR, ""), text
                elif "batch" in way and level > 0:
                    assert found == (ResponseCode.MESSAGE_ILLEGAL, ""), text
                else:
                    assert found == (0, SCHEDULE_TOPIC if level > 0 else "T"), text

    asyncio.run(run())


@pytest.mark.parametrize("reconsume_times", ["0", "1"])
@pytest.mark.parametrize("of_all", [True, False])
def test_a_batch_with_a_half_message_is_refused(reconsume_times: str, of_all: bool, tmp_path: Path) -> None:
    """RocketMQ delivers the half message before anybody has committed it. A retry of one is no half message, nor is a message
    whose properties merely look so."""
    held = properties_to_string({"k": "v", "TRAN_MSG": "true"})
    plain = properties_to_string({"MY_TRAN_MSG": "true", "NO_DELAY": "3"})

    async def run() -> None:
        async with flintmq.Broker(config_of(tmp_path / "store")) as broker:
            asker = Asker(broker.server)
            item = BatchItem(0, b"x", (plain if of_all else held).encode())
            fields = V2 | {"i": held if of_all else "", "j": reconsume_times, "m": "true"}
            remark = await asker.ask(
                RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch([BatchItem(0, b"y", b""), item])
            )
            assert (remark is not None and "batch.transaction" in remark) == (reconsume_times == "0")
            free = encode_batch([BatchItem(0, b"y", b""), BatchItem(0, b"x", plain.encode())])
            assert await asker.ask(RequestCode.SEND_BATCH_MESSAGE, V2 | {"m": "true"}, free) is None
            asker.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "text", ["DELAY\x01\x02", "DELAY\x01\x02TRAN_MSG\x01", "k\x01v\x02DELAY\x013\x02DELAY\x01\x02", "DELAY\x01\xff\x02"]
)
def test_batch_properties_without_a_value_are_ignored(text: str, tmp_path: Path) -> None:
    """An empty entry is none, as in RocketMQ: the last one with a value counts."""

    async def run() -> None:
        async with flintmq.Broker(config_of(tmp_path / "store")) as broker:
            asker = Asker(broker.server)
            body = encode_batch([BatchItem(0, b"x", text.encode("latin-1"))])
            remark = await asker.ask(RequestCode.SEND_BATCH_MESSAGE, V2 | {"m": "true"}, body)
            reason = "batch.delay" if "3" in text else "delay.malformed" if "\xff" in text else ""
            assert reason in remark if remark is not None else not reason
            asker.close()

    asyncio.run(run())
