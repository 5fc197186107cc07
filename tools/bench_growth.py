#!/usr/bin/env python3
"""Measures whether the cost of a message grows with the contents of a broker.

    tools/bench_growth.py [--messages 10000000] [--topics 1000] [--connections 1000] [--rounds 3] [--seconds 1.5]

Runs two FlintMQ brokers, each a process with its own store. The first broker holds only the messages of the measurements. The
second broker also gets connections, then topics, then messages. After each of these steps the same rows are measured on both
brokers in turn. A ratio is the second broker's processor time per message divided by the first broker's, in one round. Prints
one line of JSON for each row; a ratio of 1 means no growth.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.bench.frames import SendFrame
from flintmq.programs.bench.load import SendConnection, Tally
from flintmq.programs.bench.machine import process_cpu_s
from flintmq.programs.bench.run import BenchSettings, connect, run_bench
from flintmq.programs.cli.child import ServedChild
from flintmq.remoting.client.admin import AdminClient

BODY_BYTES = 128
INFLIGHT = 64
QUEUES = 4
SPREAD = 250
"""Number of sends in flight on each of four connections when the benchmark measures sends to many topics. Each of these sends
has a different topic."""
BACKLOG = 100_000
Row = Callable[[ServedChild], Awaitable[float]]


def send(connections: int, inflight: int, seconds: float, batch: int = 1) -> Row:
    """Return a function that sends messages to a broker and returns the broker's processor time per message, in µs."""
    bench = BenchSettings(
        bench="send",
        topic="Growth",
        seconds=seconds,
        warmup_s=0.3,
        connections=connections,
        inflight=inflight,
        size_bytes=BODY_BYTES,
        batch=batch,
    )

    async def measure(broker: ServedChild) -> float:
        return (await run_bench(bench, broker.namesrv, broker.pid)).broker_cpu_us or 0.0

    return measure


async def consume(broker: ServedChild) -> float:
    """Store a backlog of messages, pull them, and return the broker's processor time per pulled message, in µs."""
    topic = f"GrowthC{time.time_ns()}"
    bench = BenchSettings(bench="send", topic=topic, connections=2, inflight=8, size_bytes=BODY_BYTES, batch=64)
    await run_bench(attrs.evolve(bench, count=BACKLOG, warmup_s=0.0), broker.namesrv, None)
    pull = attrs.evolve(bench, bench="consume", connections=4, inflight=1, batch=32, count=BACKLOG, warmup_s=0.0)
    return (await run_bench(pull, broker.namesrv, broker.pid)).broker_cpu_us or 0.0


def spread(topics: list[str], seconds: float) -> Row:
    """Return a function that sends messages to many topics and returns the broker's processor time per message, in µs. All
    sends in flight have different topics."""

    async def measure(broker: ServedChild) -> float:
        async with AdminClient([broker.namesrv]) as admin:
            routes = [await admin.client.routes.route(topic, max_age_s=60) for topic in topics]
        tally = Tally()
        connections = []
        address = routes[0].address(routes[0].write_queues[0].broker_name)
        for number in range(4):
            mine = routes[number * SPREAD : (number + 1) * SPREAD] or routes[:1]
            frames = [
                SendFrame(slot, mine[slot % len(mine)].write_queues[0], b"." * BODY_BYTES, 1) for slot in range(SPREAD)
            ]
            connections.append(await connect(SendConnection(tally, frames, 1), address))
        for connection in connections:
            connection.begin()
        await asyncio.sleep(0.3)
        before_s, tally.counting = process_cpu_s(broker.pid), True
        await asyncio.sleep(seconds)
        spent_s, tally.counting = process_cpu_s(broker.pid) - before_s, False
        for connection in connections:
            connection.stop()
        await asyncio.gather(*(connection.lost.wait() for connection in connections))
        if tally.failure is not None or tally.errors:
            raise SystemExit(f"sends failed: {tally.failure or tally.errors}")
        return spent_s / max(1, tally.messages) * 1e6

    return measure


