"""Measures how many acknowledged messages a power cut can lose with a flush strategy.

The broker runs unchanged, with its flush service, its threads and the system's clock. Only its disk is simulated
(:mod:`flintmq.testing.simulated_disk`). The simulated disk is in memory, and records which data is synced.

After the run, power cuts are simulated at several acknowledgements: the acknowledgement with the most unsynced data, the last
one, and some random ones. For each power cut, the disk is reset to its state at the acknowledgement, and all data that was not
synced is dropped. A store is then opened on the remaining data. The acknowledged messages that its recovery does not find are
counted.
"""

from __future__ import annotations

import contextlib
import logging
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from flintmq.config import BrokerConfig, load_config
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.store.opened_store import recover
from flintmq.programs.bench.flush_round import QUIET, TOPIC, Contender, FlushPlan, Writers
from flintmq.programs.broker.broker import Broker
from flintmq.remoting.client.message import Message
from flintmq.testing.journaled_files import JournalReplay
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import store_spec

LOG_BYTES_MAX: Final = 48 * 1024 * 1024
"""Maximum number of bytes that a run appends to the simulated disk. The disk keeps these bytes in memory twice."""
RANDOM_CUTS: Final = 3
_SMALL: Final = (
    "store.commit_log_file_bytes=8MiB",
    "store.preallocate=false",
    "store.warm=false",
    "index.enable=false",
)


@attrs.frozen
class PowerCut:
    """The result of the simulated power cuts for one flush strategy."""

    lost_messages: int | None
    """Number of acknowledged messages that the worst power cut lost; None if no power cut was possible."""
    acknowledged_messages: int
    """Number of messages that were acknowledged before the power cut with the largest loss."""
    rate: float
    """Messages per second on the simulated disk, whose syncs take no time."""
    cuts: int
    """Number of simulated power cuts."""
    why_not: str = ""
    """Reason why no power cut could be simulated; empty if power cuts were simulated."""


@attrs.frozen
class _Acknowledgement:
    """A put of messages that the broker has acknowledged."""

    journal: int
    """Number of operations in the simulated disk's journal when the broker acknowledged the put. A replay of these operations
    gives the disk's state at a power cut directly after the broker acknowledged the put."""
    end_bytes: int
    """Physical offset at which the last record of the acknowledged put ends. If the log that is recovered after a power cut
    ends before this offset, the put counts as lost."""
    unsynced_bytes: int
    """Number of bytes that were acknowledged but not synced when the put was acknowledged."""


async def power_cut(plan: FlushPlan, contender: Contender, plugins: Sequence[object] = ()) -> PowerCut:
    """Measure a flush strategy on a simulated disk, and return how much of its acknowledged data a power cut loses.

    Args:
        plan: the load.
        contender: the strategy.
        plugins: plugins in addition to those of the plan's settings.

    Raises:
        ConfigError, PluginError: the strategy is unknown, or a setting is not valid.
    """
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-cut-") as folder, _quiet():
        root = Path(folder) / "store"
        root.mkdir()
        overrides = [*QUIET, *plan.overrides(contender), *_SMALL, f"store.path={root}"]
        loaded = load_config(None, overrides, {})
        disk = SimulatedDisk()
        acknowledged: list[_Acknowledgement] = []
        async with Broker(loaded, plugins=plugins, disk=disk) as broker:
            marks = broker.state.store.watermarks
            # An empty message is stored first, to find out whether the flush strategy works on the simulated disk.
            # If the flush strategy cannot flush the empty message, the store refuses all later messages, so no load is run.
            with contextlib.suppress(RefusedError):
                await broker.put([Message(TOPIC, b"")])

            def on_acknowledged(end: int) -> bool:
                unsynced = writers.acknowledged_bytes - marks.flushed
                acknowledged.append(_Acknowledgement(len(disk.journal), end, unsynced))
                return end < LOG_BYTES_MAX

            writers = Writers(broker, plan, on_acknowledged)
            seconds = await writers.run(plan.power_cut_s) if marks.fence_reason is None else 0.0
            fence = marks.fence_reason
        if not acknowledged or fence is not None:
            why = f"it does not keep to the broker's disk: {fence}" if fence else "nothing was acknowledged"
            return PowerCut(None, 0, 0.0, 0, why)
        worst, lost, cuts = _cut(disk, acknowledged, root, loaded.config)
        return PowerCut(
            lost_messages=lost * plan.batch,
            acknowledged_messages=(worst + 1) * plan.batch,
            rate=round(len(acknowledged) * plan.batch / seconds, 1),
            cuts=cuts,
        )


def _cut(
    disk: SimulatedDisk, acknowledged: list[_Acknowledgement], root: Path, config: BrokerConfig
) -> tuple[int, int, int]:
    """Return the acknowledgement after which a simulated power cut loses the most puts, the number of these puts, and the
    number of simulated power cuts."""
    rng = random.Random(len(acknowledged))
    worst = max(range(len(acknowledged)), key=lambda at: acknowledged[at].unsynced_bytes)
    chosen = sorted({worst, len(acknowledged) - 1, *(rng.randrange(len(acknowledged)) for _ in range(RANDOM_CUTS))})
    replay = JournalReplay(disk)
    most = (len(acknowledged) - 1, 0)
    for at in chosen:
        image = replay.advance(acknowledged[at].journal).synced()
        disk_after = SimulatedDisk(image, boot="after", journal=False)
        with contextlib.closing(
            recover(store_spec(root, config=config, disk=disk_after, clock=SYSTEM_CLOCK))
        ) as opened:
            recovered = opened.commit_log.wrote_offset_bytes
        lost = sum(1 for one in acknowledged[: at + 1] if one.end_bytes > recovered)
        if lost > most[1]:
            most = (at, lost)
    return most[0], most[1], len(chosen)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of a recovery after a power cut, which are expected."""
    logger = logging.getLogger("flintmq")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
