"""Reads the store to back up: its commit log files, up to a position below which all records are complete.

The position depends on the state of the store:

* If a broker runs and its dispatcher ``spark_feed`` writes the file ``flint/feed``, the position is the dispatched offset in
  this file. The broker writes this offset after the records below it.
* If a broker runs and does not write this file, the position is the end of the newest message in any consume queue. Brokers
  dispatch in the order of the log, so a queue unit is written after its message and all messages before it.
* If no broker runs, the position is the end of the last complete record.

Dispatched records may not be synced yet. Therefore the files are synced before they are read, so that a backup never contains a
record that its store would lose in a power cut.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import attrs

from flintmq.core.errors import StoreError, StoreFormatError, reading
from flintmq.core.io.paths import RESTORE_MARK, RESTORE_NOT_FINISHED, is_file_name
from flintmq.core.log.epochs import Epochs, read_epochs
from flintmq.core.log.store_lock import is_locked
from flintmq.core.record.check import check_record
from flintmq.core.record.log_walk import Kind
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES
from flintmq.core.record.record import RECORD_MIN_BYTES, RecordError
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, feed_path, read_feed
from flintmq.programs.doctor.files import FileView, listed, map_read_only
from flintmq.programs.doctor.walk import stretches

ToldBy = Literal["feed", "queues", "walk"]
_FEED_MAX_AGE_MS: Final = 30_000
"""Maximum age, in ms, at which the file ``flint/feed`` is used. A broker writes the file once a second, so an older file means
that its broker no longer runs."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.02


@attrs.frozen
class SourceFile:
    """A file of the commit log of the store that is backed up."""

    path: Path
    start: int
    """Physical offset of the commit log file's first byte."""
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@attrs.frozen
class Position:
    """The position up to which a store may be copied."""

    end_offset_bytes: int
    told_by: ToldBy
    flushed_offset_bytes: int = 0
    """Physical offset up to which the broker has synced its commit log files."""


