"""Fast decoders for the JSON headers of frequent requests, and fast encoders for the answers to sends and pulls.

fastjson and every known client write ``code`` first, so the bytes up to the first comma select the typed decoder::

    decoder = FAST_JSON.get(header[: header.find(b",")])

A decoder returns an object with ``code, flag, opaque, version, language, ext``; ``ext`` is the typed header of the code. If a
header does not have the form that common clients write, the decoder raises ``msgspec.MsgspecError`` (or ``RecursionError``).
The caller then uses the general decoders (``decode_command``, ``decode_header``), which return the same typed header or raise
the refusal for the client. The typed decoders do not keep the extFields. Authenticators need all extFields for the signature,
so with an authenticator only the general decoders are used.

The encoders of answers return a frame without its body, which the caller writes after the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Protocol

import msgspec

from flintmq.core.record.host import batch_message_id
from flintmq.remoting.wire.codes import MQ_VERSION, RequestCode
from flintmq.remoting.wire.command import ANSWER_LANGUAGE, escape_as_fastjson
from flintmq.remoting.wire.header_codec import CommandHeader
from flintmq.remoting.wire.headers_message import (
    ConsumerGroupRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class TypedRequest(Protocol):
    """A request with a typed header, which the decoders in :data:`FAST_JSON` return."""

    code: int
    flag: int
    opaque: int
    version: int
    language: str
    ext: Any


HOT_HEADERS: Final[dict[RequestCode, type[CommandHeader]]] = {
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: QueueRequestHeader,
    RequestCode.GET_MIN_OFFSET: QueueRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: EndTransactionRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ConsumerGroupRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
}
"""Types of the headers of frequent requests, keyed by request code. The requests' processors declare the same types.

Headers of these types may contain unknown fields, as in RocketMQ. Only the size of a header limits the number of its unknown
fields."""


def _decoder(model: type[CommandHeader]) -> msgspec.json.Decoder[TypedRequest]:
    """Return a decoder for whole JSON headers whose extFields have the type ``model``.

    Every field of the header is required. A field that seems to be missing may have another spelling (``OPAQUE``), which only
    the general decoder reads.
    """
    typed_request = msgspec.defstruct(
        f"Typed{model.__name__}",
        [
            ("code", _Int32),
            ("ext", model, msgspec.field(name="extFields")),
            ("flag", _Int32),
            ("language", str),
            ("opaque", _Int32),
            ("version", _Int32),
        ],
        gc=False,
    )
    return msgspec.json.Decoder(typed_request, strict=False)


_DECODERS: Final = {model: _decoder(model) for model in set(HOT_HEADERS.values())}

FAST_JSON: Final[dict[bytes, msgspec.json.Decoder[TypedRequest]]] = {
    b'{"code":%d' % code: _DECODERS[model] for code, model in HOT_HEADERS.items()
}
"""Typed decoders of requests, keyed by the bytes of a header up to its first comma."""


_pack_prefix: Final = struct.Struct(">II").pack
_OPAQUE: Final = b'"flag":1,"language":"%b","opaque":%%d' % ANSWER_LANGUAGE.encode()
_END: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % MQ_VERSION
_PULL_TEMPLATE: Final = (
    b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","maxOffset":"%d","minOffset":"%d"},'
    + _OPAQUE
    + b',"remark":"%b"'
    + _END
)


def json_text(text: str) -> bytes:
    """Return a string as a JSON literal, quotes included, as fastjson escapes it."""
    return escape_as_fastjson(msgspec.json.encode(text))


def make_send_ok_encoder(region_id: str, trace_on: bool, store_host_hex: str) -> Callable[[int, int, int, int], bytes]:
    """Return a function that encodes the answer to a stored send as a frame.

    It is called as ``encode(opaque, queue_id, commit_log_offset_bytes, queue_offset)``.

    Args:
        region_id: the broker's region, which is part of every answer.
        trace_on: whether clients may trace messages, which is part of every answer.
        store_host_hex: the broker's address in hexadecimal, the first part of every message id.
    """
    template = _send_ok_template(region_id, trace_on, store_host_hex.encode("ascii") + b"%016X")
    pack_prefix = _pack_prefix

    def encode_send_ok(opaque: int, queue_id: int, commit_log_offset_bytes: int, queue_offset: int) -> bytes:
        header = template % (queue_id, commit_log_offset_bytes, queue_offset, opaque)
        length = len(header)
        return pack_prefix(4 + length, length) + header

    return encode_send_ok


def make_batch_ok_encoder(
    region_id: str, trace_on: bool, store_host_hex: str
) -> Callable[[int, int, Sequence[int], int], bytes]:
    """Return a function that encodes the answer to a stored batch as a frame.

    The returned function is called as ``encode(opaque, queue_id, positions_bytes, first_queue_offset)``, where
    ``positions_bytes`` are the physical offsets of the batch's messages. ``make_batch_ok_encoder`` has the same parameters as
    :func:`make_send_ok_encoder`.
    """
    template = _send_ok_template(region_id, trace_on, b"%b")

    def encode_batch_ok(opaque: int, queue_id: int, positions_bytes: Sequence[int], first_queue_offset: int) -> bytes:
        message_ids = batch_message_id(store_host_hex, positions_bytes).encode("ascii")
        header = template % (queue_id, message_ids, first_queue_offset, opaque)
        return _pack_prefix(4 + len(header), len(header)) + header

    return encode_batch_ok


def _send_ok_template(region_id: str, trace_on: bool, message_id: bytes) -> bytes:
    """Return a template of the JSON header of a send's answer.

    The template has placeholders for the queue id, the values in the message id, the queue offset and the opaque.
    ``message_id`` is the part of the template for the message id, with one placeholder.
    """
    region = json_text(region_id).replace(b"%", b"%%")
    said = b'"TRACE_ON":"%b","MSG_REGION":%b,"msgId":"%b"' % (b"true" if trace_on else b"false", region, message_id)
    return b'{"code":0,"extFields":{"queueId":"%d",' + said + b',"queueOffset":"%d"},' + _OPAQUE + _END


def encode_pull_response_json(
    opaque: int,
    code: int,
    suggest_which_broker_id: int,
    next_begin_queue_offset: int,
    min_queue_offset: int,
    max_queue_offset: int,
    status: bytes,
    body_length: int,
) -> bytes:
    """Return the frame of an answer to a pull request, without the answer's body of ``body_length`` bytes.

    ``status`` is the name of the store's status, such as ``FOUND``. The name is written without escapes.
    """
    offsets = (next_begin_queue_offset, max_queue_offset, min_queue_offset)
    header = _PULL_TEMPLATE % (code, suggest_which_broker_id, *offsets, opaque, status)
    length = len(header)
    return _pack_prefix(4 + length + body_length, length) + header
