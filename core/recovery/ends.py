"""How far the files of a store went, as the store itself has noted it: ``flint/ends``.

A store whose queue, log file or table was removed, zeroed or replaced by an older copy looks like a sound one that never had
what is missing: its messages are unreadable, and new ones take the queue offsets of those that are gone. What was noted
contradicts that. It is written at each orderly stop, and says then exactly what is there; and now and then while a broker
runs, when it says what is there at least: ends only grow, and only what is synced is noted.

::

    <crc32, 8 hex digits> {"format":1,"is_stop":true,"log_begin":0,"log_end":8192,"queues":[["T",0,0,17]],…}
    <crc32, 8 hex digits> {"in_use":true}
    <crc32, 8 hex digits> {"deleted":["T",0]}

The first line is replaced in one step, durably. Lines behind it take something back: that the store is as it was at a stop,
because a broker uses it, or the end of a queue that was deleted. They are not synced; after a power cut ``abort`` tells the
first, and a topic that is not in ``topics.json`` the second.
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
"""Of a larger file, such as a plugin's database, it is only noted that there is one."""
TAIL_BYTES: Final = 64
_TABLES: Final = ("topics.json", "subscriptionGroup.json")

QueueKey = tuple[str, int]


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """The first and the next queue offset of a queue."""

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int


class Tail(msgspec.Struct, frozen=True, array_like=True):
    """The last bytes of a file of the log that are not zeros."""

    start_offset_bytes: int
    """Physical position of the file's first byte."""
    end_bytes: int
    """Place behind them in the file."""
    crc32: int
    """Of the last ones, at most :data:`.TAIL_BYTES`."""


class FileNote(msgspec.Struct, frozen=True, array_like=True):
    """A small file as a whole."""

    size_bytes: int
    """-1 while a broker runs: then it is only known that there is one."""
    crc32: int


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """What was noted. Positions are physical offsets in bytes."""

    format: int = FORMAT
    is_stop: bool = False
    """Whether it was noted at an orderly stop: then everything is as it says, and else at least so much is there."""
    log_begin: int = 0
    log_end: int = 0
    tails: list[Tail] = []
    """Of the log's files, as far as the log's end."""
    queues: list[QueueEnd] = []
    index: list[int] = []
    """Of each index file the position of the record of its last entry."""
    epochs: str = ""
    """The content of ``flint/epochs``."""
    files: dict[str, FileNote] = {}
    """By its path in the store: tables, checkpoint and what features keep in ``flint``."""
    counters: dict[str, int] = {}
    """Of tables how often they had changed."""
    is_synchronous: bool = False
    """Whether the flush strategy was one under which queues describe only what is synced."""
    is_accepted: bool = False
    """Whether the operator has said that the log goes on with what is left (``flintmq store repair``)."""

    @property
    def queue_ends(self) -> dict[QueueKey, QueueEnd]:
        """By topic and queue id."""
        return {(one.topic, one.queue_id): one for one in self.queues}


class _Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line behind the first one."""

    in_use: bool = False
    deleted: tuple[str, int] | None = None


class EndsFile:
    """``flint/ends`` of a store. One thread at a time.

    Args:
        disk: where it lies.
        root: the store's folder.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.path = ends_path(root)
        self.damage = ""
        """Why it cannot be read; empty where it can, or is not there."""
        self.noted: Ends | None = None
        """What it says; None where it says nothing."""
        self.was_in_use = False
        """Whether a broker began to use the store after that."""
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
        """Replace everything, durably.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full). What was noted before still counts.
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
        """Note that a broker uses the store from now on. Raises OSError."""
        self._append(_Change(in_use=True))
        if self.noted is not None:
            self.noted = msgspec.structs.replace(self.noted, is_stop=False)

    def note_deleted(self, topic: str, queue_id: int) -> None:
        """Note that a queue is deleted: its next message has queue offset 0. Raises OSError."""
        self._append(_Change(deleted=(topic, queue_id)))

    def _append(self, change: _Change) -> None:
        if self.noted is not None:
            line = _line(msgspec.json.encode(change))
            self._disk.write_at(self.path, self._size_bytes, line)
            self._size_bytes += len(line)

    def accept(self) -> None:
        """Have the log go on with what is left of it, and queues where they ended: what repair is for. Raises StoreError."""
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
    """Return what is to be noted of the small files of a store: theirs by path, and the counters of tables.

    Args:
        disk: where they lie.
        root: the store's folder.
        whole: whether their content is noted; if not, only that they are there.

    Raises:
        OSError: one cannot be read.
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
    """Yield the small files of which a stop notes the content."""
    for folder in (root / "config", root / "flint", root / "flint" / "timer"):
        for path in disk.list_files(folder):
            is_table = path.name.endswith((".json", ".json.bak"))
            if is_table or (folder.name == "flint" and path.name not in _NOT_NOTED and path.suffix != ".tmp"):
                yield path
    if disk.exists(root / "checkpoint"):
        yield root / "checkpoint"


_NOT_NOTED: Final = ("ends", "boot")
"""The file itself, and one that counts after a crash only."""


def counter_of(raw: bytes) -> int:
    """Return how often a table has changed, by the bytes of its file; -1 where they do not say."""
    at = raw.find(b'"counter"')
    text = raw[at + 9 : at + 40].lstrip(b" \t\r\n:") if at >= 0 else b""
    digits = text[: len(text) - len(text.lstrip(b"0123456789"))]
    return int(digits) if digits else -1


def _line(content: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(content), content)


def _content(line: bytes) -> bytes:
    """Return what a line says. Raises ValueError where its checksum is wrong."""
    content = line[9:]
    if line[:9] != b"%08x " % zlib.crc32(content):
        raise ValueError("its checksum is wrong")
    return content


def _changes(lines: Iterable[bytes]) -> Iterator[_Change]:
    """Yield the changes up to the first that a crash cut short."""
    for line in lines:
        try:
            yield msgspec.json.decode(_content(line), type=_Change)
        except ValueError:
            return
