#!/usr/bin/env python3
"""Measures how much a slave slows down the sends to its master, and how fast an empty slave catches up.

    tools/bench_replication.py [--peer ../shared/peer] [--rounds 5] [--seconds 3] [--fill-mib 256]

Measures FlintMQ, and with ``--peer`` (the folder of the kit that starts RocketMQ) also RocketMQ. A master without a slave and a
``sync_master`` with a slave get the same load in turn, round after round. All brokers flush asynchronously and run on one
machine, so the figures do not include a network. Then a slave with an empty store is started and catches up with a master.
Prints one line of JSON for each row. A ratio is the rate of the ``sync_master`` divided by the rate of the master without a
slave, in one round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

import flintmq
from flintmq.config import load_config
from flintmq.programs.bench.machine import process_cpu_s
from flintmq.programs.bench.run import BenchSettings, run_bench
from flintmq.programs.cli.child import ServedChild
from flintmq.remoting.client.admin import AdminClient

SECRET = "bench replication, nobody else"
BODY_BYTES = 1024
LOADS = {"one sender, one in flight": (1, 1), "8 senders, 16 in flight each": (8, 16)}
PATIENCE_S = 120.0
POLL_S = 0.005


@attrs.frozen
class Server:
    """A running broker that is measured, a master or a slave."""

    name_server: str
    address: str
    ha_port: int
    pid: int
    store: Path

    def holds_bytes_at(self, position: int) -> bool:
        """Return whether the 8 bytes at a position of the log's first file contain a byte other than zero."""
        with contextlib.suppress(FileNotFoundError), (self.store / "commitlog" / f"{0:020d}").open("rb") as file:
            return any(os.pread(file.fileno(), 8, position))
        return False


def free_base() -> int:
    """Return a free port such that the port two below and the next port are free, too. RocketMQ's broker uses all three
    ports."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for one in (port - 2, port, port + 1):
                stack.enter_context(socket.create_server(("127.0.0.1", one)))
            return port


class FlintKind:
    """Starts FlintMQ brokers for the measurement, each with a name server in its process."""

    name = "FlintMQ"

    @contextlib.contextmanager
    def start(self, store: Path, role: str, master: Server | None = None) -> Iterator[Server]:
        port = free_base()
        settings = [f"broker.role={role}", f"ha.secret={SECRET}", f"listen.ha_port={port + 1}", f"store.path={store}"]
        if master is None:
            settings.append("ha.enable=true")
        else:
            settings += ["broker.id=1", f"ha.master_address=127.0.0.1:{master.ha_port}"]
        words = [word for setting in settings for word in ("--set", setting)]
        with ServedChild(["--port", str(port), "--namesrv-port", "0", *words]) as child:
            yield Server(child.namesrv, child.broker, port + 1, child.pid, store)


class JavaKind:
    """Starts RocketMQ brokers for the measurement. Their name servers are FlintMQ name servers in this process."""

    name = "RocketMQ 4.9.7"

    def __init__(self, kit: Path) -> None:
        self._kit = kit

    @contextlib.contextmanager
    def start(self, store: Path, role: str, master: Server | None = None) -> Iterator[Server]:
        port = free_base()
        words = [str(store), str(port), "ASYNC_FLUSH", "false", role.upper(), "slaveReadEnable=false"]
        with contextlib.ExitStack() as stack:
            if master is None:
                names = stack.enter_context(flintmq.NameServer(load_config(None, ["nameserver.port=0"], {})))
                name_server = names.address
            else:
                name_server = master.name_server
            started = self._run("broker.sh", *words, NAMESRV=name_server)
            stack.callback(self._run, "stop.sh", str(store))
            yield Server(name_server, f"127.0.0.1:{port}", port + 1, int(json.loads(started)["pid"]), store)

    def _run(self, script: str, *words: str, **more: str) -> str:
        done = subprocess.run(
            [str(self._kit / script), *words], env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{script} {' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done.stdout


Kind = FlintKind | JavaKind


async def log_end(server: Server) -> int:
    """Return the end of a broker's log, which is one of the broker's runtime figures. RocketMQ reports its runtime figures only
    some seconds after its start."""
    client = AdminClient(server.name_server)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(flintmq.FlintError, KeyError):
                return int((await client.runtime_info(server.address))["commitLogMaxOffset"])
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{server.address} does not report the end of its log")
            await asyncio.sleep(0.5)
    finally:
        await client.close()


def until(slave: Server, position: int) -> float:
    """Wait until a slave's log has bytes other than zeros at a position; return the time of the monotonic clock."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not slave.holds_bytes_at(position):
        if time.monotonic() > deadline_s:
            raise SystemExit(f"the slave in {slave.store} does not reach position {position}")
        time.sleep(POLL_S)
    return time.monotonic()


