"""Pages to find messages by key, id or time, and to show them with body, properties and consumers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from typing import Any, Final

import attrs
from msgspec.structs import replace
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from flintmq.config.errors import ConfigError
from flintmq.config.rocketmq.system_topics import TRACE_TOPIC
from flintmq.config.timestamps import parse_timestamp
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError, RefusedError
from flintmq.programs.cluster_view.values import GroupView
from flintmq.programs.console.bodies import FORMS, READ_MAX_BYTES, Form, shown_body
from flintmq.programs.console.clusters import is_denied
from flintmq.programs.console.texts import size
from flintmq.programs.console.web import FormError, Visitor, page, to
from flintmq.remoting.client import admin_messages
from flintmq.remoting.client.compression import CompressionError
from flintmq.remoting.client.message import CUT, PACKED, MessageExt, body_parts, shortened

FOUND_MAX: Final = 64
"""Maximum number of messages that a search by key or id returns."""
READ_MAX: Final = 32
"""Maximum number of messages that a search by time reads from each queue."""
PROPERTIES_MAX: Final = 200
"""Maximum number of a message's properties that a page shows; a message may have ten thousand."""
TAIL_MAX: Final = 50
"""Maximum number of messages on the page that shows a topic's newest messages."""
_PREVIEW_BYTES: Final = 200
_OFFSET_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


def time_ms(text: str) -> int:
    """Return a time that the user typed, in milliseconds since 1970. A time without a zone is UTC. Raises FormError."""
    try:
        return parse_timestamp(text, zone=UTC)[0]
    except ConfigError as error:
        raise FormError(f"A time {error.message}.") from error


async def search(visitor: Visitor) -> Response:
    """Show the form for a search of messages, and the search's results."""
    topic, by, text = visitor.query("topic"), visitor.query("by", "time"), visitor.query("text")
    async with visitor.console.looking:
        found, errors = await _found(visitor, topic, by, text)
    topics = [one.name for one in await visitor.view.topics() if one.kind == "user"][:1000]
    rows = [(one, preview(one), address(one)) for one in found or ()]
    return visitor.render(
        "messages.html",
        topic=topic,
        by=by if by in ("time", "key", "id") else "time",
        text=text,
        begin=visitor.query("from"),
        until=visitor.query("until"),
        found=None if found is None else rows,
        errors=errors,
        topics=topics,
        is_full=found is not None and len(found) >= READ_MAX,
    )


async def _found(
    visitor: Visitor, topic: str, by: str, text: str
) -> tuple[Sequence[MessageExt] | None, tuple[str, ...]]:
    """Search for messages as requested in the form, and return the messages and error texts. The messages have only the
    beginnings of their bodies. The error texts name queues that a search by time could not read. If the form requests no
    search, the messages are None, and the tuple of error texts is empty."""
    if by == "id" and text:
        return await _by_id(visitor, topic, text), ()
    if by == "key" and text and topic:
        return await visitor.access.admin.query_by_key(topic, text, max_num=FOUND_MAX, keep=previewed), ()
    if by == "time" and topic:
        begin_ms = time_ms(visitor.query("from")) if visitor.query("from") else 0
        end_ms = time_ms(visitor.query("until")) if visitor.query("until") else 2**62
        admin = visitor.access.admin
        return await admin_messages.read_times(admin, topic, begin_ms, end_ms, READ_MAX, previewed)
    if text:
        raise FormError(
            "A key is looked for in a topic: name it." if by == "key" else "Messages are found by time, key or id."
        )
    return None, ()


async def tail(visitor: Visitor) -> Response:
    """Show the newest messages of a topic, newest first. The page refreshes itself."""
    topic = visitor.query("topic")
    if not topic:
        raise FormError("Name a topic.")
    async with visitor.console.looking:
        found, errors = await admin_messages.read_newest(visitor.access.admin, topic, TAIL_MAX, previewed)
    rows = [(one, preview(one), address(one)) for one in found]
    return visitor.render("tail.html", topic=topic, found=rows, errors=errors, most=TAIL_MAX)


def previewed(message: MessageExt) -> MessageExt:
    """Return a message with only the part of its body that :func:`preview` shows."""
    return shortened(message, _PREVIEW_BYTES)


