"""The short way for hot requests: a JSON header becomes a typed object in one call.

fastjson and every known client write ``code`` first, so the bytes up to the first comma say which typed decoder fits::

    decoder = FAST_JSON.get(header[: header.find(b",")])

What it returns has ``code, flag, opaque, version, language, ext``, with ``ext`` the typed header of the code. A decoder
raises ``msgspec.MsgspecError`` (or ``RecursionError``) for everything unusual; the caller then goes the general way
(``decode_command``, ``decode_header``), which ends in the same typed header or in the right refusal. The typed way keeps
no extFields: with an authenticator in force, which signs over all of them, only the general way will do.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Protocol

import msgspec

from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.header_codec import CommandHeader
from flintmq.remoting.wire.headers_message import (
    ConsumerGroupRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class TypedRequest(Protocol):
    """What the decoders of :data:`FAST_JSON` return."""

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
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: GetMaxOffsetRequestHeader,
    RequestCode.GET_MIN_OFFSET: GetMinOffsetRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: EndTransactionRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ConsumerGroupRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
}
"""The codes that clients send often, with the headers that their processors declare."""


def _decoder(model: type[CommandHeader]) -> msgspec.json.Decoder[TypedRequest]:
    """Return a decoder for whole headers whose extFields are of the model.

    Every field must be there under its own name: one that is missing may be there under another (``OPAQUE``), which only the
    general way knows.
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
"""Typed decoders by the header's bytes up to its first comma."""