def load(connections: int, inflight: int, seconds: float) -> BenchSettings:
    return BenchSettings(
        bench="send",
        topic="Replicated",
        seconds=seconds,
        warmup_s=0.5,
        connections=connections,
        inflight=inflight,
        size_bytes=BODY_BYTES,
    )


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


async def acknowledgements(
    kind: Kind, alone: Server, master: Server, slave: Server, options: argparse.Namespace
) -> None:
    """Measure the same load on a master without a slave and on a master that waits for its slave."""
    for what, (connections, inflight) in LOADS.items():
        bench = load(connections, inflight, options.seconds)
        figures: dict[str, list[float]] = {}
        for number in range(options.rounds + 1):
            without = await run_bench(bench, alone.name_server, alone.pid)
            before_s = process_cpu_s(slave.pid)
            held = await run_bench(bench, master.name_server, master.pid)
            after_s = process_cpu_s(slave.pid)
            if without.errors or held.errors:
                raise SystemExit(f"{kind.name}: sends failed: {without.error_codes} {held.error_codes}")
            if not number:
                continue  # The first round is not counted, because it warms up the brokers.
            round_ = {
                "alone_rate": without.rate, "alone_p50_ms": without.p50_ms, "alone_p99_ms": without.p99_ms,
                "alone_cpu_us": without.broker_cpu_us, "sync_rate": held.rate, "sync_p50_ms": held.p50_ms,
                "sync_p99_ms": held.p99_ms, "sync_cpu_us": held.broker_cpu_us,
                "slave_cpu_us": None if before_s is None or after_s is None else
                                (after_s - before_s) / held.messages * 1e6 * held.seconds / (held.seconds + bench.warmup_s),
                "rate_ratio": held.rate / without.rate,
            }  # fmt: skip
            for name, value in round_.items():
                figures.setdefault(name, []).append(float(value or 0))
        say(
            broker=kind.name,
            load=what,
            rounds=options.rounds,
            **{name: round(statistics.median(values), 3) for name, values in figures.items()},
        )


async def catching_up(kind: Kind, master: Server, work: Path, options: argparse.Namespace) -> None:
    """Measure how fast slaves with empty stores copy the log of a master."""
    count = options.fill_mib * 1024 * 1024 // (BODY_BYTES + 200)
    bench = attrs.evolve(load(4, 4, 1), batch=32, warmup_s=0.0, count=count)
    await run_bench(bench, master.name_server, master.pid)
    end = await log_end(master)
    rates = []
    for number in range(options.slaves):
        with kind.start(work / f"late{number}", "slave", master) as slave:
            begin_s = await asyncio.to_thread(until, slave, 0)
            before_s = process_cpu_s(slave.pid)
            end_s = await asyncio.to_thread(until, slave, end - 8)
            after_s = process_cpu_s(slave.pid)
            rates.append(
                (end / 1e6 / max(POLL_S, end_s - begin_s), ((after_s or 0) - (before_s or 0)) / (end / 1e6) * 1000)
            )
        shutil.rmtree(work / f"late{number}")
    say(
        broker=kind.name,
        load="an empty slave catches up",
        log_mb=round(end / 1e6),
        mb_per_s=[round(rate) for rate, _ in rates],
        slave_cpu_ms_per_mb=[round(cpu, 2) for _, cpu in rates],
    )


async def measure(kind: Kind, work: Path, options: argparse.Namespace) -> None:
    with (
        kind.start(work / "alone", "async_master") as alone,
        kind.start(work / "master", "sync_master") as master,
        kind.start(work / "slave", "slave", master) as slave,
    ):
        # The measurement must begin only after the topic exists and the slave follows its master.
        # Sends to the sync master fail until the slave follows, so short loads are run until no send fails.
        deadline_s = time.monotonic() + PATIENCE_S
        await run_bench(load(1, 1, 0.2), alone.name_server, None)
        while (await run_bench(load(1, 1, 0.2), master.name_server, None)).errors:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{kind.name}: the slave does not follow")
        await acknowledgements(kind, alone, master, slave, options)
    shutil.rmtree(work)
    work.mkdir()
    with kind.start(work / "master", "async_master") as filled:
        await catching_up(kind, filled, work, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer", type=Path, help="the kit that starts RocketMQ; without it only FlintMQ is measured")
    parser.add_argument("--dir", type=Path, help="the folder for the stores (default: that for temporary files)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each load in each round")
    parser.add_argument(
        "--fill-mib", type=int, default=256, help="size of the log that the late slave copies, at most 900"
    )
    parser.add_argument("--slaves", type=int, default=3, help="number of late slaves, one after the other")
    options = parser.parse_args()
    kinds: list[Kind] = [FlintKind()]
    if options.peer is not None:
        kinds.append(JavaKind(options.peer.resolve()))
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="flintmq-", dir=options.dir) as folder:
            work = Path(folder) / "stores"
            work.mkdir()
            asyncio.run(measure(kind, work, options))


if __name__ == "__main__":
    sys.exit(main())
