"""What is planned on a disk that drops every write must be what a start then does, and must leave the store as it was."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.recovery.last_stop import LastStop, boot_path
from flintmq.core.recovery.plan import RecoveryPlan
from flintmq.core.store.opened_store import OpenedStore, StoreSpec, plan_of, recover
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.programs.doctor.explain import explain_start
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.look_disk import LookDisk
from flintmq.testing.store import snapshot, store_spec
from flintmq.tests.support.effort import examples

from .conftest import FILE_BYTES, Small


def spec_of(root: Path, *, looks: bool = False) -> StoreSpec:
    disk = {"disk": LookDisk()} if looks else {}
    return store_spec(root, commit_log_file_bytes=FILE_BYTES, **disk)


def damage(root: Path, chance: random.Random) -> None:
    """Crashes, flips bits, zeros, cuts and removes files anywhere in the store."""
    if chance.random() < 0.7:
        (root / "abort").touch()
    if chance.random() < 0.5:
        boot_path(root).write_text(OS_DISK.incarnation(root))
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        files = [path for name in ("commitlog", "consumequeue", "index") for path in (root / name).rglob("*")]
        path = chance.choice(sorted(path for path in files if path.is_file()))
        raw = bytearray(path.read_bytes())
        at = chance.randrange(len(raw))
        what = chance.random()
        if what < 0.5:
            raw[at] ^= 1 << chance.randrange(8)
        elif what < 0.8:
            length = min(chance.randrange(1, 600), len(raw) - at)
            raw[at : at + length] = bytes(length)
        elif what < 0.9:
            path.unlink()
            continue
        else:
            raw[:] = bytes(len(raw))
        path.write_bytes(raw)


def indexed_from(store: OpenedStore) -> int | None:
    """From where on records that are not dispatched are handed to the index again; None for none."""
    assert isinstance(store.index, IndexService)
    committed = store.index.committed()
    if committed is None:
        return None
    committed = max(committed, store.commit_log.min_offset_bytes)
    return committed if committed < store.watermarks.dispatched else None


def done(store: OpenedStore) -> tuple[object, ...]:
    """What a start that has opened a store did, in the words of its plan."""
    found = store.recovered
    return (
        None if found is None else (found.end_offset_bytes, found.records, found.queued),
        () if found is None else [(hole.start_offset_bytes, hole.end_offset_bytes) for hole in found.holes],
        None if found is None or found.cut is None else (found.cut.offset_bytes, found.cut.reason),
        store.watermarks.dispatched,
        indexed_from(store),
        store.epochs.epochs.current.start_offset_bytes,
    )


def planned(plan: RecoveryPlan, epoch_start_offset_bytes: int) -> tuple[object, ...]:
    """The same as :func:`done`, beforehand."""
    walked = plan.walked
    end = 0 if walked is None else walked.end_offset_bytes
    return (
        None if walked is None else (end, walked.records, walked.queued),
        () if walked is None else [(hole.start_offset_bytes, hole.end_offset_bytes) for hole in walked.holes],
        None if walked is None or walked.cut is None else (walked.cut.offset_bytes, walked.cut.reason),
        plan.dispatched_from_offset_bytes,
        plan.indexed_from_offset_bytes,
        end if plan.begins_epoch else epoch_start_offset_bytes,
    )


@settings(deadline=None, max_examples=examples(100))
@given(seed=st.integers(0, 2**32))
def test_a_dry_run_of_a_broker_start_predicts_what_the_real_start_does_to_a_damaged_store(
    original: Path, seed: int
) -> None:
    """On stores with random damage; where it is refused, the plan is refused for the same reason."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        shutil.copytree(original, root)
        damage(root, random.Random(seed))
        before = snapshot(root)
        spec = spec_of(root)
        try:
            plan = plan_of(spec_of(root, looks=True))
        except Exception as refused:
            assert snapshot(root) == before
            with pytest.raises(type(refused)):
                recover(spec)
            return
        said = explain_start(StoreFiles(root), spec.config)
        assert snapshot(root) == before
        with contextlib.closing(recover(spec)) as store:
            assert planned(plan, 0) == done(store)
            assert store.started_clean == (plan.last_stop is LastStop.CLEAN)
            assert said["walks_from"] == plan.walked_from_offset_bytes
            assert said["log_ends_at"] == store.watermarks.wrote
            assert said["refuses"] == []


def test_a_dry_run_treats_an_empty_checkpoint_file_as_deleted_but_leaves_the_file_on_disk(small: Small) -> None:
    """Else a checkpoint that a crash left empty would be refused by the plan, where a start makes a new one."""
    (small.root / "checkpoint").write_bytes(b"")
    plan = plan_of(spec_of(small.root, looks=True))
    assert plan.walked is not None
    assert (small.root / "checkpoint").read_bytes() == b""
