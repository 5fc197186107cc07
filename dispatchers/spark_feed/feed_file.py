"""The feed file, which states the positions up to which another process may read a running broker's log.

The file is ``flint/feed`` in the store's folder. It has these 64 bytes, big-endian like all files of a store::

    0   magic "FEED"          4   version (2 bytes)       6   state (2 bytes)
    8   sequence (4)         12   epoch (4)
    16  min offset (8)       24   dispatched (8)          32  flushed (8)        40  confirmed (8)
    48  written at, ms (8)   56   CRC-32 of 0 to 55 (4)   60  sequence again (4)

The broker copies the 64 bytes into a memory map of the file with one call, at most once a millisecond and after each flush. A
reader reads the 64 bytes with one call, and reads them again while the two sequence numbers differ or the checksum is wrong.
Therefore no lock is needed, and the broker never waits for a reader. Because the copy is one call, a broker that is killed
almost always leaves a complete file. If the file stays incomplete, the reader raises an error.

Bytes below ``dispatched`` are complete records with consume queue units. They do not change unless a crash of the machine cuts
the log (see ``flint/epochs``); bytes below ``flushed`` also survive that. The state ``CLOSED`` means that ``flushed`` was the
log's end when FlintMQ last stopped; another broker may have appended to the log since. Bytes below ``confirmed`` have also been
replicated to a slave, if the broker waits for a slave. If the feed file is absent, no FlintMQ broker has published a feed. A
reader can then scan the log up to the first bytes that are zero, if the file ``abort`` is absent. See docs/spark-feed.md.
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
"""Name of the condition that a record must meet before a reader reads it. Every record first becomes ``dispatched``: it has
consume queue units. A ``flushed`` record also survives a crash of the machine. A ``confirmed`` record is also replicated to a
slave, if the broker waits for a slave. For each condition, the feed file has the position up to which all records meet it."""


class FeedState(enum.IntEnum):
    """Whether a broker updates the feed file."""

    RUNNING = 1
    """A broker updates the feed file. After a crash of the broker, the feed file still has the state ``RUNNING``, and the
    positions in the file stay valid."""
    CLOSED = 2
    """The broker has stopped; the position ``flushed`` in the feed file is the end of the broker's log."""


@attrs.frozen(kw_only=True)
class FeedMarks:
    """The decoded content of a feed file. All positions are physical offsets of the commit log, in bytes."""

    state: FeedState
    epoch: int
    """Number of the log's epoch, which grows when a recovery cuts the log (``flint/epochs``)."""
    min_offset_bytes: int
    """Physical offset at which the log begins. The files of the log before this offset are deleted."""
    dispatched_offset_bytes: int
    """Physical end of the records that have consume queue units."""
    flushed_offset_bytes: int
    """Physical end of the records that are synced to disk."""
    confirmed_offset_bytes: int
    """Physical end of the acknowledged records: the replicated records if the broker waits for a slave, otherwise the flushed
    records."""
    written_at_ms: int
    """Wall-clock time at which the feed file was written, in ms since 1970. A running broker writes the file at least once a
    second."""

    def end_offset_bytes(self, visibility: Visibility = "flushed") -> int:
        """Return the physical offset up to which a reader of the feed file may read the log. It is a boundary between
        records."""
        if visibility == "dispatched":
            return self.dispatched_offset_bytes
        limit = self.flushed_offset_bytes if visibility == "flushed" else self.confirmed_offset_bytes
        return min(self.dispatched_offset_bytes, limit)

    def age_ms(self, now_ms: int) -> int:
        """Return the time in ms since the feed file was written; 0 if the clock was set back since the write."""
        return max(0, now_ms - self.written_at_ms)


def encode_feed(marks: FeedMarks, sequence: int) -> bytes:
    """Return the 64 bytes of a feed file. ``sequence`` is taken modulo 2**32."""
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
    """Return whether the bytes of a feed file are inconsistent, because they were read during a write."""
    crc, again = _TAIL.unpack_from(data, _FIELDS.size)
    return bool(again != int.from_bytes(data[8:12], "big") or crc != zlib.crc32(data[: _FIELDS.size]))


def decode_feed(data: bytes, where: object = "feed") -> FeedMarks:
    """Return the decoded content of a feed file's 64 bytes.

    Raises:
        StoreFormatError: the bytes are not a feed, have another version, or are torn; the message states file and remedy.
    """
    if len(data) != FEED_BYTES or data[:4] != FEED_MAGIC:
        raise StoreFormatError(f"{where} is not a feed file; stop the broker and remove it")
    version = int.from_bytes(data[4:6], "big")
    if version != FEED_VERSION:
        raise StoreFormatError(f"{where} is a feed of version {version}; this FlintMQ reads version {FEED_VERSION}")
    if is_torn(data):
        raise StoreFormatError(
            f"{where} has a wrong checksum: a broker was killed while it wrote the file, or the file is damaged. "
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
    """Return the current content of a feed file; None if the file does not exist. Can be called in any process and any thread.

    The file is opened again at each call, because a broker may replace the file when it starts.

    Raises:
        StoreFormatError: the file is not a feed file, or every attempt read a file that was only partly written.
        OSError: the file cannot be read.
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
            # The broker may be writing the file. The sleep lets the broker continue before the file is read again.
            time.sleep(0)
            data = os.pread(fd, FEED_BYTES + 1, 0)
    finally:
        os.close(fd)
    return decode_feed(data, path)


class FeedWriter:
    """Writes a broker's feed file. :meth:`write` can be called on any thread.

    Args:
        disk: the store's disk interface.
        path: the path of the file, see :func:`feed_path`. An existing file that is not a feed is replaced.

    Raises:
        StoreFullError, StoreError: the file cannot be created.
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
        """Number of times that the feed file was written."""

    def write(self, marks: FeedMarks) -> None:
        """Write positions of the log to the feed file; without effect after :meth:`close`."""
        with self._lock:
            if self._closed:
                return
            self._sequence += 1
            self._region.write(0, encode_feed(marks, self._sequence))
            self.writes += 1

    def close(self, marks: FeedMarks | None = None) -> None:
        """Write the feed file a last time, sync it if possible, and close it. Idempotent."""
        if marks is not None:
            self.write(marks)
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if marks is not None:
            # A failed sync is ignored, because readers of an outdated feed file read too few records, but never too many.
            with contextlib.suppress(OSError):
                self._region.sync()
        self._region.close()
