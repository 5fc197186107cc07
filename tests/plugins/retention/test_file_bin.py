"""Files of a log are deleted in order, whatever fails: a log with a hole at its beginning could not be opened again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.core.errors import StoreError
from flintmq.plugins.retention.cleaner import FileBin
from flintmq.testing.simulated_disk import SimulatedDisk

FILES = [Path("/log") / f"{number:020d}" for number in (0, 4096, 8192)]


def filled() -> SimulatedDisk:
    """A disk with three files of a log."""
    disk = SimulatedDisk()
    disk.make_folder(Path("/log"))
    for path in FILES:
        disk.write_file(path, b"x")
    return disk


@attrs.define
class Later(Executor):
    """Runs what it is given when the test says so."""

    waiting: list[Callable[[], Any]] = attrs.Factory(list)

    def submit(self, fn: Callable[..., Any], /, *_args: Any, **_kwargs: Any) -> Future[Any]:
        self.waiting.append(fn)
        return Future()

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def test_files_that_wait_for_deletion_are_kept_if_the_deletion_of_the_first_file_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first file cannot be deleted once: those behind it wait for it."""
    disk = filled()
    disk.fail(0, 5, operation="unlink")
    bin_ = FileBin(disk, None)
    for path in FILES:
        bin_.put(path)
    bin_.empty()
    assert disk.list_files(Path("/log")) == FILES
    assert (len(bin_), bin_.failures) == (3, 1)
    assert "3 files wait" in caplog.text
    bin_.empty()
    assert disk.list_files(Path("/log")) == []
    assert (len(bin_), bin_.failures) == (0, 1)


def test_files_are_deleted_in_the_background_thread(caplog: pytest.LogCaptureFixture) -> None:
    """The loop's thread must not wait for the disk."""
    disk, later = filled(), Later()
    bin_ = FileBin(disk, later)
    bin_.empty()
    assert not later.waiting, "nothing waits"
    bin_.put(FILES[0])
    bin_.empty()
    bin_.put(FILES[1])
    bin_.empty()
    assert disk.list_files(Path("/log")) == FILES
    later.run()
    assert disk.list_files(Path("/log")) == FILES[2:]


def test_the_memory_map_of_a_file_is_released_only_when_the_file_is_unlinked() -> None:
    """A map of a gigabyte is let go where its file is deleted, on that thread."""

    class Map:
        pass

    disk, later = filled(), Later()
    bin_ = FileBin(disk, later)
    held = Map()
    gone = weakref.ref(held)
    bin_.put(FILES[0], held)
    del held
    bin_.empty()
    assert gone() is not None
    later.run()
    assert gone() is None


def test_a_store_error_while_deleting_a_file_counts_as_a_failed_deletion() -> None:
    """A disk of another kind may raise the store's own errors."""

    class Refusing(SimulatedDisk):
        def remove(self, path: Path) -> None:
            raise StoreError(f"{path}: no")

    bin_ = FileBin(Refusing(), None)
    bin_.put(FILES[0])
    bin_.empty()
    assert (len(bin_), bin_.failures) == (1, 1)
