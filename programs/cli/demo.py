"""``flintmq demo`` sends messages with every flush strategy, consumes them and checks each message, in some seconds."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError
from flintmq.programs.cli import options
from flintmq.programs.cli.child import ServedChild
from flintmq.programs.cli.connect import access_to_own, until_first
from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.output import console, print_json, print_line, print_rows, print_text
from flintmq.programs.cli.parser import Command
from flintmq.remoting.client.access import ANYONE, Access
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.send_result import SendResult

STRATEGIES = ("group_commit", "flush_real_time", "commit_real_time")
SETTINGS = (
    "store.commit_log_file_bytes=64MiB",
    "index.max_hash_slot_num=100_000",
    "index.max_index_num=400_000",
    "flush.commit_real_time.pool_size=2",
)
"""Settings with small store files, so that a demonstration uses little disk space."""
TOPIC: Final = "Demo"
QUEUES: Final = 4
LANES_PER_QUEUE: Final = 24
"""Number of senders per queue. A sender waits for the answer to each message before the next one, so the order of its messages
is known."""
PULL_SIZE: Final = 32
SUSPEND_MS: Final = 3_000
STALL_S: Final = 15.0
LOOK_UPS: Final = 8

COLUMNS: Final = {
    "strategy": "strategy",
    "messages#": "messages",
    "sent/s#": "{send_per_s:,.0f}",
    "p50 ms#": "{send_p50_ms:.2f}",
    "p99 ms#": "{send_p99_ms:.2f}",
    "consumed/s#": "{consume_per_s:,.0f}",
    "by key#": "found_by_key",
    "by id#": "found_by_id",
    "checked": "checked",
}

NEXT = """\
Next steps:
  flintmq run --store ./store                     a name server and a broker
  flintmq send Greetings hello                    a message in another terminal
  flintmq consume Greetings                       print the messages
  flintmq status                                  the broker's state
  flintmq bench send                              measure its speed
  flintmq run --set flush.strategy=group_commit   acknowledge after the sync
  flintmq config show                             every setting and its origin"""


@click.command(cls=Command)
@click.option(
    "--store", type=options.PATH, metavar="DIR", help="Keep the stores in this folder; by default a temporary one."
)
@click.option(
    "--messages",
    type=click.IntRange(min=1),
    default=20000,
    metavar="N",
    help="Number of messages for each flush strategy.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder.")
@options.as_json
def demo(store: Path | None, messages: int, keep: bool, as_json: bool) -> None:
    root = _fresh(store)
    keeps = keep or store is not None
    if not as_json:
        print_line(f"stores in {root}{'' if keeps else ', removed at the end'}")
    try:
        results = _run_all(root, messages, keeps, quiet=as_json)
    finally:
        if not keeps:
            shutil.rmtree(root, ignore_errors=True)
    wrong = [f"{result.strategy}: {problem}" for result in results for problem in result.problems]
    rows = [attrs.asdict(result) | {"verified": not result.problems} for result in results]
    if as_json:
        print_json({"ok": not wrong, "store": str(root), "kept": keeps, "strategies": rows})
    else:
        for row in rows:
            row["checked"] = f"{len(row['problems'])} problems" if row["problems"] else "every message"
        print_rows(rows, COLUMNS)
        if not wrong:
            print_text(NEXT)
    if wrong:
        raise CommandError(f"{len(wrong)} checks failed, first: {wrong[0]}")


def _fresh(store: Path | None) -> Path:
    if store is None:
        return Path(tempfile.mkdtemp(prefix="flintmq-demo-"))
    for strategy in STRATEGIES:
        if (store / strategy).exists():
            raise CommandError(f"--store: {store / strategy} exists already: name a new folder", ExitCode.USAGE)
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--store: {store}: {error.strerror or error}", ExitCode.STORE) from error
    return store.absolute()


def _run_all(root: Path, messages: int, keeps: bool, *, quiet: bool) -> list[DemoResult]:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=console(stderr=True), disable=quiet) as bars:
        for strategy in STRATEGIES:
            task = bars.add_task(strategy, total=2 * messages)

            def progress(phase: str, more: int, task: int = task, strategy: str = strategy) -> None:
                bars.update(task, advance=more, description=f"{strategy}: {phase}")  # type: ignore[arg-type]

            results.append(_run_one(strategy, root / strategy, messages, progress))
            bars.update(task, description=f"{strategy}: {'failed' if results[-1].problems else 'checked'}")
            if not keeps:
                shutil.rmtree(root / strategy, ignore_errors=True)
    return results


def _run_one(strategy: str, store: Path, messages: int, progress: OnProgress) -> DemoResult:
    given = (*SETTINGS, f"flush.strategy={strategy}")
    access = access_to_own(given)
    settings = [word for setting in given for word in ("--set", setting)]
    child = ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *settings])
    with child:
        result = asyncio.run(run_strategy(strategy, child.namesrv, messages, progress, access))
    if child.exit_code != 0:
        result.problems.append(f"the broker ended with exit code {child.exit_code}: {child.errors}")
    return result


OnProgress = Callable[[str, int], None]
"""Function that a demonstration calls with its phase and the number of messages done since the previous call."""


@attrs.define
class DemoResult:
    """The result of the demo with one flush strategy."""

    strategy: str
    messages: int
    send_per_s: float = 0.0
    send_p50_ms: float = 0.0
    send_p99_ms: float = 0.0
    consume_per_s: float = 0.0
    found_by_key: int = 0
    found_by_id: int = 0
    problems: list[str] = attrs.field(factory=list)
    """Descriptions of the failed checks; empty if all checks passed."""


@attrs.frozen
class _Sent:
    """A message of the demo that the broker has acknowledged."""

    number: int
    lane: int
    result: SendResult


def body_of(strategy: str, number: int) -> bytes:
    """Return the body of one of the demo's messages: some 130 bytes that no other message has."""
    return f'{{"order": {number}, "strategy": "{strategy}", "check": {number * 2654435761 % 2**32:#010x}}}'.ljust(
        128
    ).encode()


