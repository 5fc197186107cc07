"""``flintmq topics`` lists, shows, creates and deletes topics."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from flintmq.config.rocketmq.system_topics import SYSTEM_TOPICS
from flintmq.core.broker.perm import INHERIT, READ, READ_WRITE, WRITE
from flintmq.core.broker.topic_config import MessageQueue, TopicConfig
from flintmq.core.broker.topic_name import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, reply_topic
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import Silent, with_admin
from flintmq.programs.cli.exits import CommandError, ExitCode, warn
from flintmq.programs.cli.output import print_done, print_json, print_rows, when
from flintmq.programs.cli.parser import Command, ListingGroup
from flintmq.programs.cli.queue_nums import MakeTopic, Waiting, in_words, resize, waiting_in
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.route import MASTER_ID, NEW_TOPIC_QUEUES
from flintmq.remoting.wire.bodies import TopicOffset

PERMISSIONS: Final = {"rw": READ_WRITE, "r": READ, "w": WRITE}
"""The protocol's permission bits, keyed by the value of the option ``--permission``."""

topic_argument = click.argument("topic", help="The topic.")
cluster_option = click.option("--cluster", help="Only this cluster's brokers; by default all.")


@click.command("list", cls=Command)
@options.name_servers
@click.option("--all", "all_", is_flag=True, help="Also list the system's topics and groups' retry topics.")
@options.as_json
def list_(all_: bool, as_json: bool) -> None:
    """List the topics with their queues."""
    silent = Silent()
    found = with_admin(lambda admin: _topics(admin, all_, silent))
    if as_json:
        print_json(found)
    else:
        columns = {
            "topic": "topic",
            "read queues#": "read_queues",
            "write queues#": "write_queues",
            "permission": "permission",
            "brokers": "brokers",
        }
        print_rows(found, columns)
    silent.end()


topics = ListingGroup(list_)


async def _topics(admin: AdminClient, everything: bool, silent: Silent) -> list[dict[str, Any]]:
    info = await admin.cluster_info()
    found: dict[str, dict[str, Any]] = {}
    for name, data in sorted(info.broker_addr_table.items()):
        address = data.broker_addrs.get(MASTER_ID)
        if address is None:
            continue
        own = {name, *info.cluster_addr_table}
        told = await silent.ask(address, partial(admin.topic_configs, address))
        for config in told.topic_config_table.values() if told is not None else ():
            topic = config.topic_name
            system = topic in own or _is_system(topic)
            if system and not everything:
                continue
            new: dict[str, Any] = {"topic": topic, "read_queues": 0, "write_queues": 0, "permission": ""}
            row = found.setdefault(topic, {**new, "system": system, "brokers": []})
            row["read_queues"] += config.read_queue_nums
            row["write_queues"] += config.write_queue_nums
            row["permission"] = _permission(config)
            row["brokers"].append(name)
    silent.check()
    return [found[topic] for topic in sorted(found)]


def _is_system(topic: str) -> bool:
    prefixes = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)
    return topic in SYSTEM_TOPICS or topic.startswith(prefixes) or topic.endswith(reply_topic(""))


@topics.command()
@topic_argument
@options.name_servers
@options.as_json
def show(topic: str, as_json: bool) -> None:
    """Show a topic's queues with their numbers of messages, including removed queues that have unconsumed messages."""
    silent = Silent()
    unread: list[Waiting] = []

    async def work(admin: AdminClient) -> dict[MessageQueue, TopicOffset]:
        route = await admin.client.routes.route(topic)
        read = {data.broker_name: data.read_queue_nums for data in (await admin.topic_route(topic)).queue_datas}
        found: dict[MessageQueue, TopicOffset] = {}
        for name in route.broker_addrs:
            address = route.address(name)
            stats = await silent.ask(address, partial(admin.topic_stats_at, topic, address)) or {}
            found |= stats
            beyond = [queue.queue_id for queue in stats if queue.queue_id >= read.get(name, 0)]
            unread.extend(await silent.ask(address, partial(waiting_in, admin, topic, name, address, beyond)) or ())
        silent.check()
        return found

    stats = with_admin(work)
    waiting = {(one.broker, one.queue_id): one.messages for one in unread}
    queues: list[dict[str, Any]] = [
        {
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "min_queue_offset": entry.min_queue_offset,
            "max_queue_offset": entry.max_queue_offset,
            "messages": entry.max_queue_offset - entry.min_queue_offset,
            "last_update_timestamp_ms": entry.last_update_timestamp_ms,
            "waiting_unread": waiting.get((queue.broker_name, queue.queue_id), 0),
        }
        for queue, entry in sorted(stats.items())
    ]
    total = sum(queue["messages"] for queue in queues)
    if as_json:
        print_json({"topic": topic, "messages": total, "waiting_unread": sum(waiting.values()), "queues": queues})
    else:
        columns = {
            "queue": "{broker}:{queue_id}",
            "first offset#": "min_queue_offset",
            "next offset#": "max_queue_offset",
            "messages#": "messages",
            "last stored": "last_stored",
        } | ({"waits where nobody reads#": "waiting_unread"} if waiting else {})
        stored = [queue | {"last_stored": when(queue["last_update_timestamp_ms"])} for queue in queues]
        print_rows(stored, columns, title=f"{topic}: {total:,} messages")
    if unread:
        warn(
            f"{in_words(unread)}: nobody reads these queues; give {topic} more of them (topics create {topic} --queues N)"
        )
    silent.end()


