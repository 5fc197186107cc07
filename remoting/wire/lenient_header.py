"""Decodes the JSON headers that RocketMQ accepts although they are not standard JSON or have values of wrong types.

RocketMQ reads a header with fastjson 1.2 (``RemotingSerializable.decode``), which accepts more than standard JSON:

* names without quotes, and texts in single quotes;
* comments, extra commas, and numbers such as ``+28``;
* numbers as text, and text as numbers;
* names that differ from a field's name only in case, or in the characters ``_`` and ``-``.

Before fastjson reads the header, Java decodes the header's bytes and replaces bytes that are not UTF-8 by U+FFFD. RocketMQ
sends a lone half of a surrogate pair as ``?``. This module reads headers in the same way. It gets only the headers that
``decode_json_header`` cannot read.

Two readers are tried. The first is Python's :mod:`json`, which is fast, and accepts lone surrogates and raw control characters
in texts. The second is :mod:`flintmq.core.io.fastjson`. The number of values in a header is limited, which bounds the time for
reading the header.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

import msgspec

from flintmq.core import limits
from flintmq.core.errors import FrameError, HeaderError, JsonSyntaxError, RefusedError
from flintmq.core.io.fastjson.reader import Reader, check_depth
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.codes import language_name

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class JsonHeader(msgspec.Struct):
    """The members of a command's JSON header. The member ``extFields`` is the field ``ext``."""

    code: int
    ext: dict[str, str] | None = None
    flag: int = 0
    language: str = "OTHER"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


def header_error(
    message: str, *, reason: str, measured: str = "", code: int = ResponseCode.SYSTEM_ERROR
) -> HeaderError:
    """Return an error for a header that cannot be used, with the refusal for its sender."""
    return HeaderError(message, refusal=RefusedError(code, message, reason=reason, measured=measured))


def frame_error(message: str, *, reason: str, measured: str = "", key: str = "", rest: bytes = b"") -> FrameError:
    """Return an error for wrong lengths in a frame, with the refusal that its sender gets before the connection is closed.

    Args:
        message: description of the error, also the remark of the refusal.
        reason: id of the refusal's reason.
        measured: the wrong value.
        key: the setting with the exceeded limit; empty if the error is not about a setting's limit.
        rest: the received bytes of the frame, without its length.
    """
    refusal = RefusedError(ResponseCode.SYSTEM_ERROR, message, reason=reason, measured=measured, key=key)
    return FrameError(message, refusal=refusal, rest=rest)


def malformed(message: str, measured: str = "") -> HeaderError:
    """Return an error for a header that cannot be read, with the refusal for its sender."""
    return header_error(message, reason="header.malformed", measured=measured)


# --- text -------------------------------------------------------------------------------------------------------------

_SURROGATE_BYTES: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def java_text(data: bytes) -> str:
    """Return bytes as text, as Java's ``new String(data, UTF_8)`` does: each malformed sequence becomes U+FFFD.

    A surrogate that is encoded in three bytes becomes one U+FFFD.
    """
    if b"\xed" in data:
        data = _SURROGATE_BYTES.sub(b"\xef\xbf\xbd", data)
    return data.decode("utf-8", "replace")


def _sendable(text: str) -> str:
    """Return a text as a Java broker sends it: each lone half of a surrogate pair becomes ``?``."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub("?", joined)


# --- reading ----------------------------------------------------------------------------------------------------------


def _constant(name: str) -> None:
    if name != "NaN":
        raise ValueError(f"{name} is not a JSON value")


def _fraction(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as failure:
        raise JsonSyntaxError(f"{text[:64]} has too large an exponent") from failure


_read_plain: Final = json.JSONDecoder(
    strict=False,
    parse_int=lambda text: Decimal(text) if text == "-0" else int(text),
    parse_float=_fraction,
    parse_constant=_constant,
).decode


class _HeaderReader(Reader):
    """A reader of fastjson's dialect that returns fractions as ``Decimal``, so that their digits are kept."""

    @staticmethod
    def made(text: str, is_integer: bool) -> Any:
        return int(text) if is_integer else _fraction(text)


