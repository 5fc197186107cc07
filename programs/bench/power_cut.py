"""What a power cut takes: the strategy's real service on a simulated disk, cut off at the moment that costs most.

The broker runs as it is, with its threads and the system's clock; only its disk is one in memory that knows what was synced
(:mod:`flintmq.testing.simulated_disk`). Afterwards the disk is wound back to some acknowledgements: to the one at which
most was acknowledged and not synced, and to others at random. Each time everything that was not synced by then is gone, a
store is opened on what is left, and the acknowledged messages that recovery does not find are counted.
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
"""So much is appended at most: all of it is in memory, twice."""
RANDOM_CUTS: Final = 3
_SMALL: Final = (
    "store.commit_log_file_bytes=8MiB",
    "store.preallocate=false",
    "store.warm=false",
    "index.enable=false",
)


@attrs.frozen
class PowerCut:
    """What was lost."""

    lost_messages: int | None
    """Acknowledged, and not there after the power cut that costs most; None when it could not be tried."""
    acknowledged_messages: int
    """Until that power cut."""
    rate: float
    """Messages per second on the simulated disk, whose syncs take no time."""
    cuts: int
    """Power cuts that were tried."""
    why_not: str = ""
    """Why it could not be tried."""


@attrs.frozen
class _Acknowledgement:
    """One put that was acknowledged."""

    journal: int
    """Operations the disk had done by then."""
    end_bytes: int
    """Of its last record."""
    unsynced_bytes: int
    """What was acknowledged and not synced at that moment."""


async def power_cut(plan: FlushPlan, contender: Contender, plugins: Sequence[object] = ()) -> PowerCut:
    """Run a strategy on a simulated disk and cut the power; ``plugins`` stand beside those of the plan's settings.

    Raises:
        ConfigError, PluginError: as for a round.
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
            with contextlib.suppress(RefusedError):  # a strategy that cannot work on this disk is fenced by now
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
    """Return the acknowledgement whose power cut lost most, the puts lost, and how many cuts were tried."""
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
    """Silence the warnings of a recovery after a power cut, which are expected here."""
    logger = logging.getLogger("flintmq")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
