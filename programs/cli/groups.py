"""``flintmq groups``: consumer groups, their members and their progress."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import click
from msgspec.structs import replace

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import Silent, with_admin
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.options import where
from flintmq.programs.cli.output import lag_text, print_done, print_json, print_rows, safe
from flintmq.programs.cli.parser import Command, ListingGroup
from flintmq.programs.cluster_view.detail import find_group
from flintmq.programs.cluster_view.memory import BrokerMemory, registered, speakers
from flintmq.programs.cluster_view.names import kind_of_group
from flintmq.programs.cluster_view.poll import Pace, Poller
from flintmq.programs.cluster_view.rows import group_rows
from flintmq.programs.cluster_view.values import GroupView
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.admin_messages import (
    Move,
    Moved,
    move_group,
    move_queue,
    plan_moves,
    plan_queue_move,
)
from flintmq.remoting.client.consume_from import FROM_FIRST, FROM_LAST

MOVE_COLUMNS: Final = {
    "queue": "{broker}:{queue_id}",
    "now at#": "consumer_offset",
    "then at#": "new_consumer_offset",
    "again#": "again",
    "skipped#": "skipped",
}
group_argument = click.argument("group", help="The consumer group.")


@click.command("list", cls=Command)
@options.name_servers
@click.option("--all", "all_", is_flag=True, help="Also list the system's groups.")
@options.as_json
def list_(all_: bool, as_json: bool) -> None:
    """List the groups that brokers know, with their state, lag and topics."""
    silent = Silent()
    found = with_admin(lambda admin: _groups(admin, all_, silent))
    if as_json:
        print_json(found)
    else:
        counted = (row | {"members": len(row["members"]), "lag": lag_text(row["lag"])} for row in found)
        columns = {"group": "group", "state": "state", "members#": "members", "lag#": "lag"}
        print_rows(counted, columns | {"topics": "topics", "brokers": "brokers"})
        for row in found:
            _warn_of_contradictions(row)
    silent.end()


groups = ListingGroup(list_)


def _warn_of_contradictions(row: dict[str, Any]) -> None:
    """Warn of members with conflicting subscriptions, because a group with such members may miss messages."""
    for text in row["contradictions"]:
        warn(f"members of {row['group']} contradict each other, so it may miss messages: {text}")


async def _groups(admin: AdminClient, everything: bool, silent: Silent) -> list[dict[str, Any]]:
    def is_wanted(group: str) -> bool:
        return everything or kind_of_group(group) != "system"

    poller = Poller(admin, Pace())
    known = speakers(registered(await admin.cluster_info()))
    answered = [one for one in known if await silent.ask(one.address, partial(_look, poller, one, is_wanted))]
    silent.check()
    rows = group_rows(answered, 0.0, 0.0)
    return [_listed(row, answered) for row in rows.values() if is_wanted(row.name)]


async def _look(poller: Poller, broker: BrokerMemory, wanted: Callable[[str], bool]) -> bool:
    await poller.look(broker, wanted)
    return True


def _listed(row: GroupView, brokers: Sequence[BrokerMemory]) -> dict[str, Any]:
    known = [(broker, broker.connected[row.name]) for broker in brokers if row.name in broker.connected]
    return {
        "group": row.name,
        "state": row.state,
        "members": sorted({client_id for _, one in known for client_id in one.client_ids}),
        "lag": row.lag,
        "topics": list(row.topics),
        "brokers": list(row.brokers),
        "contradictions": [f"{broker.name}: {one.conflict}" for broker, one in known if one.conflict],
    }


@groups.command()
@group_argument
@click.argument("topic", required=False, help="Only this topic; by default all topics of the group.")
@options.name_servers
@options.as_json
def show(group: str, topic: str | None, as_json: bool) -> None:
    """Show a group's offset and lag in each queue, whether it has members or not."""
    silent = Silent()

    async def work(admin: AdminClient) -> GroupView:
        if topic is not None:
            await admin.client.routes.route(topic)  # The request for the route fails if the topic does not exist.
        return await known_group(admin, group, silent, topic or "")

    found = with_admin(work)
    row: dict[str, Any] = {
        "group": found.name,
        "state": found.state,
        "members": [one.client_id for one in found.member_list or ()],
        "contradictions": [found.conflict] if found.conflict else [],
        "lag": found.lag,
        "queues": [
            {
                "topic": queue.topic,
                "broker": queue.broker,
                "queue_id": queue.queue_id,
                "consumer_offset": queue.consumer_offset,
                "broker_queue_offset": queue.max_queue_offset,
                "lag": queue.lag,
            }
            for queue in found.queues or ()
        ],
    }
    if as_json:
        print_json(row)
    else:
        columns = {
            "topic": "topic",
            "queue": "{broker}:{queue_id}",
            "consumed to#": "consumer_offset",
            "next offset#": "broker_queue_offset",
            "lag#": "lag",
        }
        members = "1 member" if found.members == 1 else f"{found.members or 0} members"
        print_rows(row["queues"], columns, title=f"{group}: {found.state}, {members}, lag {lag_text(found.lag)}")
        if found.state == "broadcasting":
            warn("each member gets every message and keeps its offsets itself: how far they lag is not known here")
        _warn_of_contradictions(row)
    for error in found.errors:
        warn(error)
    silent.end()
    if found.errors:
        raise click.exceptions.Exit(ExitCode.FAILED)


