"""Memory of large blocks goes back to the system, also where a small one lies behind each."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq

PROGRAM = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("allocator", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if sys.argv[2] == "set":
    assert module.give_back_large_blocks()
def anonymous_mib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("RssAnon"))
bytes(30 << 20)  # freed: from now on glibc takes blocks of such a size from the heap
small = []
large = []
for number in range(60):
    large.append(bytearray(b"x") * (4 << 20))
    small.append(bytes(100_000))
large.clear()
print(anonymous_mib())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at a process in /proc")
def test_freed_large_memory_blocks_are_returned_to_the_operating_system() -> None:
    """Without the setting the same program keeps them, where the C library is glibc: else this would test nothing."""
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library has no mallopt")
    path = str(Path(str(flintmq.__file__)).parent / "core" / "io" / "allocator.py")

    def kept_mib(setting: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, path, setting], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert kept_mib("set") < 60
    assert kept_mib("left alone") > 120


def test_trimming_the_heap_returns_free_memory_to_the_operating_system() -> None:
    """Memory freed by the start, below a block in use, would otherwise be kept until the process ends."""
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library has no malloc_trim")
    path = str(Path(str(flintmq.__file__)).parent / "core" / "io" / "allocator.py")
    program = (
        PROGRAM.partition("bytes(30 << 20)")[0]
        + "blocks = [bytes(100_000) for _ in range(1_000)]\n"
        + "stays = bytes(100_000)\n"
        + "blocks.clear()\n"
        + "before = anonymous_mib()\n"
        + "assert module.give_back_free_memory()\n"
        + "print(before - anonymous_mib())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, "left alone"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 50
