"""``flintmq groups``: consumer groups, their members and how far they have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flintmq.plugins.cli import options
from flintmq.remoting.wire.json_body import decode_body

if TYPE_CHECKING:
    from flintmq.remoting.client.admin import AdminClient

app = typer.Typer(add_completion=False, help="List, show, create, reset and delete groups. Without a command: list.")

All = Annotated[bool, typer.Option("--all", help="Also the system's groups.")]
Group = Annotated[str, typer.Argument(help="The consumer group.")]


@app.callback(invoke_without_command=True)
def groups(
    ctx: typer.Context, namesrv: options.NameServers = None, all_: All = False, as_json: options.AsJson = False
) -> None:
    ctx.obj = namesrv
    if ctx.invoked_subcommand is None:
        list_(ctx, namesrv, all_, as_json)


@app.command("list")
def list_(
    ctx: typer.Context, namesrv: options.NameServers = None, all_: All = False, as_json: options.AsJson = False
) -> None:
    """List the groups that brokers know, with their members."""
    from flintmq.plugins.cli.connect import with_admin
    from flintmq.plugins.cli.output import print_json, print_table

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        return await _groups(admin, all_)

    found = with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json(found)
        return
    print_table(
        ("group", "members#", "topics", "brokers"),
        ((row["group"], len(row["members"]), ", ".join(row["topics"]), ", ".join(row["brokers"])) for row in found),
    )
    for row in found:
        _warn_of_contradictions(row)


def _warn_of_contradictions(row: dict[str, Any]) -> None:
    """Such a group misses messages: whoever looks at it should hear of it."""
    from flintmq.plugins.cli.exits import warn

    for text in row["contradictions"]:
        warn(f"members of {row['group']} subscribe differently, so it will miss messages: {text}")


async def _groups(admin: AdminClient, everything: bool) -> list[dict[str, Any]]:
    from flintmq.core.broker.group_config import SubscriptionGroupWrapper
    from flintmq.remoting.wire.codes import RequestCode
    from flintmq.remoting.wire.command import request

    found: dict[str, dict[str, Any]] = {}
    for broker_name, address in (await admin.masters()).items():
        answer = await admin.client.ask(address, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        for group in decode_body(answer.body, SubscriptionGroupWrapper).subscription_group_table:
            if not everything and _is_system(group):
                continue
            row = found.setdefault(
                group, {"group": group, "members": [], "topics": [], "brokers": [], "contradictions": []}
            )
            row["brokers"].append(broker_name)
            members, topics, contradictions = await _members(admin, group, address)
            row["contradictions"] += [f"{broker_name}: {contradictions}"] if contradictions else []
            row["members"] = sorted({*row["members"], *members})
            row["topics"] = sorted({*row["topics"], *topics})
    return [found[group] for group in sorted(found)]


def _is_system(group: str) -> bool:
    from flintmq.core.broker.topic_name import SYSTEM_GROUP_PREFIX

    return group.startswith(
        (SYSTEM_GROUP_PREFIX, "SELF_TEST_", "CID_ONS", "CID_ONSAPI", "TOOLS_CONSUMER", "FILTERSRV_")
    )


async def _members(admin: AdminClient, group: str, address: str) -> tuple[list[str], list[str], str]:
    """Client ids and subscribed topics of the members that a broker knows, and how they contradict each other."""
    from flintmq.core.broker.topic_name import RETRY_PREFIX
    from flintmq.core.errors import RefusedError
    from flintmq.plugins.cli.connect import is_missing

    try:
        connections = await admin.consumer_connections(group, address)
        contradictions = await admin.contradictions(group, address)
    except RefusedError as error:
        if not is_missing(error):
            raise
        return [], [], ""
    topics = [topic for topic in connections.subscription_table if not topic.startswith(RETRY_PREFIX)]
    return [connection.client_id for connection in connections.connection_set], topics, contradictions


@app.command()
def show(
    ctx: typer.Context,
    group: Group,
    topic: Annotated[str | None, typer.Argument(help="Only this topic; else all that members subscribe to.")] = None,
    namesrv: options.NameServers = None,
    as_json: options.AsJson = False,
) -> None:
    """Show how far a group has come in each queue, and how far it lags behind."""
    from flintmq.plugins.cli.connect import with_admin
    from flintmq.plugins.cli.output import print_json, print_table

    async def work(admin: AdminClient) -> dict[str, Any]:
        row = next((row for row in await _groups(admin, True) if row["group"] == group), None)
        members = row["members"] if row is not None else []
        topics = [topic] if topic is not None else row["topics"] if row is not None else []
        queues: list[dict[str, Any]] = []
        for name in topics:
            queues += await lags(admin, group, name)
        return {
            "group": group,
            "members": members,
            "contradictions": row["contradictions"] if row is not None else [],
            "lag": sum(queue["lag"] for queue in queues),
            "queues": queues,
        }

    found = with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json(found)
        return
    print_table(
        ("topic", "queue", "consumed to#", "next offset#", "lag#"),
        (
            (
                queue["topic"],
                f"{queue['broker']}:{queue['queue_id']}",
                queue["consumer_offset"],
                queue["broker_queue_offset"],
                queue["lag"],
            )
            for queue in found["queues"]
        ),
        title=f"{group}: {len(found['members'])} members, lag {found['lag']:,}",
    )
    _warn_of_contradictions(found)


async def lags(admin: AdminClient, group: str, topic: str) -> list[dict[str, Any]]:
    """How far a group has come in a topic's queues."""
    stats = await admin.consume_stats(group, topic)
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "consumer_offset": entry.consumer_offset,
            "broker_queue_offset": entry.broker_queue_offset,
            "lag": entry.broker_queue_offset - max(0, entry.consumer_offset),
        }
        for queue, entry in sorted(stats.offset_table.items())
    ]