def decode_lenient_header(header: bytes) -> JsonHeader:
    """Return the members of a command's JSON header, as RocketMQ understands the header.

    Raises:
        HeaderError: fastjson would not accept the header either, or reading it would take too long.
    """
    if len(header) > limits.HEADER_LENIENT_MAX_BYTES:
        raise header_error(
            f"a header of {len(header)} bytes is not standard JSON, or has values of wrong types. Such a header may have at "
            f"most {limits.HEADER_LENIENT_MAX_BYTES} bytes",
            reason="header.malformed",
            measured=f"{len(header)} bytes",
        )
    text = java_text(header).removeprefix("\ufeff").rstrip("\0\x1a")
    try:
        raw = _read(text)
        if not isinstance(raw, dict):
            raise malformed("the header is not a JSON object")
        return _members({_smart(name): value for name, value in raw.items() if isinstance(name, str)})
    except (RecursionError, JsonSyntaxError) as failure:
        reason = (
            f"it nests deeper than {limits.JSON_MAX_DEPTH}" if isinstance(failure, RecursionError) else str(failure)
        )
        raise malformed(f"the header is not JSON: {reason}") from failure


def _read(text: str) -> Any:
    marks = sum(map(text.count, ",:[{"))
    if marks > limits.HEADER_MARKS_MAX:
        raise malformed(
            "the header has too many values. If a header is not standard JSON, or has values of wrong types, it may have at "
            f"most {limits.HEADER_MARKS_MAX}",
            measured=f"{marks} values",
        )
    try:
        value = _read_plain(text)
    except ValueError as failure:
        marks += sum(map(text.count, "\\'/"))
        if marks > limits.HEADER_DIALECT_MARKS_MAX:
            raise malformed(
                f"the header is not standard JSON: {failure}; a header in fastjson's dialect may have at most "
                f"{limits.HEADER_DIALECT_MARKS_MAX} values and escape sequences",
                measured=f"{marks} values and escape sequences",
            ) from failure
        return _HeaderReader(text, limits.JSON_MAX_DEPTH).document()
    check_depth(text)
    return value


def _smart(name: str) -> str:
    """Return the name of a JSON member without ``_`` and ``-`` and in lower case. fastjson compares this form with the names of
    fields if no name matches exactly."""
    return name.replace("_", "").replace("-", "").lower()


def _members(raw: dict[str, Any]) -> JsonHeader:
    ext, language, remark = raw.get("extfields"), raw.get("language"), raw.get("remark")
    if ext is not None and not isinstance(ext, dict):
        raise malformed("the header's extFields are not an object", measured=_shown(ext))
    fields: dict[str, str] | None = None
    if ext is not None:
        check_field_count(len(ext))
        fields = {
            _sendable(name if isinstance(name, str) else str(name)): _as_text(value)
            for name, value in ext.items()
            if value is not None and name is not None
        }
    return JsonHeader(
        code=_as_int32("code", raw.get("code")),
        ext=fields,
        flag=_as_int32("flag", raw.get("flag")),
        language=_language(language),
        opaque=_as_int32("opaque", raw.get("opaque")),
        remark=None if remark is None else _as_text(remark),
        version=_as_int32("version", raw.get("version")),
    )


def check_field_count(count: int) -> None:
    """Check the number of extFields in a command's header.

    Raises:
        HeaderError: the header has more than ``HEADER_FIELDS_MAX`` fields.
    """
    if count > limits.HEADER_FIELDS_MAX:
        raise header_error(
            f"the header has more than {limits.HEADER_FIELDS_MAX} fields",
            reason="header.too_many_fields",
            measured=f"{count} fields",
        )


_INTEGER_TEXT: Final = re.compile(r"([+-]?[0-9]{1,32})(?:\.[0-9]{0,32})?")