async def known_group(admin: AdminClient, group: str, silent: Silent, topic: str = "") -> GroupView:
    """Return a group with its queues and members, with the figures that ``flintmq top`` and the console show.

    Args:
        admin: the administration client.
        group: the group's name.
        silent: collects brokers that do not answer.
        topic: the only topic to show; empty for all topics of the group.

    Raises:
        CommandError: no answering broker has the group.
    """
    brokers = speakers(registered(await admin.cluster_info()))
    for broker in brokers:
        config = await silent.ask(broker.address, partial(admin.group_config, group, broker.address))
        broker.groups = {group: config} if config is not None else {}
    silent.check()
    found = await find_group(admin, group, brokers, topic)
    if found is None:
        # If brokers did not answer, silent.end() warns about them, and raises click's Exit.
        # click's Exit is ignored, so that the command ends with the CommandError that reports the missing group.
        with contextlib.suppress(click.exceptions.Exit):
            silent.end()
        raise CommandError(f"there is no group {group}; the command 'flintmq groups' lists all groups")
    return found


@groups.command()
@group_argument
@options.name_servers
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Retries before a dead letter; by default unchanged, and 16 for a new group.",
)
@options.as_json
def create(group: str, retries: int | None, as_json: bool) -> None:
    """Create a group at every broker, or change the given properties of an existing one."""

    async def work(admin: AdminClient) -> set[int]:
        masters = await admin.masters()
        if not masters:
            raise CommandError("no master is registered with the name server", ExitCode.NETWORK)
        made = set()
        for address in masters.values():
            config = await admin.group_config(group, address) or SubscriptionGroupConfig(group_name=group)
            if retries is not None:
                config = replace(config, retry_max_times=retries)
            await admin.create_group(config, address=address)
            made.add(config.retry_max_times)
        return made

    made = with_admin(work)
    told = " or ".join(map(str, sorted(made)))
    text = f"group {group} is there: {told} retries before a dead letter"
    print_done(text, as_json, group=group, retries=next(iter(made)) if len(made) == 1 else None)