async def _by_id(visitor: Visitor, topic: str, text: str) -> Sequence[MessageExt]:
    """Return the messages with an id. If a topic is given, the id is first treated as an id that a sender made. If no message
    is found, or if no topic is given, the id is treated as an id that a broker made."""
    admin = visitor.access.admin
    if topic:
        found = await admin.query_by_key(topic, text, max_num=FOUND_MAX, unique=True, keep=previewed)
        if found:
            return found
    if not _OFFSET_ID.fullmatch(text):
        problem = f"'{text[:80]}' is no broker's id, which has 32 or 56 hexadecimal digits"
        if topic:
            raise FormError(f"No message of the topic has this id, and {problem}.", 404)
        raise FormError(f"{problem}; to search for an id that a producer made, give the topic, too.")
    try:
        one = await admin_messages.view_message(admin, text)
        return [await asyncio.to_thread(previewed, one)]
    except RefusedError as error:
        if is_denied(error):
            raise
        return []
    except ValueError as error:
        raise FormError(f"'{text[:80]}' is not a broker's message id, because it contains no address.") from error


def preview(message: MessageExt) -> str:
    """Return the beginning of a message's body as text or, if the body cannot be read, the reason."""
    if message.body_error not in ("", CUT):
        return f"cannot be read: {message.body_error}"
    part = message.body[:_PREVIEW_BYTES]
    text = part.decode("utf-8", "replace")
    return text if text.count("\ufffd") < 4 else part[:32].hex(" ")


def address(message: MessageExt, path: str = "/message", **more: str) -> str:
    """Return the address of a message's page. The address contains the message's id and topic, and the parameters ``more``."""
    return to(path, id=message.offset_msg_id, topic=message.topic, **more)


async def found_message(visitor: Visitor, message_id: str) -> MessageExt:
    """Return the message with an id that a broker made. Raises FormError if no broker has the message."""
    if not _OFFSET_ID.fullmatch(message_id):
        raise FormError(f"'{message_id[:80]}' is not a broker's message id, which has 32 or 56 hexadecimal digits.")
    try:
        return await admin_messages.view_message(visitor.access.admin, message_id)
    except RefusedError as error:
        if is_denied(error):
            raise
        raise FormError(f"No broker has the message {message_id} (any longer).", 404) from error
    except ValueError as error:
        raise FormError(f"'{message_id[:80]}' is not a broker's message id, because it contains no address.") from error


async def message(visitor: Visitor) -> Response:
    """Show a message's body and properties, whether the offset of each consumer group is past the message, and the message's
    events in the trace topic. In the URL, ``id`` is the message id that a broker made, and ``as`` is the form of the body:
    ``auto``, ``json``, ``text``, ``hex`` or ``avro``."""
    return await _show(visitor, visitor.query("id"), visitor.query("as", "auto"), "")


async def with_schema(visitor: Visitor) -> Response:
    """Show one message, with its body decoded by the Avro schema in the form. The schema is in a form, because it can be too
    long for a URL."""
    return await _show(visitor, visitor.field("id"), "avro", visitor.field("schema"))


async def _show(visitor: Visitor, message_id: str, form: str, schema: str) -> Response:
    wanted: Form = form if form in FORMS else "auto"
    async with visitor.console.looking:
        found = await found_message(visitor, message_id)
        # The size of a compressed body is shown as 0 (unknown), because only decompressing would show the size.
        size_bytes = 0 if found.body_error == PACKED else len(found.body)
        found = await asyncio.to_thread(shortened, found, READ_MAX_BYTES)
        is_read = found.body_error in ("", CUT)
        shown_as: Form = "hex" if wanted == "auto" and not is_read else wanted
        body = await asyncio.to_thread(shown_body, found.body, shown_as, schema)
    if is_read and not found.body_error:
        size_bytes = len(found.body)
    groups = {one.name: one for one in await visitor.view.groups()}
    return visitor.render(
        "message.html",
        message=found,
        body=body,
        size_text=size(size_bytes) if size_bytes else f"more than {size(READ_MAX_BYTES - 1)}",
        body_error="" if is_read else found.body_error,
        properties=list(found.properties.items())[:PROPERTIES_MAX],
        wanted=shown_as,
        schema=schema,
        consumers=await _consumers(visitor, found, groups),
        traces=await _traces(visitor, found),
        online=[one for one in groups.values() if one.members and one.kind == "user"][:500],
        link=address,
    )


@attrs.frozen
class Consumption:
    """Whether the offset of a group is past a message."""

    group: str
    state: str
    members: int | None


