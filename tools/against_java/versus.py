"""Measures the rows of the table that ``tools/bench_compare.py`` prints. In each round, two or three brokers are measured in
turn, and the ratios of their figures are computed.

Each row has a function that measures one broker once and returns figures by name. :data:`ROWS` lists the rows and the figures
that are compared. A higher figure is better only for the figures in :data:`MORE_IS_BETTER`. The processor time of the program
that makes the load is one of the figures.
"""

from __future__ import annotations

import contextlib
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from against_java.outside import fresh_topic, generator_ports, run_client, run_generators
from flintmq.core.errors import FlintError, RemotingError
from flintmq.programs.bench.figures import ratio
from flintmq.programs.bench.latency import run_latency
from flintmq.programs.bench.machine import processes_of
from flintmq.programs.bench.run import BenchSettings, run_bench

Figures = Mapping[str, float | None]
RunLoop = Callable[[Coroutine[Any, Any, Any]], Any]

SIZE_BYTES: Final = 128
TOPIC: Final = "FlintCompare"
BACKLOG: Final = 200_000
CLIENT_BACKLOG: Final = 500_000
START_TIMEOUT_S: Final = 60.0


_SEND: Final = ("broker_cpu_us", "rate", "p50_ms", "p99_ms", "client_cpu_us")
_CLIENT: Final = ("rate", "p50_ms", "p99_ms", "broker_cpu_us", "client_cpu_us")
_LATENCY: Final = ("p50_ms", "p99_ms", "p999_ms", "broker_cpu_us", "client_cpu_us")


@attrs.frozen
class Side:
    """One of the compared sides: a broker, or several brokers under one name server."""

    name: str
    name_server: str
    pid: int | None
    """Id of the broker's process, or of the program that started several brokers. None if the process is unknown."""


class Starts(Protocol):
    """A way to start a stopped broker again, for the row ``start`` of the comparison."""

    def __call__(self) -> contextlib.AbstractContextManager[str]:
        """Start the broker, and yield the address of its name server without waiting for the broker."""
        ...


@attrs.frozen(kw_only=True)
class Setting:
    """The settings of a comparison of brokers, which apply to all measurements of the comparison."""

    run: RunLoop
    seconds: float
    warmup_s: float
    starts: Mapping[str, Starts] = attrs.field(factory=dict)
    """Functions that start the broker of each side of the comparison, keyed by the side's name."""
    in_process: Callable[[], Figures] | None = None
    client: str = ""
    """Command that runs the Java client (see :mod:`.outside`)."""
    generator: str = ""
    """Command that runs a load generator for the measurements of single sends; empty to use FlintMQ's load generator. The
    command's load generator uses less processor time than FlintMQ's."""
    generators: int = 1
    """Number of load generators that send at the same time. If there are several brokers, each generator sends to one of the
    brokers."""


@attrs.frozen
class RowSpec:
    """A row in the table of the comparison: a measurement that is made with each broker."""

    name: str
    title: str
    figures: tuple[str, ...]
    """Names of the figures that are compared in the row. The table of results shows the first of these figures."""
    measure: Callable[[Setting, Side], Figures]
    ours_only: bool = False
    """Whether the row measures only FlintMQ, because RocketMQ has no counterpart."""
    needs_client: bool = False
    """Whether RocketMQ's Java client sends or pulls the messages of this measurement, in place of a load generator."""


def _send(connections: int, inflight: int, batch: int = 1) -> Callable[[Setting, Side], Figures]:
    def measure(setting: Setting, side: Side) -> Figures:
        if setting.generator and batch == 1:
            ports = setting.run(generator_ports(side.name_server))
            chosen = [ports[number % len(ports)] for number in range(max(setting.generators, len(ports)))]
            load = (connections, inflight, SIZE_BYTES, setting.seconds)
            return run_generators(setting.generator, chosen, *load, side.pid)
        bench = BenchSettings(
            bench="send",
            topic=TOPIC,
            seconds=setting.seconds,
            warmup_s=setting.warmup_s,
            connections=connections,
            inflight=inflight,
            size_bytes=SIZE_BYTES,
            batch=batch,
        )
        return _figures(setting.run(run_bench(bench, side.name_server, side.pid)))

    return measure


