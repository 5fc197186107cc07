"""A store that was copied without the holes of its files (scp, ``cp --sparse=never``) starts as fast as its original."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.record import log_part
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify import verify
from flintmq.testing.store import message, opened
from tests.support.effort import first

MIB = 1024 * 1024
LARGE: dict[str, Any] = {"max_hash_slot_num": 10_000, "max_index_num": 40_000}


def make(root: Path, queues: int, files: int, **sizes: Any) -> None:
    """Make a store with a message a queue, in so many files of the log."""
    with opened(root, **sizes) as store:
        for number in range(queues):
            store.put([message(f"t{number}", body=b"1")])
        for _file in range(files - 1):
            while store.commit_log.queue.files[-1].size - store.commit_log.queue.files[-1].wrote > 4 * MIB:
                store.put([message("t0", body=bytes(4 * MIB - 200))])
            store.put([message("t0", body=bytes(4 * MIB - 200))])
        store.dispatch()


def copy_dense(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as read, copy.open("wb") as written:
            while piece := read.read(MIB):
                written.write(piece)


def cpu_s(work: Callable[[], object]) -> float:
    """Return the least CPU time of three tries."""
    took = []
    for _try in range(3):
        began_s = time.process_time()
        work()
        took.append(time.process_time() - began_s)
    return min(took)


CASES = [
    ("small", 1, 1, 4 * MIB, 6_000_000),
    ("many queues", 40, 1, 4 * MIB, 600_000),
    ("larger", 4, 1, 256 * MIB, 6_000_000),
    ("files", 2, 3, 64 * MIB, 6_000_000),
    ("largest", 1, 1, 1024 * MIB, 6_000_000),
]


@pytest.mark.parametrize(
    ("name", "queues", "files", "log_bytes", "queue_bytes"), first(["small", "many queues"], CASES)
)
@pytest.mark.parametrize("killed", [False, True])
def test_a_store_copied_without_file_holes_starts_as_fast_as_the_original(
    tmp_path: Path, name: str, queues: int, files: int, log_bytes: int, queue_bytes: int, killed: bool
) -> None:
    """The start reads the zeros once and compares them: less than 0.1 s for each gigabyte of them on any machine."""
    sizes = {"commit_log_file_bytes": log_bytes, "consume_queue_file_bytes": queue_bytes, **LARGE}
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    make(sparse, queues, files, **sizes)
    copy_dense(sparse, dense)
    zeros = bytes(16 * MIB)
    compare_s = cpu_s(lambda: bytearray(zeros) == zeros) / len(zeros)

    def start(root: Path) -> None:
        if killed:
            (root / "abort").touch()
        with opened(root, **sizes) as store:
            assert store.reader.max_queue_offset("t0", 0) >= 1

    as_sparse_s, as_dense_s = cpu_s(lambda: start(sparse)), cpu_s(lambda: start(dense))

    size_bytes = log_bytes + queues * queue_bytes
    assert as_dense_s <= 1.5 * as_sparse_s + 0.02 + 4 * compare_s * size_bytes


def test_opening_a_store_scans_each_zero_byte_only_once_if_the_store_files_are_not_sparse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"commit_log_file_bytes": 8 * MIB, "consume_queue_file_bytes": 600_000, **LARGE}
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    make(sparse, 3, 1, **sizes)
    copy_dense(sparse, dense)
    compared_bytes = 0

    class Counting(bytes):
        def startswith(self, chunk: Any, *more: Any) -> bool:
            nonlocal compared_bytes
            compared_bytes += len(chunk)
            return super().startswith(chunk, *more)

    monkeypatch.setattr(log_part, "_ZEROS", Counting(log_part._ZEROS))
    with opened(dense, **sizes):
        pass
    assert 8 * MIB + 3 * 500_000 < compared_bytes <= 8 * MIB + 3 * 600_000 + 64


def test_verify_checks_a_store_without_sparse_files_as_fast_as_a_store_with_sparse_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"commit_log_file_bytes": 32 * MIB, "consume_queue_file_bytes": 600_000, **LARGE}
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    make(sparse, 3, 1, **sizes)
    copy_dense(sparse, dense)

    def check(root: Path) -> None:
        assert verify(StoreFiles(root)).is_sound

    as_sparse_s, as_dense_s = cpu_s(lambda: check(sparse)), cpu_s(lambda: check(dense))
    assert as_dense_s <= 2 * as_sparse_s + 0.05
