"""Copies the commit log from a position on, and checks every record of the copy. A copied file is divided into segments of 64
MiB, and each segment has a digest."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.errors import StoreError, StoreFormatError, reading
from flintmq.core.record.log_walk import Kind
from flintmq.programs.backup.manifest import (
    SEGMENT_BYTES,
    Damage,
    LoggedFile,
    Manifest,
    digest_of,
    log_path,
    new_digest,
)
from flintmq.programs.backup.source import Source, SourceFile, opened, pread
from flintmq.programs.backup.writing import CHUNK_BYTES, Pace, Writer
from flintmq.programs.doctor.files import FileView, map_read_only
from flintmq.programs.doctor.walk import stretches

Progress = Callable[[int, int], None]
"""Function that a copy calls from time to time with the number of copied bytes and the total number of bytes."""
_DAMAGE_MOST: Final = 1_000
NO_RECORD: Final = "no record ends at the position"


class Walked(msgspec.Struct, frozen=True):
    """The result of a check of all records of a copied log."""

    records: int
    end_offset_bytes: int
    """Physical offset of the end of the copied log's last complete record, or of the blank record after that record."""
    damage: tuple[Damage, ...]
    """Damaged parts of the copied log, at most a thousand."""

    def unexpected(self, manifest: Manifest) -> tuple[Damage, ...]:
        """Return the damaged parts of a copied log that the backup's manifest does not list as damage."""
        known = [(one.start_offset_bytes, one.end_offset_bytes) for one in manifest.damage]
        found = [
            one
            for one in self.damage
            if not any(begin <= one.start_offset_bytes and one.end_offset_bytes <= end for begin, end in known)
        ]
        if not self.damage and self.end_offset_bytes != manifest.end_offset_bytes:
            found.append(Damage(self.end_offset_bytes, manifest.end_offset_bytes, NO_RECORD))
        return tuple(found)


class LogCopy:
    """Copies files of a log to a backup's folder. Not thread-safe.

    Args:
        target: the backup's folder.
        writer: makes all changes.
        pace: limits the speed of copying.
        progress: called with the bytes done and the total.
    """

    def __init__(self, target: Path, writer: Writer, pace: Pace, progress: Progress | None = None) -> None:
        self._target = target
        self._writer = writer
        self._pace = pace
        self._progress = progress
        self.copied_bytes = 0
        self.total_bytes = 0

    def copy(self, file: SourceFile, known: LoggedFile | None, end: int, *, synced_to: int) -> LoggedFile:
        """Copy the part of a log file that the backup lacks, up to a position, and return the file's new entry for the
        manifest.

        Args:
            file: the store's file.
            known: the file's entry in the previous backup, if it has one.
            end: the physical offset to stop at, within the file.
            synced_to: the physical offset up to which the store's broker has synced the file.

        Raises:
            GoneError: retention has deleted the file.
            StoreError: the file cannot be read, the backup cannot be written, or the backup's part of the file is damaged.
        """
        have = known.size_bytes if known is not None else 0
        size = end - file.start
        if known is not None and have == size:
            return known
        path = log_path(self._target, file.start)
        digests = SegmentDigests(known.digests if known is not None else (), have)
        with opened(file.path) as fd:
            if synced_to < end:
                _sync(fd, file.path)
            if known is not None and not digests.is_whole:
                digests.update(last_segment(path, known))
            self._writer.extend(path, have, self._chunks(fd, file.path, have, size, digests), size)
        return LoggedFile(file.start, size, digests.all())

    def _chunks(self, fd: int, path: Path, begin: int, end: int, digests: SegmentDigests) -> Iterator[bytes]:
        for at in range(begin, end, CHUNK_BYTES):
            chunk = self._read(fd, path, at, min(end, at + CHUNK_BYTES))
            digests.update(chunk)
            yield chunk
            self.copied_bytes += len(chunk)
            if self._progress is not None:
                self._progress(self.copied_bytes, self.total_bytes)

    def _read(self, fd: int, path: Path, begin: int, end: int) -> bytes:
        """Return the bytes of a part of a file. Holes of the file are returned as zeros and not read."""
        if _data_from(fd, begin, end) >= end:
            return bytes(end - begin)
        self._pace.take(end - begin)
        return pread(fd, end - begin, begin, path)


