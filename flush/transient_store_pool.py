"""The transient store pool (``TransientStorePool`` of RocketMQ): memory buffers of the size of a commit log file.

See docs/internals/algorithms.md, Mapped files.
"""

from __future__ import annotations

import mmap
import sys
import threading


class AnonymousBufferPool:
    """A transient store pool: a fixed number of buffers in anonymous memory. Thread-safe.

    Memory is allocated page by page when it is written, so an unused pool costs nothing. A buffer is zeroed before the next
    file borrows it: on Linux the pages are returned to the kernel, which provides zeroed pages; elsewhere they are overwritten.
    So old bytes can never be read as records, even by a reader that passes the committed position, because zeros have no magic.

    Args:
        buffers: the number of buffers.
        bytes_each: the size of a buffer, which is the size of a commit log file.
    """

    def __init__(self, buffers: int, bytes_each: int) -> None:
        if buffers < 1 or bytes_each < 1:
            raise ValueError(f"a pool needs buffers and bytes_each of at least 1, got {buffers} and {bytes_each}")
        self._lock = threading.Lock()
        self._free: list[tuple[memoryview, mmap.mmap]] = []
        self._borrowed: dict[int, tuple[memoryview, mmap.mmap]] = {}
        self._closed = False
        for _ in range(buffers):
            memory = _anonymous(bytes_each)
            self._free.append((memoryview(memory), memory))

    @property
    def available_buffers(self) -> int:
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Return a buffer of zeros from the pool; None if all buffers are in use, or the pool is closed."""
        with self._lock:
            if not self._free:
                return None
            entry = self._free.pop()
            self._borrowed[id(entry[0])] = entry
            return entry[0]

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer to the pool; the buffer must be the object that was borrowed.

        Raises:
            ValueError: the buffer is not from this pool, or was already returned.
        """
        with self._lock:
            entry = self._borrowed.get(id(buffer))
            if entry is None or entry[0] is not buffer:
                raise ValueError("not a borrowed buffer of this pool")
            del self._borrowed[id(buffer)]
            closed = self._closed
        if closed:
            _release(entry)
            return
        _zero(entry)
        with self._lock:
            closed = self._closed
            if not closed:
                self._free.append(entry)
        if closed:
            _release(entry)

    def close(self) -> None:
        """Free the memory of the pool; a buffer in use is freed when it is returned. Idempotent."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for entry in free:
            _release(entry)


def _anonymous(size_bytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes)
    # The map is private, because MADV_DONTNEED sets bytes to zero only in a private map.
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _zero(entry: tuple[memoryview, mmap.mmap]) -> None:
    buffer, memory = entry
    if sys.platform == "linux":
        memory.madvise(mmap.MADV_DONTNEED)
        return
    zeros = bytes(1 << 20)  # type: ignore[unreachable, unused-ignore]
    for start in range(0, len(buffer), len(zeros)):
        part = buffer[start : start + len(zeros)]
        part[:] = zeros[: len(part)]


def _release(entry: tuple[memoryview, mmap.mmap]) -> None:
    buffer, memory = entry
    buffer.release()
    memory.close()
