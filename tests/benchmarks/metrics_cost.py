"""What metrics cost: ``python tests/benchmarks/metrics_cost.py [--json] [--messages N] [--rounds N]``.

*send*, *batch* and *pull* are the whole of a read, as ``hot_path.py`` has it, over one broker whose figures are switched on and
off in turns: the quotient of the processor times of both. *scrape* is the processor time of one answer with this many topics,
on the loop's thread and on the other one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import flintmq
from flintmq.core.broker.batch_figures import BatchFigures
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.plugins.bench.frames import PullFrame
from flintmq.plugins.metrics.exposition import Exposition
from flintmq.plugins.metrics.service import MetricsService
from flintmq.tests.benchmarks.hot_path import PULL, READ, SETTINGS, TOPIC, HotPath


async def _spent_s(work: Callable[[], Awaitable[None]], calls: int) -> float:
    begin_s = time.process_time()
    for _ in range(calls):
        await work()
    return time.process_time() - begin_s


async def ratios(broker: flintmq.Broker, calls: int, rounds: int) -> dict[str, float]:
    """Return for each kind of read the median of the quotients of neighbouring rounds, with figures to without."""
    path, stats = HotPath(broker, 128), broker.state.stats
    queue = MessageQueue(broker.config.broker.name, 0, TOPIC)
    pull = PullFrame(0, queue, PULL)
    at = itertools.count(0, PULL)
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "send": lambda: path._receive(path.read()),
        "batch": lambda: path._receive(path.read_of_batches()),
        "pull": lambda: path._receive(pull.next(next(at) % (calls * READ // 2))),
    }
    found = {}
    for name, work in works.items():
        await _spent_s(work, calls)
        quotients = []
        for number in range(rounds):
            spent: dict[bool, float] = {}
            for is_on in (number % 2 == 0, number % 2 == 1):
                stats.figures = BatchFigures() if is_on else None
                spent[is_on] = await _spent_s(work, calls)
            quotients.append(spent[True] / spent[False])
        found[name] = statistics.median(quotients)
    return found


async def scrape_ms(broker: flintmq.Broker, topics: int) -> dict[str, float]:
    """Return what an answer costs after so many topics were sent to, each with a group."""
    broker.state.stats.figures = BatchFigures()
    await broker.put([flintmq.Message(f"{TOPIC}{number}", b"x") for number in range(topics)])
    for number in range(topics):
        broker.state.offsets.put(f"{TOPIC}{number}", "readers", 0, 0)
    service, exposition = broker.state.service(MetricsService), Exposition()

    def one() -> tuple[float, float]:
        samples, commons = service.told()
        begin_s = time.thread_time()
        exposition.text(samples, commons, "*/*")
        return samples.by_name["flintmq_scrape_seconds"][0][1], time.thread_time() - begin_s

    times = [await asyncio.to_thread(one) for _ in range(5)]
    on_loop_s, elsewhere_s = (min(column) for column in zip(*times, strict=True))
    return {
        f"scrape of {topics} topics, loop ms": on_loop_s * 1000,
        f"scrape of {topics} topics, text ms": elsewhere_s * 1000,
    }


async def measure(calls: int, rounds: int, topics: tuple[int, ...] = (10, 1000)) -> dict[str, float]:
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
    parser.add_argument("--messages", type=int, default=25_600, help="per kind and round")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(max(1, options.messages // READ), options.rounds))
    if options.json:
        print(json.dumps({name: round(value, 4) for name, value in found.items()}))
    else:
        print("\n".join(f"{name:<36}{value:>9.3f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
