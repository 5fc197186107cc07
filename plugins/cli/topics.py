"""``flintmq topics``: list, show, create, delete."""

from __future__ import annotations

import enum
from typing import Any

import click

from flintmq.config.rocketmq.system_topics import SYSTEM_TOPICS
from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, reply_topic
from flintmq.plugins.cli import options
from flintmq.plugins.cli.commands import COMMANDS
from flintmq.plugins.cli.connect import with_admin
from flintmq.plugins.cli.exits import CommandError
from flintmq.plugins.cli.output import print_json, print_table, when
from flintmq.plugins.cli.parser import Group, ValueOf
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.route import MASTER_ID

all_option = click.option("--all", "all_", is_flag=True, help="Also the system's and groups' retry topics.")
topic_argument = click.argument("topic", help="The topic.")
cluster_option = click.option("--cluster", help="Only this cluster's brokers; else all.")


class Permission(enum.StrEnum):
    """What clients may do with a topic."""

    RW = "rw"
    READ = "r"
    WRITE = "w"

    @property
    def bits(self) -> int:
        """Return the permission bits of the protocol."""
        return {"rw": 6, "r": 4, "w": 2}[self.value]


@click.group(cls=Group, invoke_without_command=True, help=COMMANDS["topics"][1])
@click.pass_context
@options.name_servers
@all_option
@options.as_json
def topics(ctx: click.Context, /, namesrv: str | None, **listed: bool) -> None:
    ctx.obj = namesrv
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, namesrv=namesrv, **listed)


@topics.command("list")
@click.pass_context
@options.name_servers
@all_option
@options.as_json
def list_(ctx: click.Context, namesrv: str | None, all_: bool, as_json: bool) -> None:
    """List the topics with their queues."""
    found = with_admin(namesrv or ctx.obj, lambda admin: _topics(admin, all_))
    if as_json:
        print_json(found)
        return
    print_table(
        ("topic", "read queues#", "write queues#", "permission", "brokers"),
        (
            (row["topic"], row["read_queues"], row["write_queues"], row["permission"], ", ".join(row["brokers"]))
            for row in found
        ),
    )


async def _topics(admin: AdminClient, everything: bool) -> list[dict[str, Any]]:
    info = await admin.cluster_info()
    found: dict[str, dict[str, Any]] = {}
    for name, data in sorted(info.broker_addr_table.items()):
        address = data.broker_addrs.get(MASTER_ID)
        if address is None:
            continue
        own = {name, *info.cluster_addr_table}
        for config in (await admin.topic_configs(address)).topic_config_table.values():
            topic = config.topic_name
            system = topic in own or _is_system(topic)
            if system and not everything:
                continue
            row = found.setdefault(
                topic,
                {
                    "topic": topic,
                    "read_queues": 0,
                    "write_queues": 0,
                    "permission": "",
                    "system": system,
                    "brokers": [],
                },
            )
            row["read_queues"] += config.read_queue_nums
            row["write_queues"] += config.write_queue_nums
            row["permission"] = _permission_text(config.perm)
            row["brokers"].append(name)
    return [found[topic] for topic in sorted(found)]


def _is_system(topic: str) -> bool:
    prefixes = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)
    return topic in SYSTEM_TOPICS or topic.startswith(prefixes) or topic.endswith(reply_topic(""))


def _permission_text(bits: int) -> str:
    return f"{'r' if bits & 4 else ''}{'w' if bits & 2 else ''}" or "-"


@topics.command()
@click.pass_context
@topic_argument
@options.name_servers
@options.as_json
def show(ctx: click.Context, topic: str, namesrv: str | None, as_json: bool) -> None:
    """Show a topic's queues, and how many messages each holds."""

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        stats = await admin.topic_stats(topic)
        return [
            {
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "min_queue_offset": entry.min_queue_offset,
                "max_queue_offset": entry.max_queue_offset,
                "messages": entry.max_queue_offset - entry.min_queue_offset,
                "last_update_timestamp_ms": entry.last_update_timestamp_ms,
            }
            for queue, entry in sorted(stats.items())
        ]

    queues = with_admin(namesrv or ctx.obj, work)
    total = sum(queue["messages"] for queue in queues)
    if as_json:
        print_json({"topic": topic, "messages": total, "queues": queues})
        return
    print_table(
        ("queue", "first offset#", "next offset#", "messages#", "last stored"),
        (
            (
                f"{queue['broker']}:{queue['queue_id']}",
                queue["min_queue_offset"],
                queue["max_queue_offset"],
                queue["messages"],
                when(queue["last_update_timestamp_ms"]),
            )
            for queue in queues
        ),
        title=f"{topic}: {total:,} messages",
    )


@topics.command()
@click.pass_context
@topic_argument
@options.name_servers
@click.option("--queues", type=click.IntRange(min=1, max=65535), default=8, metavar="N", help="At each broker.")
@click.option("--permission", type=ValueOf(Permission), default="rw", help="What clients may do.")
@click.option("--order", is_flag=True, help="The topic is an ordered one.")
@cluster_option
@click.option("--broker", metavar="NAME", help="Only the broker of this name; else all.")
@options.as_json
def create(
    ctx: click.Context,
    topic: str,
    namesrv: str | None,
    queues: int,
    permission: Permission,
    order: bool,
    cluster: str | None,
    broker: str | None,
    as_json: bool,
) -> None:
    """Create a topic, or change one."""

    async def work(admin: AdminClient) -> None:
        address = await admin.master(broker, cluster) if broker is not None else None
        await admin.create_topic(
            topic, queues=queues, perm=permission.bits, order=order, address=address, cluster=cluster
        )

    with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json({"topic": topic, "queues": queues, "permission": permission.value, "order": order, "broker": broker})
    else:
        print(f"topic {topic} has {queues} queues at {'each broker' if broker is None else broker}")


@topics.command()
@click.pass_context
@topic_argument
@options.name_servers
@cluster_option
@options.as_json
def delete(ctx: click.Context, topic: str, namesrv: str | None, cluster: str | None, as_json: bool) -> None:
    """Delete a topic and its queues."""

    async def work(admin: AdminClient) -> None:
        if topic not in {row["topic"] for row in await _topics(admin, True)}:
            raise CommandError(f"there is no topic {topic}")
        await admin.delete_topic(topic, cluster=cluster)

    with_admin(namesrv or ctx.obj, work)
    if as_json:
        print_json({"topic": topic, "deleted": True})
    else:
        print(f"topic {topic} is deleted")
