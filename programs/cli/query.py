"""``flintmq query`` finds messages by key or by id."""

from __future__ import annotations

import click

from flintmq.core.errors import RefusedError, RemotingError
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import with_admin
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.message_output import body_text, print_message
from flintmq.programs.cli.output import CELL_MAX_CHARS, print_table, when
from flintmq.programs.cli.parser import Command
from flintmq.remoting.client import admin_messages
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.message import MessageExt


@click.command(cls=Command)
@click.argument("topic", required=False, help="The topic; not needed with a broker's message id.")
@options.name_servers
@click.option("--key", help="One of the message's keys.")
@click.option("--id", "message_id", help="The sender's message id (with TOPIC) or the broker's (offset msg id).")
@click.option(
    "--max", "max_num", type=click.IntRange(min=1), default=32, metavar="N", help="The most messages to print."
)
@options.as_json
@options.raw
def query(topic: str | None, key: str | None, message_id: str | None, max_num: int, as_json: bool, raw: bool) -> None:
    if (key is None) == (message_id is None):
        raise CommandError("give one of: --key KEY, --id ID", ExitCode.USAGE)
    if topic is None and key is not None:
        raise CommandError("--key needs the topic: flintmq query TOPIC --key KEY", ExitCode.USAGE)
    options.check_form(as_json, raw)

    async def work(admin: AdminClient) -> list[MessageExt]:
        admin.client.bodies_stay_packed = True
        if message_id is None:
            assert topic is not None
            assert key is not None
            return await admin.query_by_key(topic, key, max_num=max_num)
        if topic is not None:
            found = await admin.query_by_key(topic, message_id, max_num=max_num, unique=True)
            if found:
                return found
        try:
            return [await _by_place(admin, message_id)]
        except ValueError as error:
            if topic is not None:
                return []
            raise CommandError(
                f"'{message_id[:80]}' is not a message id that a broker made. To query by an id that a producer made, give the "
                "topic: flintmq query TOPIC --id ID",
                ExitCode.USAGE,
            ) from error

    found = with_admin(work)
    for message in found:
        if as_json or raw:
            print_message(message, "json" if as_json else "raw")
        else:
            _show(message)
    if not found:
        raise CommandError(f"no message of topic {topic} has the {'key' if key else 'id'} '{key or message_id}'")


async def _by_place(admin: AdminClient, message_id: str) -> MessageExt:
    """Return the message with an id that a broker made. First the registered brokers are asked, because the address of the
    message's broker may have changed, then the address in the id."""
    try:
        return await admin_messages.view_message(admin, message_id)
    except (RefusedError, RemotingError) as failure:
        try:
            return await admin.view_message(message_id)
        except (RefusedError, RemotingError):
            raise failure from None


def _show(message: MessageExt) -> None:
    body, error = body_text(message, CELL_MAX_CHARS)
    print_table(
        ("message", message.msg_id),
        (
            ("topic", message.topic),
            ("queue", f"{message.broker_name}:{message.queue_id}".lstrip(":")),
            ("queue offset", message.queue_offset),
            ("offset msg id", message.offset_msg_id),
            ("tags", message.tags),
            ("keys", " ".join(message.keys)),
            ("born", f"{when(message.born_timestamp_ms)} at {message.born_host}"),
            ("stored", f"{when(message.store_timestamp_ms)} at {message.store_host}"),
            ("reconsumed", message.reconsume_times),
            ("properties", " ".join(f"{name}={value}" for name, value in message.properties.items())),
            *([("cannot be read", error)] if error else []),
            ("body", body),
        ),
    )