def key_of(number: int) -> str:
    """Return the message key of the demo's message with the given number."""
    return f"order-{number}"


async def run_strategy(
    strategy: str, name_server: str, messages: int, progress: OnProgress, access: Access = ANYONE
) -> DemoResult:
    """Send, consume, look up and verify messages with one flush strategy. Failures are in the result's ``problems``."""
    result = DemoResult(strategy, messages)
    client = ClientInstance(name_server, **access.options())
    try:
        admin = AdminClient(client=client)
        await admin.create_topic(TOPIC, queues=QUEUES)
        sent = await _send(client, strategy, messages, result, progress)
        came = await _consume(client, messages, result, progress)
        verify(strategy, sent, came, result.problems)
        await _look_up(admin, strategy, sent, result)
    except FlintError as error:
        result.problems.append(f"{type(error).__name__}: {error}")
    finally:
        await client.close()
    return result


async def _send(
    client: ClientInstance, strategy: str, messages: int, result: DemoResult, progress: OnProgress
) -> list[_Sent]:
    sent: list[_Sent] = []
    latencies_s: list[float] = []
    async with Producer("demo-producer", client=client) as producer:
        queues = await _queues(producer)
        lanes = LANES_PER_QUEUE * len(queues)

        async def lane(number: int) -> None:
            queue = queues[number % len(queues)]
            for n in range(number, messages, lanes):
                message = Message(TOPIC, body_of(strategy, n), tags="demo", keys=(key_of(n),))
                begin_s = time.perf_counter()
                stored = await producer.send(message, queue, timeout_ms=15_000)
                latencies_s.append(time.perf_counter() - begin_s)
                if stored.status.name != "SEND_OK":
                    result.problems.append(f"message {n} was answered {stored.status.name}")
                sent.append(_Sent(n, number, stored))
                progress("send", 1)

        begin_s = time.perf_counter()
        await asyncio.gather(*(lane(number) for number in range(lanes)))
        result.send_per_s = messages / (time.perf_counter() - begin_s)
    latencies_s.sort()
    result.send_p50_ms = latencies_s[len(latencies_s) // 2] * 1000
    result.send_p99_ms = latencies_s[len(latencies_s) * 99 // 100] * 1000
    return sent


async def _queues(producer: Producer) -> tuple[MessageQueue, ...]:
    """Return the queues of the demo's topic. A name server learns of a new topic shortly after the broker has created the
    topic."""
    for _ in range(50):
        queues = await producer.queues(TOPIC)
        if len(queues) >= QUEUES:
            return queues
        await asyncio.sleep(0.1)
    raise FlintError(f"topic {TOPIC} has {len(queues)} queues, {QUEUES} were asked for")


async def _consume(client: ClientInstance, messages: int, result: DemoResult, progress: OnProgress) -> list[MessageExt]:
    consumer = PullConsumer("demo-consumer", client=client)
    came: list[MessageExt] = []

    begin_s = last_s = time.perf_counter()

    async def follow(queue: MessageQueue) -> None:
        nonlocal last_s
        queue_offset = 0
        while len(came) < messages and time.perf_counter() - last_s < STALL_S:
            pulled = await consumer.pull(queue, queue_offset, max_messages=PULL_SIZE, suspend_ms=SUSPEND_MS)
            came.extend(pulled.messages)
            progress("consume", len(pulled.messages))
            queue_offset = pulled.next_begin_queue_offset
            if pulled.messages:
                last_s = time.perf_counter()

    await until_first(*map(follow, await consumer.queues(TOPIC)))
    result.consume_per_s = len(came) / (time.perf_counter() - begin_s)
    return came


def verify(strategy: str, sent: list[_Sent], came: list[MessageExt], problems: list[str]) -> None:
    """Add a problem for each message that is lost, repeated, out of order or was never acknowledged, and for each changed body,
    key or id. Received messages are compared with sent messages at the same queue offset."""
    places = {(s.result.queue.queue_id, s.result.queue_offset): s for s in sent}
    if len(places) != len(sent):
        problems.append(f"{len(sent)} messages were acknowledged at {len(places)} places")
    seen: set[tuple[int, int]] = set()
    last_of_lane: dict[int, int] = {}
    for message in sorted(came, key=lambda message: (message.queue_id, message.queue_offset)):
        place = (message.queue_id, message.queue_offset)
        if place in seen:
            problems.append(f"{place} came twice")
            continue
        seen.add(place)
        known = places.get(place)
        if known is None:
            problems.append(f"{place} was never acknowledged")
            continue
        if message.body != body_of(strategy, known.number) or message.keys != (key_of(known.number),):
            problems.append(f"message {known.number} came with another body or key")
        if message.msg_id != known.result.msg_id or message.offset_msg_id != known.result.offset_msg_id:
            problems.append(f"message {known.number} came with another id")
        if last_of_lane.get(known.lane, -1) >= known.number:
            problems.append(f"message {known.number} came out of order")
        last_of_lane[known.lane] = known.number
    lost = len(places.keys() - seen)
    if lost:
        problems.append(f"{lost} of {len(sent)} messages did not come back")


async def _look_up(admin: AdminClient, strategy: str, sent: list[_Sent], result: DemoResult) -> None:
    """Look up some of the sent messages by key and by id, and add a problem to the result for each wrong answer."""
    for chosen in random.sample(sent, min(LOOK_UPS, len(sent))):
        body = body_of(strategy, chosen.number)
        by_key = await admin.query_by_key(TOPIC, key_of(chosen.number))
        if [message.body for message in by_key] == [body]:
            result.found_by_key += 1
        else:
            result.problems.append(f"key {key_of(chosen.number)} finds {len(by_key)} messages, or another one")
        if (await admin.view_message(chosen.result.offset_msg_id)).body == body:
            result.found_by_id += 1
        else:
            result.problems.append(f"id {chosen.result.offset_msg_id} finds another message")