class Source:
    """A store that is read, and never written. Used by one thread.

    Args:
        root: the store's folder.
        log_folders: the folders of its commit log; empty: ``commitlog`` in ``root``.

    Raises:
        StoreFormatError: no store lies there, or its log has a hole.
        StoreError: a folder cannot be read.
    """

    def __init__(self, root: Path, log_folders: Sequence[Path] = ()) -> None:
        if not root.is_dir():
            raise StoreFormatError(f"{root}: there is no such folder; name the store's folder (store.path)")
        if (root / "commitlog" / RESTORE_MARK).exists():
            raise StoreFormatError(f"{root}: {RESTORE_NOT_FINISHED}")
        self.root = root
        self.folders = tuple(log_folders) or (root / "commitlog",)
        self.files: list[SourceFile] = []
        """The store's commit log files, sorted by physical offset."""
        self.look()
        if not self.files and (inside := sorted(path.parent.name for path in root.glob("*/commitlog"))):
            raise StoreFormatError(
                f"{root}: holds the stores of several brokers; back up each of them into a separate folder: {', '.join(inside)}"
            )
        if not any(path.exists() for path in (*self.folders, root / "config", root / "checkpoint")):
            raise StoreFormatError(f"{root}: no store lies there (no commitlog, no config)")

    def look(self) -> None:
        """Update :attr:`files` with the current files of the log. Raises StoreFormatError if a file between two others is
        missing."""
        for tries_left in reversed(range(_TRIES)):
            found = sorted(_log_files(self.folders), key=lambda file: file.start)
            while found and found[-1].size == 0:
                found.pop()  # An empty log file is left out, because the broker has only just created it.
            # If the list of log files has a gap, the folders are listed again, because retention may have deleted files.
            hole = next(((a, b) for a, b in pairwise(found) if b.start != a.end or b.size != found[0].size), None)
            if hole is None:
                self.files = found
                return
            if not tries_left:
                raise StoreFormatError(
                    f"{hole[1].path}: does not follow {hole[0].path}, which ends at {hole[0].end}: part of the commit log is "
                    "missing. If the log has several folders: --set store.commit_log_paths=…"
                )

    @property
    def begin(self) -> int:
        """Return the physical offset of the log's first byte; 0 if the log is empty."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Return the physical offset just past the log's last file; 0 if the log is empty."""
        return self.files[-1].end if self.files else 0

    @property
    def file_bytes(self) -> int:
        return self.files[0].size if self.files else 0

    def holding(self, position: int) -> SourceFile | None:
        """Return the file that contains a physical offset; None if no file does."""
        return next((file for file in self.files if file.start <= position < file.end), None)

    def epochs(self) -> Epochs | None:
        """Return the store's id and epochs; None if the store has no file of epochs. Raises StoreError."""
        return read_epochs(self.root)

    def read(self, begin: int, end: int) -> bytes:
        """Return the log's bytes from ``begin`` to ``end``, both physical offsets within one file.

        Raises:
            StoreError: no file contains these bytes, for example because the file was deleted, or the file cannot be read.
        """
        file = self.holding(begin)
        if file is None or end > file.end:
            raise StoreError(f"{self.root}: its log lacks the bytes {begin}..{end}")
        with opened(file.path) as fd:
            return pread(fd, end - begin, begin - file.start, file.path)

    # the position

    def position(self, begin: int, now_ms: int) -> Position:
        """Return the position up to which the store may be copied now.

        Args:
            begin: physical offset of a record. If no broker runs, the search for the last complete record begins there.
            now_ms: the wall-clock time in ms since 1970, from which the age of the file ``flint/feed`` is computed.

        Raises:
            StoreFormatError: a broker is writing, and neither the file ``flint/feed`` nor a consume queue gives a position. The
                error says what to change.
            StoreError: a file cannot be read.
        """
        if not is_locked(self.root):
            self.look()
            return Position(self._walked_end(max(begin, self.begin)), "walk")
        feed = self._feed(now_ms)
        if feed is not None:
            end = feed.dispatched_offset_bytes
            epochs = self.epochs()
            newer = [one.start_offset_bytes for one in epochs.entries if one.number > feed.epoch] if epochs else []
            self.look()
            # A broker that has just started may have truncated the log, but may not have updated ``flint/feed`` yet.
            # Each start that truncates the log begins a new epoch.
            # The log may have been cut where the first epoch newer than ``flint/feed`` starts, so the backup ends there.
            return Position(min([end, *newer]), "feed", feed.flushed_offset_bytes)
        end = self._queued_end()
        self.look()
        return Position(end, "queues")

    def _feed(self, now_ms: int) -> FeedMarks | None:
        with reading(feed_path(self.root)):
            feed = read_feed(feed_path(self.root))
        is_live = feed is not None and feed.state is FeedState.RUNNING and feed.age_ms(now_ms) <= _FEED_MAX_AGE_MS
        return feed if is_live else None

    def named_end(self) -> int:
        """Return the physical offset of the end of the newest message in any consume queue; 0 if all queues are empty."""
        named = 0
        # If a queue refers to bytes after the log's end, its newest unit may be half written, so the queues are read again.
        for _ in range(_TRIES):
            named = max((physical + size for physical, size in newest_units(self.root / "consumequeue")), default=0)
            self.look()
            if named <= self.end:
                break
            time.sleep(_PAUSE_S)
        return named

    def _queued_end(self) -> int:
        """Return the physical offset of the end of the newest complete message in the log to which a consume queue refers. A
        message is complete if all bytes of its record are in the log. If the log has no messages, return the log's begin.

        Raises:
            StoreFormatError: the log has messages, but no queue refers to a complete message.
        """
        # The newest unit of a consume queue may be half written.
        # If no queue's newest unit refers to a complete record, the queues are read again.
        for _ in range(_TRIES):
            units = newest_units(self.root / "consumequeue")
            self.look()
            for position, size in sorted(units, reverse=True):
                if self._is_whole(position, size):
                    return position + size
            if not self._has_anything():
                return self.begin
            # The queues are read again after a pause, because the broker may not have dispatched any message yet.
            time.sleep(_PAUSE_S)
        raise StoreFormatError(
            f"{self.root}: a broker is writing, and no consume queue has a message, so the end of the log is unknown. "
            "Add spark_feed to the broker's `dispatchers`, or stop the broker for the backup"
        )

    def _is_whole(self, position: int, size: int) -> bool:
        file = self.holding(position)
        if file is None or position + size > file.end:
            return False
        view = memoryview(self.read(position, position + size))
        try:
            return check_record(view, 0, position).size_bytes == size
        except RecordError:
            return False

    def _has_anything(self) -> bool:
        return bool(self.files) and any(self.read(self.begin, self.begin + min(RECORD_MIN_BYTES, self.file_bytes)))

    def _walked_end(self, begin: int) -> int:
        """Return the physical offset of the end of the last complete record in a log to which no broker writes."""
        files = [file for file in self.files if file.end > begin]
        parts = [FileView(file.path, file.start, map_read_only(file.path)) for file in files]
        whole = (found.end for found in stretches(parts, begin) if found.kind in (Kind.RECORD, Kind.BLANK))
        return max(whole, default=begin)


