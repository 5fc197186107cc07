"""Maps without descriptors: a store of many queues must not need one for each of its files, and must see what a sync tells."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import sys
from pathlib import Path

import pytest

from flintmq.core.errors import StoreExhaustedError
from flintmq.core.io import os_region
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.os_region import OsRegion, map_shared, sync_map

PAGE = mmap.PAGESIZE


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def regions(folder: Path, count: int, *, holds: bool = False) -> list[OsRegion]:
    return [OS_DISK.map_file(folder / f"{n}", PAGE, create=True, allocate=PAGE, holds=holds) for n in range(count)]


def test_mapped_files_hold_no_file_descriptor(tmp_path: Path) -> None:
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


def test_a_mapped_file_stays_writable_after_its_descriptor_is_released_twice(
    tmp_path: Path,
) -> None:
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


def test_a_slice_stays_readable_after_its_mapped_file_is_closed(tmp_path: Path) -> None:
    """Bytes on their way to a client stay readable; with the last slice the map goes."""
    (region,) = regions(tmp_path, 1)
    region.write(0, b"kept")
    piece = region.view[:4]
    region.close()
    gc.collect(1)
    assert bytes(piece) == b"kept"
    maps = Path("/proc/self/maps")
    assert str(tmp_path / "0") in maps.read_text()
    piece.release()
    del region
    gc.collect()
    assert str(tmp_path / "0") not in maps.read_text()


def test_a_file_that_cannot_be_created_for_lack_of_file_descriptors_leaves_nothing_on_disk(tmp_path: Path) -> None:
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


def test_map_file_raises_store_exhausted_error_if_the_system_allows_no_more_memory_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOMEM of a map is vm.max_map_count: the disk is well, and the next file may fit."""

    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os_region, "_mmap", full)
    with pytest.raises(StoreExhaustedError):
        OS_DISK.map_file(tmp_path / "0", PAGE, create=True, allocate=0)
    assert not list(tmp_path.iterdir())


def test_mapping_more_bytes_than_a_file_has_is_refused(tmp_path: Path) -> None:
    """A look behind its end would be SIGBUS, the end of the broker."""
    (tmp_path / "0").write_bytes(b"short")
    with (tmp_path / "0").open("r+b") as file, pytest.raises(ValueError, match="5 bytes"):
        map_shared(file.fileno(), PAGE)


def test_a_failed_msync_raises_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of msync that nobody raises would be an acknowledgement of something that is not on disk."""
    (region,) = regions(tmp_path, 1)
    region.sync()

    def refused(*_arguments: object) -> int:
        os_region.ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(os_region, "_msync", refused)
    with pytest.raises(OSError, match="Input/output") as failed:
        region.sync()
    assert failed.value.errno == errno.EIO
    region.close()


def test_syncing_a_closed_memory_map_raises_value_error(tmp_path: Path) -> None:
    """Its addresses may be another file's by now."""
    (tmp_path / "0").write_bytes(bytes(PAGE))
    with (tmp_path / "0").open("r+b") as file:
        mapped = map_shared(file.fileno(), PAGE)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        sync_map(mapped)


def test_a_file_is_mapped_even_if_the_system_refuses_anonymous_memory_maps(tmp_path: Path) -> None:
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


pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the kernel does not tell how it maps")

PART = 256 * 1024


def random_parts(path: Path) -> list[int]:
    """Sizes of the parts of a file's map that are not read ahead, in KiB."""
    found, inside, size = [], False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if "-" in fields[0] and not fields[0].endswith(":"):
            inside = line.endswith(str(path))
        elif inside and fields[0] == "Size:":
            size = int(fields[1])
        elif inside and fields[0] == "VmFlags:" and "rr" in fields:
            found.append(size)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="madvise is Linux's")
def test_kernel_readahead_is_disabled_only_for_the_last_allocated_region_of_a_mapped_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest part is spared; what lies before it is read by consumers, from its beginning to its end."""
    monkeypatch.setattr(os_region, "_SINGLE_PAGES_BYTES", PART)
    path = tmp_path / "log"
    region = OS_DISK.map_file(path, 4 * PART, create=True, allocate=PART)
    assert random_parts(path) == [PART // 1024]
    region.allocate(3 * PART)
    assert random_parts(path) == [PART // 1024]
    region.write(3 * PART - 4, b"last")
    region.close()
    again = OS_DISK.map_file(path, 4 * PART, create=False, allocate=0)
    assert random_parts(path) == []
    again.allocate(4 * PART)
    assert random_parts(path) == [PART // 1024]
    assert bytes(again.view[3 * PART - 4 : 3 * PART]) == b"last"
    again.close()


def test_the_parent_folders_of_a_new_file_are_synced_by_each_of_two_concurrent_sync_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that comes second must neither fail nor come back before the file's name is on disk."""
    region = OS_DISK.map_file(tmp_path / "new" / "0", 4096, create=True, allocate=4096)
    synced: list[Path] = []
    real = os_region.sync_folder

    def met(folder: Path) -> None:
        if not folder.is_relative_to(tmp_path):
            return real(folder)  # of a broker that other tests in this process share
        first = not synced
        synced.append(folder)
        if first:
            before = len(synced)
            region.sync()  # the other thread's, from its beginning to its end
            assert set(synced[before:]) == {tmp_path, tmp_path / "new"}
        return real(folder)

    monkeypatch.setattr(os_region, "sync_folder", met)
    try:
        region.sync()
        assert set(synced) == {tmp_path, tmp_path / "new"}
        synced.clear()
        region.sync()
        assert synced == []
    finally:
        region.close()


def test_all_bytes_are_written_even_if_the_system_writes_fewer_bytes_per_call_than_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may write less than it was asked for; what is read through the map is whole all the same."""
    region = OS_DISK.map_file(tmp_path / "0", 8192, create=True, allocate=8192)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:100], position))
    data = bytes(range(256)) * 5
    try:
        region.write_in_order(77, data)
        region.write_in_order(4000, memoryview(b""))
        assert region.view[77 : 77 + len(data)] == data
        assert not any(region.view[77 + len(data) :])
    finally:
        region.close()
