"""Keeps a broker's resident memory small: gives pages of its older files back to the kernel.

The kernel takes mapped pages away by itself when memory is short; until then every page that was written or read counts as
the broker's, although only the last few megabytes are used again. Limits of containers, and operators that look for a
leak, go by that figure. What is given back stays in the page cache: reading it again costs a page fault and nothing
from the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintmq.core.io.disk import evict_slices
from flintmq.core.kernel.ports import SupportsEvict

if TYPE_CHECKING:
    from flintmq.core.store.message_store import MessageStore

RESIDENT_CHECK_S: Final = 1.0
"""The time between two looks at the resident memory."""
RESIDENT_MAX_BYTES: Final = 128 * 1024 * 1024
"""Below this nothing is given back: the newest part of the log, the slots of an index file and libraries fit in."""
NEWEST_BYTES: Final = 64 * 1024 * 1024
"""The part of the log that stays, because consumers that keep up, and slaves, read it soon after it was written."""
_SLICE_S: Final = 0.001
"""How long the loop's thread is occupied at once, or for one slice of bytes where that takes longer."""


class ResidentPages:
    """Gives pages back in rounds. Loop thread. A timer of the caller calls :meth:`tick`.

    Args:
        store: an open store.
        max_bytes: how much of mapped files may be resident before pages are given back.
        newest_bytes: how much of the log's end stays.
    """

    def __init__(
        self, store: MessageStore, max_bytes: int = RESIDENT_MAX_BYTES, newest_bytes: int = NEWEST_BYTES
    ) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._newest_bytes = newest_bytes
        self._round: Iterator[None] | None = None

    def tick(self) -> float:
        """Do a slice of the round under way, or begin one where too much is resident; return the seconds to the next call."""
        if self._round is None:
            if self._store.disk.resident_bytes() <= self._max_bytes:
                return RESIDENT_CHECK_S
            self._round = self._steps()
        until_s = time.perf_counter() + _SLICE_S
        for _ in self._round:
            if time.perf_counter() >= until_s:
                return 0.0
        self._round = None
        return RESIDENT_CHECK_S

    def _steps(self) -> Iterator[None]:
        """Give back the log except its newest part, queues as far as they are synced, and the entries of the index."""
        store = self._store
        marks = store.watermarks
        behind = min(marks.flushed, marks.dispatched) - self._newest_bytes
        for file in list(store.commit_log.queue.files):
            yield from evict_slices(file.region, min(file.size, behind - file.start))
        for part in (store.consume_queues, store.index):
            if isinstance(part, SupportsEvict):
                yield from part.evict()
