"""Every frame RocketMQ wrote is understood as RocketMQ understood it, and written again byte for byte."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from flintmq.core.broker.topic_config import TopicConfigSerializeWrapper
from flintmq.core.errors import RefusedError
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.io.typed_json import Int, Long
from flintmq.core.route.route_data import ClusterInfo, TopicRouteData
from flintmq.remoting.wire.bodies import (
    BrokerStatsData,
    CheckClientRequestBody,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerIdList,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    CorrectionOffsets,
    GetConsumerStatusBody,
    GroupList,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueueTimeSpan,
    RegisterBrokerBody,
    ResetOffsetBody,
    TopicList,
    TopicStatsTable,
)
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import decode_command, encode_command, split_frame
from flintmq.remoting.wire.fast_json import FAST_JSON, encode_pull_response_json, make_send_ok_encoder
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.remoting.wire.header_codec import decode_header, encode_header
from flintmq.remoting.wire.headers_message import PullMessageResponseHeader, SendMessageResponseHeader
from flintmq.remoting.wire.headers_route import decode_register_broker_body, encode_register_broker_body
from flintmq.remoting.wire.json_body import Body, Style, decode_body, dumps
from flintmq.tests.support.request_headers import REQUEST_HEADERS, RESPONSE_HEADERS

Frames = list[dict[str, Any]]


class ConsumerOffsetSerializeWrapper(Body):
    """The answer to 43, which the broker writes from its table without a body of its own; and likewise the three below."""

    offset_table: dict[str, dict[Int, Long]] = msgspec.field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body):
    offset_table: dict[Int, Long] = msgspec.field(default_factory=dict)


class ProducerConnection(Body):
    connection_set: list[Connection] = msgspec.field(default_factory=list)


class QueryConsumeTimeSpanBody(Body):
    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)


REQUEST_BODIES: dict[int, type[msgspec.Struct]] = {
    34: HeartbeatData,
    41: LockBatchRequestBody,
    42: LockBatchRequestBody,
    46: CheckClientRequestBody,
    103: RegisterBrokerBody,
    200: SubscriptionGroupConfig,
    220: ResetOffsetBody,
    322: DataVersion,
}
RESPONSE_BODIES: dict[int, type[msgspec.Struct]] = {
    21: TopicConfigSerializeWrapper,
    28: KVTable,
    38: ConsumerIdList,
    41: LockBatchResponseBody,
    43: ConsumerOffsetSerializeWrapper,
    45: DelayOffsetSerializeWrapper,
    103: KVTable,
    105: TopicRouteData,
    106: ClusterInfo,
    201: SubscriptionGroupWrapper,
    202: TopicStatsTable,
    203: ConsumerConnection,
    204: ProducerConnection,
    206: TopicList,
    208: ConsumeStats,
    219: KVTable,
    221: GetConsumerStatusBody,
    222: ResetOffsetBody,
    223: GetConsumerStatusBody,
    224: TopicList,
    300: GroupList,
    303: QueryConsumeTimeSpanBody,
    304: TopicList,
    305: TopicList,
    307: ConsumerRunningInfo,
    308: CorrectionOffsets,
    309: ConsumeMessageDirectlyResult,
    311: TopicList,
    312: TopicList,
    313: TopicList,
    315: BrokerStatsData,
    317: ConsumeStatsList,
    321: QueryConsumeQueueResponseBody,
    322: DataVersion,
    328: ProducerTableInfo,
}


def wire_frames(frames: Frames) -> list[tuple[dict[str, Any], str, bytes]]:
    """Each frame as (line, request or response, bytes with length field)."""
    return [
        (line, side, bytes.fromhex(line[f"{side}_hex"]))
        for line in frames
        for side in ("request", "response")
        if line[f"{side}_hex"]
    ]


def test_recorded_commands_are_decoded_as_in_rocketmq_and_encoded_unchanged(golden_frames: Frames) -> None:
    count = 0
    for line, side, wire in wire_frames(golden_frames):
        command = decode_command(wire[4:])
        expected = line[side]
        ext_fields = expected["extFields"]
        if ext_fields is not None:  # the binary codec's empty value is null to RocketMQ
            ext_fields = {key: value or "" for key, value in ext_fields.items()}
        assert (command.code, command.language, command.version, command.opaque, command.flag) == tuple(
            expected[name] for name in ("code", "language", "version", "opaque", "flag")
        )
        assert (command.remark, command.ext_fields) == (expected["remark"], ext_fields)
        assert len(command.body) == expected["bodyLength"]
        assert encode_command(command) == wire
        count += 1
    assert count == 618


def test_the_frame_decoder_finds_every_recorded_frame_in_one_concatenated_stream(golden_frames: Frames) -> None:
    """Pieces of a prime size cut through length fields, headers and bodies."""
    wires = [wire for _, _, wire in wire_frames(golden_frames)]
    stream = b"".join(wires)
    decoder = FrameDecoder()
    cut = [frame for at in range(0, len(stream), 997) for frame in decoder.feed(stream[at : at + 997])]
    assert cut == [wire[4:] for wire in wires]
    assert decoder.pending_bytes == 0


def test_recorded_request_headers_are_decoded_without_loss(golden_frames: Frames) -> None:
    """Two requests leave out a required field, and RocketMQ failed on them too."""
    refused = 0
    for _, side, wire in wire_frames(golden_frames):
        command = decode_command(wire[4:])
        if side == "response" or not command.ext_fields:
            continue
        if command.code == RequestCode.GET_MAX_OFFSET and "queueId" not in command.ext_fields:
            with pytest.raises(RefusedError, match="the custom field <queueId> is null"):
                decode_header(REQUEST_HEADERS[command.code], command.ext_fields)
            refused += 1
            continue
        header = decode_header(REQUEST_HEADERS[command.code], command.ext_fields)
        carried = {k: v for k, v in command.ext_fields.items() if k not in ("AccessKey", "Signature")}
        assert carried.items() <= encode_header(header).items()
    assert refused == 2


def test_recorded_response_headers_are_decoded_without_loss(golden_frames: Frames) -> None:
    for line, side, wire in wire_frames(golden_frames):
        command = decode_command(wire[4:])
        if side == "request" or not command.ext_fields or command.code not in (0, 10, 11, 12, 19, 20, 21):
            continue
        header = decode_header(RESPONSE_HEADERS[line["code"]], command.ext_fields)
        assert encode_header(header) == {key: value for key, value in command.ext_fields.items() if value}


def test_the_typed_header_decoder_agrees_with_the_general_header_decoder(golden_frames: Frames) -> None:
    seen = set()
    for _, side, wire in wire_frames(golden_frames):
        codec, header, _ = split_frame(wire[4:])
        decoder = FAST_JSON.get(header[: header.find(b",")]) if side == "request" and codec == 0 else None
        command = decode_command(wire[4:])
        if decoder is None or (command.code == RequestCode.GET_MAX_OFFSET and "queueId" not in command.ext_fields):
            continue
        typed = decoder.decode(header)
        assert (typed.code, typed.flag, typed.opaque) == (command.code, command.flag, command.opaque)
        assert (typed.version, typed.language) == (command.version, command.language)
        assert typed.ext == decode_header(REQUEST_HEADERS[command.code], command.ext_fields)
        seen.add(command.code)
    assert {10, 11, 310, 320} <= seen


def with_sorted_sets(body: bytes) -> bytes:
    """Return a body with the members of its sets in order: Java writes them in the order of its hash table."""

    def in_order(found: re.Match[bytes]) -> bytes:
        return found.group(1) + b",".join(sorted(found.group(2).split(b",")))

    return re.sub(rb'("(?:codeSet|tagsSet)":\[)([^]]*)', in_order, body)


def test_decoding_and_encoding_a_recorded_body_gives_the_same_body(golden_frames: Frames) -> None:
    """Route data is asked for as strict JSON by these clients; all other bodies are fastjson's."""
    seen = set()
    for line, side, wire in wire_frames(golden_frames):
        command = decode_command(wire[4:])
        model = (REQUEST_BODIES if side == "request" else RESPONSE_BODIES).get(line["code"])
        compressed = (command.ext_fields or {}).get("compressed") == "true"
        if model is None or not command.body or compressed or (side == "response" and command.code):
            continue
        body = decode_body(command.body, model)
        style: Style = "standard" if line["code"] == 105 else "fastjson"
        written = body.encode(style) if isinstance(body, Body) else dumps(body, style)
        assert with_sorted_sets(written) == with_sorted_sets(command.body)
        seen.add((line["code"], side))
    assert len(seen) == 40


