"""Runs one round: a broker with one flush strategy on a new store, and writers that wait for acknowledgements."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config import load_config
from flintmq.core.errors import RefusedError
from flintmq.programs.bench.figures import percentile_ms
from flintmq.programs.bench.frames import body_of
from flintmq.programs.bench.machine import machine_busy_s, written_bytes
from flintmq.programs.broker.broker import Broker
from flintmq.remoting.client.message import Message

TOPIC: Final = "FlushBench"
QUIET: Final = ("listen.port=0", "listen.vip=false", "listen.host=127.0.0.1")
"""Settings that give the measured broker a free port on loopback and no VIP port, so that its port never conflicts with the
port of another broker."""


@attrs.frozen
class FlushRound:
    """The figures of one flush strategy in one round of a benchmark."""

    label: str
    round_number: int
    place: int
    """The strategy's position in the order of the round, counted from 0."""
    messages: int
    seconds: float
    rate: float
    """Acknowledged messages per second."""
    p50_ms: float
    """Median latency of a put in ms, from the call to the acknowledgement."""
    p99_ms: float
    p999_ms: float
    syncs_per_s: float
    messages_per_sync: float
    written_mib_per_s: float
    written_bytes_per_message: float
    cpu_us: float
    """Processor time of the whole process per message in µs, including the writers."""
    unsynced_messages: float
    """Maximum number of messages that were acknowledged but not on disk, checked at each acknowledgement. A power cut loses
    these messages."""
    unsynced_ms: float
    """Time in ms in which the writers send :attr:`unsynced_messages` messages."""
    uncommitted_messages: float
    """Maximum number of messages that were acknowledged but not in the page cache. The end of the process by ``SIGKILL`` loses
    these messages."""
    errors: int
    other_cpu: float
    """Number of processors that other processes used during the round; 0.5 is half of one processor."""
    latencies_s: array[float] = attrs.field(repr=False, eq=False)
    """Latencies of all puts of the round in seconds, sorted."""

    def as_json(self) -> dict[str, Any]:
        fields = attrs.asdict(self, filter=lambda attribute, _value: attribute.name != "latencies_s")
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in fields.items()}


class Writers:
    """The load of a flush benchmark: a number of writers, each of which puts a batch of messages and waits for the
    acknowledgement. For the loop thread only.

    Args:
        broker: the broker to load.
        plan: the load.
        on_acknowledged: called with the end of each acknowledged batch in the log; returns whether to continue.
    """

    def __init__(self, broker: Broker, plan: FlushPlan, on_acknowledged: Callable[[int], bool] | None = None) -> None:
        self._on_acknowledged = on_acknowledged
        self._broker = broker
        self._marks = broker.state.store.watermarks
        self._batch = [Message(TOPIC, body_of(plan.size_bytes)) for _ in range(plan.batch)]
        self._threads = plan.threads
        self._until_s = 0.0
        self.latencies_s = array("d")
        self.errors = 0
        self.acknowledged_bytes = 0
        """Physical offset of the end of the last acknowledged message."""
        self.unsynced_bytes = 0
        self.uncommitted_bytes = 0

    async def run(self, seconds: float) -> float:
        """Load the broker after its counters are reset, and return the duration of the load in seconds."""
        self.latencies_s = array("d")
        self.errors = self.unsynced_bytes = self.uncommitted_bytes = 0
        begin_s = time.perf_counter()
        self._until_s = begin_s + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(self._threads):
                group.create_task(self._write())
        return time.perf_counter() - begin_s

    async def _write(self) -> None:
        clock, marks, batch, put = time.perf_counter, self._marks, self._batch, self._broker.put
        latencies_s = self.latencies_s
        now_s = clock()
        while now_s < self._until_s:
            try:
                made = put(batch)
                end = marks.wrote
                at_once = made.status is not None
                await made
            except RefusedError:
                self.errors += 1
                # If flow control or a fenced store refuses a batch, the writer waits, so that it does not retry in a busy loop.
                await asyncio.sleep(0.001)
                now_s = clock()
                continue
            done_s = clock()
            latencies_s.append(done_s - now_s)
            if end > self.acknowledged_bytes:
                self.acknowledged_bytes = end
            unsynced = self.acknowledged_bytes - marks.flushed
            if unsynced > self.unsynced_bytes:
                self.unsynced_bytes = unsynced
            # ``uncommitted_bytes`` can grow only if ``unsynced`` is larger, because all uncommitted bytes are also unsynced.
            if unsynced > self.uncommitted_bytes:
                self.uncommitted_bytes = max(self.uncommitted_bytes, self.acknowledged_bytes - marks.committed)
            if self._on_acknowledged is not None and not self._on_acknowledged(end):
                return
            if at_once:
                # A put that is acknowledged at once does not suspend the writer, so sleep(0) lets the other writers run.
                await asyncio.sleep(0)
            now_s = clock()


