"""Pages for waiting messages: delayed messages, half messages and dead letters, which can be returned to their group."""

from __future__ import annotations

import asyncio
from typing import Final

import attrs
from starlette.responses import Response

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import DLQ_PREFIX, dlq_topic, retry_topic
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.record import properties as props
from flintmq.programs.cluster_view.progress import lag_of
from flintmq.programs.console.lists import listed
from flintmq.programs.console.pages.messages import address, preview, previewed
from flintmq.programs.console.web import FormError, Visitor, page, to
from flintmq.remoting.client import admin_messages
from flintmq.remoting.client.message import MessageExt

REPLAY_MAX: Final = 500
"""Maximum number of dead letters that one form sends back to their group."""
SHOWN_MAX: Final = 32
HALF_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group under which a broker stores its progress through the half messages."""


@attrs.frozen
class Waiting:
    """The number of messages that wait at a delay level of a broker."""

    broker: str
    level: int
    messages: int


async def backlog(visitor: Visitor) -> Response:
    """Show the waiting messages and the dead letters of every group."""
    (delayed, delay_errors), half = await asyncio.gather(_delayed(visitor), _half(visitor))
    dead = [one for one in await visitor.view.topics() if one.kind == "dead_letter"]
    found = listed(
        visitor,
        dead,
        lambda one: one.name.removeprefix(DLQ_PREFIX),
        {"messages": lambda one: one.messages, "last": lambda one: one.last_write_ms},
    )
    return visitor.render(
        "backlog.html", delayed=delayed, half=half, listed=found, errors=delay_errors, prefix=DLQ_PREFIX
    )


async def _delayed(visitor: Visitor) -> tuple[list[Waiting], list[str]]:
    """Return the number of delayed messages at each delay level of each broker, and error texts of the brokers that could not
    be asked."""
    admin = visitor.access.admin
    found, errors = [], []
    for broker in await visitor.view.brokers():
        if broker.broker_id or broker.error:
            continue
        try:
            positions = await admin_messages.delay_positions(admin, broker.address)
            ends = await admin.topic_stats_at(SCHEDULE_TOPIC, broker.address)
        except RefusedError as error:
            errors.append(f"{broker.name}: {error.remark}")
            continue
        except FlintError as error:
            errors.append(f"{broker.name}: {error}")
            continue
        for queue, end in sorted(ends.items()):
            # Delay level N is in queue N - 1 of the topic for delayed messages, as in RocketMQ.
            level = queue.queue_id + 1
            waits = end.max_queue_offset - max(positions.get(level, 0), end.min_queue_offset)
            if waits > 0:
                found.append(Waiting(broker.name, level, waits))
    return found, errors


async def _half(visitor: Visitor) -> tuple[int | None, str]:
    """Return an upper limit of the number of half messages that are neither committed nor rolled back, or None with the reason
    why the limit is unknown."""
    try:
        stats = await visitor.access.admin.consume_stats(HALF_GROUP, TRANS_HALF_TOPIC)
    except FlintError as error:
        if isinstance(error, RefusedError) and "AclException" not in error.remark:
            # If no transaction was ever begun, the broker refuses to report the offsets of HALF_GROUP.
            # If the broker refuses to report the offsets of HALF_GROUP, the number of half messages is 0.
            return 0, ""
        return None, str(error)
    return sum(map(lag_of, stats.offset_table.values())), ""


async def dead_letters(visitor: Visitor) -> Response:
    """Show a group's dead letters from a queue offset on, with a form to replay the dead letters."""
    group = visitor.query("group")
    queue, low, high = await _queue(visitor, group, visitor.query("queue"))
    first = visitor.number("The offset", visitor.query("from") or str(low), 0, 2**62)
    first = min(max(first, low), high)
    rows: list[MessageExt] = []
    if first < high:
        async with visitor.console.looking:
            rows = await admin_messages.read_queue(visitor.access.admin, queue, first, SHOWN_MAX, previewed)
    return visitor.render(
        "dead_letters.html",
        group=group,
        queue=queue,
        low=low,
        high=high,
        first=first,
        rows=[(one, preview(one), address(one)) for one in rows],
        replay_max=min(REPLAY_MAX, high - first),
        next_first=first + len(rows),
    )


