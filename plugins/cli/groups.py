"""``flintmq groups``: consumer groups, their members and how far they have come."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import RefusedError
from flintmq.plugins.cli import options
from flintmq.plugins.cli.connect import Silent, is_missing, with_admin
from flintmq.plugins.cli.exits import CommandError, ExitCode, warn
from flintmq.plugins.cli.options import where
from flintmq.plugins.cli.output import print_done, print_json, print_rows
from flintmq.plugins.cli.parser import Command, ListingGroup
from flintmq.plugins.cluster_view.names import kind_of_group
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.consume_from import FROM_FIRST, FROM_LAST

group_argument = click.argument("group", help="The consumer group.")


@click.command("list", cls=Command)
@options.name_servers
@click.option("--all", "all_", is_flag=True, help="Also the system's groups.")
@options.as_json
def list_(all_: bool, as_json: bool) -> None:
    """List the groups that brokers know, with their members."""
    silent = Silent()
    found = with_admin(lambda admin: _groups(admin, all_, silent))
    if as_json:
        print_json(found)
    else:
        counted = (row | {"members": len(row["members"])} for row in found)
        print_rows(counted, {"group": "group", "members#": "members", "topics": "topics", "brokers": "brokers"})
        for row in found:
            _warn_of_contradictions(row)
    silent.end()


groups = ListingGroup(list_)


def _warn_of_contradictions(row: dict[str, Any]) -> None:
    """Warn of members that contradict each other: such a group may miss messages."""
    for text in row["contradictions"]:
        warn(f"members of {row['group']} contradict each other, so it may miss messages: {text}")


async def _groups(admin: AdminClient, everything: bool, silent: Silent) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for broker_name, address in (await admin.masters()).items():
        for group in await silent.ask(address, partial(admin.group_configs, address)) or ():
            if not everything and kind_of_group(group) == "system":
                continue
            row = found.setdefault(
                group, {"group": group, "members": [], "topics": [], "brokers": [], "contradictions": []}
            )
            row["brokers"].append(broker_name)
            told = await silent.ask(address, partial(_members, admin, group, address))
            members, topics, contradictions = told or ([], [], "")
            row["contradictions"] += [f"{broker_name}: {contradictions}"] if contradictions else []
            row["members"] = sorted({*row["members"], *members})
            row["topics"] = sorted({*row["topics"], *topics})
    silent.check()
    return [found[group] for group in sorted(found)]


async def _members(admin: AdminClient, group: str, address: str) -> tuple[list[str], list[str], str]:
    """Return client ids and subscribed topics of the members that a broker knows, and how they contradict each other."""
    try:
        connections, contradictions = await admin.connected_group(group, address)
    except RefusedError as error:
        if not is_missing(error):
            raise
        return [], [], ""
    topics = [topic for topic in connections.subscription_table if not topic.startswith(RETRY_PREFIX)]
    return [connection.client_id for connection in connections.connection_set], topics, contradictions


@groups.command()
@group_argument
@click.argument("topic", required=False, help="Only this topic; else all that members subscribe to.")
@options.name_servers
@options.as_json
def show(group: str, topic: str | None, as_json: bool) -> None:
    """Show how far a group has come in each queue, and how far it lags behind."""
    silent = Silent()

    async def work(admin: AdminClient) -> dict[str, Any]:
        row = next((row for row in await _groups(admin, True, silent) if row["group"] == group), None)
        members = row["members"] if row is not None else []
        topics = [topic] if topic is not None else row["topics"] if row is not None else []
        queues: list[dict[str, Any]] = []
        for name in topics:
            queues += await _lags(admin, group, name, silent)
        return {
            "group": group,
            "members": members,
            "contradictions": row["contradictions"] if row is not None else [],
            "lag": sum(queue["lag"] for queue in queues),
            "queues": queues,
        }

    found = with_admin(work)
    if as_json:
        print_json(found)
    else:
        columns = {
            "topic": "topic",
            "queue": "{broker}:{queue_id}",
            "consumed to#": "consumer_offset",
            "next offset#": "broker_queue_offset",
            "lag#": "lag",
        }
        print_rows(found["queues"], columns, title=f"{group}: {len(found['members'])} members, lag {found['lag']:,}")
        _warn_of_contradictions(found)
    silent.end()


async def _lags(admin: AdminClient, group: str, topic: str, silent: Silent) -> list[dict[str, Any]]:
    """Return how far a group has come in the queues that a topic has at the brokers that answer."""
    route = await admin.client.routes.route(topic)
    told = [
        await silent.ask(address, partial(admin.consume_stats_at, group, address, topic))
        for address in map(route.address, route.broker_addrs)
    ]
    silent.check()
    entries = [entry for stats in told if stats is not None for entry in stats.offset_table.items()]
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "consumer_offset": entry.consumer_offset,
            "broker_queue_offset": entry.broker_queue_offset,
            "lag": entry.broker_queue_offset - max(0, entry.consumer_offset),
        }
        for queue, entry in sorted(entries)
    ]


@groups.command()
@group_argument
@options.name_servers
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Before a dead letter; else as it is, and 16 of a new group.",
)
@options.as_json
def create(group: str, retries: int | None, as_json: bool) -> None:
    """Create a group at every broker, or change one: only what is given."""

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
@click.option("--to", required=True, metavar="first|last|TIME", help=f"Where the members go on. {options.NEAREST_HELP}")
@options.name_servers
@options.as_json
def reset(group: str, topic: str, to: str, as_json: bool) -> None:
    """Send a group's online members back or forward in a topic."""
    begin, timestamp_ms = where(to, "--to")
    time_ms = {FROM_FIRST: 0, FROM_LAST: -1}.get(begin, timestamp_ms)
    offsets = with_admin(lambda admin: admin.reset_offset(topic, group, time_ms))
    queues = [
        {"broker": queue.broker_name, "queue_id": queue.queue_id, "consumer_offset": offset}
        for queue, offset in sorted(offsets.items())
    ]
    if as_json:
        print_json({"group": group, "topic": topic, "queues": queues})
        return
    print_rows(queues, {"queue": "{broker}:{queue_id}", "goes on at#": "consumer_offset"})


@groups.command()
@group_argument
@options.name_servers
@click.option("--offsets", is_flag=True, help="Also forget how far it has come.")
@options.as_json
def delete(group: str, offsets: bool, as_json: bool) -> None:
    """Delete a group at every broker, with its retries and its dead letters."""

    async def work(admin: AdminClient) -> None:
        silent = Silent()
        if group not in {row["group"] for row in await _groups(admin, True, silent)}:
            silent.end()
            raise CommandError(f"there is no group {group}")
        await admin.delete_group(group, remove_offset=offsets)

    with_admin(work)
    print_done(f"group {group} is deleted", as_json, group=group, deleted=True)