def _consume(setting: Setting, side: Side) -> Figures:
    """Store a new backlog of messages, and measure how fast it is consumed. A backlog that was read before would be in
    caches."""
    topic = f"{TOPIC}C{time.time_ns()}"
    bench = BenchSettings(bench="send", topic=topic, connections=2, inflight=8, size_bytes=SIZE_BYTES, batch=64)
    backlog = min(BACKLOG, int(50_000 * setting.seconds) or 1)
    setting.run(run_bench(attrs.evolve(bench, count=backlog, warmup_s=0.0), side.name_server, None))
    pull = attrs.evolve(bench, bench="consume", connections=4, inflight=1, batch=32, count=backlog, warmup_s=0.0)
    return _figures(setting.run(run_bench(pull, side.name_server, side.pid)))


def _client(*words: str) -> Callable[[Setting, Side], Figures]:
    """Return a function that measures how fast RocketMQ's Java client sends messages to a broker. The function makes the
    measurement of one row in the table of the comparison. ``words`` are command-line options for the Java client."""

    def measure(setting: Setting, side: Side) -> Figures:
        timing = ("--seconds", f"{setting.seconds:g}", "--warmup", f"{setting.warmup_s:g}", "--topic", TOPIC)
        return run_client(setting.client, ("produce", *words, *timing), side.name_server, side.pid)

    return measure


def _client_backlog(setting: Setting, side: Side) -> Figures:
    """Store a new backlog of messages, and measure how fast the Java push consumer reads it from its beginning."""
    topic = ("--topic", fresh_topic(f"{TOPIC}B"))
    fill = ("produce", "--mode", "batch", "--batch", "32", "--threads", "2", "--size", str(SIZE_BYTES))
    run_client(setting.client, (*fill, "--count", str(CLIENT_BACKLOG), *topic), side.name_server, None)
    read = ("consume", "--count", str(CLIENT_BACKLOG), "--seconds", "300", "--threads", "4", *topic)
    return run_client(setting.client, read, side.name_server, side.pid)


def _client_latency(rate: int) -> Callable[[Setting, Side], Figures]:
    def measure(setting: Setting, side: Side) -> Figures:
        seconds = max(setting.seconds, 5.0)
        words = ("e2e", "--rate", str(rate), "--seconds", f"{seconds:g}", "--topic", f"{TOPIC}E")
        return run_client(setting.client, words, side.name_server, side.pid)

    return measure


def _client_rows() -> Iterator[RowSpec]:
    for size in (128, 1024, 4096):
        for threads in (1, 8, 32, 64):
            title = f"Java client, {threads} thread{'s' * (threads > 1)}, {size} bytes"
            words = ("--mode", "sync", "--threads", str(threads), "--size", str(size))
            yield RowSpec(f"java-sync-{threads}-{size}", title, _CLIENT, _client(*words), needs_client=True)
    for mode, more in (
        ("async", ("--threads", "2", "--inflight", "1024")),
        ("oneway", ("--threads", "2", "--inflight", "1024")),
        ("batch", ("--threads", "4", "--batch", "32")),
    ):
        title = f"Java client, {mode}{' of 32' * (mode == 'batch')}, {SIZE_BYTES} bytes"
        measure = _client("--mode", mode, *more, "--size", str(SIZE_BYTES))
        yield RowSpec(f"java-{mode}", title, _CLIENT, measure, needs_client=True)
    title = f"Java push consumer, backlog of {CLIENT_BACKLOG:,}"
    yield RowSpec("java-backlog", title, ("rate", "broker_cpu_us"), _client_backlog, needs_client=True)
    for rate in (200, 2000):
        title = f"Java client, send to listener, {rate:,}/s"
        yield RowSpec(f"java-latency-{rate}", title, _LATENCY, _client_latency(rate), needs_client=True)