def _as_int32(name: str, value: Any) -> int:
    """Return a value of a JSON header as an integer of 32 bits, as fastjson converts the value.

    Null and empty text become 0. Fractions are truncated.

    Raises:
        HeaderError: the value is not a number of 32 bits.
    """
    if value is None or value in ("", "null", "NULL"):
        return 0
    number: int | None = None
    if isinstance(value, int | Decimal) and -(2**32) < value < 2**32:
        number = int(value)
    elif isinstance(value, str):
        match = _INTEGER_TEXT.fullmatch(value.replace(",", "")[:100])
        number = int(match.group(1)) if match is not None else None
    if number is None or not -(2**31) <= number < 2**31:
        raise malformed(f"the header's {name} is not a number of 32 bits", measured=_shown(value))
    return number


def _language(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return language_name(value)
    if isinstance(value, str):
        return language_name(int(value)) if re.fullmatch(r"[0-9]{1,3}", value) else value
    return "OTHER"


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return _sendable(value)
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return _sendable(_document(value))
    try:
        return str(value)
    except (ValueError, InvalidOperation) as failure:
        raise malformed("the header has a number of too many digits") from failure


def _document(value: Any) -> str:
    """Return an object or a list of a JSON header as JSON text.

    Raises:
        HeaderError: the value cannot be written as JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=float)
    except (TypeError, ValueError) as failure:
        raise malformed("the header has an object where a text belongs") from failure


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, Decimal) else f"{value:.20g}"
    return text[:64]


# --- fields that are found in a header that cannot be decoded ---

LOOKED_AT_BYTES: Final = 64 * 1024
_OPAQUE: Final = re.compile(rb"""(?i)(?<!\\)["']?\bopaque["']?\s*:\s*["']?([+-]?[0-9]{1,10})(?=[^0-9])""")
_FLAG: Final = re.compile(rb"""(?i)(?<!\\)["']?\bflag["']?\s*:\s*["']?([+-]?[0-9]{1,10})(?=[^0-9])""")


def begins_no_object(frame: bytes) -> bool:
    """Return whether a frame's JSON header cannot be a JSON object, judged by the header's first character. Clients of RocketMQ
    send no header of this kind.

    Args:
        frame: the bytes of the frame, without its length.
    """
    header = frame[4 : 4 + int.from_bytes(frame[1:4], "big")].lstrip(b" \t\r\n")
    return frame[0] == 0 and header != b"" and header[:1] not in (b"{", b"/", b"\xef")


def may_begin_a_header(frame: bytes) -> bool:
    """Return whether the bytes after a wrong length field may belong to a command.

    The result is rarely true for bytes of other protocols.
    """
    if len(frame) < 5:
        return frame[:1] in (b"", b"\0", b"\1")
    return frame[0] == 1 or (frame[0] == 0 and frame[4:5] in (b"{", b" ", b"\t", b"\r", b"\n", b"/"))


class Known(msgspec.Struct):
    """The fields of an unreadable header that are needed to answer its request."""

    opaque: int
    flag: int
    codec: int


def what_is_known(frame: bytes) -> Known | None:
    """Return the opaque, flag and codec of a frame whose header cannot be read; None if no opaque is found.

    Args:
        frame: the bytes of the frame, without its length.
    """
    codec, header = frame[0] if frame else 0, frame[4 : 4 + 2 * LOOKED_AT_BYTES]
    if codec == 1 and header[:1] not in (b"{", b"["):
        if len(header) < 9:
            return None
        opaque = int.from_bytes(header[5:9], "big", signed=True)
        flag = int.from_bytes(header[9:13], "big", signed=True) if len(header) >= 13 else 0
        return Known(opaque, flag, codec)
    header_end = 4 + int.from_bytes(frame[1:4], "big")
    # The fields opaque and flag can be at the end of the header, because RocketMQ writes them after extFields.
    # In a long header, both the first bytes and the last bytes are searched for the fields opaque and flag.
    if min(header_end, len(frame)) > 4 + len(header):
        header = header[:LOOKED_AT_BYTES] + frame[max(0, header_end - LOOKED_AT_BYTES) : header_end]
    opaque_found, flag_found = _OPAQUE.search(header), _FLAG.search(header)
    if opaque_found is None:
        return None
    opaque = int(opaque_found.group(1))
    flag = int(flag_found.group(1)) if flag_found is not None else 0
    return Known(opaque, flag, 0) if -(2**31) <= opaque < 2**31 else None
