"""The journal of a configuration file: the changes of its table since the file was written.

Each change is a line of JSON that contains the changed part of the table. For example, ``flint/new-topics`` has the changes of
``config/topics.json``. When :meth:`ConfigJournal.append` returns, the line is in the page cache, and survives a kill of the
broker. When :meth:`ConfigJournal.sync` returns, the line is on disk.

A journal has two files. While the table is written to the table's file, new changes go to the second file of the journal.
Afterwards, the first file of the journal is removed (docs/internals/store-format.md, Extras in flint/).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from flintmq.core.errors import JsonSyntaxError, StoreError, StoreFormatError, store_error_kind
from flintmq.core.io import fastjson
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK

SECOND_FILE: Final = ".2"
"""Suffix of the name of the second of a journal's two files."""


class _NoteFile:
    """The path and the state of one of the two files of a configuration table's journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.empty()

    def empty(self) -> None:
        """Set the recorded state of a journal's file to the initial values: no changes, and an unknown size. Called when this
        object is created, and again after the file was removed."""
        self.size_bytes: int | None = None
        """Size of the journal's file in bytes; None if the size is not known."""
        self.notes = 0
        """Number of changes of the table that were found in the journal's file or appended to it, including changes that the
        disk refused."""
        self.is_unsynced = False
        self.is_unnamed = False
        """Whether the name of the journal's file may be lost in a power failure, because the file's folder was not synced."""
        self.is_sound = True
        """Whether no sync of the journal's file has failed. After a failed sync the kernel may have dropped written pages."""


class ConfigJournal:
    """The journal of the changes of one configuration table. Loop thread, except :meth:`sync` and :meth:`remove_older`.

    All methods block on writes or reads of the disk. Only :meth:`sync` and :meth:`remove_older` also block on a sync.

    Args:
        path: the path of the first file; its folder is created when the first change is appended. The second file's name ends
            with :data:`SECOND_FILE`.
        disk: the disk interface.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self._disk = disk
        self._newer, self._older = _NoteFile(path), _NoteFile(path.with_name(path.name + SECOND_FILE))

    @property
    def path(self) -> Path:
        """The path of the journal's file to which the next change is appended."""
        return self._newer.path

    @property
    def notes(self) -> int:
        """Number of recorded changes in the journal's two files."""
        return self._newer.notes + self._older.notes

    @property
    def is_sound(self) -> bool:
        """Whether no sync of the journal's files has failed, so that a successful sync makes all recorded changes durable."""
        return self._newer.is_sound and self._older.is_sound

    def append(self, note: Mapping[str, Any]) -> None:
        """Append a line with a table's change to the journal.

        Raises:
            StoreError: the disk refused the write (StoreFullError: the disk is full).
        """
        # Each line of the journal begins with a line end, which terminates an incomplete line before it.
        line = b"\n%b\n" % fastjson.dumps(note).encode("utf-8", "replace")
        file = self._newer
        file.notes += 1
        with written(file.path):
            end = file.size_bytes
            if end is None:
                self._disk.make_folder(file.path.parent)
                exists = self._disk.exists(file.path)
                file.is_unnamed = not exists
                end = self._disk.size(file.path) if exists else 0
            file.size_bytes = None
            self._disk.write_at(file.path, end, line)
            file.size_bytes = end + len(line)
        file.is_unsynced = True

    def sync(self) -> None:
        """Sync the journal's files, so that all changes appended before are durable. Any thread, but only one thread at a time.

        Raises:
            StoreError: the sync failed; :attr:`is_sound` is then False.
        """
        for file in (self._older, self._newer):
            with written(file.path):
                try:
                    if file.is_unsynced:
                        file.is_unsynced = False
                        self._disk.sync_content(file.path)
                    if file.is_unnamed:
                        self._disk.sync_folder(file.path.parent)
                        file.is_unnamed = False
                except FileNotFoundError:
                    # The journal's file was already removed, because the table's file now contains the journal's changes.
                    continue
                except OSError:
                    file.is_sound = False
                    raise

    def turn(self) -> None:
        """Exchange the roles of the journal's two files, if the other file is empty: later changes are appended to the other
        file.
        """
        if not self._older.notes:
            self._newer, self._older = self._older, self._newer

    def remove_older(self) -> None:
        """Remove the journal's file with the older changes, durably, because the table's file contains these changes. Any
        thread.

        Raises:
            StoreError: the disk refused the removal.
        """
        file = self._older
        with written(file.path):
            self._disk.remove(file.path)
        file.empty()

    def clear(self) -> None:
        """Remove the journal's two files, because the table's file contains all changes.

        The removal is not synced, so the files may reappear after a power failure. This is harmless, because their changes are
        also in the table's file.
        """
        for file in (self._older, self._newer):
            with contextlib.suppress(OSError):
                self._disk.discard(file.path)
            file.empty()

    def read(self) -> list[Mapping[str, Any]]:
        """Return the changes in the journal's two files, in order within each file, without incomplete lines.

        Raises:
            StoreFormatError: a file cannot be read.
        """
        notes = []
        for file in (self._newer, self._older):
            found = list(self._lines(file.path))
            file.notes = len(found)
            # An existing journal counts as not synced, because an earlier process may have been killed before the sync.
            file.is_unsynced = file.is_unnamed = bool(found)
            notes += found
        return notes

    def _lines(self, path: Path) -> Iterator[Mapping[str, Any]]:
        try:
            lines = self._disk.read(path).split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFormatError(f"{path}: {error.strerror}") from error
        for line in lines:
            with contextlib.suppress(JsonSyntaxError):
                note = fastjson.loads(line) if line.strip() else None
                if isinstance(note, Mapping):
                    yield note


@contextlib.contextmanager
def written(path: Path) -> Iterator[None]:
    """Convert disk errors of a ``with`` block that writes a file into StoreErrors that name the file."""
    try:
        yield
    except OSError as error:
        kind = store_error_kind(error)
        raise kind(f"{path}: cannot be written: {error.strerror or error}") from error
    except StoreError as error:
        raise type(error)(f"{path}: cannot be written: {error}") from error
