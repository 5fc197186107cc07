"""Pages that are given back to the kernel must be none the worse for it: they may hold what no sync has written yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flintmq.core.io.disk import MappedRegion
from flintmq.core.io.os_disk import OS_DISK

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell what is resident")

SIZE = 1024 * 1024
PAGE = 4096


def resident_bytes(path: Path) -> int:
    """How much of a file's map is in this process's memory."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if "-" in fields[0] and not fields[0].endswith(":"):
            inside = line.endswith(str(path))
        elif inside and fields[0] == "Rss:":
            found += int(fields[1]) * 1024
    return found


def write_through_map(region: MappedRegion, content: bytes) -> None:
    """Piece by piece: what is large goes by way of the system, and no page of it comes into this process."""
    for start in range(0, len(content), PAGE // 4):
        region.write(start, content[start : start + PAGE // 4])


def test_evicting_pages_loses_no_unsynced_bytes(tmp_path: Path) -> None:
    """Written through the map, evicted, read by the map and by the system, written again, synced: always the same bytes."""
    path = tmp_path / "log"
    region = OS_DISK.map_file(path, SIZE, create=True, allocate=SIZE)
    content = bytes(range(256)) * (SIZE // 256)
    write_through_map(region, content)
    held = region.view[PAGE : 2 * PAGE]
    assert resident_bytes(path) == SIZE
    region.evict(0, SIZE)
    assert resident_bytes(path) == 0
    assert path.read_bytes() == content
    assert region.view == content
    region.evict(0, SIZE)
    region.write(PAGE - 1, b"\0\0")
    region.sync()
    region.evict(0, SIZE)
    changed = content[: PAGE - 1] + b"\0\0" + content[PAGE + 1 :]
    assert region.view == changed == path.read_bytes()
    assert held == changed[PAGE : 2 * PAGE], "a slice on its way to a client stays what it was"
    del held
    region.close()


def test_evicting_a_range_of_a_mapped_file_from_the_page_cache_frees_only_whole_pages(tmp_path: Path) -> None:
    """Other threads may be writing beside the evicted part, whose ends are seldom at page boundaries."""
    path = tmp_path / "log"
    region = OS_DISK.map_file(path, SIZE, create=True, allocate=SIZE)
    write_through_map(region, b"x" * SIZE)
    region.evict(1, 3 * PAGE - 1)
    assert resident_bytes(path) == SIZE - PAGE
    for start, end in ((5, 5), (PAGE + 1, 2 * PAGE - 1), (3 * PAGE, PAGE), (0, -1)):
        region.evict(start, end)
    assert resident_bytes(path) == SIZE - PAGE
    region.close()
    region.evict(0, SIZE)


def test_resident_bytes_grows_with_mapped_pages_and_shrinks_when_pages_are_evicted(tmp_path: Path) -> None:
    """The figure by which it is decided must follow what is mapped."""
    size = 64 * SIZE  # the kernel counts in batches
    region = OS_DISK.map_file(tmp_path / "log", size, create=True, allocate=size)
    before = OS_DISK.resident_bytes()
    write_through_map(region, bytes(size))
    full = OS_DISK.resident_bytes()
    region.evict(0, size)
    after = OS_DISK.resident_bytes()
    region.close()
    assert full - before > size // 2
    assert full - after > size // 2
