"""Shared maps of files that hold no descriptor, so that a store of ten thousand queues needs none for them.

Python's ``mmap`` keeps a descriptor of its own for each map. So an anonymous map is made first, which has none, and the file is
mapped in its place (``MAP_FIXED``); its owner and its lifetime stay Python's.

Such a map is synced by ``msync``: the kernel syncs through the open file that the map holds, not through a descriptor. What
went wrong with the file since it was mapped is reported there, once (mmap(2), msync(2); "Reporting writeback errors" in the
kernel's documentation of file systems).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from typing import Final

_LINUX: Final = sys.platform == "linux"
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000 if _LINUX else 0x40
"""The anonymous map is never written to: it shall not count as committed memory."""
_MS_SYNC: Final = 0x4 if _LINUX else 0x10
_FAILED: Final = ctypes.c_void_p(-1).value

_libc: Final = ctypes.CDLL(None, use_errno=True)
_mmap: Final = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_msync: Final = _libc.msync
_msync.restype = ctypes.c_int
_msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def map_shared(fd: int, size_bytes: int) -> mmap.mmap:
    """Map the first bytes of a file for reading and writing; the descriptor may be closed at once.

    Args:
        fd: open for reading and writing.
        size_bytes: more than 0, and not more than the file has: a look behind its end would end the process.

    Raises:
        OSError: the kernel refused; ENOMEM where the process has all the maps it may have (vm.max_map_count).
        ValueError: the file is shorter.
    """
    if os.fstat(fd).st_size < size_bytes:
        raise ValueError(f"a file of {os.fstat(fd).st_size} bytes has no {size_bytes} to map")
    try:
        made = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | _MAP_NORESERVE)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        # Where memory is promised strictly (vm.overcommit_memory=2, RLIMIT_DATA) even that counts: a descriptor is the price.
        return mmap.mmap(fd, size_bytes, mmap.MAP_SHARED)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    where = ctypes.addressof(ctypes.c_char.from_buffer(made))
    if _mmap(where, size_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) == _FAILED:
        number = ctypes.get_errno()
        made.close()
        raise OSError(number, os.strerror(number))
    return made


def sync_map(mapped: mmap.mmap) -> None:
    """Forces what was written to a file, through its map or not, to the disk. Any thread; the interpreter lock is released.

    Raises:
        OSError: the disk refused. ValueError: the map is closed.
    """
    held = ctypes.c_char.from_buffer(mapped)  # a thread that closes it meanwhile leaves it mapped
    if _msync(ctypes.addressof(held), len(mapped), _MS_SYNC):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
