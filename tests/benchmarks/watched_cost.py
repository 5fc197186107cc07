"""What being watched costs a loaded broker: ``python tests/benchmarks/watched_cost.py [--topics N] [--groups N] [--json]``.

A broker in a process of its own stores so many messages a second all the time. By turns, whose order is drawn, it is watched
for some seconds, that is scraped each second and looked at as a page of the console does, every 3 s, and left alone for as
long. The difference of its threads' processor time, by the time that the turn took, is the share of a core that watching costs.
``--per-second 0`` watches an idle broker, which differs less from turn to turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Final

import attrs

from flintmq.client import AdminClient, Message, Producer
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.bench.frames import SendFrame
from flintmq.programs.cluster_view.view import ClusterView
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request

QUEUES: Final = 4
TURN_S: Final = 0.01
LOOK_S: Final = 3
"""A page of the console asks for itself again so often."""
WARM_S: Final = 6
"""Of a view, which asks for everything when it is opened."""


@attrs.frozen
class Site:
    """A broker in a process of its own."""

    name_server: str
    address: str
    metrics_url: str
    pid: int


@contextlib.asynccontextmanager
async def broker(topics: int, groups: int) -> AsyncIterator[Site]:
    """Run a broker with topics, and groups that have offsets in them."""
    with tempfile.TemporaryDirectory(prefix="flintmq-watched-cost-") as folder:
        settings = (
            "metrics.enable=true",
            "metrics.port=0",
            "metrics.series_max=100000",
            f"topics.default_queue_nums={QUEUES}",
        )
        chosen = [part for setting in (*settings, "listen.vip=false") for part in ("--set", setting)]
        command = [
            sys.executable,
            "-m",
            "flintmq",
            "run",
            "--store",
            f"{folder}/store",
            "--namesrv-port",
            "0",
            "--port",
            "0",
        ]
        process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs here yet
            [*command, *chosen], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        with process:
            try:
                assert process.stdout is not None
                ready = dict(re.findall(r"(\w+)=(\S+)", await asyncio.to_thread(process.stdout.readline)))
                site = Site(ready["namesrv"], ready["broker"], f"http://{ready['metrics']}/metrics", process.pid)
                await _fill(site, topics, groups)
                yield site
            finally:
                process.terminate()


async def _fill(site: Site, topics: int, groups: int) -> None:
    names = [f"Topic{number}" for number in range(topics)]
    async with Producer("filler", site.name_server) as producer, AdminClient(site.name_server) as admin:
        for topic in names:
            await producer.send(Message(topic, b"x" * 100))
        for number in range(max(topics, groups)):
            for queue_id in range(QUEUES):
                header = {"topic": names[number % topics], "consumerGroup": f"group{number % groups}"}
                header |= {"queueId": str(queue_id), "commitOffset": "0"}
                await admin.client.ask(site.address, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


async def _load(site: Site, per_s: int) -> None:
    """Send so many messages a second, on one connection, until it is cancelled."""
    host, _, port = site.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answers = asyncio.create_task(_drop(reader))
    each = round(per_s * TURN_S)
    queue = MessageQueue("", 0, "Topic0")
    frames = [SendFrame(slot, queue, b"." * 128, 1) for slot in range(each)]
    begin_s = perf_counter()
    try:
        for turn in itertools.count():
            writer.writelines(
                [bytes(frame.next(b"1700000000000", turn * each + slot)) for slot, frame in enumerate(frames)]
            )
            await writer.drain()
            if answers.done():
                raise ConnectionError("the broker has closed the connection of the load")
            await asyncio.sleep(max(0.0, begin_s + (turn + 1) * TURN_S - perf_counter()))
    finally:
        writer.close()
        await answers


async def _drop(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 18):
            pass


def _scrape(url: str) -> int:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return len(answer.read())


def _spent_s(pid: int) -> float:
    """Return the processor time of a process by its threads, to the nanosecond; one that has ended is left out."""
    found_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found_ns += int((thread / "schedstat").read_text().split()[0])
    return found_ns / 1e9


async def _turn(site: Site, view: ClusterView, seconds: int, *, is_watched: bool) -> float:
    """Return the percentage of a core that the broker takes meanwhile."""
    begin_s, before_s = perf_counter(), _spent_s(site.pid)
    for second in range(1, seconds + 1):
        if is_watched:
            assert await asyncio.to_thread(_scrape, site.metrics_url) > 10_000
            if second % LOOK_S == 1:
                await view.overview()
        await asyncio.sleep(max(0.0, begin_s + second - perf_counter()))
    return (_spent_s(site.pid) - before_s) / (perf_counter() - begin_s) * 100


async def measure(topics: int, groups: int, per_s: int, seconds: int, rounds: int) -> dict[str, float]:
    """Return the share of a core, in percent, that the load costs, and what watching costs beside it."""
    lot, extra, alone = random.Random(1), [], []
    async with broker(topics, groups) as site, AdminClient(site.name_server) as admin, ClusterView(admin) as view:
        load = asyncio.create_task(_load(site, per_s)) if per_s else None
        await _turn(site, view, WARM_S, is_watched=True)
        for _ in range(rounds):
            found = {}
            for is_watched in lot.sample((True, False), 2):
                found[is_watched] = await _turn(site, view, seconds, is_watched=is_watched)
            alone.append(found[False])
            extra.append(found[True] - found[False])
        if load is not None:
            if load.done():
                load.result()
            load.cancel()
            await asyncio.wait([load])
    return {
        "load, percent of a core": statistics.median(alone),
        "watched, percent of a core more": statistics.mean(extra),
        "its standard error": statistics.stdev(extra) / len(extra) ** 0.5,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=150)
    parser.add_argument("--groups", type=int, default=75)
    parser.add_argument("--per-second", type=int, default=20_000, help="messages")
    parser.add_argument("--seconds", type=int, default=6, help="of a turn")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options.topics, options.groups, options.per_second, options.seconds, options.rounds))
    if options.json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()}))
    else:
        print("\n".join(f"{name:<36}{value:>9.3f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
