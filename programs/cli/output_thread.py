"""Writes lines in a separate thread, so that an output without a reader does not block the threads that write to it.

The standard library's ``QueueListener`` does not fit: stopping it may wait forever, and it fails if its queue is full.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

WAITING_BYTES_MAX: Final = 1 << 20
"""Maximum number of bytes, some thousand lines, that wait for one output. Lines beyond this maximum are dropped and counted."""
_LINE_BYTES: Final = 64
"""Number of bytes that a waiting line is assumed to occupy in addition to its text."""
_WRITE_BYTES: Final = select.PIPE_BUF
"""Maximum number of bytes of one write. A pipe never splits a write of this size, even if several processes write to the
pipe."""
_RETRY_MS: Final = 1_000


class OutputThread:
    """Takes lines from any thread and writes them in order.

    If the buffer is full, lines are dropped until half of the buffer is written. After this, ``lost`` is called with the number
    of dropped lines.

    A forked process does not have this thread, and writes lines directly.

    Args:
        name: the output's name, for people.
        write: writes bytes; may block. Called on this thread.
        lost: called with the number of dropped lines and the reason when the output accepts lines again. Called on this thread.
        failed: called at the first failed write after a successful one. Called on this thread.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[bytes], None],
        *,
        lost: Callable[[int, str], None] = lambda lines, reason: None,
        failed: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.name = name
        self.lost_lines = 0
        """Number of lines that were dropped since the output thread started."""
        self._write, self._lost, self._failed = write, lost, failed
        self._process = os.getpid()
        # The lock is reentrant, because garbage collection during put() may log, which calls put() again.
        self._lock = threading.RLock()
        self._queue: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._put_bytes = self._taken_bytes = 0
        self._is_full = False
        self._untold, self._reason = 0, ""
        self._since_s: float | None = None
        """Time at which the write in progress began, in seconds of the monotonic clock; None if no write is in progress."""
        self._thread = threading.Thread(target=self._run, name=f"flintmq-output-{name}", daemon=True)
        self._thread.start()

    @property
    def blocked_s(self) -> float:
        """Seconds since the current write began; 0 if no write is under way. Can be called from any thread."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def put(self, line: bytes) -> None:
        """Queue one or several whole lines for writing. Any thread; never waits."""
        if os.getpid() != self._process:
            with contextlib.suppress(OSError):
                self._write(line)
            return
        size_bytes = len(line) + _LINE_BYTES
        with self._lock:
            waiting_bytes = self._put_bytes - self._taken_bytes
            if self._is_full or (waiting_bytes and waiting_bytes + size_bytes > WAITING_BYTES_MAX):
                self._is_full = True
                self._note_lost(line.count(b"\n") or 1)
                return
            self._put_bytes += size_bytes
            self._queue.put(line)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all queued lines are written. Any thread except the output thread.

        Returns:
            False if the timeout passed first.
        """
        until_s = time.monotonic() + timeout_s
        while self._thread.is_alive() and os.getpid() == self._process:
            came_by = threading.Event()
            self._queue.put(came_by)
            if not came_by.wait(max(0.0, until_s - time.monotonic())):
                return False
            if self._put_bytes == self._taken_bytes:
                return True
        return True

    def end(self) -> None:
        """End the output thread after it has written the waiting lines. Any thread; does not wait."""
        self._queue.put(None)

    def _note_lost(self, lines: int) -> None:
        with self._lock:
            self._untold += lines
            self.lost_lines += lines

    def _run(self) -> None:
        after: bytes | threading.Event | None = b""
        while True:
            line = after or self._queue.get()
            after = b""
            if line is None:
                return
            if isinstance(line, threading.Event):
                line.set()
                continue
            lines = [line]
            room_bytes = _WRITE_BYTES - len(line)
            while room_bytes > 0:
                try:
                    after = self._queue.get_nowait()
                except Empty:
                    break
                if not isinstance(after, bytes) or len(after) > room_bytes:
                    break
                lines.append(after)
                room_bytes -= len(after)
                after = b""
            self._write_lines(lines)
            if after is None:
                return

    def _write_lines(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        self._since_s = time.monotonic()
        try:
            self._write(data)
        except OSError as error:
            first = not self._untold
            self._reason = str(error)
            self._note_lost(data.count(b"\n") or 1)
            if first:
                self._failed(error)
            has_failed = True
        else:
            if self._is_full:
                self._reason = self._reason or f"nothing could be written there for {self.blocked_s:.0f} s"
            has_failed = False
        self._since_s = None
        self._taken_bytes += len(data) + _LINE_BYTES * len(lines)
        if self._is_full and self._put_bytes - self._taken_bytes <= WAITING_BYTES_MAX // 2:
            self._is_full = False
        if self._untold and not has_failed and not self._is_full:
            with self._lock:
                untold, self._untold = self._untold, 0
                reason, self._reason = self._reason, ""
            self._lost(untold, reason)


def write_all(descriptor: int, data: bytes) -> None:
    """Write bytes to a blocking or non-blocking descriptor, waiting as long as needed. Raises OSError."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            # BlockingIOError means that another process, which shares the open file, has made the file non-blocking.
            # After BlockingIOError, poll() waits until the file can be written.
            waiting = select.poll()
            waiting.register(descriptor, select.POLLOUT)
            waiting.poll(_RETRY_MS)
