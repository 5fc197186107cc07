"""What metrics cost: ``python tests/benchmarks/metrics_cost.py [--json] [--messages N] [--rounds N]``.

*send*, *batch* and *pull* are the whole of a read, as ``hot_path.py`` has it, over one broker whose figures are switched on and
off by lot: the quotient of the processor times of both on the loop's thread; *send alone* is a read with a single message.
*scrape* is the processor time of one answer with this many topics, on the loop's thread and on the other one: with all figures
gathered anew, and *kept* with those of topics and groups as the answer before had them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import flintmq
from flintmq.core.broker.batch_figures import BatchFigures
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.metrics.exposition import Exposition
from flintmq.plugins.metrics.service import MetricsService
from flintmq.programs.bench.frames import PullFrame, SendFrame
from flintmq.remoting.server.rpc_latency import RpcLatency
from flintmq.tests.benchmarks.hot_path import PULL, READ, SETTINGS, TOPIC, HotPath


async def _spent_s(work: Callable[[], Awaitable[None]], calls: int) -> float:
    begin_s = time.thread_time()
    for _ in range(calls):
        await work()
    return (time.thread_time() - begin_s) / calls


async def ratios(broker: flintmq.Broker, calls: int, rounds: int) -> dict[str, float]:
    """Return for each kind of read the processor time with figures, divided by that without.

    A few reads with and a few without follow one another, so that both meet the same machine; the medians are compared. The
    order is drawn, because what the store does now and then comes in step with any other.
    """
    path, state = HotPath(broker, 128), broker.state
    queue = MessageQueue(broker.config.broker.name, 0, TOPIC)
    pull, at, alone = PullFrame(0, queue, PULL), itertools.count(0, PULL), SendFrame(0, queue, b"." * 128, 1)
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "send": lambda: path._receive(path.read()),
        "send alone": lambda: path._receive(bytes(alone.next(b"1700000000000", next(at)))),
        "batch": lambda: path._receive(path.read_of_batches()),
        "pull": lambda: path._receive(pull.next(next(at) % (calls * READ // 2))),
    }
    on, off = (BatchFigures(), RpcLatency(state.stats.found_pulls)), (None, None)
    found, lot = {}, random.Random(1)
    for name, work in works.items():
        await _spent_s(work, calls)
        spent: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for is_on in lot.sample((True, False), 2):
                state.stats.figures, latency = on if is_on else off
                broker.api.server.measure(latency)
                spent[is_on].append(await _spent_s(work, calls))
        found[name] = statistics.median(spent[True]) / statistics.median(spent[False])
    return found


async def scrape_ms(broker: flintmq.Broker, topics: int) -> dict[str, float]:
    """Return what an answer costs after so many topics were sent to, each with a group."""
    broker.state.stats.figures = BatchFigures()
    await broker.put([flintmq.Message(f"{TOPIC}{number}", b"x") for number in range(topics)])
    for number in range(topics):
        broker.state.offsets.put(f"{TOPIC}{number}", "readers", 0, 0)
    service, exposition = broker.state.service(MetricsService), Exposition()

    def one(keep: bool) -> tuple[float, float]:
        if not keep:
            service._gatherer._many = None
        samples, commons = service.told()
        begin_s = time.thread_time()
        exposition.text(samples, commons, "*/*")
        return samples.by_name["flintmq_scrape_seconds"][0][1], time.thread_time() - begin_s

    found = {}
    for kind, keep in (("scrape", False), ("kept scrape", True)):
        times = [await asyncio.to_thread(one, keep) for _ in range(5)]
        on_loop_s, elsewhere_s = (min(column) for column in zip(*times, strict=True))
        found[f"{kind} of {topics} topics, loop ms"] = on_loop_s * 1000
        found[f"{kind} of {topics} topics, text ms"] = elsewhere_s * 1000
    return found


async def measure(calls: int, rounds: int, topics: tuple[int, ...] = (10, 150, 1000)) -> dict[str, float]:
    """Return all figures, over a broker of its own."""
    with tempfile.TemporaryDirectory(prefix="flintmq-metrics-cost-") as folder:
        settings = [
            *SETTINGS,
            f"store.path={Path(folder) / 'store'}",
            "metrics.enable=true",
            "topics.default_queue_nums=8",
        ]
        async with flintmq.Broker(flintmq.load_config(None, settings, {})) as broker:
            await broker.put([flintmq.Message(TOPIC, b"first")])
            found = await ratios(broker, calls, rounds)
            for count in topics:
                found |= await scrape_ms(broker, count)
            return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_280, help="per kind and round")
    parser.add_argument("--rounds", type=int, default=601)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(max(1, options.messages // READ), options.rounds))
    if options.json:
        print(json.dumps({name: round(value, 4) for name, value in found.items()}))
    else:
        print("\n".join(f"{name:<36}{value:>9.3f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
