"""Runs load on a broker by other programs: by the Java client, and by a generator in C that uses little processor time.

The caller gives the commands of the client and the generator. Both programs are in the peer kit, the folder of scripts and
programs for tests with RocketMQ. Each command gets addresses as options or arguments, and prints one line of JSON at its end.

* The *client* takes ``produce``, ``consume`` or ``e2e`` with ``--namesrv H:P`` and options like ``--threads``; it prints
  ``messages``, ``msgs_per_s``, ``latency_ms``, ``errors`` (``bench.sh``).
* The *generator* takes a port, the number of connections, the sends in flight on each, and the number of messages. It prints
  ``n``, ``rate``, ``bad``, ``p50us``, ``p99us`` and ``lg_cpu_us`` (``loadgen.c``), and sends to queues 0 to 3 of ``TopicTest``.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from flintmq.core.errors import FlintError, RemotingError
from flintmq.programs.bench.machine import process_cpu_s
from flintmq.programs.bench.run import BenchSettings, bench_route
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.transport import parse_address

TIMEOUT_S: Final = 600.0
GENERATOR_TOPIC: Final = "TopicTest"
PROBE_MESSAGES: Final = 20_000
"""Number of messages that a load generator sends in a first run, in which its rate is measured. The rate determines the number
of messages of the second run, which takes the requested time."""


def run_client(command: str, words: Sequence[str], name_server: str, pid: int | None) -> dict[str, float | None]:
    """Return the figures of one run of the Java client. The broker's processor time is measured over the whole run, including
    the warm-up and the opening of connections.

    Raises:
        RemotingError: the client's command cannot be run, or prints nothing.
        FlintError: the client counted errors.
    """
    before_s = process_cpu_s(pid) if pid is not None else 0.0
    said = _json_of([*shlex.split(command), *words, "--namesrv", name_server])
    spent_s = process_cpu_s(pid) - before_s if pid is not None else None
    if said.get("errors"):
        raise FlintError(f"{said['errors']} errors in a run of {' '.join(words)}: {said.get('error_kinds')}")
    messages = said["messages"] + said.get("warmup_messages", 0)
    latency_ms = said.get("latency_ms") or {}
    client_s = said.get("client_cpu_s")
    return {
        "rate": said["msgs_per_s"],
        "p50_ms": latency_ms.get("p50"),
        "p99_ms": latency_ms.get("p99"),
        "p999_ms": latency_ms.get("p999"),
        "broker_cpu_us": None if spent_s is None or not messages else round(spent_s / messages * 1e6, 3),
        "client_cpu_us": None if client_s is None or not messages else round(client_s / messages * 1e6, 3),
    }


def run_generators(
    command: str,
    ports: Sequence[int],
    connections: int,
    inflight: int,
    size_bytes: int,
    seconds: float,
    pid: int | None,
) -> dict[str, float | None]:
    """Return the figures of one run of load generators for about ``seconds`` seconds. One generator for each port runs, all at
    the same time.

    The rate is the sum over all generators; each latency quantile is that of the slowest generator.

    Raises:
        RemotingError: the generator's command cannot be run.
        FlintError: sends were refused.
    """
    words = [[*shlex.split(command), str(port), str(connections), str(inflight)] for port in ports]

    def run(counts: Sequence[int]) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(len(ports)) as threads:
            commands = [[*each, str(count), str(size_bytes)] for each, count in zip(words, counts, strict=True)]
            return list(threads.map(_json_of, commands))

    probes = run([PROBE_MESSAGES] * len(ports))
    before_s = process_cpu_s(pid) if pid is not None else 0.0
    said = run([max(PROBE_MESSAGES, int(probe["rate"] * seconds)) for probe in probes])
    spent_s = process_cpu_s(pid) - before_s if pid is not None else None
    sent, bad = sum(one["n"] for one in said), sum(one["bad"] for one in said)
    if bad:
        raise FlintError(f"{bad} of {sent} sends of the generator were refused")
    return {
        "rate": sum(one["rate"] for one in said),
        "p50_ms": round(max(one["p50us"] for one in said) / 1000, 4),
        "p99_ms": round(max(one["p99us"] for one in said) / 1000, 4),
        "broker_cpu_us": None if spent_s is None else round(spent_s / sent * 1e6, 3),
        "client_cpu_us": round(sum(one["lg_cpu_us"] * one["n"] for one in said) / sent, 3),
    }


async def generator_ports(name_server: str) -> list[int]:
    """Create the topic to which the load generators send, and return the port of each broker that has the topic."""
    client = ClientInstance(name_server)
    try:
        settings = BenchSettings(bench="send", topic=GENERATOR_TOPIC, queues=4)
        route = await bench_route(AdminClient(client=client), settings)
        names = sorted({queue.broker_name for queue in route.write_queues})
        return [parse_address(route.address(name))[1] for name in names]
    finally:
        await client.close()


def fresh_topic(name: str) -> str:
    """Return the name of a topic that nobody has sent to yet."""
    return f"{name}{time.time_ns()}"


def _json_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the last line of JSON that a command prints."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RemotingError(f"'{words[0]}' cannot be run: {error}") from error
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise RemotingError(f"'{' '.join(words)}' ended with {done.returncode}: {said[0]}")
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except ValueError as error:
        raise RemotingError(f"'{words[0]}' printed no JSON: {lines[-1][:200]}") from error
    return found
