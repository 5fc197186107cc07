"""Prints messages: as a line or a table for people, as JSON for programs, or only the bytes of the body.

The sender decides how large a compressed body becomes when it is decompressed. Bodies are therefore decompressed in parts.
"""

from __future__ import annotations

import base64
import codecs
import itertools
import sys
from collections.abc import Iterator
from typing import Any, Final

from flintmq.core.client_log import escape_all
from flintmq.programs.cli.output import json_text, safe
from flintmq.remoting.client.compression import CompressionError
from flintmq.remoting.client.message import PACKED, MessageExt, body_beginning, body_parts

LINE_MAX_BYTES: Final = 64 * 1024
"""Maximum number of bytes of a body in a line that is printed for people."""


def message_fields(message: MessageExt) -> dict[str, Any]:
    """Return the members of a message's JSON, without the body. Times are in milliseconds since 1970."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "size_bytes": message.store_size_bytes,
        "properties": dict(message.properties),
    }


def print_message(message: MessageExt, form: str) -> None:
    """Print a message whose body is still compressed. Any thread, but only one thread at a time.

    A long body is decompressed and written in parts, so printing takes little memory.

    Args:
        message: a message of a client with ``bodies_stay_packed``.
        form: ``json`` for a JSON object, ``raw`` for the bytes of the body and a line feed, ``text`` for a line.
    """
    if form == "raw":
        _print_raw(message)
    elif form == "json":
        for part in _message_json(message):
            sys.stdout.write(part)
        sys.stdout.flush()
    else:
        print(message_text(message), flush=True)


def _print_raw(message: MessageExt) -> None:
    error, _ = _body_error(message)
    sys.stdout.flush()
    try:
        for part in [message.body] if error else body_parts(message):
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.write(b"\n")
    finally:
        sys.stdout.buffer.flush()


def _message_json(message: MessageExt) -> Iterator[str]:
    """Yield a message as JSON in parts. The member ``body`` has a body that is UTF-8, and ``body_base64`` any other body. If
    the body cannot be read, ``body_error`` gives the reason."""
    error, is_text = _body_error(message)
    fields = message_fields(message) | ({"body_error": error} if error else {})
    yield from json_with_body(fields, iter([message.body]) if error else body_parts(message), is_text=is_text)


def json_with_body(
    fields: dict[str, Any], parts: Iterator[bytes], *, is_text: bool, in_hex: bool = False
) -> Iterator[str]:
    """Yield the parts of a line of JSON with the given members and a message's body. The member for the body is ``body`` for
    text, else ``body_base64`` or ``body_hex``."""
    yield json_text(fields)[:-1]
    if is_text:
        yield ', "body": "'
        decoder = codecs.getincrementaldecoder("utf-8")()
        for part in itertools.chain(parts, [b""]):
            yield json_text(decoder.decode(part, final=not part))[1:-1]
    elif in_hex:
        yield ', "body_hex": "'
        for part in parts:
            yield part.hex()
    else:
        yield ', "body_base64": "'
        rest = b""
        for part in parts:
            whole = rest + part
            end = len(whole) - len(whole) % 3
            yield base64.b64encode(whole[:end]).decode()
            rest = whole[end:]
        yield base64.b64encode(rest).decode()
    yield '"}\n'


def _body_error(message: MessageExt) -> tuple[str, bool]:
    """Return why a body cannot be read (empty if it can), and whether the body is UTF-8. The body is read in parts."""
    if message.body_error and message.body_error != PACKED:
        return message.body_error, False
    try:
        return "", is_utf8(body_parts(message))
    except CompressionError as failure:
        return str(failure), False


def is_utf8(parts: Iterator[bytes]) -> bool:
    """Return whether the parts of a body, joined, are valid UTF-8. The iterator of parts is read to its end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_text = True
    for part in parts:
        is_text = is_text and _decodes(decoder, part)
    return is_text and _decodes(decoder, b"", final=True)


def _decodes(decoder: codecs.IncrementalDecoder, part: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(part, final)
    except UnicodeDecodeError:
        return False
    return True


def body_text(message: MessageExt, max_bytes: int) -> tuple[str, str]:
    """Return the beginning of a body as text or as ``base64:...``, and the reason if the body cannot be read."""
    error = "" if message.body_error == PACKED else message.body_error
    body, is_whole = message.body[:max_bytes], len(message.body) <= max_bytes
    if not error:
        try:
            body, is_whole = body_beginning(message, max_bytes)
        except CompressionError as failure:
            error = str(failure)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = base64_text(body) if error else escape_all(decoder.decode(body, is_whole))
    except UnicodeDecodeError:
        text = base64_text(body)
    return text if is_whole else f"{text}… (cut: --json and --raw print all of it)", error


def base64_text(body: bytes) -> str:
    """Return bytes that are not text as ``base64:…`` for people."""
    return f"base64:{base64.b64encode(body).decode()}"


def message_text(message: MessageExt) -> str:
    """Return a message as one line for people."""
    text, error = body_text(message, LINE_MAX_BYTES)
    labels = [f"tags={message.tags}"] if message.tags else []
    labels += [f"keys={' '.join(message.keys)}"] if message.keys else []
    labels += [f"reconsumed={message.reconsume_times}"] if message.reconsume_times else []
    labels += [f"(cannot be read: {error})"] if error else []
    place = f"{message.broker_name}:{message.queue_id}:{message.queue_offset}"
    return " ".join([*(safe(one) for one in (place, message.msg_id, *labels)), text])
