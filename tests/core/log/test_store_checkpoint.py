"""A start after a crash walks the log from the checkpoint: one that vouches for too much loses units of queues."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flintmq.core.errors import StoreFormatError
from flintmq.core.log.store_checkpoint import CHECKPOINT_BYTES, StoreCheckpoint
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.tests.support.crash_states import CrashPoint

PATH = Path("/store/checkpoint")


def written(physic_ms: int, logics_ms: int, index_ms: int = 0) -> tuple[SimulatedDisk, StoreCheckpoint]:
    """A checkpoint on disk."""
    disk = SimulatedDisk()
    checkpoint = StoreCheckpoint(disk, PATH)
    checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms = physic_ms, logics_ms
    checkpoint.index_msg_timestamp_ms = index_ms
    checkpoint.flush()
    return disk, checkpoint


def test_a_flushed_checkpoint_is_read_back_after_a_power_cut() -> None:
    """Eight bytes each, and the file has the size that RocketMQ expects."""
    disk, _checkpoint = written(10_000, 20_000, 30_000)
    left = CrashPoint(disk).advance(len(disk.journal)).power_cut("lost", random.Random(1))
    assert len(left.files[PATH]) == CHECKPOINT_BYTES
    again = StoreCheckpoint(SimulatedDisk(left), PATH)
    assert again.physic_msg_timestamp_ms == 10_000
    assert again.logics_msg_timestamp_ms == 20_000
    assert again.index_msg_timestamp_ms == 30_000


@pytest.mark.parametrize(
    ("physic_ms", "logics_ms", "minimum_ms"), [(10_000, 20_000, 7_000), (9_000, 5_000, 2_000), (1, 1, 0)]
)
def test_min_timestamp_ms_is_the_smaller_timestamp_of_the_checkpoint_minus_3_seconds(
    physic_ms: int, logics_ms: int, minimum_ms: int
) -> None:
    """RocketMQ's slack: store times of one file need not be in order."""
    assert written(physic_ms, logics_ms)[1].min_timestamp_ms == minimum_ms


def test_a_checkpoint_timestamp_reduced_by_recovery_survives_a_power_cut() -> None:
    """Units that a recovery is about to write again must not be vouched for when it crashes."""
    disk, checkpoint = written(50_000, 50_000)
    checkpoint.rewind(60_000)
    assert checkpoint.min_timestamp_ms == 47_000
    checkpoint.rewind(20_000)
    assert checkpoint.min_timestamp_ms == 20_000
    left = CrashPoint(disk).advance(len(disk.journal)).power_cut("lost", random.Random(1))
    assert StoreCheckpoint(SimulatedDisk(left), PATH).min_timestamp_ms == 20_000
    checkpoint.rewind(0)
    assert checkpoint.min_timestamp_ms == 0


def test_an_empty_checkpoint_file_reads_as_time_0_and_a_checkpoint_of_wrong_size_is_refused() -> None:
    """The first vouches for nothing; the second may be somebody else's file."""
    disk = SimulatedDisk()
    disk.make_folder(PATH.parent)
    disk.write_file(PATH, b"")
    assert StoreCheckpoint(disk, PATH).min_timestamp_ms == 0
    other = SimulatedDisk()
    other.make_folder(PATH.parent)
    other.write_file(PATH, b"short")
    with pytest.raises(StoreFormatError, match="has 5 bytes"):
        StoreCheckpoint(other, PATH)