class SegmentDigests:
    """Computes the digests of a file's segments from the file's bytes.

    Args:
        known: the digests of the segments of the file that are already in the backup.
        have_bytes: the number of bytes of the file that are already in the backup. If they end with an incomplete segment, the
            bytes of this segment must be passed to :meth:`update` before the file's next bytes.
    """

    def __init__(self, known: tuple[str, ...] = (), have_bytes: int = 0) -> None:
        self._done = list(known[: have_bytes // SEGMENT_BYTES])
        self._running = new_digest()
        self._running_bytes = 0
        self.is_whole = have_bytes % SEGMENT_BYTES == 0
        """Whether the bytes of the log file that are already in the backup end at the end of a segment. A segment has
        :data:`SEGMENT_BYTES` bytes of the file, and the backup records a digest of each segment."""

    def update(self, data: bytes) -> None:
        """Add the next bytes of a file to the digests of its segments."""
        view = memoryview(data)
        while view:
            part = view[: SEGMENT_BYTES - self._running_bytes]
            self._running.update(part)
            self._running_bytes += len(part)
            view = view[len(part) :]
            if self._running_bytes == SEGMENT_BYTES:
                self._done.append(self._running.hexdigest())
                self._running, self._running_bytes = new_digest(), 0

    def all(self) -> tuple[str, ...]:
        """Return the digests of all segments of the file, in order. The digests of segments that were already complete in the
        backup come first. Then follow the digests computed from the bytes that were passed to :meth:`update`. If the file ends
        within a segment, the last digest covers only the bytes of this incomplete segment."""
        return (*self._done, *((self._running.hexdigest(),) if self._running_bytes else ()))


def _data_from(fd: int, begin: int, end: int) -> int:
    """Return the first position at or after ``begin`` that has data. If only a hole follows, return ``end``. If the file system
    does not support SEEK_DATA, return ``begin``."""
    try:
        return os.lseek(fd, begin, os.SEEK_DATA)
    except OSError as error:
        # The error ENXIO means that the file has only a hole at and after `begin`.
        return end if error.errno == errno.ENXIO else begin


def _sync(fd: int, path: Path) -> None:
    """Sync the data that the store's broker has written to a file. A file on a read-only file system is not synced."""
    try:
        with contextlib.suppress(PermissionError):
            os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EINVAL):
            raise StoreError(
                f"{path}: cannot be synced ({error.strerror}): check the store's disk, then run the command again"
            ) from error


def check_continues(source: Source, last: LoggedFile, where: Path) -> None:
    """Check that the store still contains the bytes of the last segment of a backup. If it does not, the backup cannot be
    continued with this store.

    Raises:
        StoreFormatError: the bytes differ. The error names the remedy.
    """
    begin = (last.size_bytes - 1) // SEGMENT_BYTES * SEGMENT_BYTES
    there = source.read(last.start_offset_bytes + begin, last.end_offset_bytes)
    if digest_of(there) != last.digests[-1]:
        raise StoreFormatError(
            f"{source.root}: its commit log has other bytes at {last.start_offset_bytes + begin}..{last.end_offset_bytes} than "
            f"the backup in {where}: it is another store, or its log was truncated and continued. Name a new folder for its "
            "backups; the old backup is unchanged"
        )


class DamagedBackupError(StoreFormatError):
    """No new backup was made, because the previous backup in the folder is damaged."""


def check_kept(target: Path, kept: tuple[LoggedFile, ...]) -> None:
    """Check that a backup still has its log files, and that the newest segment is unchanged.

    Raises:
        DamagedBackupError: a file is missing or too short, or the segment has changed. The error names the remedy.
        StoreError: a file cannot be read.
    """
    for file in kept:
        path = log_path(target, file.start_offset_bytes)
        with reading(path):
            is_whole = path.is_file() and path.stat().st_size >= file.size_bytes
        if not is_whole:
            raise DamagedBackupError(
                f"{path}: is missing or too short in the backup; begin a new backup in another folder"
            )
    if kept:
        last_segment(log_path(target, kept[-1].start_offset_bytes), kept[-1])


def last_segment(path: Path, file: LoggedFile) -> bytes:
    """Return the last segment of a file in a backup, which may be incomplete.

    Raises:
        DamagedBackupError: the segment has changed since it was written. The error names the remedy.
        StoreError: the file cannot be read.
    """
    begin = max(0, file.size_bytes - 1) // SEGMENT_BYTES * SEGMENT_BYTES
    with opened(path) as fd:
        data = pread(fd, file.size_bytes - begin, begin, path)
    if data and digest_of(data) != file.digests[-1]:
        raise DamagedBackupError(
            f"{path}: bytes {begin}..{file.size_bytes} of the backup have changed since they were written; "
            "flintmq store restore BACKUP --verify shows all damage. Begin a new backup in another folder"
        )
    return data


def read_checked(path: Path, file: LoggedFile) -> Iterator[tuple[bytes, Damage | None]]:
    """Yield the bytes of a backup's file in chunks. If the digest of a segment differs, the segment's last chunk comes with a
    description of the damage.

    Raises:
        StoreError: the file cannot be read, or is too short.
    """
    running, begin = new_digest(), 0
    with opened(path) as fd:
        for at in range(0, file.size_bytes, CHUNK_BYTES):
            end = min(file.size_bytes, at + CHUNK_BYTES)
            chunk = pread(fd, end - at, at, path)
            running.update(chunk)
            damage = None
            if end % SEGMENT_BYTES == 0 or end == file.size_bytes:
                if running.hexdigest() != file.digests[at // SEGMENT_BYTES]:
                    start = file.start_offset_bytes
                    damage = Damage(start + begin, start + end, f"{path}: its content does not match its digest")
                running, begin = new_digest(), end
            yield chunk, damage


def walk_copy(
    log_of: Callable[[int], Path], files: tuple[LoggedFile, ...], begin: int, progress: Progress | None = None
) -> Walked:
    """Check every record of copied files, with the CRC of its body, from a record boundary on.

    Args:
        log_of: returns the path of the file that begins at a position.
        files: the manifest's entries of the existing files, in order. A file is checked up to the size in its entry.
        begin: the physical offset to begin at.
        progress: called with the bytes done and the total.

    Raises:
        StoreError: a file cannot be read.
    """
    parts = []
    for file in files:
        if file.end_offset_bytes > begin:
            path = log_of(file.start_offset_bytes)
            parts.append(FileView(path, file.start_offset_bytes, map_read_only(path)[: file.size_bytes]))
    records, end = 0, begin
    damage: list[Damage] = []
    for found in stretches(parts, begin):
        if found.run is not None:
            records += len(found.run.begins)
        if found.kind in (Kind.RECORD, Kind.BLANK):
            end = found.end
        elif len(damage) < _DAMAGE_MOST:
            damage.append(Damage(found.start, found.end, found.reason or "zeros"))
        if progress is not None:
            progress(found.end - begin, files[-1].end_offset_bytes - begin)
    return Walked(records, end, tuple(damage))
