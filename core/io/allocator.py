"""How the C library keeps memory that was freed."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_ALONE_BYTES: Final = 1024 * 1024
"""Blocks of this size and above are mapped alone: longer than what one read of a socket or one usual answer takes."""
_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Free memory at the heap's end that is kept for what comes next."""


def give_back_large_blocks() -> bool:
    """Has the C library return large blocks to the system as soon as they are freed.

    glibc maps large blocks alone at first, but raises the bound (up to 32 MiB) with every one that is freed; then they come
    from the heap, where one small block behind them keeps hundreds of megabytes from being returned after many connections
    have sent large messages at once. A bound that was set is not raised. For processes that serve; any thread.

    Returns:
        whether this C library has the setting (``mallopt(3)``): glibc does, others need none or are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _ALONE_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def give_back_free_memory() -> bool:
    """Return the heap's free pages to the system, such as those that a start has used; any thread.

    Returns:
        whether this C library has the call (``malloc_trim(3)``): glibc does.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
