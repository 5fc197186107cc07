"""The file ``flint/ends``, in which a broker records the ends of the files of its store.

If a queue, log file or table of a store is removed, zeroed or replaced by an older copy, the store looks like an undamaged
store that never had the missing data. Consumers could not read the missing messages, and new messages would get the queue
offsets of lost messages. A start compares the files with the recorded ends, and thus detects the loss. After a clean stop, the
recorded ends are exact. While a broker runs, the recorded ends are lower bounds, because the files only grow and only the ends
of synced data are recorded.

::

    <crc32, 8 hex digits> {"format":1,"is_stop":true,"log_begin":0,"log_end":8192,"queues":[["T",0,0,17]],…}
    <crc32, 8 hex digits> {"in_use":true}
    <crc32, 8 hex digits> {"deleted":["T",0]}

The first line has the recorded ends, and is replaced atomically and durably. Each later line says that a part of the first line
is not valid any more. After ``in_use``, the ends are not exact any more, because a broker uses the store. After ``deleted``,
the end of the named queue is ignored. The later lines are not synced, so a power failure can remove them. Two other files then
give the same information: the file ``abort`` exists if a broker used the store, and ``topics.json`` does not contain a deleted
topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.errors import store_error_kind
from flintmq.core.io.disk import Disk
from flintmq.core.io.paths import ends_path

FORMAT: Final = 1
_NOTED_MAX_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of a file whose size and checksum are recorded in ``flint/ends``. For a larger file, such as a plugin's
database, only the file's existence is recorded."""
TAIL_BYTES: Final = 64
_TABLES: Final = ("topics.json", "subscriptionGroup.json")

QueueKey = tuple[str, int]


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """The recorded minimum and next queue offset of a queue."""

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int


class Tail(msgspec.Struct, frozen=True, array_like=True):
    """A checksum of the last used bytes of a commit log file."""

    start_offset_bytes: int
    """Physical offset of the log file's first byte."""
    end_bytes: int
    """Position just past the used bytes of the log file."""
    crc32: int
    """CRC of the last used bytes of the log file, at most :data:`.TAIL_BYTES`."""


class FileNote(msgspec.Struct, frozen=True, array_like=True):
    """The recorded size and checksum of a small file of a store, such as a table of topics."""

    size_bytes: int
    """Recorded size of a small file of the store, in bytes; -1 if only the file's existence is recorded, as while a broker
    runs."""
    crc32: int


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded ends of a store's files. Positions are physical offsets in bytes."""

    format: int = FORMAT
    is_stop: bool = False
    """Whether the recorded ends of the store's files are exact because a clean stop recorded them. Otherwise each recorded end
    is a lower bound."""
    log_begin: int = 0
    log_end: int = 0
    tails: list[Tail] = []
    """Checksums of the last used bytes of each file of the log, up to the log's end."""
    queues: list[QueueEnd] = []
    index: list[int] = []
    """Physical offset of the last indexed record of each index file."""
    epochs: str = ""
    """Content of the file ``flint/epochs``, from which a start restores the file if it is lost or damaged. The file has the
    store's id and the epochs of the log. An epoch is a part of the log in which each physical offset was used only once."""
    files: dict[str, FileNote] = {}
    """Sizes and checksums of the store's small files, keyed by path relative to the store. These files are the JSON tables in
    ``config``, the checkpoint, and files of features in ``flint``."""
    counters: dict[str, int] = {}
    """The ``counter`` in ``topics.json`` and in ``subscriptionGroup.json``, which grows at each change of the file; keyed by
    file name."""
    is_synchronous: bool = False
    """Whether the flush strategy was synchronous, so that consume queues only describe synced records."""
    is_accepted: bool = False
    """Whether the operator has accepted the loss of data (``flintmq store repair``)."""

    @property
    def queue_ends(self) -> dict[QueueKey, QueueEnd]:
        """Return the recorded ends of queues, keyed by topic and queue id."""
        return {(one.topic, one.queue_id): one for one in self.queues}


class _Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A later line of the file ``flint/ends``, which makes a part of the file's first line invalid."""

    in_use: bool = False
    deleted: tuple[str, int] | None = None