async def compare(what: str, rows: dict[str, tuple[Row, Row]], ours: list[ServedChild], rounds: int) -> None:
    """Measure rows on two brokers in turn, and print a line for each row. A row has one measuring function for each broker."""
    for name, (plain, grown) in rows.items():
        pairs = []
        for number in range(rounds):
            found = {}
            for which, row, broker in (("plain", plain, ours[0]), ("grown", grown, ours[1]))[
                :: 1 if number % 2 else -1
            ]:
                found[which] = await row(broker)
            pairs.append((found["plain"], found["grown"]))
        line = {
            "bench": "growth",
            "with": what,
            "row": name,
            "rounds": rounds,
            "empty_cpu_us": round(statistics.median(one for one, _ in pairs), 3),
            "cpu_us": round(statistics.median(two for _, two in pairs), 3),
            "ratio": round(statistics.median(two / one for one, two in pairs), 3),
            "ratios": [round(two / one, 3) for one, two in pairs],
        }
        print(json.dumps(line), flush=True)


async def make_topics(broker: ServedChild, count: int) -> list[str]:
    names = [f"Growth{number}" for number in range(count)]
    async with AdminClient([broker.namesrv]) as admin:
        for name in names:
            await admin.create_topic(name, queues=QUEUES)
        # A name server learns of new topics only at the broker's next registration, so the route is requested repeatedly.
        while True:
            try:
                await admin.client.routes.route(names[-1], max_age_s=0)
                return names
            except Exception as error:
                print(f"waiting for {names[-1]}: {error}", file=sys.stderr)
                await asyncio.sleep(0.5)


@contextlib.contextmanager
def connected(broker: ServedChild, queue: MessageQueue, count: int) -> Iterator[None]:
    """Open a number of connections to the broker that stay idle after one request."""
    host, _, port = broker.broker.rpartition(":")
    with contextlib.ExitStack() as stack:
        frame = bytes(SendFrame(0, queue, b"", 1).next(b"1" * 13, 0))
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection((host, int(port))))
            # Each connection sends a request, because the broker soon closes a connection that has never sent a request.
            sock.sendall(frame)
            sock.recv(65_536)
        yield


async def run(options: argparse.Namespace, brokers: list[ServedChild]) -> None:
    seconds, rounds = options.seconds, options.rounds
    single = {
        "4 x 1": send(4, 1, seconds),
        "4 x 64": send(4, INFLIGHT, seconds),
        "32 x 1": send(32, 1, seconds),
        "batches of 32": send(4, 4, seconds, 32),
        "consume": consume,
    }
    rows = {name: (row, row) for name, row in single.items()}
    await compare("nothing", rows, brokers, rounds)
    async with AdminClient([brokers[1].namesrv]) as admin:
        queue = (await admin.client.routes.route("Growth", max_age_s=0)).write_queues[0]
    with connected(brokers[1], queue, options.connections):
        await compare(f"{options.connections} idle connections", rows, brokers, rounds)
    topics = await make_topics(brokers[1], options.topics)
    over = {"4 x 250 over all topics": (spread(["Growth"], seconds), spread(topics, seconds))}
    # Messages are sent before the measurement, because the first message of each topic creates the file of a queue.
    await over["4 x 250 over all topics"][1](brokers[1])
    await compare(f"{options.topics} topics", over | rows, brokers, rounds)
    fill = BenchSettings(
        bench="send",
        topic="GrowthFill",
        count=options.messages,
        connections=4,
        inflight=4,
        size_bytes=BODY_BYTES,
        batch=64,
    )
    begin_s = time.monotonic()
    await run_bench(attrs.evolve(fill, warmup_s=0.0), brokers[1].namesrv, None)
    print(f"{options.messages} messages in {time.monotonic() - begin_s:.0f} s", file=sys.stderr)
    await compare(f"{options.messages} messages and {options.topics} topics", rows, brokers, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--dir", type=Path, help="the folder for the stores")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flintmq-growth-", dir=options.dir))
    words = ["--port", "0", "--namesrv-port", "0"]
    try:
        with contextlib.ExitStack() as stack:
            brokers = [
                stack.enter_context(ServedChild(["--store", str(folder / name), *words])) for name in ("plain", "grown")
            ]
            asyncio.run(run(options, brokers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
