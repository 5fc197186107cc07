"""``flintmq send`` sends messages from the command line or a file, or generated messages."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cli import options
from flintmq.programs.cli.connect import with_client
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import print_done, print_json, print_rows
from flintmq.programs.cli.parser import Command
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import SendResult

IN_FLIGHT = 64
"""Maximum number of generated messages that are sent but not answered yet."""
PATTERN = bytes(range(33, 127))


@click.command(cls=Command)
@click.argument("topic", help="The topic; the first message creates it if the broker allows that.")
@click.argument("bodies", nargs=-1, type=click.UNPROCESSED, metavar="[BODY]...", help="The bodies; each is a message.")
@options.name_servers
@click.option("--file", "-f", type=options.PATH, metavar="FILE", help="The body is this file's content; - is stdin.")
@click.option("--lines", is_flag=True, help="With --file: each line is a message.")
@click.option("--count", type=click.IntRange(min=1), default=1, metavar="N", help="Send each message N times.")
@click.option("--size", type=click.IntRange(min=0), metavar="BYTES", help="Generate a body of this size.")
@click.option("--tags", default="", show_default=False, metavar="TAG", help="The tag, which subscriptions filter by.")
@click.option(
    "--keys",
    default="",
    show_default=False,
    metavar="KEYS",
    help="The keys, which queries search for, separated by blanks.",
)
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A property. May be repeated.")
@click.option("--delay-level", type=click.IntRange(1, 18), metavar="1..18", help="Deliver later, by a delay level.")
@click.option("--queue", metavar="[BROKER:]N", help="Send to this queue; by default to all in turn.")
@click.option("--batch", type=click.IntRange(min=1), default=1, metavar="N", help="Messages per request.")
@click.option("--group", "-g", default="flintmq-cli", help="The producer group.")
@options.as_json
def send(
    topic: str,
    bodies: tuple[str, ...],
    file: Path | None,
    lines: bool,
    count: int,
    size: int | None,
    tags: str,
    keys: str,
    properties: tuple[str, ...],
    delay_level: int | None,
    queue: str | None,
    batch: int,
    group: str,
    as_json: bool,
) -> None:
    """Send messages.

    Prints the status, the queue, the queue offset and the ids of each message. With --count or --batch, prints only the number
    of messages and their rate.
    """

    user_properties = _properties(properties)
    messages = [
        Message(topic, body, tags=tags, keys=keys.split(), properties=user_properties, delay_level=delay_level or 0)
        for body in _bodies(bodies, file, lines, size)
    ]
    total = len(messages) * count

    async def work(client: ClientInstance) -> None:
        begin_s = time.perf_counter()
        async with Producer(group, client=client) as producer:
            target = await _queue(producer, topic, queue) if queue is not None else None
            repeated = itertools.chain.from_iterable(itertools.repeat(messages, count))
            results = await _send_all(producer, repeated, target, batch, 1 if count == 1 else IN_FLIGHT)
        seconds = max(time.perf_counter() - begin_s, 1e-6)
        if count == 1 and batch == 1:
            _print_each(results, as_json)
        else:
            print_done(
                f"sent {total:,} messages to {topic} in {seconds:.2f} s: {total / seconds:,.0f}/s",
                as_json,
                topic=topic,
                messages=total,
                requests=len(results),
                body_bytes=sum(len(message.body) for message in messages) * count,
                seconds=round(seconds, 6),
                messages_per_s=round(total / seconds, 1),
            )
        bad = [result.status.name for result in results if result.status.name != "SEND_OK"]
        if bad:
            raise CommandError(
                f"{len(bad)} of {len(results)} requests were stored, but not as durably as asked: {bad[0]}"
            )

    with_client(work)


async def _send_all(
    producer: Producer, messages: Iterator[Message], target: MessageQueue | None, batch: int, in_flight: int
) -> list[SendResult]:
    """Send all messages, one at a time if ``in_flight`` is 1. Stops at the first failure."""
    results: list[SendResult] = []

    async def sender() -> None:
        while some := list(itertools.islice(messages, batch)):
            if batch == 1:
                results.append(await producer.send(some[0], target))
            else:
                results.append(await producer.send_batch(some, target))

    senders = [asyncio.ensure_future(sender()) for _ in range(in_flight)]
    try:
        await asyncio.gather(*senders)
    finally:
        for task in senders:
            task.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
    return results


def _bodies(bodies: Sequence[str], file: Path | None, lines: bool, size: int | None) -> list[bytes]:
    if (bool(bodies) + (file is not None) + (size is not None)) != 1:
        raise CommandError("give one of: BODY..., --file FILE, --size BYTES", ExitCode.USAGE)
    if size is not None:
        return [(PATTERN * (size // len(PATTERN) + 1))[:size]]
    if file is None:
        return [body.encode("utf-8", "surrogateescape") for body in bodies]
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    return content.splitlines() if lines else [content]


def _properties(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise CommandError(f"--property is written KEY=VALUE, not '{text[:80]}'", ExitCode.USAGE)
        found[key] = value
    return found


async def _queue(producer: Producer, topic: str, text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    queues = await producer.queues(topic)
    for queue in queues:
        if str(queue.queue_id) == number and broker in ("", queue.broker_name):
            return queue
    there = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
    raise CommandError(
        f"--queue: topic {topic} has no queue '{text[:80]}'; there are: {there or 'none'}", ExitCode.USAGE
    )


def _print_each(results: Sequence[SendResult], as_json: bool) -> None:
    rows = [
        {
            "status": result.status.name,
            "msg_id": result.msg_id,
            "offset_msg_id": result.offset_msg_id,
            "topic": result.queue.topic,
            "broker": result.queue.broker_name,
            "queue_id": result.queue.queue_id,
            "queue_offset": result.queue_offset,
        }
        for result in results
    ]
    if not as_json:
        columns = {
            "status": "status",
            "queue": "{broker}:{queue_id}",
            "offset#": "queue_offset",
            "msg id": "msg_id",
            "offset msg id": "offset_msg_id",
        }
        print_rows(rows, columns)
        return
    for row in rows:
        print_json(row)
