"""Pages to move consumer groups to other offsets, and to send messages again or let a client consume them again. Each page
shows a preview and asks for confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.record import properties as props
from flintmq.programs.console.pages.messages import found_message, time_ms
from flintmq.programs.console.web import FormError, Visitor, page, to
from flintmq.remoting.client import admin_messages
from flintmq.remoting.client.consume_from import FROM_FIRST, FROM_LAST
from flintmq.remoting.client.message import MessageExt

NAME_MAX_CHARS: Final = 255


async def reset_preview(visitor: Visitor) -> Response:
    """Show how a group's offset in one queue or in each queue of a topic would change, and ask for confirmation."""
    group, topic = _names(visitor.query("group"), visitor.query("topic"))
    place, choice = visitor.query("queue"), visitor.query("to")
    to_ms = -1 if choice == "offset" else _time_of(choice, visitor.query("time"))
    if choice == "offset" and not place:
        raise FormError("An offset needs its queue: choose the queue, too.")
    known = await visitor.view.group(group)
    if known is None:
        raise FormError(f"No broker has a consumer group {group[:200]}.", 404)
    moves: Sequence[admin_messages.Move]
    errors: Sequence[str] = ()
    if place:
        at = visitor.number("The offset", visitor.query("offset"), 0, 2**62) if choice == "offset" else None
        moves = (await admin_messages.plan_queue_move(visitor.access.admin, _queue(topic, place), group, to_ms, at),)
        only = f"{moves[0].queue.broker_name}:{moves[0].queue.queue_id}"
        fields = {"group": group, "topic": topic, "queue": only, "offset": moves[0].new_offset}
    else:
        moves, errors = await admin_messages.plan_moves(visitor.access.admin, topic, group, to_ms)
        fields = {"group": group, "topic": topic, "to_ms": to_ms}
    return visitor.render(
        "reset.html",
        group=group,
        topic=topic,
        queue=place,
        choice=choice,
        to_ms=to_ms,
        moves=moves,
        errors=errors,
        members=known.members,
        again=sum(max(0, move.again) for move in moves),
        skipped=sum(max(0, -move.again) for move in moves),
        confirm=visitor.confirmation("/reset/now", **fields),
    )


async def reset(visitor: Visitor) -> Response:
    """Move a group to other offsets in a topic or in one queue, and show the new offsets."""
    group, topic, place = visitor.field("group"), visitor.field("topic"), visitor.field("queue")
    admin = visitor.access.admin
    subject = f"{group} in {topic}{f' {place}' if place else ''} to {visitor.field('offset') or visitor.field('to_ms')}"
    try:
        if place:
            queue, at = _queue(topic, place), int(visitor.field("offset"))
            told = await admin_messages.move_queue(admin, group, queue, at)
            moved = admin_messages.Moved({queue: at}, told, ())
            text = f"{group} goes on at offset {at} of {topic} {place}."
        else:
            moved = await admin_messages.move_group(admin, topic, group, int(visitor.field("to_ms")))
            queues = f"{len(moved.offsets)} queue{'' if len(moved.offsets) == 1 else 's'}"
            text = f"{group} goes on elsewhere in {queues} of {topic}."
    except FlintError as error:
        if isinstance(error, RefusedError) and "AclException" in error.remark:
            visitor.audit("reset", subject, f"failed: {error}")
            raise
        moved, text = admin_messages.Moved({}, 0, (str(error),)), ""
    if moved.members:
        text += f" Its {moved.members} members at that broker were told." if place else ""
    places = ", ".join(f"{one.broker_name}:{one.queue_id} to {at}" for one, at in sorted(moved.offsets.items()))
    problem = "; ".join(moved.errors)
    outcome = [f"done: {places}"] if moved.offsets else []
    visitor.audit("reset", subject, "; ".join([*outcome, *([f"failed: {problem}"] if problem else [])]))
    await visitor.view.refresh(all_due=True)
    if problem:
        text = f"{text if moved.offsets else f'{group} was not moved.'} What failed: {problem}"
    what = "Moved" if not problem else "Moved in part" if moved.offsets else "Not moved"
    return visitor.render("done.html", what=what, text=text, back=to("/group", name=group))


def _queue(topic: str, place: str) -> MessageQueue:
    """Return the queue that a text ``BROKER:QUEUE`` names. Raises FormError if the text has another form."""
    broker, _, number = place.rpartition(":")
    if not broker or not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise FormError(f"A queue is written BROKER:QUEUE, such as broker-a:0, not '{place[:80]}'.")
    return MessageQueue(broker, int(number), topic)


