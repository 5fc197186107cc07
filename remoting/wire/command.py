"""Commands, which are the content of frames, and the two codecs of their headers (docs/internals/protocol.md, Frame).

::

    int32  header word       bits 31..24 the header's codec (0 JSON, 1 ROCKETMQ), bits 23..0 the header's length
    byte[] header
    byte[] body              the rest of the frame

All functions here are pure functions of bytes. The written JSON is, byte for byte, that of RocketMQ: keys are in alphabetical
order, absent members are left out, and characters are escaped as by fastjson.
"""

from __future__ import annotations

import itertools
import re
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from flintmq.core import limits
from flintmq.core.errors import FrameError
from flintmq.core.response_code import ONEWAY_FLAG, RESPONSE_FLAG, ResponseCode
from flintmq.remoting.wire.codes import LANGUAGE_CODES, MQ_VERSION, language_code, language_name
from flintmq.remoting.wire.header_codec import CommandHeader, encode_header
from flintmq.remoting.wire.lenient_header import (
    Int32,
    JsonHeader,
    check_field_count,
    decode_lenient_header,
    frame_error,
    header_error,
    java_text,
    malformed,
)

JSON: Final = 0
ROCKETMQ: Final = 1

REQUEST_LANGUAGE: Final = "PYTHON"
ANSWER_LANGUAGE: Final = "JAVA"
"""The language that the header of an answer contains. RocketMQ's brokers send the same value, and clients ignore it."""


class RemotingCommand(msgspec.Struct, kw_only=True):
    """A request or a response (``RemotingCommand`` of RocketMQ), in either codec."""

    code: int
    """Code of the command: a :class:`~flintmq.remoting.wire.codes.RequestCode`, or a ``ResponseCode`` in a response. Other
    numbers are possible."""
    language: str = REQUEST_LANGUAGE
    version: int = MQ_VERSION
    opaque: int = 0
    """Opaque of the command: the number by which a response is matched to its request on a connection."""
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    """The extFields of the header. JSON distinguishes missing from empty extFields; the binary codec decodes both as None."""
    body: bytes = b""
    codec: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Return whether the command is a one-way request, which must not be answered."""
        return bool(self.flag & ONEWAY_FLAG)


class Answerable(Protocol):
    """The values of a request that are needed to make the response."""

    @property
    def opaque(self) -> int: ...

    @property
    def codec(self) -> int: ...


_opaques: Final = itertools.count(1)
_simulated = threading.local()
"""Thread-local storage. In a thread that runs a simulation, its attribute ``opaques`` is the counter of the opaques that the
simulation's requests get."""


def next_opaque() -> int:
    """Return the next opaque, which is the number of a request. Thread-safe.

    Opaques are a sequence of positive 32-bit integers for the whole process, which wraps around.
    """
    return next(getattr(_simulated, "opaques", _opaques)) & 0x7FFFFFFF


@contextmanager
def opaques_from_one() -> Iterator[None]:
    """Let the opaques of this thread's requests begin with 1 within a ``with`` statement.

    Simulations use this function, so that each simulation begins with the same opaque. Requests of other threads do not change
    the simulation's opaques.
    """
    _simulated.opaques = itertools.count(1)
    try:
        yield
    finally:
        del _simulated.opaques


def request(
    code: int,
    header: CommandHeader | Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    oneway: bool = False,
    opaque: int | None = None,
    codec: int = JSON,
    language: str = REQUEST_LANGUAGE,
    version: int = MQ_VERSION,
) -> RemotingCommand:
    """Return a request as a command. If ``opaque`` is None, the request gets the next number of :func:`next_opaque`."""
    return RemotingCommand(
        code=code,
        language=language,
        version=version,
        opaque=next_opaque() if opaque is None else opaque,
        flag=ONEWAY_FLAG if oneway else 0,
        ext_fields=_ext_fields(header),
        body=body,
        codec=codec,
    )