async def _consumers(visitor: Visitor, found: MessageExt, groups: dict[str, GroupView]) -> list[Consumption]:
    """Return, for each group of a message's topic, whether the group's offset is past the message. Brokers know offsets, but
    not whether consuming succeeded."""
    admin = visitor.access.admin
    row = next((one for one in await visitor.view.topics() if one.name == found.topic), None)
    states = []
    for group in (row.groups if row is not None else ())[:50]:
        known = groups.get(group)
        try:
            stats = await admin.consume_stats(group, found.topic)
        except FlintError as error:
            states.append(Consumption(group, f"not known: {error}", known.members if known else None))
            continue
        place = [
            figures
            for queue, figures in stats.offset_table.items()
            if queue.queue_id == found.queue_id and _is_at(queue, found, row.brokers if row is not None else ())
        ]
        if len(place) != 1:
            state = "not known: it has no offset in this queue"
        elif place[0].consumer_offset > found.queue_offset:
            state = "past it: consumed, filtered out, or skipped"
        else:
            before = found.queue_offset - max(place[0].consumer_offset, 0)
            state = f"not yet: {before:,} messages come before it" if before else "not yet: it is the next one"
        states.append(Consumption(group, state, known.members if known else None))
    return states


def _is_at(queue: MessageQueue, found: MessageExt, brokers: Sequence[str]) -> bool:
    return (
        queue.broker_name == found.broker_name
        if found.broker_name
        else len(brokers) == 1 or queue.broker_name in brokers
    )


async def _traces(visitor: Visitor, found: MessageExt) -> list[tuple[str, str]]:
    """Return the events that clients wrote about the message to the trace topic, in words."""
    if not any(one.name == TRACE_TOPIC for one in await visitor.view.topics()):
        return []
    try:
        lines = await admin_messages.traces_of(visitor.access.admin, TRACE_TOPIC, found.msg_id)
    except FlintError:
        return [("not known", "the trace topic does not answer, or this account may not read it")]
    groups = {fields[4]: fields[3] for fields in lines if fields[0] == "SubBefore" and len(fields) > 7}
    return [one for fields in lines if (one := _trace(fields, groups)) is not None]


def _trace(fields: Sequence[str], groups: dict[str, str]) -> tuple[str, str] | None:
    """Return an event of the message trace and the event's details as texts; None for an unknown format."""
    if fields[0] == "Pub" and len(fields) >= 14:
        return f"sent by a producer of {fields[3]}", f"at ms {fields[1]}, took {fields[10]} ms, success: {fields[13]}"
    if fields[0] == "SubBefore" and len(fields) >= 8:
        return f"given to a listener of {fields[3]}", f"at ms {fields[1]}, after {fields[6]} failures"
    if fields[0] == "SubAfter" and len(fields) >= 7:
        group = groups.get(fields[1]) or (fields[8] if len(fields) > 8 else "a group")
        return f"done by {group}", f"took {fields[3]} ms, success: {fields[4]}"
    if fields[0] == "EndTransaction" and len(fields) >= 13:
        return f"transaction of {fields[3]} ended", f"at ms {fields[1]}: {fields[11]}"
    return None


async def body(visitor: Visitor) -> Response:
    """Send the whole body of a message as a file. The file's name is the broker's id of the message, and its type is always
    ``application/octet-stream``, so that the sender of the message cannot choose them."""
    async with visitor.console.looking:
        found = await found_message(visitor, visitor.query("id"))
        try:
            size_bytes = await asyncio.to_thread(lambda: sum(map(len, body_parts(found))))
        except CompressionError as error:
            found, size_bytes = replace(found, body_error=str(error)), len(found.body)
    if visitor.console.downloading.locked():
        raise FormError("Too many downloads are in progress: try again when one of them has ended.", 503)
    await visitor.console.downloading.acquire()
    return _Download(
        # Starlette gets each part of the body in a thread, after the previous part has been sent.
        body_parts(found),
        visitor.console.downloading.release,
        media_type="application/octet-stream",
        headers={
            "content-disposition": f'attachment; filename="{found.offset_msg_id}.bin"',
            "content-length": str(size_bytes),
        },
    )


class _Download(StreamingResponse):
    """An HTTP response that sends the parts of a message's body as fast as the browser receives them, and then calls
    ``ended``."""

    def __init__(self, parts: Iterator[bytes], ended: Callable[[], None], **more: Any) -> None:
        super().__init__(parts, **more)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # If a browser stops reading the response, the console closes the browser's connection, which ends the response.
            await self.stream_response(send)
        finally:
            self._ended()


ROUTES: Final = (
    page("/messages", search),
    page("/tail", tail),
    page("/message", message),
    page("/message/avro", with_schema, changes=True),
    page("/message/body", body),
)