@topics.command()
@topic_argument
@options.name_servers
@click.option(
    "--queues",
    type=click.IntRange(min=1, max=65535),
    metavar="N",
    help=f"Queues at each broker; by default unchanged, and {NEW_TOPIC_QUEUES} for a new topic.",
)
@click.option(
    "--permission",
    type=click.Choice(list(PERMISSIONS)),
    help="What clients may do; by default unchanged, and rw for a new topic.",
)
@click.option(
    "--order/--no-order",
    default=None,
    help="Whether the topic is ordered; by default unchanged, and not for a new topic.",
)
@cluster_option
@click.option("--broker", metavar="NAME", help="Only the broker with this name; by default all.")
@click.option("--yes", is_flag=True, help="Remove queues without asking.")
@click.option(
    "--force",
    is_flag=True,
    help="Remove queues even if they have unconsumed messages, which are then lost to consumers.",
)
@options.as_json
def create(
    topic: str,
    queues: int | None,
    permission: str | None,
    order: bool | None,
    cluster: str | None,
    broker: str | None,
    yes: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Create a topic, or change the given properties of an existing topic.

    If the topic has more queues than --queues, the surplus queues are removed in two steps. First they become read-only. When
    all their messages are consumed, consumers stop reading them. If messages are not consumed yet, run the command again later
    for the second step.
    """

    async def work(admin: AdminClient) -> list[TopicConfig]:
        if broker is not None:
            brokers = {broker: await admin.master(broker, cluster)}
        else:
            brokers = await admin.masters(cluster)
            if not brokers:
                raise CommandError("no master is registered with the name server", ExitCode.NETWORK)

        def make(address: str) -> MakeTopic:
            async def put(read: int | None, write: int | None) -> None:
                perm = None
                if permission is not None:
                    had = await admin.topic_config(topic, address)
                    perm = PERMISSIONS[permission] | (had.perm & INHERIT if had is not None else 0)
                await admin.create_topic(
                    topic, queues=read, write_queues=write, perm=perm, order=order, address=address
                )

            return put

        if queues is None:
            for address in brokers.values():
                await make(address)(None, None)
        else:
            await resize(admin, topic, queues, brokers, make, is_meant=yes or force, is_forced=force)
        found = [await admin.topic_config(topic, address) for address in brokers.values()]
        return [config for config in found if config is not None]

    _print_made(topic, broker, with_admin(work), as_json)


def _print_made(topic: str, broker: str | None, made: list[TopicConfig], as_json: bool) -> None:
    """Print the current properties of a topic. For a property that differs between brokers, the JSON has null, and the text has
    all values."""
    nums = sorted({config.read_queue_nums for config in made})
    permissions = sorted({_permission(config) for config in made})
    orders = sorted({config.order for config in made})
    text = f"topic {topic} has {' or '.join(map(str, nums))} queues at {'each broker' if broker is None else broker}"
    told = [f"permission {' or '.join(permissions)}"] if permissions != ["rw"] else []
    told += ["ordered" if orders == [True] else "ordered at some"] if True in orders else []
    done = {
        name: values[0] if len(values) == 1 else None
        for name, values in (("queues", nums), ("permission", permissions), ("order", orders))
    }
    print_done(f"{text}{'; ' if told else ''}{', '.join(told)}", as_json, topic=topic, **done, broker=broker)


def _permission(config: TopicConfig) -> str:
    return f"{'r' if config.perm & READ else ''}{'w' if config.perm & WRITE else ''}" or "-"


@topics.command()
@topic_argument
@options.name_servers
@cluster_option
@options.as_json
def delete(topic: str, cluster: str | None, as_json: bool) -> None:
    """Delete a topic and its queues."""

    async def work(admin: AdminClient) -> None:
        silent = Silent()
        if topic not in {row["topic"] for row in await _topics(admin, True, silent)}:
            silent.end()
            raise CommandError(f"there is no topic {topic}; the command 'flintmq topics' lists all topics")
        await admin.delete_topic(topic, cluster=cluster)

    with_admin(work)
    print_done(f"topic {topic} is deleted", as_json, topic=topic, deleted=True)