class EndsFile:
    """The file ``flint/ends`` of a store. One thread at a time.

    Args:
        disk: the disk interface.
        root: the store's folder.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.path = ends_path(root)
        self.damage = ""
        """Reason why the file ``flint/ends`` cannot be read; empty if it can be read, or does not exist."""
        self.noted: Ends | None = None
        """Ends of the store's files that were read from ``flint/ends``; None if ``flint/ends`` contains no ends."""
        self.was_in_use = False
        """Whether a broker has used the store since the ends of the store's files were recorded in ``flint/ends``. If so, the
        recorded ends are not exact any more."""
        self._size_bytes = 0
        self._read()

    def _read(self) -> None:
        if not self._disk.exists(self.path):
            return
        try:
            raw = self._disk.read(self.path)
        except OSError as error:
            self.damage = str(error.strerror)
            return
        first, *more = raw.split(b"\n")
        try:
            noted = msgspec.json.decode(_content(first), type=Ends)
        except ValueError as error:
            self.damage = str(error)
            return
        if noted.format != FORMAT:
            self.damage = f"its format is {noted.format}, this version reads {FORMAT}"
            return
        self._size_bytes = len(raw)
        deleted: set[QueueKey] = set()
        for change in _changes(more):
            self.was_in_use |= change.in_use
            if change.deleted is not None:
                deleted.add(change.deleted)
        self.was_in_use |= not noted.is_stop
        kept = [one for one in noted.queues if (one.topic, one.queue_id) not in deleted] if deleted else noted.queues
        self.noted = msgspec.structs.replace(noted, queues=kept, is_stop=not self.was_in_use)

    def write(self, ends: Ends) -> None:
        """Replace the content of ``flint/ends``, atomically and durably.

        Raises:
            StoreError: the disk refused the write (StoreFullError: the disk is full). The earlier content stays valid.
        """
        line = _line(msgspec.json.encode(ends))
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            self._disk.make_folder(self.path.parent)
            self._disk.write_file(temporary, line)
            self._disk.replace(temporary, self.path)
        except OSError as error:
            kind = store_error_kind(error)
            raise kind(f"{self.path}: cannot be written: {error.strerror or error}") from error
        self.noted, self.was_in_use, self.damage = ends, not ends.is_stop, ""
        self._size_bytes = len(line)

    def note_use(self) -> None:
        """Record that a broker uses the store from now on. Raises OSError."""
        self._append(_Change(in_use=True))
        if self.noted is not None:
            self.noted = msgspec.structs.replace(self.noted, is_stop=False)

    def note_deleted(self, topic: str, queue_id: int) -> None:
        """Record that a queue is deleted, so that its next message gets queue offset 0. Raises OSError."""
        self._append(_Change(deleted=(topic, queue_id)))

    def _append(self, change: _Change) -> None:
        if self.noted is not None:
            line = _line(msgspec.json.encode(change))
            self._disk.write_at(self.path, self._size_bytes, line)
            self._size_bytes += len(line)

    def accept(self) -> None:
        """Accept the loss of log data: remove the log's end from ``flint/ends``, but keep the ends of queues.

        Used by ``flintmq store repair``. Raises StoreError.
        """
        noted = self.noted
        if noted is not None:
            kept = Ends(
                is_stop=noted.is_stop,
                queues=noted.queues,
                epochs=noted.epochs,
                files=noted.files,
                is_synchronous=noted.is_synchronous,
                is_accepted=noted.log_end > 0,
            )
            self.write(kept)


def notes_of_files(disk: Disk, root: Path, *, whole: bool) -> tuple[dict[str, FileNote], dict[str, int]]:
    """Return two mappings with the state of a store's small files. The file ``flint/ends`` records both mappings.

    The first mapping has the size and checksum of each small file, keyed by path relative to the store. The second mapping has
    the change counters of ``topics.json`` and ``subscriptionGroup.json``, keyed by file name.

    Args:
        disk: the disk interface.
        root: the store's folder.
        whole: whether to return sizes and checksums. If False, the first mapping shows only that the files exist.

    Raises:
        OSError: a file cannot be read.
    """
    notes: dict[str, FileNote] = {}
    counters: dict[str, int] = {}
    for path in small_files(disk, root):
        name = path.relative_to(root).as_posix()
        is_table = path.name in _TABLES
        is_read = is_table or (whole and disk.size(path) <= _NOTED_MAX_BYTES)
        raw = disk.read(path) if is_read else b""
        notes[name] = FileNote(len(raw), zlib.crc32(raw)) if whole and is_read else FileNote(-1, 0)
        if is_table and (counter := counter_of(raw)) >= 0:
            counters[path.name] = counter
    return notes, counters


def small_files(disk: Disk, root: Path) -> Iterator[Path]:
    """Yield the paths of a store's small files whose content is recorded at a stop."""
    for folder in (root / "config", root / "flint", root / "flint" / "timer"):
        for path in disk.list_files(folder):
            is_table = path.name.endswith((".json", ".json.bak"))
            if is_table or (folder.name == "flint" and path.name not in _NOT_NOTED and path.suffix != ".tmp"):
                yield path
    if disk.exists(root / "checkpoint"):
        yield root / "checkpoint"


_NOT_NOTED: Final = ("ends", "boot")
"""Names of files in the folder ``flint`` whose sizes and checksums are not recorded in the file ``flint/ends``. A start
compares the recorded sizes and checksums with the files to find lost and changed files. The file ``ends`` cannot describe
itself. The file ``boot`` has the id of the kernel's boot, which only matters after a crash."""


def counter_of(raw: bytes) -> int:
    """Return the change counter in the content of a JSON table, such as ``topics.json``; -1 if the content has no counter."""
    at = raw.find(b'"counter"')
    text = raw[at + 9 : at + 40].lstrip(b" \t\r\n:") if at >= 0 else b""
    digits = text[: len(text) - len(text.lstrip(b"0123456789"))]
    return int(digits) if digits else -1


def _line(content: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(content), content)


def _content(line: bytes) -> bytes:
    """Return the content of a line of ``flint/ends``, without its checksum. Raises ValueError if the checksum is wrong."""
    content = line[9:]
    if line[:9] != b"%08x " % zlib.crc32(content):
        raise ValueError("the line does not match its checksum")
    return content


def _changes(lines: Iterable[bytes]) -> Iterator[_Change]:
    """Yield the changes in the lines of ``flint/ends`` after the first line, up to the first line that is incomplete. The first
    line has the ends of the store's files. Each change makes a part of the first line invalid."""
    for line in lines:
        try:
            yield msgspec.json.decode(_content(line), type=_Change)
        except ValueError:
            return
