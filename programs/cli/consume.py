"""``flintmq consume`` prints messages, as a member of a group or without a group, leaving no offsets."""

from __future__ import annotations

import asyncio

import click

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import until_first, with_client
from flintmq.programs.cli.exits import CommandError
from flintmq.programs.cli.message_output import print_message
from flintmq.programs.cli.parser import Command
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import (
    BROADCASTING,
    CLUSTERING,
    FROM_LAST,
    FROM_TIMESTAMP,
    ConsumerSettings,
)
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.pull_consumer import PullConsumer

READER_GROUP = "TOOLS_CONSUMER"
"""The group in the requests of ``flintmq consume`` without ``--group``. Every broker has this group, so no group is created."""
SUSPEND_MS = 1_000
PULL_SIZE = 32
IN_LOOP_MAX_BYTES = 64 * 1024
"""Maximum size of an uncompressed message that is printed on the event loop. Larger and compressed messages are printed in a
thread."""


@click.command(cls=Command)
@click.argument("topic", help="The topic.")
@options.name_servers
@click.option("--group", "-g", help="Consume as a member of this group, which stores offsets. Without it, only read.")
@click.option("--tags", default="*", metavar="EXPR", help="Only messages with these tags: 'A || B'.")
@click.option(
    "--from",
    "begin",
    default="first",
    metavar="first|last|TIME",
    help=f"Where to begin; for a group only in queues without an offset. {options.NEAREST_HELP}",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages; fewer are a failure.")
@click.option("--timeout", default="10s", metavar="10s", help="Stop if no message arrives for this time; 0: never.")
@click.option("--broadcast", is_flag=True, help="With --group: get every message, independent of other members.")
@options.as_json
@options.raw
def consume(
    topic: str,
    group: str | None,
    tags: str,
    begin: str,
    count: int | None,
    timeout: str,
    broadcast: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Print a topic's messages as they arrive.

    Each message is a line: broker:queue:offset, id, tags, keys, body. Control characters are escaped, and a body is cut after
    64 KiB. --json prints a JSON object per message, --raw only the unchanged bodies. A body that cannot be read is printed as
    stored, with the reason.
    """

    options.check_form(as_json, raw)
    where, timestamp_ms = options.where(begin, "--from")
    printer = Printer(count, options.timeout_s(timeout, "--timeout"), "json" if as_json else "raw" if raw else "text")

    async def work(client: ClientInstance) -> None:
        client.bodies_stay_packed = True
        if group is None:
            await _read(PullConsumer(READER_GROUP, client=client), topic, tags, where, timestamp_ms, printer)
            return
        settings = ConsumerSettings(
            message_model=BROADCASTING if broadcast else CLUSTERING,
            consume_from=where,
            consume_from_timestamp_ms=timestamp_ms,
            concurrency=1,
            unreadable="deliver",
        )
        # The route is requested before the consumer starts, so that the command fails if the topic does not exist.
        # A consumer of a topic that does not exist would wait until the topic exists.
        await client.routes.route(topic)
        consumer = Consumer(group, listener=printer.take_unless_full, settings=settings, client=client)
        await consumer.subscribe(topic, tags)
        async with consumer:
            await printer.wait()

    with_client(work)
    if count is not None and printer.printed < count:
        raise CommandError(f"{printer.printed} of {count} messages came within {timeout}")


class Printer:
    """Prints messages until the requested number is printed, or until no message arrives within the timeout. For the loop
    thread."""

    def __init__(self, count: int | None, timeout_s: float | None, form: str) -> None:
        self._count = count
        self._timeout_s = timeout_s
        self._form = form
        self._turn = asyncio.Lock()
        self._came = asyncio.Event()
        self.printed = 0

    @property
    def is_full(self) -> bool:
        """Whether the requested number of messages has been printed."""
        return self._count is not None and self.printed >= self._count

    async def take(self, message: MessageExt) -> bool:
        """Print a message, in another thread if the message is long. Return False, without printing the message, if the
        requested number of messages is already printed."""
        async with self._turn:
            if self.is_full:
                return False
            if message.store_size_bytes > IN_LOOP_MAX_BYTES or message.body_error:
                await asyncio.to_thread(print_message, message, self._form)
            else:
                print_message(message, self._form)
            self.printed += 1
            self._came.set()
            return True

    async def take_unless_full(self, message: MessageExt) -> None:
        """Print a message that a member of a consumer group received. A message beyond the requested number waits until the
        consumer closes, and stays unconsumed."""
        if not await self.take(message):
            await asyncio.Event().wait()

    async def wait(self) -> None:
        """Wait until the requested number of messages is printed, or no message has arrived within the timeout."""
        while not self.is_full:
            self._came.clear()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._came.wait()
            except TimeoutError:
                return


async def _read(reader: PullConsumer, topic: str, tags: str, where: str, timestamp_ms: int, printer: Printer) -> None:
    """Print messages that are pulled from all queues of a topic at the same time. No consumer offsets are stored."""

    async def follow(queue: MessageQueue) -> None:
        if where == FROM_LAST:
            queue_offset = await reader.max_offset(queue)
        elif where == FROM_TIMESTAMP:
            queue_offset = await reader.search_offset(queue, timestamp_ms)
        else:
            queue_offset = await reader.min_offset(queue)
        while True:
            pulled = await reader.pull(
                queue, queue_offset, max_messages=PULL_SIZE, suspend_ms=SUSPEND_MS, expression=tags
            )
            for message in pulled.messages:
                if not await printer.take(message):
                    return
            queue_offset = pulled.next_begin_queue_offset

    queues = await reader.queues(topic)
    await until_first(printer.wait(), *map(follow, queues))