@app.command()
def create(
    ctx: typer.Context,
    group: Group,
    namesrv: options.NameServers = None,
    retries: Annotated[int, typer.Option("--retries", metavar="N", min=0, help="Before a dead letter.")] = 16,
    as_json: options.AsJson = False,
) -> None:
    """Create a group at every broker, or change one."""
    from flintmq.plugins.cli.connect import with_admin
    from flintmq.plugins.cli.output import print_json

    async def work(admin: AdminClient) -> None:
        from flintmq.core.broker.group_config import SubscriptionGroupConfig

        await admin.create_group(SubscriptionGroupConfig(group_name=group, retry_max_times=retries))

    with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json({"group": group, "retries": retries})
    else:
        print(f"group {group} is there")


@app.command()
def reset(
    ctx: typer.Context,
    group: Group,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    to: Annotated[str, typer.Option("--to", metavar="first|last|TIME", help="Where the members go on.")],
    namesrv: options.NameServers = None,
    as_json: options.AsJson = False,
) -> None:
    """Send a group's online members back or forward in a topic."""
    from flintmq.plugins.cli.connect import with_admin
    from flintmq.plugins.cli.options import timestamp_ms
    from flintmq.plugins.cli.output import print_json, print_table

    time_ms = {"first": 0, "last": -1}.get(to)
    if time_ms is None:
        time_ms = timestamp_ms(to, "--to")

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        offsets = await admin.reset_offset(topic, group, time_ms)
        return [
            {"broker": queue.broker_name, "queue_id": queue.queue_id, "consumer_offset": offset}
            for queue, offset in sorted(offsets.items())
        ]

    queues = with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json({"group": group, "topic": topic, "queues": queues})
        return
    print_table(
        ("queue", "goes on at#"),
        ((f"{queue['broker']}:{queue['queue_id']}", queue["consumer_offset"]) for queue in queues),
    )


@app.command()
def delete(
    ctx: typer.Context,
    group: Group,
    namesrv: options.NameServers = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Also forget how far it has come.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete a group at every broker."""
    from flintmq.plugins.cli.connect import with_admin
    from flintmq.plugins.cli.exits import CommandError
    from flintmq.plugins.cli.output import print_json

    async def work(admin: AdminClient) -> None:
        if group not in {row["group"] for row in await _groups(admin, True)}:
            raise CommandError(f"there is no group {group}")
        await admin.delete_group(group, remove_offset=offsets)

    with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        print(f"group {group} is deleted")