def response(
    to: Answerable,
    code: int,
    remark: str | None = None,
    header: CommandHeader | Mapping[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Return the response to a request, with the request's opaque and codec, and the response flag set."""
    return RemotingCommand(
        code=code,
        language=ANSWER_LANGUAGE,
        opaque=to.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields=_ext_fields(header),
        body=body,
        codec=to.codec,
    )


def _ext_fields(header: CommandHeader | Mapping[str, str] | None) -> dict[str, str] | None:
    if header is None:
        return None
    if isinstance(header, CommandHeader):
        return encode_header(header)
    return dict(header)


# --- decoding ---------------------------------------------------------------------------------------------------------

unpack_word: Final = struct.Struct(">I").unpack_from
_pack_prefix = struct.Struct(">II").pack


class _PlainHeader(msgspec.Struct, forbid_unknown_fields=True):
    """The strict form of a JSON header, which nearly all headers have. The lenient reader reads headers in other forms."""

    code: Int32
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)
    flag: Int32 = 0
    language: str = "OTHER"
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC", default="JSON")


_decode_plain_header = msgspec.json.Decoder(_PlainHeader).decode


def split_frame(frame: bytes, max_header_bytes: int = limits.HEADER_MAX_BYTES) -> tuple[int, bytes, bytes]:
    """Split a frame into the number of its codec, its header and its body.

    Raises:
        HeaderError: the header is longer than ``max_header_bytes``.
        FrameError: the frame is shorter than its header's length.
    """
    if len(frame) < 4:
        raise frame_error(
            f"a frame of {len(frame)} bytes is too short for the 4 bytes of codec and header length",
            reason="frame.malformed",
        )
    (word,) = unpack_word(frame)
    header_end = 4 + (word & 0xFFFFFF)
    if header_end > len(frame):
        raise frame_error(
            f"a header of {header_end - 4} bytes does not fit in a frame of {len(frame)} bytes",
            reason="frame.malformed",
            measured=f"{header_end - 4} bytes",
        )
    if header_end > max_header_bytes + 4:
        raise header_error(
            f"a header of {header_end - 4} bytes; at most {max_header_bytes}",
            reason="header.too_long",
            measured=f"{header_end - 4} bytes",
            code=ResponseCode.MESSAGE_ILLEGAL,
        )
    return word >> 24, frame[4:header_end], frame[header_end:]


def decode_command(frame: bytes | memoryview) -> RemotingCommand:
    """Return the command in a frame, which is given without its length field.

    Clients use this function. Servers use ``decode_request``.

    Raises:
        FrameError: the frame is malformed; the connection must be closed.
    """
    whole = frame if isinstance(frame, bytes) else bytes(frame)
    codec, header, body = split_frame(whole, limits.ANSWER_HEADER_MAX_BYTES)
    return decode_split(codec, header, body)


def decode_split(codec: int, header: bytes, body: bytes) -> RemotingCommand:
    """Return the command from the parts of a frame, which :func:`split_frame` returns. Raises ``HeaderError``."""
    if codec == JSON:
        return decode_json_header(header, body)
    if codec == ROCKETMQ:
        return decode_binary_header(header, body)
    raise header_error(
        f"unknown header codec {codec}; 0 is JSON, 1 is ROCKETMQ",
        reason="header.unknown_codec",
        measured=f"codec {codec}",
    )


def decode_json_header(header: bytes, body: bytes) -> RemotingCommand:
    """Return the command from a JSON header and a body. Raises ``HeaderError``."""
    parsed: _PlainHeader | JsonHeader
    try:
        parsed = _decode_plain_header(header)
        if parsed.ext is not None:
            check_field_count(len(parsed.ext))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        parsed = decode_lenient_header(header)
    language = parsed.language
    return RemotingCommand(
        code=parsed.code,
        language=language if language in LANGUAGE_CODES else "OTHER",
        version=parsed.version,
        opaque=parsed.opaque,
        flag=parsed.flag,
        remark=parsed.remark,
        ext_fields=parsed.ext,
        body=body,
        codec=JSON,
    )


_BINARY_START = struct.Struct(">hBhiii")
_unpack_key_length = struct.Struct(">h").unpack_from
_unpack_value_length = struct.Struct(">i").unpack_from


def decode_binary_header(header: bytes, body: bytes) -> RemotingCommand:
    """Return the command from a header in the binary codec ROCKETMQ, and a body. Raises ``HeaderError``."""
    try:
        code, language, version, opaque, flag, remark_length = _BINARY_START.unpack_from(header)
        remark, position = _text_at(header, _BINARY_START.size, remark_length)
        (ext_length,) = _unpack_value_length(header, position)
        position += 4
        if ext_length > len(header) - position:
            raise malformed(
                f"extFields of {ext_length} bytes do not fit in a header of {len(header)} bytes", f"{ext_length} bytes"
            )
        end = position + ext_length  # A negative length means that the header has no fields, as in RocketMQ.
        ext_fields: dict[str, str] = {}
        while position < end:
            (key_length,) = _unpack_key_length(header, position)
            key, position = _text_at(header, position + 2, key_length)
            (value_length,) = _unpack_value_length(header, position)
            ext_fields[key], position = _text_at(header, position + 4, value_length)
            if len(ext_fields) > limits.HEADER_FIELDS_MAX:
                check_field_count(len(ext_fields))
        if position != end and ext_length > 0:
            raise malformed(
                "the last of the extFields is cut off", f"{position - end} bytes after the end of extFields"
            )
    except struct.error as failure:
        raise malformed(f"the binary header is cut off: {failure}", f"{len(header)} bytes") from failure
    return RemotingCommand(
        code=code,
        language=language_name(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark or None,
        ext_fields=ext_fields or None,
        body=body,
        codec=ROCKETMQ,
    )


def _text_at(header: bytes, position: int, length: int) -> tuple[str, int]:
    end = position + length
    if length < 0 or end > len(header):
        raise malformed(
            f"a text of {length} bytes at position {position} does not fit in a header of {len(header)} bytes",
            f"{length} bytes",
        )
    text = header[position:end]
    try:
        return text.decode(), end
    except UnicodeDecodeError:
        return java_text(text), end


# --- encoding ---------------------------------------------------------------------------------------------------------


class _JsonHeaderOut(msgspec.Struct, gc=False):
    code: int
    ext: dict[str, str] | msgspec.UnsetType = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_encode_json = msgspec.json.Encoder().encode

_FASTJSON_DIFFERS = re.compile(rb"\\u00[01][a-f]|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
_FASTJSON_TOKEN = re.compile(rb"\\(?:u[0-9a-f]{4}|.)|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")


def _fastjson_token(match: re.Match[bytes]) -> bytes:
    token = match.group()
    if token[:1] == b"\\":
        return b"\\u" + token[2:].upper() if token[:2] == b"\\u" else token
    return b"\\u%04X" % ord(token.decode())


def escape_as_fastjson(document: bytes) -> bytes:
    """Return a JSON document with fastjson's escapes.

    fastjson writes upper-case hex digits, and escapes DEL to U+009F, U+2028 and U+2029.
    """
    if document.isascii() and b"\\u" not in document and b"\x7f" not in document:
        # fastjson changes nothing in ASCII text without \u and DEL. The regular expression would take ten times as long.
        return document
    if _FASTJSON_DIFFERS.search(document) is None:
        return document
    return _FASTJSON_TOKEN.sub(_fastjson_token, document)


def encode_command(command: RemotingCommand) -> bytes:
    """Return the whole frame of a command, including its length field.

    Raises:
        FrameError: a value does not fit in the binary codec, such as a too large code or a too long key.
    """
    header = encode_json_header(command) if command.codec == JSON else encode_binary_header(command)
    body = command.body
    header_length = len(header)
    return b"".join((_pack_prefix(4 + header_length + len(body), command.codec << 24 | header_length), header, body))


def encode_json_header(command: RemotingCommand) -> bytes:
    """Return a command's header encoded as JSON."""
    unset = msgspec.UNSET
    return escape_as_fastjson(
        _encode_json(
            _JsonHeaderOut(
                command.code,
                unset if command.ext_fields is None else command.ext_fields,
                command.flag,
                command.language,
                command.opaque,
                unset if command.remark is None else command.remark,
                "JSON",
                command.version,
            )
        )
    )


def encode_binary_header(command: RemotingCommand) -> bytes:
    """Return a command's header in the binary codec ROCKETMQ. Raises ``FrameError`` if a value does not fit."""
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    try:
        for key, value in (command.ext_fields or {}).items():
            key_bytes, value_bytes = key.encode(), value.encode()
            parts += (
                len(key_bytes).to_bytes(2, "big", signed=True),
                key_bytes,
                len(value_bytes).to_bytes(4, "big"),
                value_bytes,
            )
        ext = b"".join(parts)
        start = _BINARY_START.pack(
            command.code,
            language_code(command.language),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except (struct.error, OverflowError) as failure:
        raise FrameError(f"command {command.code} does not fit the binary codec: {failure}") from failure
    return b"".join((start, remark, len(ext).to_bytes(4, "big"), ext))
