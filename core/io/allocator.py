"""Settings of the C library's allocator, so that freed memory is returned to the system."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_ALONE_BYTES: Final = 1024 * 1024
"""Size from which the C library maps a block of memory separately. One read of a socket and a usual answer are smaller."""
_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of the free memory at the heap's end that the C library does not return to the system."""


def give_back_large_blocks() -> bool:
    """Make the C library return large blocks to the system as soon as they are freed. Can be called from any thread.

    glibc maps large blocks separately at first, but raises the limit (up to 32 MiB) each time such a block is freed. Later
    large blocks then come from the heap, and one small block after them can keep hundreds of megabytes from being returned, for
    example after many connections have sent large messages. An explicitly set limit is not raised. Server processes call this
    function after their start.

    Returns:
        Whether this C library has the setting (``mallopt(3)``), as glibc does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _ALONE_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def give_back_free_memory() -> bool:
    """Return the heap's free pages to the system, for example those used during a start. Can be called from any thread.

    Returns:
        Whether this C library has the call (``malloc_trim(3)``), as glibc does.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
