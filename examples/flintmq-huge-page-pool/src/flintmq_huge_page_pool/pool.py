"""A transient store pool whose buffers are parts of one memory map."""

from __future__ import annotations

import mmap
import threading


class HugePagePool:
    """A :class:`flintmq.core.kernel.ports.TransientStorePool` in one anonymous memory map. Thread-safe.

    Args:
        buffers: number of buffers.
        size_bytes: size of each buffer, which is that of a commit log file.
    """

    def __init__(self, buffers: int, size_bytes: int) -> None:
        self._lock = threading.Lock()
        self._size_bytes = size_bytes
        self._memory = mmap.mmap(-1, buffers * size_bytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        with memoryview(self._memory) as whole:
            self._free = [whole[start : start + size_bytes] for start in range(0, len(whole), size_bytes)]
        self._lent: dict[int, memoryview] = {}

    @property
    def available_buffers(self) -> int:
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Return a buffer of zeros from the pool, None if all buffers are lent or the pool is closed."""
        with self._lock:
            if not self._free:
                return None
            buffer = self._free.pop()
            self._lent[id(buffer)] = buffer
            return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Take back a lent buffer, and fill it with zeros. Raises ``ValueError`` for an object that is not lent."""
        with self._lock:
            if self._lent.get(id(buffer)) is not buffer:
                raise ValueError("the buffer is not lent by this pool")
            buffer[:] = bytes(self._size_bytes)
            del self._lent[id(buffer)]
            self._free.append(buffer)

    def close(self) -> None:
        """Stop lending buffers of the pool. The pool's memory is freed when the last lent buffer is dropped."""
        with self._lock:
            self._free.clear()
