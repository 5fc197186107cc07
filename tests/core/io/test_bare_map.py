"""Maps without descriptors: a store of many queues must not need one for each of its files, and must see what a sync tells."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
from pathlib import Path

import pytest

from flintmq.core.errors import StoreExhaustedError
from flintmq.core.io import bare_map
from flintmq.core.io.bare_map import map_shared, sync_map
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.os_region import OsRegion

PAGE = mmap.PAGESIZE


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def regions(folder: Path, count: int, *, holds: bool = False) -> list[OsRegion]:
    return [OS_DISK.map_file(folder / f"{n}", PAGE, create=True, allocate=PAGE, holds=holds) for n in range(count)]


def test_mapped_files_hold_no_descriptor(tmp_path: Path) -> None:
    """Whatever is done to them: written, grown, synced, looked at."""
    before = descriptors()
    made = regions(tmp_path, 50)
    for region in made:
        region.write(0, b"x" * PAGE)
        region.write_in_order(8, b"yz")
        region.fill_zeros(100, 200)
        region.rewrite(0, PAGE)
        region.sync()
        region.sync()
        assert region.next_data(0) == 0
    assert descriptors() == before
    for number, region in enumerate(made):
        region.close()
        region.close()
        assert (tmp_path / f"{number}").read_bytes()[:11] == b"xxxxxxxxyzx"


def test_one_that_holds_lets_go_once(tmp_path: Path) -> None:
    """The log's newest file keeps one; when it is full that is given back, and what is done later opens the file."""
    before = descriptors()
    (region,) = regions(tmp_path, 1, holds=True)
    assert descriptors() == before + 1
    region.sync()
    region.let_go()
    region.let_go()
    assert descriptors() == before
    region.write_in_order(0, b"late")
    region.sync()
    region.close()
    assert (tmp_path / "0").read_bytes()[:4] == b"late"


def test_a_slice_outlives_its_region(tmp_path: Path) -> None:
    """Bytes on their way to a client stay readable; with the last slice the map goes."""
    (region,) = regions(tmp_path, 1)
    region.write(0, b"kept")
    piece = region.view[:4]
    region.close()
    gc.collect()
    assert bytes(piece) == b"kept"
    maps = Path("/proc/self/maps")
    assert str(tmp_path / "0") in maps.read_text()
    piece.release()
    del region
    gc.collect()
    assert str(tmp_path / "0") not in maps.read_text()


def test_no_descriptor_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    """At the real limit: a new file is refused as something that passes, with nothing left behind; a sync needs none."""
    (region,) = regions(tmp_path, 1)
    region.sync()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(tmp_path, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        region.write(0, b"z" * PAGE)
        region.sync()
        with pytest.raises(StoreExhaustedError):
            OS_DISK.map_file(tmp_path / "new" / "1", PAGE, create=True, allocate=0)
        with pytest.raises(OSError, match="open files") as failed:
            region.write_in_order(0, b"y")
        assert failed.value.errno == errno.EMFILE
        with pytest.raises(OSError, match="open files"):
            OS_DISK.remove(tmp_path / "0")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    region.close()


def test_no_map_left_is_told_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOMEM of a map is vm.max_map_count: the disk is well, and the next file may fit."""

    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(bare_map, "_mmap", full)
    with pytest.raises(StoreExhaustedError):
        OS_DISK.map_file(tmp_path / "0", PAGE, create=True, allocate=0)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_shorter_is_never_mapped(tmp_path: Path) -> None:
    """A look behind its end would be SIGBUS, the end of the broker."""
    (tmp_path / "0").write_bytes(b"short")
    with (tmp_path / "0").open("r+b") as file, pytest.raises(ValueError, match="5 bytes"):
        map_shared(file.fileno(), PAGE)


def test_a_refused_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of msync that nobody raises would be an acknowledgement of something that is not on disk."""
    (region,) = regions(tmp_path, 1)
    region.sync()

    def refused(*_arguments: object) -> int:
        bare_map.ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(bare_map, "_msync", refused)
    with pytest.raises(OSError, match="Input/output") as failed:
        region.sync()
    assert failed.value.errno == errno.EIO
    region.close()


def test_a_closed_map_is_never_synced_in_anothers_place(tmp_path: Path) -> None:
    """Its addresses may be another file's by now."""
    (tmp_path / "0").write_bytes(bytes(PAGE))
    with (tmp_path / "0").open("r+b") as file:
        mapped = map_shared(file.fileno(), PAGE)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        sync_map(mapped)


def test_where_memory_is_promised_strictly_a_descriptor_is_the_price(tmp_path: Path) -> None:
    """Under a limit of data (as under vm.overcommit_memory=2) the anonymous map is refused; the file's own never is."""
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1, hard))
    try:
        region = OS_DISK.map_file(tmp_path / "0", 1024 * PAGE, create=True, allocate=PAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert descriptors() == before + 1
    region.write(0, b"there")
    region.sync()
    region.close()
    assert descriptors() == before
    assert (tmp_path / "0").read_bytes()[:5] == b"there"
