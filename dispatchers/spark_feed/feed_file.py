"""The feed: how far a running broker's log may be read by another process (docs/spark-feed.md).

``flint/feed`` in the store, 64 bytes, big-endian like every file of the store::

    0   magic "FEED"          4   version (2 bytes)       6   state (2 bytes)
    8   sequence (4)         12   epoch (4)
    16  min offset (8)       24   dispatched (8)          32  flushed (8)        40  confirmed (8)
    48  written at, ms (8)   56   CRC-32 of 0 to 55 (4)   60  sequence again (4)

The broker writes all of it with one copy through a map, at most once a millisecond and after each flush. A reader takes
64 bytes in one call and tries again while the two sequences or the checksum disagree: no lock, and no broker that waits. The
copy is one call so that a broker killed at any moment leaves a whole file behind but for a vanishing chance; what is torn all
the same is an error that says so.

What a reader may trust: bytes below ``dispatched`` are whole records and have their consume queue units, and stay as they are
unless a crash of the machine cuts the log (see ``flint/epochs``); bytes below ``flushed`` survive that too. A file that says
``CLOSED`` tells where the log ended when FlintMQ last stopped: another broker may have written behind that. Where there is no
file no broker of ours has fed anybody: walk the log up to its zeros, with ``abort`` absent.
"""

from __future__ import annotations

import contextlib
import enum
import os
import struct
import threading
import time
import zlib
from pathlib import Path
from typing import Final, Literal

import attrs

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.disk import Disk
from flintmq.core.io.paths import feed_path as feed_path

FEED_BYTES: Final = 64
FEED_MAGIC: Final = b"FEED"
FEED_VERSION: Final = 1

_FIELDS: Final = struct.Struct(">4sHHIIqqqqq")
_TAIL: Final = struct.Struct(">II")
_TRIES: Final = 2_000

Visibility = Literal["flushed", "dispatched", "confirmed"]
"""What a reader waits for: ``flushed`` survives a crash of the machine, ``dispatched`` comes first, ``confirmed`` is on the
slave too."""


class FeedState(enum.IntEnum):
    """Whether a broker keeps the file up to date."""

    RUNNING = 1
    """A broker writes it; after a crash of the broker it stays so, and what it says stays true."""
    CLOSED = 2
    """The broker has stopped; its log ended at ``flushed``."""


@attrs.frozen(kw_only=True)
class FeedMarks:
    """What the file says. All positions are physical offsets of the commit log, in bytes."""

    state: FeedState
    epoch: int
    """The log's epoch: grows whenever a recovery cuts the log (``flint/epochs``)."""
    min_offset_bytes: int
    """Where the log begins: older files are deleted."""
    dispatched_offset_bytes: int
    """Everything below has its consume queue units."""
    flushed_offset_bytes: int
    """Everything below was synced."""
    confirmed_offset_bytes: int
    """Everything below is as safe as an acknowledgement says: replicated where a slave is waited for, else flushed."""
    written_at_ms: int
    """Wall-clock time of the write; a running broker writes at least once a second."""

    def end_offset_bytes(self, visibility: Visibility = "flushed") -> int:
        """Return where a reader has to stop: a boundary between records."""
        if visibility == "dispatched":
            return self.dispatched_offset_bytes
        limit = self.flushed_offset_bytes if visibility == "flushed" else self.confirmed_offset_bytes
        return min(self.dispatched_offset_bytes, limit)

    def age_ms(self, now_ms: int) -> int:
        """Return how long ago it was written; 0 when the clock has gone back since."""
        return max(0, now_ms - self.written_at_ms)


def encode_feed(marks: FeedMarks, sequence: int) -> bytes:
    """Return the file's 64 bytes. ``sequence`` is taken modulo 2**32."""
    sequence &= 0xFFFFFFFF
    head = _FIELDS.pack(
        FEED_MAGIC,
        FEED_VERSION,
        marks.state,
        sequence,
        marks.epoch,
        marks.min_offset_bytes,
        marks.dispatched_offset_bytes,
        marks.flushed_offset_bytes,
        marks.confirmed_offset_bytes,
        marks.written_at_ms,
    )
    return head + _TAIL.pack(zlib.crc32(head), sequence)


