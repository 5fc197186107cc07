#!/usr/bin/env python3
"""Measures starts, rebuilds and look-ups of the Java broker and of FlintMQ on equal copies of one store.

    tools/bench_store.py WORK [--peer ../shared/peer] [--gib 1] [--rounds 3]

Needs the peer kit (RocketMQ, with its jars fetched) and Java. The kit's client fills the Java broker, whose store is in WORK,
with batches of 1 KiB messages with keys. The Java broker is killed, and its store is copied for the measurements, so that both
brokers start with the same bytes. Each round measures the Java broker, then FlintMQ. Then one line of JSON is printed: medians,
and ratios Java / FlintMQ (above 1: FlintMQ is faster). The time of a start ends when the broker reports that it is ready. For
the Java broker, this time includes the start of the Java virtual machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flintmq.programs.bench.machine import machine_facts, process_cpu_s
from flintmq.remoting.client.admin import AdminClient

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "BenchTopic"
LOOKUPS = 200
DERIVED = ("consumequeue", "index")


class Bench:
    """Runs the Java broker and FlintMQ on copies of one store."""

    def __init__(self, work: Path, peer: Path, gib: float) -> None:
        self.work = work
        self.peer = peer
        self.count = int(gib * 1024**3 / 1350)
        self.store = work / "killed"
        self.copy = work / "copy"
        self.namesrv_port, self.port = free_ports(2)
        self.namesrv = f"127.0.0.1:{self.namesrv_port}"

    def kit(self, script: str, *words: object) -> str:
        environment = {**os.environ, "NAMESRV": self.namesrv, "PEER_START_TIMEOUT": "600", "PEER_STOP_TIMEOUT": "120"}
        done = subprocess.run(
            [str(self.peer / script), *map(str, words)], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{script}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def fill(self) -> None:
        """Fill the Java broker and kill it, to make the store that the measurements copy. Do nothing if an earlier run has made
        this store."""
        if self.store.exists():
            return
        made = self.work / "making"
        shutil.rmtree(made, ignore_errors=True)
        self.kit("broker.sh", made, self.port, "ASYNC_FLUSH")
        words = ["--namesrv", self.namesrv, "--mode", "batch", "--batch", 32, "--threads", 2, "--size", 1024, "--keys"]
        self.kit("bench.sh", "produce", *words, "--topic", TOPIC, "--count", self.count, "--seconds", 600)
        time.sleep(3)
        self.kit("stop.sh", made, "KILL")
        made.rename(self.store)

    def await_port(self) -> None:
        """Wait until the broker's port is free. A killed process with many threads holds the port until its memory maps are
        unmapped."""
        deadline_s = time.monotonic() + 60
        while not all(is_free(near) for near in range(self.port - 2, self.port + 2)):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"port {self.port} is still taken")
            time.sleep(0.05)

    def fresh(self) -> Path:
        """Make a new copy of the killed broker's store, and return the copy's folder. The page cache then contains the copy,
        whichever broker is measured."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.rmtree(self.copy.with_name(self.copy.name + ".run"), ignore_errors=True)
        subprocess.run(["cp", "-r", "--sparse=always", str(self.store), str(self.copy)], check=True)
        os.sync()
        return self.copy

    @contextmanager
    def java(self, *, kill: bool = False) -> Iterator[tuple[float, float]]:
        """Run the Java broker on the copy of the store. Yield the seconds that the broker took to start, and the processor time
        of the start."""
        self.await_port()
        started = json.loads(self.kit("broker.sh", self.copy, self.port, "ASYNC_FLUSH"))
        try:
            yield started["ready_ms"] / 1000, process_cpu_s(started["pid"])
        finally:
            self.kit("stop.sh", self.copy, "KILL" if kill else "TERM")

    @contextmanager
    def flint(self, *, kill: bool = False) -> Iterator[tuple[float, float]]:
        """Run FlintMQ on the copy of the store. Yield the seconds that FlintMQ took to start, and the processor time of the
        start."""
        self.await_port()
        words = [sys.executable, "-m", "flintmq", "broker", "-n", self.namesrv, "--store", str(self.copy)]
        begin_s = time.perf_counter()
        process = subprocess.Popen([*words, "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            taken_s = time.perf_counter() - begin_s
            if not line.startswith("READY"):
                raise SystemExit(f"FlintMQ did not start: {line}")
            yield taken_s, process_cpu_s(process.pid)
        finally:
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            process.wait(120)
            assert process.stdout is not None
            process.stdout.close()

    def round(self, which: str) -> dict[str, float]:
        """Measure one broker on a new copy of the store: its starts, its look-ups and a rebuild. Return the figures."""
        broker = self.java if which == "java" else self.flint
        self.fresh()
        with broker(kill=True) as after_crash:
            pass
        with broker() as after_kill:
            pass
        with broker() as after_stop:
            found = asyncio.run(look_up(self.namesrv, self.count))
        for name in DERIVED:
            shutil.rmtree(self.copy / name)
        with broker() as rebuild:
            pass
        starts = {"after_crash": after_crash, "after_kill": after_kill, "after_stop": after_stop, "rebuild": rebuild}
        taken = {f"{name}_s": taken_s for name, (taken_s, _cpu_s) in starts.items()}
        spent = {f"{name}_cpu_s": cpu_s for name, (_taken_s, cpu_s) in starts.items()}
        rate = self.count / max(rebuild[0] - after_stop[0], 0.001)
        return {**taken, **spent, "rebuild_records_per_s": rate, **found}


async def look_up(namesrv: str, count: int) -> dict[str, float]:
    """Return the median times of two requests to a broker, sent one at a time: queries by key (code 12) and searches by time
    (code 29)."""
    chance = random.Random(1)
    async with AdminClient([namesrv]) as admin:
        stats = {}
        deadline_s = time.monotonic() + 60
        # The request is repeated, because the name server may not know the broker's topics yet.
        while not stats:
            try:
                stats = await admin.topic_stats(TOPIC)
            except Exception:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(0.2)
        queues = list(stats)
        by_key, by_time = [], []
        for number in chance.sample(range(1000, count - 1000), LOOKUPS):
            begin_s = time.perf_counter()
            found = await admin.query_by_key(TOPIC, f"k{number}")
            by_key.append(time.perf_counter() - begin_s)
            if not found:
                raise SystemExit(f"the key k{number} was not found")
        first_ms = min(m.store_timestamp_ms for m in await admin.query_by_key(TOPIC, "k1000"))
        last_ms = max(m.store_timestamp_ms for m in await admin.query_by_key(TOPIC, f"k{count - 1000}"))
        for _ in range(LOOKUPS):
            queue, at_ms = chance.choice(queues), chance.randrange(first_ms, max(last_ms, first_ms + 1))
            begin_s = time.perf_counter()
            await admin.search_offset(queue, at_ms)
            by_time.append(time.perf_counter() - begin_s)
    return {"query_by_key_us": statistics.median(by_key) * 1e6, "offset_by_time_us": statistics.median(by_time) * 1e6}


def free_ports(count: int) -> list[int]:
    """Return free ports of this machine whose neighboring ports, for VIP and replication, are free, too."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(12_000, 30_000, 8)
        if port not in found and all(is_free(near) for near in range(port - 2, port + 2)):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # With SO_REUSEADDR, a port counts as free even if connections in TIME_WAIT use it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--peer", type=Path, default=ROOT.parent / "shared" / "peer")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(given.work.resolve(), given.peer.resolve(), given.gib)
    bench.kit("namesrv.sh", bench.work / "namesrv", bench.namesrv_port)
    rounds: dict[str, list[dict[str, float]]] = {"java": [], "flintmq": []}
    try:
        bench.fill()
        for number in range(given.rounds):
            for which, done in rounds.items():
                done.append(bench.round(which))
                print(f"round {number + 1} {which}: {done[-1]}", file=sys.stderr, flush=True)
    finally:
        bench.kit("stop.sh", bench.work / "namesrv")
        shutil.rmtree(bench.copy, ignore_errors=True)
    print(json.dumps(summary(bench, rounds)))


def summary(bench: Bench, rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the medians of the Java broker and of FlintMQ, and the ratios Java / FlintMQ."""
    medians = {
        which: {name: round(statistics.median(one[name] for one in done), 3) for name in done[0]}
        for which, done in rounds.items()
    }
    java, flint = medians["java"], medians["flintmq"]
    ratios = {
        name: round(flint[name] / java[name] if name.endswith("per_s") else java[name] / flint[name], 2)
        for name in java
    }
    used = sum(path.stat().st_blocks * 512 for path in bench.store.rglob("*") if path.is_file())
    return {
        "bench": "store",
        "records": bench.count,
        "store_mib": used // 2**20,
        "rounds": len(rounds["java"]),
        **medians,
        "ratios": ratios,
        "machine": machine_facts(),
    }


if __name__ == "__main__":
    main()