@groups.command()
@group_argument
@click.argument("topic", help="The topic.")
@click.option("--to", metavar="first|last|TIME", help=f"Where the group continues. {options.NEAREST_HELP}")
@click.option("--queue", metavar="BROKER:QUEUE", help="Move the group in this queue only.")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="The offset to continue from in that queue, instead of --to.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", is_flag=True, help="Move the group without asking.")
@options.name_servers
@options.as_json
def reset(
    group: str,
    topic: str,
    to: str | None,
    queue: str | None,
    offset: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move a group back or forward in a topic, whether it has members or not.

    If members are online, they are notified of the new offsets; otherwise the offsets at the brokers are changed. The command
    shows the changes first.
    """
    if (to is None) == (offset is None) or (offset is not None and queue is None):
        raise CommandError("say where to move the group: --to, or --offset with --queue", ExitCode.USAGE)
    begin, timestamp_ms = where(to, "--to") if to is not None else (FROM_LAST, 0)
    time_ms = {FROM_FIRST: 0, FROM_LAST: -1}.get(begin, timestamp_ms)
    place = _place(topic, queue) if queue is not None else None
    silent = Silent()

    async def work(admin: AdminClient) -> tuple[Sequence[Move], Moved]:
        known = await known_group(admin, group, silent)
        if place is not None:
            moves: Sequence[Move] = [await plan_queue_move(admin, place, group, time_ms, offset)]
            errors: Sequence[str] = ()
        else:
            moves, errors = await plan_moves(admin, topic, group, time_ms)
        if not moves:
            raise CommandError(
                f"the offsets of consumer group {group} for topic {topic} cannot be moved: {'; '.join(errors)}"
            )
        if dry_run:
            return moves, Moved({}, 0, tuple(errors))
        if not yes:
            _ask_to_move(known, topic, moves)
        if place is None:
            return moves, await move_group(admin, topic, group, time_ms)
        told = await move_queue(admin, group, place, moves[0].new_offset)
        return moves, Moved({place: moves[0].new_offset}, told, ())

    moves, moved = with_admin(work)
    _print_moved(group, topic, moves, moved, dry_run=dry_run, as_json=as_json)
    silent.end()
    if moved.errors:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _place(topic: str, text: str) -> MessageQueue:
    """Return the queue that a text ``BROKER:QUEUE`` names. Raises CommandError if the text has another form."""
    broker, _, number = text.rpartition(":")
    if not broker or not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise CommandError(f"--queue '{text[:80]}' is not BROKER:QUEUE, such as broker-a:0", ExitCode.USAGE)
    return MessageQueue(broker, int(number), topic)


def _ask_to_move(known: GroupView, topic: str, moves: Sequence[Move]) -> None:
    """Show how a group's offsets would change, and ask the operator to confirm the change. Raises CommandError if the operator
    declines, or if stdin is not a terminal."""
    text = f"{known.name} in {topic}: {_in_words(moves)}"
    if not sys.stdin.isatty():
        raise CommandError(f"{text}; confirm it with --yes, or see each queue with --dry-run", ExitCode.USAGE)
    print_rows(_rows(moves), MOVE_COLUMNS, stderr=True)
    if not click.confirm(f"{safe(text)}. Go on?", err=True):
        raise CommandError(f"the positions of {known.name} are unchanged")


def _in_words(moves: Sequence[Move]) -> str:
    again = sum(max(0, move.again) for move in moves)
    skipped = sum(max(0, -move.again) for move in moves)
    return f"{again:,} messages would be consumed again, {skipped:,} would never be consumed"


def _rows(moves: Sequence[Move]) -> list[dict[str, Any]]:
    return [
        {
            "broker": move.queue.broker_name,
            "queue_id": move.queue.queue_id,
            "consumer_offset": max(0, move.consumer_offset),
            "new_consumer_offset": move.new_offset,
            "again": max(0, move.again),
            "skipped": max(0, -move.again),
        }
        for move in moves
    ]


def _print_moved(group: str, topic: str, moves: Sequence[Move], moved: Moved, *, dry_run: bool, as_json: bool) -> None:
    """Print the new offsets of a group, or for ``--dry-run`` the planned offsets."""
    if dry_run:
        rows, columns, title = _rows(moves), MOVE_COLUMNS, f"{group} in {topic}: {_in_words(moves)}"
    else:
        rows = [
            {"broker": queue.broker_name, "queue_id": queue.queue_id, "consumer_offset": offset}
            for queue, offset in sorted(moved.offsets.items())
        ]
        columns, title = {"queue": "{broker}:{queue_id}", "goes on at#": "consumer_offset"}, ""
    if as_json:
        print_json({"group": group, "topic": topic, "queues": rows} | ({"dry_run": True} if dry_run else {}))
    else:
        print_rows(rows, columns, title=title)
    for error in moved.errors:
        warn(f"not moved: {error}")


@groups.command()
@group_argument
@options.name_servers
@click.option("--offsets", is_flag=True, help="Also delete its offsets.")
@options.as_json
def delete(group: str, offsets: bool, as_json: bool) -> None:
    """Delete a group at every broker, with its retries and its dead letters."""

    async def work(admin: AdminClient) -> None:
        silent = Silent()
        await known_group(admin, group, silent)
        await admin.delete_group(group, remove_offset=offsets)

    with_admin(work)
    print_done(f"group {group} is deleted", as_json, group=group, deleted=True)
