"""The notes beside a configuration file: what its table has changed since the file was written.

Each note is a line of JSON, a table in small, in ``flint/new-topics`` for ``config/topics.json``. A line is the operating
system's when :meth:`ConfigJournal.append` returns, so a killed broker finds it again; it is the disk's when
:meth:`ConfigJournal.sync` has returned. Two files take turns: while the table is written to its file, new notes go to the other
one, and the file of the old notes is removed afterwards (docs/internals/store-format.md, Extras in flint/).
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
"""What the name of the second file ends with."""


class _NoteFile:
    """One of the two files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.empty()

    def empty(self) -> None:
        """Take note that the file is not there."""
        self.size_bytes: int | None = None
        """None while that is not known."""
        self.notes = 0
        """Those that were appended or found, the ones that the disk refused among them."""
        self.is_unsynced = False
        self.is_unnamed = False
        """Whether the folder may lack its name after a power cut."""
        self.is_sound = True
        """False after a sync that failed: the kernel may have forgotten what it should have written."""


class ConfigJournal:
    """The notes of one table. Loop thread, but for :meth:`sync` and :meth:`remove_older`; all calls block on the disk, and only
    these two for a sync.

    Args:
        path: where the notes are; the folder is made with the first. The other file has :data:`SECOND_FILE` behind its name.
        disk: where that lies.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self._disk = disk
        self._newer, self._older = _NoteFile(path), _NoteFile(path.with_name(path.name + SECOND_FILE))

    @property
    def path(self) -> Path:
        """The file that the next note goes to."""
        return self._newer.path

    @property
    def notes(self) -> int:
        """How many notes there are."""
        return self._newer.notes + self._older.notes

    @property
    def is_sound(self) -> bool:
        """Whether a sync can be believed."""
        return self._newer.is_sound and self._older.is_sound

    def append(self, note: Mapping[str, Any]) -> None:
        """Note a change.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full).
        """
        # A line that the disk took half of is ended by the next one's first character.
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
        """Make every note durable that was appended before. Any thread, one at a time.

        Raises:
            StoreError: the disk refused; :attr:`is_sound` is False from now on.
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
                except FileNotFoundError:  # removed meanwhile: the table's file has its notes
                    continue
                except OSError:
                    file.is_sound = False
                    raise

    def turn(self) -> None:
        """Let new notes go to the other file from now on, if that is empty."""
        if not self._older.notes:
            self._newer, self._older = self._older, self._newer

    def remove_older(self) -> None:
        """Remove the file that new notes do not go to, durably: the table's file has its notes. Any thread.

        Raises:
            StoreError: the disk refused.
        """
        file = self._older
        with written(file.path):
            self._disk.remove(file.path)
        file.empty()

    def clear(self) -> None:
        """Forget everything: the table's file has it. That it is still there after a power cut does no harm."""
        for file in (self._older, self._newer):
            with contextlib.suppress(OSError):
                self._disk.discard(file.path)
            file.empty()

    def read(self) -> list[Mapping[str, Any]]:
        """Return the notes of both files, those of each in order; a line that a crash cut short is left out.

        Raises:
            StoreFormatError: a file cannot be read.
        """
        notes = []
        for file in (self._newer, self._older):
            found = list(self._lines(file.path))
            file.notes = len(found)
            file.is_unsynced = file.is_unnamed = bool(found)  # the process may have been killed before it synced them
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
    """Name the file in what the disk raises while it is written."""
    try:
        yield
    except OSError as error:
        kind = store_error_kind(error)
        raise kind(f"{path}: cannot be written: {error.strerror or error}") from error
    except StoreError as error:
        raise type(error)(f"{path}: cannot be written: {error}") from error
