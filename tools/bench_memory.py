#!/usr/bin/env python3
"""Measures the memory and disk space that a broker uses for each thing that it holds, for the table of docs/operations.md.

    tools/bench_memory.py [--topics 1000] [--queues 8] [--connections 1000] [--groups 1000] [--messages 1000000]

Starts ``flintmq run`` with the default settings and gives it one kind of thing after the other: topics, a message in each
queue, connections, groups with offsets, messages. The measured memory is the broker process's own (``Pss_Anon`` of
/proc/PID/smaps_rollup), without the page cache. Prints one line of JSON for each kind of thing, with the growth divided by the
number of things. The cost of a single thing cannot be measured: the first thing of a kind costs more, and pools of the
interpreter grow in steps of a quarter of a MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.bench.run import BenchSettings, run_bench
from flintmq.programs.cli.child import ServedChild
from flintmq.remoting.client import AdminClient, Message, Producer
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_message import UpdateConsumerOffsetRequestHeader

SETTLE_S = 2.0


def own_kib(pid: int) -> int:
    """Return the size of the memory that only the given process uses, without mapped files, in KiB."""
    found = re.search(r"^Pss_Anon:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def used_kib(folder: Path) -> int:
    """Return the disk space that the files of a folder occupy, in KiB; holes in sparse files do not count."""
    return sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file()) // 2


class Meter:
    """Prints rows with the growth of a broker's memory and disk space since the previous row."""

    def __init__(self, broker: ServedChild, store: Path) -> None:
        self._broker, self._store = broker, store
        self._last = self._now()

    def _now(self) -> dict[str, int]:
        pid = self._broker.pid
        return {
            "own": own_kib(pid),
            "disk": used_kib(self._store),
            "descriptors": sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        }

    async def row(self, what: str, count: int) -> None:
        """Wait until the broker is at rest, and print a row named ``what``. The row has the average cost of the ``count``
        things, such as topics, that were added to the broker since the previous row. The cost is the growth of the broker's
        memory, disk space and file descriptors since the previous row, divided by ``count``."""
        await asyncio.sleep(SETTLE_S)
        now = self._now()
        grown = {name: now[name] - self._last[name] for name in now}
        each = {
            "own_bytes_each": round(grown["own"] * 1024 / count),
            "disk_bytes_each": round(grown["disk"] * 1024 / count),
            "descriptors_each": round(grown["descriptors"] / count, 3),
        }
        print(json.dumps({"row": what, "count": count, **each, "own_mib": round(now["own"] / 1024, 1)}), flush=True)
        self._last = now


async def side_by_side(work: Callable[[int], Awaitable[object]], count: int) -> None:
    """Call an asynchronous function with each number below ``count``; at most 64 calls run at the same time."""
    turns = asyncio.Semaphore(64)

    async def one(number: int) -> None:
        async with turns:
            await work(number)

    await asyncio.gather(*(one(number) for number in range(count)))


async def measure(broker: ServedChild, store: Path, wanted: argparse.Namespace) -> None:
    """Give a broker topics, messages, offsets and connections, and print a row with the cost of each kind of thing."""
    meter = Meter(broker, store)
    await meter.row("at rest", 1)
    topics, queues = [f"Memory{number}" for number in range(wanted.topics)], wanted.queues
    async with AdminClient(broker.namesrv) as admin:
        await side_by_side(lambda n: admin.create_topic(topics[n], queues=queues, address=broker.broker), len(topics))
        await meter.row(f"topic of {queues} queues", len(topics))
        (name,) = await admin.masters()
        async with Producer("memory", broker.namesrv) as producer:

            async def fill(number: int) -> None:
                queue = MessageQueue(broker_name=name, topic=topics[number // queues], queue_id=number % queues)
                await producer.send(Message(queue.topic, b"." * 128), queue=queue)

            await side_by_side(fill, len(topics) * queues)
        await meter.row("queue with its first message", len(topics) * queues)

        async def commit(number: int) -> None:
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=f"group{number}",
                topic=topics[number % len(topics)],
                queue_id=0,
                commit_consumer_offset=0,
            )
            await admin.client.ask(broker.broker, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))

        await side_by_side(commit, wanted.groups)
        await meter.row("committed offset of a group", wanted.groups)
    with contextlib.ExitStack() as stack:
        host, port = broker.broker.rsplit(":", 1)
        for _ in range(wanted.connections):
            stack.enter_context(socket.create_connection((host, int(port)), 10))
        await meter.row("idle connection", wanted.connections)
    bench = BenchSettings(
        bench="send",
        topic="MemoryLoad",
        connections=4,
        inflight=16,
        size_bytes=128,
        count=wanted.messages,
        warmup_s=0.0,
    )
    began_s = time.monotonic()
    await run_bench(bench, broker.namesrv, None)
    await meter.row(f"message of 128 bytes, {wanted.messages / (time.monotonic() - began_s):,.0f}/s", wanted.messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("topics", 1000),
        ("queues", 8),
        ("connections", 1000),
        ("groups", 1000),
        ("messages", 1_000_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        settings = ["--set", "topics.count_max=100000", "--set", "listen.max_connections=20000"]
        settings += ["--set", "listen.max_connections_per_address=20000"]
        with ServedChild(["--store", str(store), "--port", "0", "--namesrv-port", "0", *settings]) as broker:
            asyncio.run(measure(broker, store, wanted))


if __name__ == "__main__":
    main()
