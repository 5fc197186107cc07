"""Shows a message's body as JSON, as text, in hexadecimal, or decoded by an Avro schema. If a body is long, only its first part
is shown."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from flintmq.programs.console import avro

Form = Literal["auto", "json", "text", "hex", "avro"]
FORMS: Final[tuple[Form, ...]] = ("auto", "json", "text", "hex", "avro")

SHOWN_MAX_BYTES: Final = 64 * 1024
"""Maximum number of bytes of a body that are shown as text. The download contains the whole body."""
DECODED_MAX_BYTES: Final = 256 * 1024
"""Maximum size, in bytes, of a body that is decoded as JSON or Avro, because decoded values take many times as much memory."""
READ_MAX_BYTES: Final = DECODED_MAX_BYTES + 1
"""Maximum number of bytes of a body that a page reads: one more than the maximum for decoding, so that larger bodies are
detected."""
DEPTH_MAX: Final = 64
HEX_MAX_BYTES: Final = 4 * 1024
_SHOWN_MAX_CHARS: Final = 256 * 1024
_LINE_BYTES: Final = 16
_UNUSUAL: Final = re.compile(r"[^ -~\n\t]+")
_ENCODER: Final = json.JSONEncoder(indent=2, ensure_ascii=False)


@attrs.frozen
class ShownBody:
    """A message body as text for a page."""

    form: Form
    """The form in which the body is shown. If ``auto`` was requested, this is the form that was chosen."""
    text: str
    size_bytes: int
    is_cut: bool
    """Whether the text shows only a part of the body."""
    problem: str = ""
    """Why the body is not shown in the requested form; empty if the body is shown in that form."""


def shown_body(body: bytes, form: Form = "auto", schema: str = "") -> ShownBody:
    """Return a body as text in the requested form. If the body cannot be shown in this form, return it in another form with the
    reason.

    The conversion of any body takes at most some tenths of a second and some 20 MiB of memory. Pages call this function in a
    thread.

    Args:
        body: the decompressed body, or the first :data:`READ_MAX_BYTES` of it.
        form: ``auto`` means JSON if possible, else text, else hexadecimal.
        schema: the Avro schema, for ``avro``.
    """
    if form == "hex":
        return _hex(body)
    if form == "avro":
        return _avro(body, schema)
    if form == "text":
        return _text(body) or _hex(body, "it is not text in UTF-8")
    if len(body) > DECODED_MAX_BYTES:
        problem = f"it is longer than {DECODED_MAX_BYTES:,} bytes" if form == "json" else ""
        return _text(body, problem) or _hex(body, problem)
    try:
        value = json.loads(body, parse_constant=_no_constant, parse_float=_exact, object_pairs_hook=_single)
    except (ValueError, RecursionError) as error:
        problem = f"it is not JSON: {error}" if form == "json" else ""
        return _text(body, problem) or _hex(body, problem)
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX and _is_deep(value):
        # Deeply nested JSON is shown without indentation, because the indentation would make the text too long.
        problem = f"it is JSON that nests deeper than {DEPTH_MAX}"
        return _text(body, problem) or _hex(body, problem)
    return _value("json", body, value)


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, (dict, list)):
                inner += one.values() if isinstance(one, dict) else one
        if not inner:
            return False
        level = inner
    return True


def _exact(text: str) -> float:
    """Return a number of a JSON text as a float. Raises ValueError if a float cannot represent the number exactly, because a
    rounded number would mislead the reader."""
    number = float(text)
    if not math.isfinite(number) or Decimal(text) != Decimal(repr(number)):
        raise ValueError(f"{text[:40]} has too many digits to be shown exactly")
    return number


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a JSON object contains the same name twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a value of JSON")


def _avro(body: bytes, schema: str) -> ShownBody:
    if not schema.strip():
        return _hex(body, "give the Avro schema that it was written with")
    if len(body) > DECODED_MAX_BYTES:
        return _hex(body, f"it is longer than {DECODED_MAX_BYTES:,} bytes")
    try:
        return _value("avro", body, avro.decode(schema, body))
    except avro.AvroError as error:
        return _hex(body, f"Avro: {error}")


def _value(form: Form, body: bytes, value: Any) -> ShownBody:
    parts: list[str] = []
    chars = 0
    try:
        for part in _ENCODER.iterencode(value):
            parts.append(part)
            chars += len(part)
            if chars > _SHOWN_MAX_CHARS:
                break
    except (RecursionError, ValueError) as error:
        return _text(body, str(error)) or _hex(body, str(error))
    text, is_cut = _bounded("".join(parts))
    return ShownBody(form, text, len(body), is_cut)


def _bounded(text: str) -> tuple[str, bool]:
    """Return text for a page, cut at the given length and with control characters made visible, and whether it was cut."""
    shown = visible(text[:_SHOWN_MAX_CHARS])
    return shown[:_SHOWN_MAX_CHARS], max(len(text), len(shown)) > _SHOWN_MAX_CHARS


def _text(body: bytes, problem: str = "") -> ShownBody | None:
    """Return a body as text; None if the body is not text."""
    part = body[:SHOWN_MAX_BYTES]
    try:
        text = part.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(part) or len(body) <= SHOWN_MAX_BYTES:
            return None
        # The cut at the maximum length has split the last character, so only the text before this character is shown.
        text = part[: error.start].decode("utf-8")
    if "\x00" in text:
        return None
    shown, is_cut = _bounded(text)
    return ShownBody("text", shown, len(body), is_cut or len(body) > SHOWN_MAX_BYTES, problem)


def visible(text: str) -> str:
    """Return text in which control characters, and characters that change the direction of writing, are visible; line feeds and
    tabs stay."""
    return _UNUSUAL.sub(_visible_run, text)


def _visible_run(match: re.Match[str]) -> str:
    run = match.group()
    if run.isprintable():
        return run
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() if one != "\r" else "\\r" for one in run
    )


def _hex(body: bytes, problem: str = "") -> ShownBody:
    lines = []
    for start in range(0, min(len(body), HEX_MAX_BYTES), _LINE_BYTES):
        part = body[start : start + _LINE_BYTES]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * _LINE_BYTES - 1}}  {plain}")
    return ShownBody("hex", "\n".join(lines), len(body), len(body) > HEX_MAX_BYTES, problem)