def _latency(rate: float) -> Callable[[Setting, Side], Figures]:
    def measure(setting: Setting, side: Side) -> Figures:
        bench = BenchSettings(
            bench="send",
            topic=f"{TOPIC}L",
            seconds=setting.seconds,
            warmup_s=setting.warmup_s,
            size_bytes=SIZE_BYTES,
            queues=4,
        )
        return _figures(setting.run(run_latency(bench, rate, side.name_server, side.pid)))

    return measure


def _figures(result: Any) -> Figures:
    found: dict[str, float | None] = {}
    for name, value in attrs.asdict(result).items():
        if name in ("errors", "missing") and value:
            raise FlintError(
                f"the run of benchmark {result.bench} against {result.target} is not valid: {name} is {value}, and must be 0"
            )
        if isinstance(value, (int, float)) or value is None:
            found[name] = value
    return found


def _memory(setting: Setting, side: Side) -> Figures:
    """Return the resident memory of the broker's process at this moment."""
    if side.pid is None:
        raise RemotingError(f"the process of {side.name} is not known")
    return memory_mib(side.pid)


def memory_mib(pid: int) -> dict[str, float | None]:
    """Return the resident memory of a process and its descendants, in MiB; ``rss_mib`` includes the resident pages of mapped
    files. Raises OSError."""
    keys = {"VmRSS": "rss_mib", "RssAnon": "anonymous_mib"}
    found = dict.fromkeys(keys.values(), 0.0)
    for process in processes_of(pid):
        for line in Path(f"/proc/{process}/status").read_text("ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in keys:
                found[keys[name]] += int(rest.split()[0]) / 1024
    return {name: round(mib, 1) for name, mib in found.items()}


def _start(setting: Setting, side: Side) -> Figures:
    """Return the time from the start of the broker's process to the first send that the broker acknowledges."""
    start = setting.starts.get(side.name)
    if start is None:
        raise RemotingError(f"it is not known how {side.name} is started: --against-start")
    begin_s = time.monotonic()
    bench = BenchSettings(
        bench="send", topic=f"{TOPIC}S", count=1, warmup_s=0.0, connections=1, inflight=1, size_bytes=1
    )
    with start() as name_server:
        while True:
            try:
                setting.run(run_bench(bench, name_server, None))
                return {"start_ms": round((time.monotonic() - begin_s) * 1000, 1)}
            except FlintError:
                if time.monotonic() - begin_s > START_TIMEOUT_S:
                    raise
                time.sleep(0.02)


def _in_process(setting: Setting, side: Side) -> Figures:
    if setting.in_process is None:
        raise RemotingError(f"{side.name} cannot run in this process")
    return setting.in_process()


_MEMORY: Final = ("rss_mib", "anonymous_mib")
ROWS: Final = (
    RowSpec("memory-idle", "resident memory before any load, MiB", _MEMORY, _memory),
    RowSpec("send-4x1", "send, 4 connections × 1 in flight", _SEND, _send(4, 1)),
    RowSpec("send-4x8", "send, 4 × 8", _SEND, _send(4, 8)),
    RowSpec("send-4x64", "send, 4 × 64", _SEND, _send(4, 64)),
    RowSpec("send-32x1", "send, 32 × 1", _SEND, _send(32, 1)),
    RowSpec("batch-32", "send in batches of 32, 4 × 4", _SEND, _send(4, 4, 32)),
    RowSpec("consume", "consume a backlog, pulls of 32", ("broker_cpu_us", "rate", "client_cpu_us"), _consume),
    RowSpec("latency-200", "send to listener, 200 messages/s", _LATENCY, _latency(200)),
    RowSpec("latency-2000", "send to listener, 2,000 messages/s", _LATENCY, _latency(2000)),
    *_client_rows(),
    RowSpec("memory", "resident memory after this load, MiB", _MEMORY, _memory),
    RowSpec(
        "in-process", "put in the same process, batches of 100, µs a message", ("put_us",), _in_process, ours_only=True
    ),
    RowSpec("start", "start to first acknowledged send, ms", ("start_ms",), _start),
)
"""All rows of the comparison, in the order of their measurement. Rows that restart a broker come last."""
MORE_IS_BETTER: Final = frozenset({"rate"})


@attrs.frozen
class Row:
    """The figures of one row of the comparison, round by round."""

    spec: RowSpec
    measured: Mapping[str, tuple[Figures, ...]]
    """Figures of each round of measurements, keyed by side of the comparison: ``ours``, ``theirs`` and, if three sides are
    compared, ``also``."""
    why_not: str = ""
    """Reason why some figures of the row were not measured."""

    def as_json(self) -> dict[str, Any]:
        """Return the row as a document for JSON: the median of each figure, the median of the ratios of all rounds, and the
        interval of the mean ratio.

        ``ratio`` is FlintMQ's figure divided by the other broker's; ``ratio_also`` is FlintMQ's figure divided by the third
        broker's.
        """
        found: dict[str, Any] = {"bench": "compare", "row": self.spec.name, "rounds": len(self.measured["ours"])}
        if self.why_not:
            found["why_not"] = self.why_not
        for name in self.spec.figures:
            values = {side: _values(rounds, name) for side, rounds in self.measured.items()}
            entry: dict[str, Any] = {
                side: round(statistics.median(those), 4) for side, those in values.items() if those
            }
            for side, called in (("theirs", "ratio"), ("also", "ratio_also")):
                entry |= _ratio(called, values["ours"], values.get(side, []))
            if entry:
                found[name] = entry
        return found


def geometric_means(rows: Iterable[Row]) -> dict[str, Any]:
    """Return, for each figure, the geometric mean of the ratios in all rows that measure sends of the Java client. The result
    is empty if no such row was measured."""
    documents = [row.as_json() for row in rows if row.spec.needs_client and row.spec.figures == _CLIENT]
    found: dict[str, Any] = {}
    for name in ("rate", "p50_ms", "p99_ms", "broker_cpu_us"):
        ratios = [one[name]["ratio"] for one in documents if one.get(name, {}).get("ratio")]
        if ratios:
            found[name] = {"ratio": round(statistics.geometric_mean(ratios), 4)}
    count = len(documents)
    return {"bench": "compare", "row": "java-geometric-mean", "rows": count, **found} if found else {}


def _ratio(called: str, ours: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return the median ratio of FlintMQ's figures to another broker's, and the ratio's interval. The result is empty if one of
    the brokers has no figure for a round."""
    pairs = [a / b for a, b in zip(ours, others, strict=False) if b > 0] if len(ours) == len(others) else []
    if not pairs:
        return {}
    found: dict[str, Any] = {called: round(statistics.median(pairs), 4)}
    interval = ratio(ours, others)
    if interval is not None and len(pairs) > 1:
        found[f"{called}_95"] = [interval.as_json()["low"], interval.as_json()["high"]]
    return found


def _values(rounds: Sequence[Figures], name: str) -> list[float]:
    return [value for one in rounds if (value := one.get(name)) is not None]


def compare_row(spec: RowSpec, setting: Setting, compared: Mapping[str, Side], rounds: int) -> Row:
    """Measure one row with each broker in turn, round by round. The broker that is measured first changes with each round.

    If a broker cannot be measured, the row contains the reason instead of the broker's figures.
    """
    found: dict[str, list[Figures]] = {which: [] for which in compared}
    sides = [(which, side) for which, side in compared.items() if which == "ours" or not spec.ours_only]
    why_not: dict[str, str] = {}
    for number in range(rounds):
        first = number % len(sides)
        for which, side in sides[first:] + sides[:first]:
            if which in why_not:
                continue
            try:
                found[which].append(spec.measure(setting, side))
            except (FlintError, OSError) as error:
                why_not[which] = f"{side.name}: {error}"
                found[which].clear()
    measured = {which: tuple(figures) for which, figures in found.items()}
    return Row(spec, measured, "; ".join(why_not.values()))


@contextlib.contextmanager
def started_by(command: str, stop: str, name_server: str) -> Any:
    """Run a broker: one command starts the broker, and another command stops it.

    Raises:
        RemotingError: a command fails.
    """
    _call(command)
    try:
        yield name_server
    finally:
        if stop:
            _call(stop)


def _call(command: str) -> None:
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise RemotingError(f"'{command}' cannot be run: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise RemotingError(f"'{command}' ended with {done.returncode}: {said[0]}")
