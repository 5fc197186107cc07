"""Whatever is sent comes back the same through both codecs, and garbage ends in FrameError and nothing else."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.errors import FrameError
from flintmq.core.limits import ANSWER_HEADER_MAX_BYTES
from flintmq.core.record.host import batch_message_id
from flintmq.remoting.wire.command import (
    JSON,
    ROCKETMQ,
    RemotingCommand,
    decode_command,
    encode_command,
    next_opaque,
    opaques_from_one,
    request,
    response,
)
from flintmq.remoting.wire.fast_json import (
    json_text,
    make_batch_ok_encoder,
    make_send_ok_encoder,
)
from flintmq.remoting.wire.headers_message import ConsumerGroupRequestHeader, SendMessageResponseHeader

int32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
commands = st.builds(
    RemotingCommand,
    code=st.integers(-(2**15), 2**15 - 1),
    language=st.sampled_from(["JAVA", "GO", "OTHER", "RUST"]),
    version=st.integers(0, 2**15 - 1),
    opaque=int32,
    flag=int32,
    remark=st.none() | text.filter(bool),
    ext_fields=st.none() | st.dictionaries(text, text, min_size=1, max_size=5),
    body=st.binary(max_size=50),
    codec=st.sampled_from([JSON, ROCKETMQ]),
)


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(header)) + header + body


@given(commands)
def test_an_encoded_command_is_decoded_unchanged(command: RemotingCommand) -> None:
    wire = encode_command(command)
    assert struct.unpack(">i", wire[:4]) == (len(wire) - 4,)
    assert decode_command(wire[4:]) == command
    assert decode_command(memoryview(wire)[4:]) == command


@given(st.binary(max_size=200), st.sampled_from([JSON, ROCKETMQ, 2, 255]))
def test_decoding_random_bytes_succeeds_or_raises_frame_error(header: bytes, codec: int) -> None:
    with suppress(FrameError):
        decode_command(header)
    with suppress(FrameError):
        decode_command(struct.pack(">I", codec << 24 | len(header)) + header)


@given(commands, st.data())
def test_decoding_a_damaged_frame_succeeds_or_raises_frame_error(command: RemotingCommand, data: st.DataObject) -> None:
    frame = bytearray(encode_command(command)[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        decode_command(bytes(frame[: data.draw(st.integers(0, len(frame)))]))


MALFORMED_JSON = {
    "nothing": b"",
    "no object": b"[1]",
    "null": b"null",
    "cut off": b'{"code":10,"extFields":{"a":"b"',
    "something behind": b'{"code":10} {}',
    "code is text": b'{"code":"ten"}',
    "code is a list": b'{"code":[10]}',
    "Infinity": b'{"code":10,"opaque":Infinity}',
    "code beyond 32 bits": b'{"code":2147483648}',
    "opaque beyond 64 bits": b'{"code":10,"opaque":99999999999999999999999}',
    "a number of 5,000 digits": b'{"code":1' + b"0" * 5000 + b"}",
    "text of 5,000 digits": b'{"code":"1' + b"0" * 5000 + b'"}',
    "extFields are a list": b'{"code":10,"extFields":[]}',
    "deeply nested": b'{"code":10,"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "deeply nested and wrong": b'{"code":[10],"x":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
}


@pytest.mark.parametrize("name", MALFORMED_JSON)
def test_a_malformed_json_header_raises_frame_error(name: str) -> None:
    with pytest.raises(FrameError):
        decode_command(json_frame(MALFORMED_JSON[name]))


@pytest.mark.parametrize("depth", [65, 900, 3_000])
def test_a_too_deeply_nested_header_raises_frame_error(depth: int) -> None:
    for value in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        for header in (f'{{"code":10,"extFields":{{"x":{value}}}}}', f'{{"code":10,"x":{value}}}'):
            with pytest.raises(FrameError, match=r"nests deeper than 64|too many values"):
                decode_command(json_frame(header.encode()))


BINARY = encode_command(request(10, {"key": "value"}, codec=ROCKETMQ, opaque=1))[8:]


@pytest.mark.parametrize(
    "header",
    [
        BINARY[:10],
        BINARY[:13] + struct.pack(">i", -1) + BINARY[17:],
        BINARY[:13] + struct.pack(">i", 2**31 - 1) + BINARY[17:],
        BINARY[:17] + struct.pack(">i", 1000) + BINARY[21:],
        BINARY[:17] + struct.pack(">i", 3) + BINARY[21:],
        BINARY[:21] + struct.pack(">h", -1) + BINARY[23:],
        BINARY[:26] + struct.pack(">i", 100) + BINARY[30:],
    ],
)
def test_a_malformed_binary_header_raises_frame_error(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode_command(struct.pack(">I", ROCKETMQ << 24 | len(header)) + header)


def test_the_length_fields_of_a_header_are_checked_before_the_header_is_decoded() -> None:
    with pytest.raises(FrameError, match="header of 100 bytes does not fit in a frame of 24 bytes"):
        decode_command(struct.pack(">I", 100) + bytes(20))
    with pytest.raises(FrameError, match="at most"):
        decode_command(struct.pack(">I", ANSWER_HEADER_MAX_BYTES + 1) + bytes(ANSWER_HEADER_MAX_BYTES + 1))
    with pytest.raises(FrameError, match="too short for the 4 bytes of codec and header length"):
        decode_command(b"\0\0")
    with pytest.raises(FrameError, match="codec 7"):
        decode_command(b"\x07\0\0\0")


def test_header_values_of_unexpected_json_types_are_converted_as_in_fastjson() -> None:
    """Clients in scripting languages send numbers where texts belong, and the other way round."""
    header = (
        b'{"code":"310","extFields":{"a":1,"b":true,"c":null,"d":"x","e":1.5},"language":9,"opaque":null,"new":[1]}'
    )
    command = decode_command(json_frame(header, b"body"))
    assert command.code == 310
    assert command.ext_fields == {"a": "1", "b": "true", "d": "x", "e": "1.5"}
    assert (command.language, command.opaque, command.body) == ("GO", 0, b"body")


@pytest.mark.parametrize(
    ("header", "code", "remark"),
    [
        (b'{"flag":0}', 0, None),
        (b'{"code":true}', 1, None),
        (b'{"code":1.5}', 1, None),
        (b'{"code":NaN}', 0, None),
        (b'{"code":10,"remark":"\xff\xfe"}', 10, "\ufffd\ufffd"),
        (b'{"code":10,"remark":"\xed\xa0\x80"}', 10, "\ufffd"),
        (b'{"code":10,"remark":"a\\ud800b"}', 10, "a?b"),
        (b'{"code":10,"remark":"\\ud83d\\ude00"}', 10, "😀"),
        (b"\xef\xbb\xbf{'code':+10,'remark':'\\x41\n',}\0", 10, "A\n"),
    ],
)
def test_malformed_headers_that_java_accepts_are_decoded(header: bytes, code: int, remark: str | None) -> None:
    """Libraries in other languages write what Java's decoder and fastjson let pass; that they work there is all they know."""
    command = decode_command(json_frame(header))
    assert (command.code, command.remark) == (code, remark)