def test_decoding_and_encoding_a_recorded_broker_registration_body_gives_the_same_bytes(golden_frames: Frames) -> None:
    compressed_ones = 0
    for _, side, wire in wire_frames(golden_frames):
        command = decode_command(wire[4:])
        if side == "response" or command.code != RequestCode.REGISTER_BROKER:
            continue
        assert command.ext_fields is not None
        compressed = command.ext_fields["compressed"] == "true"
        body = decode_register_broker_body(
            command.body,
            compressed=compressed,
            version=command.version,
            crc32=int(command.ext_fields["bodyCrc32"]),
        )
        assert body.topic_config_serialize_wrapper.topic_config_table
        assert encode_register_broker_body(body, compressed=compressed) == command.body
        compressed_ones += compressed
    assert compressed_ones


def test_optimized_encoders_of_send_and_pull_responses_produce_the_recorded_bytes_of_rocketmq(
    golden_frames: Frames,
) -> None:
    seen = set()
    for line, side, wire in wire_frames(golden_frames):
        codec, _, _ = split_frame(wire[4:])
        command = decode_command(wire[4:])
        if side == "request" or codec != 0:
            continue
        if line["code"] in (10, 310, 320) and command.code == 0:
            sent = decode_header(SendMessageResponseHeader, command.ext_fields)
            if "," in sent.msg_id:
                continue  # a batch's answer is written the general way
            encode_send_ok = make_send_ok_encoder("DefaultRegion", True, sent.msg_id[:-16])
            answer = encode_send_ok(command.opaque, sent.queue_id, int(sent.msg_id[-16:], 16), sent.queue_offset)
            assert answer == wire
            seen.add(line["code"])
        elif line["code"] == 11 and command.code in (0, 19, 20, 21):
            pulled = decode_header(PullMessageResponseHeader, command.ext_fields)
            assert command.remark is not None
            answer = encode_pull_response_json(
                command.opaque,
                command.code,
                pulled.suggest_which_broker_id,
                pulled.next_begin_queue_offset,
                pulled.min_queue_offset,
                pulled.max_queue_offset,
                command.remark.encode(),
                len(command.body),
            )
            assert answer + command.body == wire
            seen.add(11)
    assert seen == {10, 310, 11}