async def run_round(plan: FlushPlan, contender: Contender, number: int, place: int) -> FlushRound:
    """Measure one flush strategy in one round, and return its figures. The store is created in the plan's folder and removed.

    Raises:
        ConfigError, PluginError: the strategy is unknown, or a setting is not valid.
        StoreError: the store cannot be created.
    """
    folder = Path(tempfile.mkdtemp(prefix="flintmq-bench-flush-", dir=plan.folder))
    try:
        overrides = [*QUIET, *plan.overrides(contender), f"store.path={folder / 'store'}"]
        async with Broker(load_config(None, overrides, {})) as broker:
            return await _measured(plan, broker, contender, number, place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measured(plan: FlushPlan, broker: Broker, contender: Contender, number: int, place: int) -> FlushRound:
    writers = Writers(broker, plan)
    store = broker.state.store
    # An empty message is stored before the measurement, because the first message creates the topic and the log's first file.
    await broker.put([Message(TOPIC, b"")])
    if plan.warmup_s:
        await writers.run(plan.warmup_s)
    gc.collect()
    before_bytes = store.watermarks.wrote
    counters = store.services.flush_service.statistics()
    written, busy_s, cpu_s = written_bytes(), machine_busy_s(), time.process_time()
    seconds = await writers.run(plan.seconds)
    cpu_s = time.process_time() - cpu_s
    written, busy_s = written_bytes() - written, machine_busy_s() - busy_s
    after = store.services.flush_service.statistics()
    latencies_s = array("d", sorted(writers.latencies_s))
    messages = len(latencies_s) * plan.batch
    rate = messages / seconds
    record_bytes = (store.watermarks.wrote - before_bytes) / messages if messages else 1.0
    syncs = after.syncs - counters.syncs
    unsynced = writers.unsynced_bytes / record_bytes
    return FlushRound(
        label=contender.label,
        round_number=number,
        place=place,
        messages=messages,
        seconds=seconds,
        rate=rate,
        p50_ms=percentile_ms(latencies_s, 0.5),
        p99_ms=percentile_ms(latencies_s, 0.99),
        p999_ms=percentile_ms(latencies_s, 0.999),
        syncs_per_s=syncs / seconds,
        messages_per_sync=messages / syncs if syncs else float(messages),
        written_mib_per_s=written / seconds / (1 << 20),
        written_bytes_per_message=written / max(1, messages),
        cpu_us=cpu_s / max(1, messages) * 1e6,
        unsynced_messages=round(unsynced, 1),
        unsynced_ms=unsynced / rate * 1000 if rate else 0.0,
        uncommitted_messages=round(writers.uncommitted_bytes / record_bytes, 1),
        errors=writers.errors,
        other_cpu=max(0.0, (busy_s - cpu_s) / seconds),
        latencies_s=latencies_s,
    )


@attrs.frozen
class Contender:
    """A flush strategy with settings, which a benchmark measures under a label."""

    label: str
    """The strategy's name in tables: its text on the command line."""
    strategy: str
    settings: tuple[str, ...]
    """Settings of the strategy's broker as ``key=value`` with full keys."""


@attrs.frozen(kw_only=True)
class FlushPlan:
    """The load and the rounds of a flush benchmark."""

    contenders: tuple[Contender, ...]
    folder: Path
    """The folder in which the benchmark creates its stores, on the disk to measure."""
    threads: int = 32
    """Number of writers; each puts a batch, waits for its acknowledgement, and puts the next one."""
    size_bytes: int = 1024
    """Size of a message's body."""
    batch: int = 1
    """Number of messages in one put."""
    seconds: float = 2.0
    """Measured duration of a round in seconds."""
    warmup_s: float = 0.5
    rounds: int = 5
    quiet_s: float = 0.0
    """Maximum time in seconds that a measurement waits before its start, until other processes use few of the processors."""
    settings: tuple[str, ...] = ()
    """Settings of every strategy's broker as ``key=value``."""
    power_cut_s: float = 1.0
    """Duration in seconds of the load on a simulated disk, on which power cuts are simulated for each strategy; 0 for no
    simulated power cuts."""

    def as_json(self) -> dict[str, Any]:
        plain = attrs.asdict(self, filter=lambda attribute, _value: attribute.name not in ("contenders", "folder"))
        return plain | {"settings": list(self.settings), "strategies": [c.label for c in self.contenders]}

    def order(self, round_number: int) -> tuple[Contender, ...]:
        """Return the order in which a round measures the flush strategies. The order rotates, so that no strategy benefits from
        its position."""
        at = round_number % len(self.contenders)
        return self.contenders[at:] + self.contenders[:at]

    def overrides(self, contender: Contender) -> list[str]:
        """Return the settings of the broker or store that measures a flush strategy. The strategy's own settings come last, so
        that they override the common settings."""
        return [f"flush.strategy={contender.strategy}", *self.settings, *contender.settings]


def parse_contender(text: str) -> Contender:
    """Return the flush strategy with settings that a text names, such as ``group_commit``, ``plugin/name`` or
    ``group_commit:interval_ms=1:...``.

    Raises:
        ValueError: the name is missing, or a setting is not ``key=value``.
    """
    strategy, *settings = text.split(":")
    if not strategy or any("=" not in setting or setting.startswith("=") for setting in settings):
        raise ValueError(f"'{text}' is not name or name:key=value:...")
    section = strategy.rpartition("/")[2]
    return Contender(text, strategy, tuple(f"flush.{section}.{setting}" for setting in settings))