def _names(group: str, topic: str) -> tuple[str, str]:
    if not group or not topic or len(group) > NAME_MAX_CHARS or len(topic) > NAME_MAX_CHARS:
        raise FormError("Name a group and one of its topics.")
    return group, topic


def _time_of(choice: str, text: str) -> int:
    if choice == "time":
        if not text:
            raise FormError("Give the time from which the group is to continue.")
        return time_ms(text)
    if choice not in ("first", "last", FROM_FIRST, FROM_LAST):
        raise FormError("Move the group to the first message, to the last, to a time, or to an offset of one queue.")
    return 0 if choice in ("first", FROM_FIRST) else -1


async def resend_preview(visitor: Visitor) -> Response:
    """Show who would get a message that is sent or consumed again, and ask for confirmation."""
    found = await found_message(visitor, visitor.query("id"))
    how, group = visitor.query("how"), visitor.query("group")
    clients: Sequence[str] = ()
    if how == "client":
        known = await visitor.view.group(group) if group else None
        if known is None:
            raise FormError("Choose a group whose member is to consume the message.", 400 if not group else 404)
        clients = [one.client_id for one in known.member_list or ()]
    elif how != "copy":
        raise FormError("Choose whether to send a copy of the message or to give the message to a client.")
    row = next((one for one in await visitor.view.topics() if one.name == _real_topic(found)), None)
    return visitor.render(
        "resend.html",
        message=found,
        how=how,
        group=group,
        clients=clients,
        topic=_real_topic(found),
        groups=row.groups if row is not None else (),
        confirm=visitor.confirmation("/resend/now", id=found.offset_msg_id, how=how, group=group),
    )


async def resend(visitor: Visitor) -> Response:
    """Send a copy of a message to the message's topic, or let one client consume the message now."""
    found = await found_message(visitor, visitor.field("id"))
    admin, topic = visitor.access.admin, _real_topic(found)
    if visitor.field("how") == "client":
        group, client_id = visitor.field("group"), visitor.field("client")
        if not group or not client_id:
            raise FormError("Choose a group and one of its clients.")
        subject = f"{found.offset_msg_id} of {found.topic} to {client_id} of {group}"
        try:
            told = await admin_messages.consume_directly(
                admin, group, client_id, found, await _broker_of(visitor, found)
            )
        except FlintError as error:
            visitor.audit("give to a client", subject, f"failed: {error}")
            raise
        outcome = f"{told.consume_result or 'no result'} after {told.spent_time_ms} ms"
        outcome += f": {told.remark}" if told.remark else ""
        visitor.audit("give to a client", subject, f"done: {outcome}")
        text = f"{client_id} says: {outcome}"
    elif visitor.field("how") == "copy":
        subject = f"{found.offset_msg_id} of {found.topic} to {topic}"
        try:
            sent = await admin_messages.send_copy(admin, found, topic)
        except (FlintError, ValueError) as error:
            visitor.audit("send a copy", subject, f"failed: {error}")
            if isinstance(error, FlintError):
                raise
            raise FormError(f"The copy cannot be sent: {error}") from error
        visitor.audit("send a copy", subject, f"done: {sent.offset_msg_id}, {sent.status.name}")
        text = f"The copy in {topic} has the id {sent.msg_id} and the broker's id {sent.offset_msg_id}."
    else:
        raise FormError("Choose whether to send a copy of the message or to give the message to a client.")
    return visitor.render("done.html", what="Sent", text=text, back=to("/message", id=found.offset_msg_id))


def _real_topic(found: MessageExt) -> str:
    """Return the topic to which a message was first sent. A message that is retried, dead or delayed is stored in another
    topic."""
    if found.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return str(found.properties.get(props.RETRY_TOPIC, found.topic))
    return str(found.properties.get(props.REAL_TOPIC, found.topic))


async def _broker_of(visitor: Visitor, found: MessageExt) -> str:
    """Return the address of the broker that has a message. If a registered master has the address in the message's field
    storeHost, return this address. If not, but the cluster has exactly one master, return that master's address. In all other
    cases, raise FormError."""
    masters = list((await visitor.access.admin.masters()).values())
    if found.store_host in masters:
        return str(found.store_host)
    if len(masters) == 1:
        return masters[0]
    raise FormError(f"The broker that has the message is not registered: {found.store_host}.", 404)


ROUTES: Final = (
    page("/reset", reset_preview),
    page("/reset/now", reset, changes=True, confirmed=True),
    page("/resend", resend_preview),
    page("/resend/now", resend, changes=True, confirmed=True),
)