def newest_units(consume_queues: Path) -> list[tuple[int, int]]:
    """Return (physical offset, size) of the newest message in each queue that is not empty. Raises StoreError."""
    found = []
    for topic in listed(consume_queues):
        for queue in listed(topic) if topic.is_dir() else ():
            unit = _newest_unit(queue) if queue.is_dir() and queue.name.isdigit() else None
            if unit is not None and unit != (0, FILLER_SIZE):
                found.append(unit)
    return found


def _newest_unit(queue: Path) -> tuple[int, int] | None:
    """Return the physical offset and the size of the newest message of a consume queue; None if the queue has no message.

    The newest file that is not empty contains the newest message's unit. All units after it in this file are zeros.
    """
    for path in reversed([path for path in listed(queue) if is_file_name(path.name)]):
        try:
            with opened(path) as fd:
                low, high = 0, os.fstat(fd).st_size // UNIT_BYTES
                while low < high:
                    middle = (low + high) // 2
                    physical, size, _tags = UNIT.unpack(pread(fd, UNIT_BYTES, middle * UNIT_BYTES, path))
                    low, high = (middle + 1, high) if physical >= 0 and size > 0 else (low, middle)
                if low:
                    return UNIT.unpack(pread(fd, UNIT_BYTES, (low - 1) * UNIT_BYTES, path))[:2]
        except GoneError:
            continue
    return None


class GoneError(StoreError):
    """A log file was deleted after the backup had listed it."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a file for reading, and yield the file's descriptor.

    Raises:
        GoneError: the file does not exist.
        StoreError: the file cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise GoneError(f"{path}: was deleted by retention during the backup; run the command again") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def pread(fd: int, size: int, position: int, path: Path) -> bytes:
    """Return ``size`` bytes of a file from ``position``. Raises StoreError if the file has fewer bytes, or cannot be read."""
    pieces = []
    try:
        while size > 0 and (piece := os.pread(fd, size, position)):
            pieces.append(piece)
            size, position = size - len(piece), position + len(piece)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read at {position}: {error.strerror or error}") from error
    if size:
        raise StoreError(f"{path}: ends at {position}, {size} bytes too early")
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]


def _log_files(folders: Iterable[Path]) -> Iterable[SourceFile]:
    for folder in folders:
        for path in listed(folder):
            if is_file_name(path.name):
                with reading(path), contextlib.suppress(FileNotFoundError):
                    # A listed file is skipped if the file is deleted before its size is read.
                    yield SourceFile(path, int(path.name), path.stat().st_size)


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return int(time.time() * 1000)
