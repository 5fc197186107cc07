"""The checkpoint file: the store times up to which log, queues and index are known to be on disk (``StoreCheckpoint``).

See docs/internals/store-format.md, Checkpoint.
"""

from __future__ import annotations

import struct
from pathlib import Path

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.disk import Disk

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(">qqq")
_SLACK_MS = 3_000


class StoreCheckpoint:
    """The checkpoint's three store times, in ms since 1970.

    Any thread can set the times; the queue flusher's thread calls :meth:`flush`.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        if disk.exists(path) and disk.size(path) == 0:
            disk.remove(path)  # A crash during the creation of the file leaves an empty file, which is created again.
        if disk.exists(path) and disk.size(path) != CHECKPOINT_BYTES:
            raise StoreFormatError(f"{path} has {disk.size(path)} bytes, a checkpoint has {CHECKPOINT_BYTES}")
        self._region = disk.map_file(path, CHECKPOINT_BYTES, create=True, allocate=CHECKPOINT_BYTES)
        self._region.allocate(CHECKPOINT_BYTES)
        self.physic_msg_timestamp_ms: int
        self.logics_msg_timestamp_ms: int
        self.index_msg_timestamp_ms: int
        self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms, self.index_msg_timestamp_ms = _FIELDS.unpack_from(
            self._region.view
        )

    @property
    def min_timestamp_ms(self) -> int:
        """The store time up to which records are certainly on disk in the log and in their queues, in ms since 1970."""
        known_ms = min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms)
        return max(0, known_ms - _SLACK_MS)

    def flush(self) -> None:
        """Write the three store times to the checkpoint file, and sync it. Raises OSError if the disk refuses the write."""
        self._region.write(
            0,
            _FIELDS.pack(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms, self.index_msg_timestamp_ms),
        )
        self._region.sync()

    def rewind(self, trusted_ms: int) -> None:
        """Set back the checkpoint, durably, so that :attr:`min_timestamp_ms` is not later than ``trusted_ms``.

        Called before the queue units of later records are removed or rewritten, because the checkpoint must not cover these
        units. Raises OSError.
        """
        if trusted_ms < self.min_timestamp_ms:
            self.logics_msg_timestamp_ms = trusted_ms + _SLACK_MS if trusted_ms > 0 else 0
            self.flush()

    def close(self) -> None:
        self._region.close()
