"""Headers are decoded by RocketMQ's rule: skip what does not parse, then insist on what is required."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flintmq.core.errors import RefusedError
from flintmq.remoting.wire.codes import (
    MQ_VERSION,
    LanguageCode,
    RequestCode,
    language_code,
    language_name,
    version_name,
)
from flintmq.remoting.wire.fast_json import FAST_JSON, HOT_HEADERS
from flintmq.remoting.wire.header_codec import decode_header, encode_header
from flintmq.remoting.wire.headers_admin import CreateTopicRequestHeader, GetBrokerConsumeStatsRequestHeader
from flintmq.remoting.wire.headers_message import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from flintmq.remoting.wire.headers_route import RegisterBrokerRequestHeader
from flintmq.tests.support.request_headers import DECLARED, REQUEST_HEADERS, RESPONSE_HEADERS

SEND = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "-1", "f": "0", "g": "1700000000000", "h": "0"}


def test_numbers_and_booleans_of_a_header_are_read_from_text() -> None:
    header = decode_header(
        SendMessageRequestHeaderV2, {**SEND, "i": "k\x01v\x02", "k": "TRUE", "m": "false", "l": "16"}
    )
    assert header.queue_id == -1
    assert header.born_timestamp_ms == 1_700_000_000_000
    assert (header.unit_mode, header.batch, header.max_reconsume_times) == (True, False, 16)
    assert header.properties == "k\x01v\x02"


def test_absent_optional_header_fields_have_their_default_values() -> None:
    header = decode_header(SendMessageRequestHeaderV2, SEND)
    assert (header.reconsume_times, header.unit_mode, header.max_reconsume_times) == (0, False, None)
    assert header.broker_name is None


@pytest.mark.parametrize("value", ["x", "", "1.5x", "99999999999", "-2147483649"])
def test_an_optional_header_value_that_cannot_be_parsed_is_ignored_except_in_a_short_send_header(value: str) -> None:
    """The header with short names is an exception: RocketMQ decodes it in another way and refuses the send."""
    long_names = {"offset": "1", "group": "G", "delayLevel": "3", "maxReconsumeTimes": value}
    assert decode_header(ConsumerSendMsgBackRequestHeader, long_names).max_reconsume_times is None
    with pytest.raises(RefusedError, match="<j> is null") as refused:
        decode_header(SendMessageRequestHeaderV2, {**SEND, "j": value})
    assert refused.value.code == 1


@pytest.mark.parametrize("name", sorted(SEND))
def test_the_refusal_of_a_missing_required_header_field_names_the_field(name: str) -> None:
    with pytest.raises(RefusedError, match=f"the custom field <{name}> is null") as refused:
        decode_header(SendMessageRequestHeaderV2, {key: value for key, value in SEND.items() if key != name})
    assert refused.value.code == 1


END = {"producerGroup": "pg", "tranStateTableOffset": "0", "commitLogOffset": "4711", "commitOrRollback": "8"}
TOPIC = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}


@pytest.mark.parametrize(
    ("model", "fields", "left_out"),
    [
        (EndTransactionRequestHeader, END, {"msg_id": ""}),
        (CreateTopicRequestHeader, TOPIC, {"order": False, "default_topic": ""}),
        (GetBrokerConsumeStatsRequestHeader, {}, {"is_order": False}),
    ],
)
def test_required_header_fields_that_rocketmq_does_not_use_can_be_absent(
    model: Any, fields: dict[str, str], left_out: dict[str, object]
) -> None:
    """Its broker logs that the field is missing and goes on, and so clients of other languages leave it out."""
    header = decode_header(model, fields)
    assert {name: getattr(header, name) for name in left_out} == left_out


def test_a_required_header_value_that_cannot_be_parsed_is_refused_as_missing() -> None:
    with pytest.raises(RefusedError, match="<e> is null") as refused:
        decode_header(SendMessageRequestHeaderV2, {**SEND, "e": "four"})
    assert refused.value.measured == "'four'"
    with pytest.raises(RefusedError, match="<consumerGroup> is null"):
        decode_header(PullMessageRequestHeader, None)


def test_short_and_long_field_names_of_a_send_header_are_decoded_to_the_same_fields() -> None:
    """Processors are written once, against the long form."""
    short = decode_header(SendMessageRequestHeaderV2, SEND)
    assert isinstance(short, SendMessageRequestHeader)
    assert short.__struct_fields__ == SendMessageRequestHeader.__struct_fields__
    long_names = encode_header(SendMessageRequestHeader(**msgspec.structs.asdict(short)))
    assert long_names["bornTimestamp"] == "1700000000000"
    assert encode_header(short)["g"] == "1700000000000"


def test_encoding_a_header_omits_fields_whose_value_is_none_and_writes_booleans_in_lower_case() -> None:
    header = ConsumerSendMsgBackRequestHeader(commit_log_offset_bytes=5, group="g", delay_level=0, unit_mode=True)
    assert encode_header(header) == {"offset": "5", "group": "g", "delayLevel": "0", "unitMode": "true"}


def test_a_required_header_field_declared_after_optional_fields_is_required() -> None:
    with pytest.raises(RefusedError, match="haServerAddr"):
        decode_header(
            RegisterBrokerRequestHeader,
            {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "c", "brokerId": "0"},
        )


def test_the_typed_header_decoder_refuses_incomplete_and_invalid_headers() -> None:
    """A header with a field missing, of a wrong type or out of range may not slip through the short way."""
    decoder = FAST_JSON[b'{"code":310']
    for broken in (
        b'{"code":310,"opaque":1}',
        b'{"code":310,"extFields":{"a":"x"}}',
        b'{"code":310,"extFields":null}',
        b'{"code":310,"extFields":{',
    ):
        with pytest.raises(msgspec.MsgspecError):
            decoder.decode(broken)
    whole = msgspec.json.encode({"code": 310, "extFields": {**SEND, "e": "2147483648"}})
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(whole)


def test_every_header_class_belongs_to_a_known_request_code() -> None:
    """A header of an unknown number would be decoded by nobody."""
    assert {*REQUEST_HEADERS, *RESPONSE_HEADERS} <= set(RequestCode)


def test_the_typed_decoder_and_the_processor_of_a_request_code_use_the_same_header_class() -> None:
    """Otherwise a hot request would reach its processor with another header than a rare one."""
    assert {code: DECLARED[code].header for code in HOT_HEADERS} == HOT_HEADERS


def test_unknown_client_languages_and_rocketmq_versions_have_fallback_names() -> None:
    assert language_code("GO") == LanguageCode.GO
    assert language_code("klingon") == LanguageCode.OTHER
    assert language_name(12) == "RUST"
    assert language_name(99) == "OTHER"
    assert version_name(MQ_VERSION) == "V4_9_7"
    assert version_name(406) == "V4_9_5+"
    assert version_name(3) == "V?3"