def test_malformed_binary_headers_that_java_accepts_are_decoded() -> None:
    """A Java client may send a negative length of all fields, which Java reads as no fields."""
    none = BINARY[:17] + struct.pack(">i", -5) + BINARY[21:]
    assert decode_command(struct.pack(">I", ROCKETMQ << 24 | len(none)) + none).ext_fields is None
    broken = BINARY[:-1] + b"\xff"
    assert decode_command(struct.pack(">I", ROCKETMQ << 24 | len(broken)) + broken).ext_fields == {"key": "valu\ufffd"}


def test_headers_with_unknown_languages_or_repeated_json_keys_are_accepted() -> None:
    assert decode_command(json_frame(b'{"code":1,"language":"KLINGON"}')).language == "OTHER"
    assert decode_command(json_frame(b'{"code":1,"code":2}')).code == 2
    wire = encode_command(request(1, codec=ROCKETMQ))[4:]
    assert decode_command(wire[:6] + b"\x63" + wire[7:]).language == "OTHER"


def test_absent_and_empty_ext_fields_are_distinguished() -> None:
    for ext_fields in (None, {}):
        wire = encode_command(RemotingCommand(code=0, ext_fields=ext_fields))
        assert (b'"extFields":{}' in wire) == (ext_fields == {})
        assert decode_command(wire[4:]).ext_fields == ext_fields