def is_torn(data: bytes) -> bool:
    """Return whether 64 bytes of the right kind were read while they were written."""
    crc, again = _TAIL.unpack_from(data, _FIELDS.size)
    return bool(again != int.from_bytes(data[8:12], "big") or crc != zlib.crc32(data[: _FIELDS.size]))


def decode_feed(data: bytes, where: object = "feed") -> FeedMarks:
    """Return what 64 bytes say.

    Raises:
        StoreFormatError: they are no feed, one of another version, or torn; names the file and what to do.
    """
    if len(data) != FEED_BYTES or data[:4] != FEED_MAGIC:
        raise StoreFormatError(f"{where} is not a feed file; stop the broker and remove it")
    version = int.from_bytes(data[4:6], "big")
    if version != FEED_VERSION:
        raise StoreFormatError(f"{where} is a feed of version {version}; this FlintMQ reads version {FEED_VERSION}")
    if is_torn(data):
        raise StoreFormatError(
            f"{where} is torn: its checksum does not fit; a broker was killed while it wrote, or the file is damaged. "
            "The next start of the broker writes it again"
        )
    _magic, _version, state, _sequence, epoch, low, dispatched, flushed, confirmed, at_ms = _FIELDS.unpack_from(data)
    try:
        known = FeedState(state)
    except ValueError as error:
        raise StoreFormatError(f"{where} has the unknown state {state}") from error
    return FeedMarks(
        state=known,
        epoch=epoch,
        min_offset_bytes=low,
        dispatched_offset_bytes=dispatched,
        flushed_offset_bytes=flushed,
        confirmed_offset_bytes=confirmed,
        written_at_ms=at_ms,
    )


def read_feed(path: Path) -> FeedMarks | None:
    """Return what a feed file says now; None where there is none. Any process, any thread.

    The file is opened each time: a broker that starts may have put a new one in its place.

    Raises:
        StoreFormatError: it is not a feed, or torn and stays so.
        OSError: it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(fd, FEED_BYTES + 1, 0)
        for _ in range(_TRIES):
            if len(data) != FEED_BYTES or data[:4] != FEED_MAGIC or not is_torn(data):
                break
            time.sleep(0)  # the writer's turn
            data = os.pread(fd, FEED_BYTES + 1, 0)
    finally:
        os.close(fd)
    return decode_feed(data, path)


class FeedWriter:
    """The broker's side. :meth:`write` may be called from any thread.

    Args:
        disk: the store's.
        path: see :func:`feed_path`. What lies there and is not a feed is replaced.

    Raises:
        StoreFullError, StoreError: the file cannot be made.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        disk.make_folder(path.parent)
        if disk.exists(path) and disk.size(path) != FEED_BYTES:
            disk.remove(path)
        self._region = disk.map_file(path, FEED_BYTES, create=True, allocate=FEED_BYTES)
        self._region.allocate(FEED_BYTES)
        self._sequence = int.from_bytes(self._region.view[8:12], "big")
        self._lock = threading.Lock()
        self._closed = False
        self.writes = 0
        """How often the file was written."""

    def write(self, marks: FeedMarks) -> None:
        """Replace what the file says; ignored once it is closed."""
        with self._lock:
            if self._closed:
                return
            self._sequence += 1
            self._region.write(0, encode_feed(marks, self._sequence))
            self.writes += 1

    def close(self, marks: FeedMarks | None = None) -> None:
        """Write a last time, durably as far as the disk lets it, and give the file back. Idempotent."""
        if marks is not None:
            self.write(marks)
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if marks is not None:
            # Nothing depends on it: a reader that finds an older mark reads less, never too much.
            with contextlib.suppress(OSError):
                self._region.sync()
        self._region.close()
