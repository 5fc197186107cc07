"""What the test kit costs a test: ``python tests/benchmarks/kit_costs.py [--rounds 9] [--json]``. Medians, in milliseconds.

A broker's start and stop, two hours on its clock, and each kind of fault, as the fixtures of docs/testing.md do them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import flintmq
from flintmq.client.sync import FlintError, Message, Producer
from flintmq.testing.clock import VirtualClock
from flintmq.testing.cluster import EmbeddedCluster
from flintmq.testing.embedded import EmbeddedBroker

SYNC = ("flush.strategy=group_commit",)
Costs = dict[str, list[float]]


def main() -> None:
    """Measure, and print a row for each cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    options = parser.parse_args()
    logging.getLogger("flintmq").setLevel(logging.CRITICAL + 1)  # crashes are told at length
    found = medians(options.rounds)
    if options.json:
        print(json.dumps(found))
    else:
        for name, cost_ms in found.items():
            print(f"{name:34}{cost_ms:9.1f} ms")


def medians(rounds: int) -> dict[str, float]:
    """Return each cost's median in milliseconds; the first round, which imports, does not count."""
    costs: Costs = {}
    for number in range(rounds + 1):
        if number == 1:
            costs.clear()
        with tempfile.TemporaryDirectory() as folder:
            one_round(Path(folder), costs)
    return {name: round(statistics.median(found), 2) for name, found in costs.items()}


def one_round(folder: Path, costs: Costs) -> None:
    """Take every cost once."""

    @contextlib.contextmanager
    def cost(name: str) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        costs.setdefault(name, []).append((time.perf_counter() - began_s) * 1000)

    def enter(name: str, broker: EmbeddedBroker | EmbeddedCluster) -> Callable[[], None]:
        with cost(f"{name}: start"):
            broker.__enter__()

        def leave() -> None:
            with cost(f"{name}: stop"):
                broker.__exit__(None, None, None)

        return leave

    clock = VirtualClock()
    broker = EmbeddedBroker(folder / "plain", clock=clock)
    leave = enter("broker", broker)
    with cost("broker: a topic"):
        broker.create_topic("T")
    broker.put([flintmq.Message("T", b"later", delay_level=18)])
    with cost("clock: two hours"):
        clock.advance("2h")
    leave()

    faulty = EmbeddedBroker(folder / "faulty", settings=SYNC, with_faults=True)
    leave = enter("broker with faults", faulty)
    faulty.create_topic("T")
    with Producer("g", faulty.name_server_address, retries=0) as producer:
        producer.send(Message("T", b"x"))
        with cost("fault: a crash"):
            faulty.faults.crash()
        with cost("fault: a restart"):
            faulty.faults.restart()
        with cost("fault: a cut and its end"), faulty.faults.cut(), contextlib.suppress(FlintError):
            producer.send(Message("T", b"x"))
        fault = faulty.faults.fail_sync()
        with cost("fault: a failed sync"), contextlib.suppress(FlintError):
            faulty.put([flintmq.Message("T", b"x")])
        fault.wait()
        faulty.faults.crash()
    leave()

    enter("cluster of three", EmbeddedCluster(folder / "cluster", with_faults=True))()


if __name__ == "__main__":
    main()
