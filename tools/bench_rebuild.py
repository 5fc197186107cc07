#!/usr/bin/env python3
"""Measures how fast queues and index are rebuilt: by the broker's own code, in one process, in several processes, and on Spark.

    tools/bench_rebuild.py WORK [--records 2000000] [--rounds 3] [--workers 2] [--engines loop,inline,process,spark]

Makes the store of a stopped broker in WORK: bodies of 128 bytes, 8 topics of 4 queues, tags, keys and unique keys, log files of
128 MiB. In each round, every engine rebuilds the queues and the index once, into a new folder. The engines run one after the
other. The engine ``loop`` rebuilds as a broker's start does without numpy, one record after the other; ``repair`` rebuilds as a
broker's start does with numpy. The results of all engines are compared byte by byte with those of ``loop``. Spark's session is
started once, before the rounds, and the time of its start is a separate figure. Then one line of JSON is printed: medians of
seconds and of CPU seconds (children and Java too), records a second, and ratios to ``loop``.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import attrs

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.io import lazy_numpy
from flintmq.core.record import bulk_scan
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.dispatchers.index import index_bulk
from flintmq.plugins.spark.maintenance.engines import Engine, InlineEngine, ProcessEngine, SparkEngine
from flintmq.plugins.spark.maintenance.rebuild import rebuild
from flintmq.programs.bench.machine import machine_facts
from flintmq.programs.doctor import rebuild as doctor
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store

FILE_BYTES = 128 * 1024 * 1024
BATCH = 2_000


def config_of(root: Path, records: int) -> BrokerConfig:
    config = BrokerConfig()
    index = attrs.evolve(
        config.index, max_hash_slot_num=max(1_000, records), max_index_num=max(4_000, records * 4 // 3)
    )
    return attrs.evolve(
        config, index=index, store=attrs.evolve(config.store, path=str(root), commit_log_file_bytes=FILE_BYTES)
    )


def fill(root: Path, records: int) -> None:
    clock = ManualClock()
    store = open_store(root, config=config_of(root, records), strategy=BY_HAND, clock=clock)
    body = bytes(range(128))
    try:
        for first in range(0, records, BATCH):
            store.put(
                [
                    message(
                        f"Topic{number % 8}",
                        number // 8 % 4,
                        body,
                        tags=f"Tag{number % 10}",
                        keys=f"key{number:09d}",
                        uniq_key=f"7F000001{number:024X}",
                        CLUSTER="DefaultCluster",
                    )
                    for number in range(first, min(records, first + BATCH))
                ]
            )
            store.dispatch()
            clock.advance_ms(10)
    finally:
        store.close()


def bare_copy(root: Path, target: Path) -> None:
    """Make a store that has only the log of another store, by a hard link to each log file. Links suffice, because no program
    writes to the log files."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "commitlog").mkdir(parents=True)
    for path in sorted((root / "commitlog").iterdir()):
        os.link(path, target / "commitlog" / path.name)


def cpu_s(java: int | None) -> float:
    """Return the CPU seconds of this process, of its children that have ended, and of Spark's Java process with its workers."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    return total + (tree_cpu_s(java) if java else 0.0)


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, including descendants that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    total = sum(map(int, fields[11:15])) / tick
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += sum(tree_cpu_s(int(child)) for child in (task / "children").read_text().split())
    return total


def by_the_broker(root: Path, target: Path, records: int, *, numpy: bool) -> None:
    loaded, bulk, index = lazy_numpy.loaded, bulk_scan.BYTES_WORTH_NUMPY, index_bulk.LEAST
    if not numpy:
        lazy_numpy.loaded = lambda: False
        bulk_scan.BYTES_WORTH_NUMPY = index_bulk.LEAST = 1 << 62  # type: ignore[misc]
    try:
        bare_copy(root, target)
        doctor.rebuild(target, config_of(target, records), DELAY_LEVEL_MS)
    finally:
        lazy_numpy.loaded, bulk_scan.BYTES_WORTH_NUMPY, index_bulk.LEAST = loaded, bulk, index  # type: ignore[misc]


def same(one: Path, other: Path) -> bool:
    """Return whether two stores have the same queues, and the same contents of index files. The names of index files may
    differ."""
    queues = [
        sorted(p.relative_to(root) for p in (root / "consumequeue").rglob("*") if p.is_file()) for root in (one, other)
    ]
    if queues[0] != queues[1]:
        return False
    if not all(filecmp.cmp(one / path, other / path, shallow=False) for path in queues[0]):
        return False
    indexes = [sorted((root / "index").iterdir()) for root in (one, other)]
    return len(indexes[0]) == len(indexes[1]) and all(
        filecmp.cmp(mine, theirs, shallow=False) for mine, theirs in zip(*indexes, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", default="loop,repair,inline,process,spark")
    options = parser.parse_args()
    root = options.work / f"store-{options.records}"
    if not root.exists():
        fill(options.work / "filling", options.records)
        (options.work / "filling").rename(root)
    names = options.engines.split(",")
    engines: dict[str, Engine] = {}
    java, session_s = None, 0.0
    if "inline" in names:
        engines["inline"] = InlineEngine()
    if "process" in names:
        engines["process"] = ProcessEngine(options.workers)
    if "spark" in names:
        began_s = time.monotonic()
        spark = engines["spark"] = SparkEngine(f"local[{options.workers}]")
        session_s = time.monotonic() - began_s
        java = spark._spark.sparkContext._gateway.proc.pid
        # A short job starts Spark's workers before the measurement, because their start must not be measured.
        spark.run(abs, list(range(options.workers)), [1] * options.workers, None)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in names}
    identical: dict[str, bool] = {}
    reference = options.work / "loop"
    for _round in range(options.rounds):
        for name in names:
            target = options.work / name
            shutil.rmtree(target, ignore_errors=True)
            os.sync()
            cpu_before, began_s = cpu_s(java), time.monotonic()
            if name in ("loop", "repair"):
                by_the_broker(root, target, options.records, numpy=name == "repair")
            else:
                rebuild(root, config_of(root, options.records), DELAY_LEVEL_MS, engines[name], out=target)
            seconds[name].append(time.monotonic() - began_s)
            cpu_seconds[name].append(cpu_s(java) - cpu_before)
            if reference.exists():
                identical[name] = same(reference, target)
    result: dict[str, Any] = {
        "records": options.records,
        "log_mib": round(sum(p.stat().st_size for p in (root / "commitlog").iterdir()) / 1024**2),
        "rounds": options.rounds,
        "session_s": round(session_s, 1),
        "identical": identical,
        "machine": machine_facts(),
    }
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name in names:
        result[name] = {
            "s": round(medians[name], 2),
            "cpu_s": round(statistics.median(cpu_seconds[name]), 2),
            "krecords_per_s": round(options.records / medians[name] / 1000),
            "times_loop": round(medians["loop"] / medians[name], 2) if "loop" in medians else None,
            "times_loop_by_cpu": round(
                statistics.median(cpu_seconds["loop"]) / max(0.01, statistics.median(cpu_seconds[name])), 2
            )
            if "loop" in medians
            else None,
        }
    for engine in engines.values():
        engine.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