async def replay_preview(visitor: Visitor) -> Response:
    """Show the effect of replaying dead letters, and ask for confirmation."""
    group, (queue, first, count) = visitor.query("group"), await _part(visitor, visitor.query)
    known = await visitor.view.group(group)
    place = f"{queue.broker_name}:{queue.queue_id}"
    return visitor.render(
        "replay.html",
        group=group,
        first=first,
        count=count,
        members=known.members if known else None,
        confirm=visitor.confirmation("/replay/now", group=group, queue=place, **{"from": first, "count": count}),
    )


async def replay(visitor: Visitor) -> Response:
    """Return dead letters only to the group that failed to consume them, by sending copies to the group's retry topic."""
    group, (queue, first, count) = visitor.field("group"), await _part(visitor, visitor.field)
    subject = f"{count} dead letters of {group} from {queue.broker_name}:{queue.queue_id} offset {first} on"
    sent, problem = 0, ""
    try:
        async with visitor.console.looking:
            while part := await admin_messages.read_queue(visitor.access.admin, queue, first + sent, count - sent):
                for one in part:
                    await admin_messages.send_copy(
                        visitor.access.admin, one, retry_topic(group), RETRY_TOPIC=_origin(one)
                    )
                    sent += 1
    except (FlintError, ValueError) as error:
        problem = str(error)
    visitor.audit("replay", subject, f"failed after {sent}: {problem}" if problem else f"done: {sent} sent")
    text = f"{sent} of {count} were given back to {group}."
    if problem:
        text += f" Then: {problem}. Go on at offset {first + sent}."
    back = to("/dead-letters", group=group, queue=f"{queue.broker_name}:{queue.queue_id}", **{"from": first + sent})
    return visitor.render("done.html", what="Stopped" if problem else "Replayed", text=text, back=back)


def _origin(dead: MessageExt) -> str:
    return dead.properties.get(props.RETRY_TOPIC) or dead.topic


async def _queue(visitor: Visitor, group: str, place: str) -> tuple[MessageQueue, int, int]:
    """Return a queue of a group's dead letters, and the queue's first and last offset. ``place`` names the queue as
    ``BROKER:QUEUE``; if it is empty, the first queue is returned."""
    if not group:
        raise FormError("Name a group.")
    try:
        queues = await admin_messages.queues_of(visitor.access.admin, dlq_topic(group))
    except RefusedError as error:
        if "AclException" in error.remark:
            raise
        raise FormError(f"The group {group[:200]} has no dead letters.", 404) from error
    for queue, (low, high) in queues.items():
        if not place or place == f"{queue.broker_name}:{queue.queue_id}":
            return queue, low, high
    raise FormError(f"The dead letters of {group[:200]} have no queue '{place[:80]}'.", 404)


async def _part(visitor: Visitor, given: object) -> tuple[MessageQueue, int, int]:
    """Return the queue, the first queue offset and the number of the dead letters to replay."""
    assert callable(given)
    queue, low, high = await _queue(visitor, given("group"), given("queue"))
    first = visitor.number("The offset", given("from"), 0, 2**62)
    count = visitor.number("How many", given("count"), 1, REPLAY_MAX)
    if not low <= first < high:
        raise FormError(f"The queue has the offsets from {low} to {high - 1}, not {first}.", 409)
    return queue, first, min(count, high - first)


ROUTES: Final = (
    page("/backlog", backlog),
    page("/dead-letters", dead_letters),
    page("/replay", replay_preview),
    page("/replay/now", replay, changes=True, confirmed=True),
)
