"""What ``flintmq pipeline demo`` runs: a store with orders, a pipeline over it, and whether every order came out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from flintmq.core.errors import RefusedError
from flintmq.plugins.cli.child import ServedChild
from flintmq.plugins.cli.exits import CommandError
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer

TOPIC: Final = "Orders"
QUEUES: Final = 4
CITIES: Final = ("Aachen", "Bergen", "Cádiz", "Dublin", "Évora")
BROKEN_EVERY: Final = 100
"""Each hundredth body is not JSON, so that the demonstration shows what a pipeline does with those."""
BATCH: Final = 500

PIPELINE: Final = """\
# Orders out of a store, as JSON: what was sold by city, all of them by city as Parquet, and what cannot be read.
#
#   flintmq pipeline demo                                     makes a store, runs this on it, checks what came of it
#   flintmq pipeline run {folder}/demo.yaml --explain
name: demo

source:
  path: {folder}/store
  subscribe: Orders
  startingOffsets: earliest

decode:
  format: json
  schema: id BIGINT, city STRING, amount DOUBLE
  into: order
  on_error: "null"            # kept, and sorted out below

steps:
  - view: orders
    sql: SELECT order.*, storeTimestamp FROM messages WHERE order IS NOT NULL
    cache: true               # the sinks see the same rows, and bodies are decoded once
  - view: by_city
    sql: SELECT city, count(*) AS orders, round(sum(amount), 2) AS amount FROM orders GROUP BY city ORDER BY city
  - view: unreadable
    sql: SELECT topic, queueId, queueOffset, body FROM messages WHERE order IS NULL

sinks:
  - format: console
    from: by_city
  - name: orders
    format: parquet
    from: orders
    path: {folder}/orders
    partition_by: [city]
    mode: overwrite
  - name: rejects
    format: parquet
    from: unreadable
    path: {folder}/rejects
    mode: overwrite
"""
"""With ``{folder}`` for where everything lies; examples/pipelines/demo.yaml is the same with ``.``."""


@attrs.frozen
class DemoStore:
    """What was sent."""

    orders: int
    broken: int
    pipeline: Path


def orders(count: int) -> Iterator[bytes]:
    """Yield bodies, some of them broken."""
    for number in range(count):
        if number % BROKEN_EVERY == BROKEN_EVERY - 1:
            yield b'{"id": '
        else:
            order = {"id": number, "city": CITIES[number % len(CITIES)], "amount": number * 7919 % 100_000 / 100}
            yield json.dumps(order, ensure_ascii=False).encode()


def make_store(folder: Path, count: int) -> DemoStore:
    """Start a broker, send the orders to it over the wire, and stop it.

    Raises:
        CommandError: the broker does not start, or does not stop well.
    """
    small_files = ("--set", "store.commit_log_file_bytes=64MiB")
    child = ServedChild(["--store", str(folder / "store"), "--port", "0", "--namesrv-port", "0", *small_files])
    with child:
        asyncio.run(_send(child.namesrv, list(orders(count))))
    if child.exit_code != 0:
        raise CommandError(f"the broker ended with exit code {child.exit_code}: {child.errors}")
    pipeline = folder / "demo.yaml"
    pipeline.write_text(PIPELINE.format(folder=folder), "utf-8")
    return DemoStore(count - count // BROKEN_EVERY, count // BROKEN_EVERY, pipeline)


async def _send(namesrv: str, bodies: list[bytes]) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        for _ in range(100):  # a name server hears of a new topic a moment after its broker
            try:
                await admin.topic_route(TOPIC)
                break
            except RefusedError:
                await asyncio.sleep(0.1)
    async with Producer("pipeline-demo", namesrv) as producer:
        for start in range(0, len(bodies), BATCH):
            messages = [Message(TOPIC, body) for body in bodies[start : start + BATCH]]
            await producer.send_batch(messages, timeout_ms=15_000)
