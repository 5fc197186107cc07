"""What is written through a map must not lie in large folios: each sync would write some twenty times what was appended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flintmq.core.io import os_region
from flintmq.core.io.os_disk import OS_DISK

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
def test_only_the_part_that_is_written_is_not_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