def test_json_escapes_equal_those_of_fastjson() -> None:
    r"""Short escapes where there are any, else upper-case \uXXXX; DEL to U+009F and the line separators are escaped too."""
    remark = '/"\\\b\f\n\r\t\x01\x0b\x1f\x7f\x80\x9f\xa0\u2028\u2029中😀 \\u001f'
    wire = encode_command(RemotingCommand(code=0, remark=remark))
    expected = (
        '"/\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u000B\\u001F\\u007F\\u0080\\u009F\xa0\\u2028\\u2029中😀 \\\\u001f"'.encode()
    )
    assert b'"remark":' + expected + b"," in wire
    assert decode_command(wire[4:]).remark == remark
    assert json_text(remark) == expected


def test_a_response_has_the_opaque_and_codec_of_its_request() -> None:
    asked = request(38, ConsumerGroupRequestHeader(consumer_group="g"), codec=ROCKETMQ, opaque=77)
    assert asked.ext_fields == {"consumerGroup": "g"}
    answer = response(asked, 1, "no", {"k": "v"}, b"body")
    assert (answer.opaque, answer.codec, answer.flag, answer.code) == (77, ROCKETMQ, 1, 1)
    assert answer.is_response
    assert not answer.is_oneway
    assert request(34, oneway=True).is_oneway


def test_requests_have_consecutive_opaque_numbers() -> None:
    first, second = request(1), request(1)
    assert second.opaque == first.opaque + 1


def test_opaque_numbers_of_a_simulated_run_do_not_depend_on_requests_created_in_other_threads() -> None:
    """A process can have brokers and clients besides, such as those of other tests."""
    with ThreadPoolExecutor(1) as other, opaques_from_one():
        first = request(1).opaque
        others = [other.submit(next_opaque).result() for _ in range(3)]
        assert (first, request(1).opaque) == (1, 2)
    assert others == [others[0], others[0] + 1, others[0] + 2]
    assert next_opaque() > others[-1], "after the simulation the process's sequence continues"


def test_only_the_json_codec_encodes_request_codes_of_more_than_16_bits() -> None:
    assert decode_command(encode_command(request(200_050))[4:]).code == 200_050
    with pytest.raises(FrameError, match="200050"):
        encode_command(request(200_050, codec=ROCKETMQ))


@pytest.mark.parametrize("region", ["DefaultRegion", '100% "north"\n'])
@pytest.mark.parametrize("count", [1, 32])
def test_the_fast_encoder_encodes_answers_to_batch_sends_exactly_like_the_general_encoder(
    region: str, count: int
) -> None:
    """The fields must have the order of the general encoder."""
    host, offsets = "7F00000100002A9F", range(2**40, 2**40 + 200 * count, 200)
    fields = {
        "queueId": "3",
        "TRACE_ON": "true",
        "MSG_REGION": region,
        "msgId": batch_message_id(host, offsets),
        "queueOffset": "77",
    }
    general = encode_command(response(request(320, opaque=5), 0, None, fields))
    assert make_batch_ok_encoder(region, True, host)(5, 3, offsets, 77) == general


def test_the_fast_encoder_of_send_answers_escapes_any_region_name() -> None:
    """The region is the operator's text: it may hold what formatting or JSON would stumble over."""
    frame = make_send_ok_encoder('100% "north"\n', False, "7F00000100002A9F")(9, 3, 255, 2**40)
    command = decode_command(frame[4:])
    sent = SendMessageResponseHeader(
        msg_id="7F00000100002A9F00000000000000FF",
        queue_id=3,
        queue_offset=2**40,
        region_id='100% "north"\n',
        trace_on=False,
    )
    assert command.ext_fields is not None
    assert command.ext_fields["MSG_REGION"] == sent.region_id
    assert command.ext_fields["msgId"] == sent.msg_id
    assert command.ext_fields["TRACE_ON"] == "false"
    assert json.loads(frame[8:])["extFields"]["queueOffset"] == str(2**40)
