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
from flintmq.remoting.wire.headers import REQUEST_HEADERS

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class TypedRequest(Protocol):
    """What the decoders of :data:`FAST_JSON` return."""

    code: int
    flag: int
    opaque: int
    version: int
    language: str
    ext: Any


HOT_CODES: Final = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)


def _decoder(model: type[CommandHeader]) -> msgspec.json.Decoder[TypedRequest]:
    """A decoder for whole headers whose extFields are of the model. All that is asked for must be there under its own name: one
    that is missing may be there under another (``OPAQUE``), which the general way knows."""
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


_DECODERS: Final = {model: _decoder(model) for model in {REQUEST_HEADERS[code] for code in HOT_CODES}}

FAST_JSON: Final[dict[bytes, msgspec.json.Decoder[TypedRequest]]] = {
    b'{"code":%d' % code: _DECODERS[REQUEST_HEADERS[code]] for code in HOT_CODES
}
"""Typed decoders by the header's bytes up to its first comma."""
