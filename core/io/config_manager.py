"""Tables that are kept in configuration files (docs/internals/store-format.md, Configuration files).

A file survives a crash at any moment. It is written as: new content to ``<file>.tmp`` and synced, the old file's content to
``<file>.bak``, then one atomic replace and a sync of the folder. RocketMQ deletes the file before it renames and syncs nothing;
what it reads and writes is the same.

What has changed since is noted in a journal (:mod:`flintmq.core.io.config_journal`), so that a change costs the same in a table
of ten names and of a hundred thousand.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from flintmq.core.errors import JsonSyntaxError, StoreError, StoreFormatError
from flintmq.core.event import Event
from flintmq.core.io import fastjson
from flintmq.core.io.clock import Clock
from flintmq.core.io.config_journal import ConfigJournal, written
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.typed_json import Long, of_file, read_as

Value = TypeVar("Value")
Row = TypeVar("Row", bound=msgspec.Struct)

_BETWEEN_PIECES_S: Final = 0.0005
"""For what the event loop has to do meanwhile: a thread that waits leaves it the interpreter lock, one that works does not."""


class DataVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A timestamp and a counter (``DataVersion``); two versions are equal when both are equal.

    Members that RocketMQ 5 adds (``stateVersion``) are ignored. See docs/internals/algorithms.md, Topics and groups.
    """

    counter: Long = 0
    """How often the table has changed."""
    timestamp_ms: Long = msgspec.field(name="timestamp", default=0)
    """When the table last changed."""

    def next(self, clock: Clock) -> DataVersion:
        """Return the version after one more change."""
        return DataVersion(timestamp_ms=clock.now_ms(), counter=self.counter + 1)


class _Versioned(msgspec.Struct, rename="camel"):
    """What every table's file has."""

    data_version: DataVersion = DataVersion(counter=-1)


PERSIST_INTERVAL_S: Final = 5.0
"""How often changes that were only noted are written to the file, if that takes a moment."""


class NotedFile(ABC):
    """Writes a table to its file, and notes its changes. Loop thread but for :meth:`write`; what touches files blocks.

    A change is noted (:meth:`note`), which costs the same in a table of any size: it survives the end of the process then, and
    a power cut once :meth:`durable` has returned. The file is written now and then (:meth:`compact`), and at the stop.

    Args:
        file: where the table is kept, or None to keep it in memory.
        journal: takes notes; None has the file written with each of them.
    """

    def __init__(self, file: JsonFile | None, journal: ConfigJournal | None = None) -> None:
        self._file = file
        self._journal = journal
        self._writing = threading.Lock()
        self._compacting = asyncio.Lock()
        self._changes = 0
        """Notes so far."""
        self._durable = 0
        """How many of them survive a power cut."""
        self._syncing: asyncio.Task[tuple[int, StoreError | None]] | None = None

    @property
    def noted(self) -> int:
        """Changes that are noted, and not in the file yet."""
        return self._journal.notes if self._journal is not None else 0

    @property
    def is_dirty(self) -> bool:
        """Whether the file lacks something."""
        return self.noted > 0

    @abstractmethod
    def _pieces(self) -> Iterator[bytes]:
        """Return the content of the file, in pieces; any thread."""

    def persist(self) -> bool:
        """Write the file. Return whether that was necessary. Raises StoreError."""
        changes = self._changes
        self.write()
        self._durable = changes
        if self._journal is not None:
            self._journal.clear()
        return True

    def note(self, change: Mapping[str, Any]) -> None:
        """Note what was changed, as a table of its own; it survives the end of the process. Raises StoreError."""
        if self._journal is None:
            self.persist()
            return
        self._journal.append(change)
        self._changes += 1

    async def durable(self) -> None:
        """Wait until everything that was noted before survives a power cut. Those who wait at the same time share a sync.

        Raises:
            StoreError: the disk refused. What was noted is in force, and may be gone after a power cut.
        """
        wanted = self._changes
        while self._durable < wanted:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.get_running_loop().create_task(self._sync(self._changes))
            reached, error = await asyncio.shield(self._syncing)
            if error is not None and reached >= wanted:
                raise type(error)(f"{error}. The change is in force, and may be gone after a power cut") from error

    async def _sync(self, changes: int) -> tuple[int, StoreError | None]:
        journal = self._journal
        # What a sync has failed for is not made durable by a later one; the whole file is written instead.
        work = journal.sync if journal is not None and journal.is_sound else self.write
        try:
            await asyncio.to_thread(work)
        except StoreError as error:
            return changes, error
        self._durable = max(self._durable, changes)
        return changes, None

    async def compact(self) -> None:
        """Write the file in a thread, and forget the notes that it has. Raises StoreError."""
        async with self._compacting:
            changes, journal = self._changes, self._journal
            if journal is not None:
                journal.turn()
            await asyncio.to_thread(self.write)
            self._durable = max(self._durable, changes)
            if journal is not None:
                await asyncio.to_thread(journal.remove_older)

    def write(self) -> None:
        """Write the file; any thread, each time what is in the table then. Raises StoreError."""
        if self._file is not None:
            with self._writing:
                self._file.save_pieces(self._pieces())


class ConfigManager(NotedFile, Generic[Value]):
    """Loads and persists a table by name. Loop thread but for :meth:`write`.

    Args:
        file: where it is kept, or None to keep it in memory.
        table: what is in it before a file is read.
        journal: takes notes; None has the file written with each of them.
    """

    def __init__(self, file: JsonFile | None, table: dict[str, Value], journal: ConfigJournal | None = None) -> None:
        super().__init__(file, journal)
        self._table = table

    @abstractmethod
    def to_wire(self) -> dict[str, Any]:
        """Return what the file holds. Called on any thread: reads the version before it copies the table, because a
        file may have more than its version says, never less."""

    @abstractmethod
    def _merge(self, value: Mapping[str, Any]) -> None:
        """Put what a file holds over the table. Raises JsonTypeError."""

    def _merge_note(self, note: Mapping[str, Any]) -> None:
        """Put what was noted over the table. Raises JsonTypeError."""
        self._merge(note)

    def _pieces(self) -> Iterator[bytes]:
        yield fastjson.dumps_pretty(self.to_wire()).encode("utf-8")

    def load(self) -> bool:
        """Read the file over what is in the table, which is kept where the file lacks it; False without a file.

        Raises:
            StoreFormatError: the file and its backup cannot be read, or hold what is not of RocketMQ's type.
        """
        value = self._file.load() if self._file is not None else None
        with of_file(self._file.path if self._file is not None else None):
            if value is not None:
                self._merge(value)
            counter = _counter(value)
        if self._journal is not None:
            with of_file(self._journal.path):
                for note in sorted(self._journal.read(), key=_counter):
                    if _counter(note) > counter:
                        self._merge_note(note)
            self._changes = self._journal.notes
        return value is not None

    def replace(self, value: Mapping[str, Any]) -> None:
        """Take over another's table; what that does not have is gone. If it raises, nothing changes."""
        before = dict(self._table)
        self._table.clear()
        try:
            self._merge(value)
        except BaseException:
            self._table = before
            raise


class _Deleted(msgspec.Struct):
    """What a note says of names that are gone."""

    deleted: list[str] = []


class VersionedTable(ConfigManager[Row]):
    """A table with the version by which name servers and slaves see that it changed. Loop thread.

    Args:
        file: where it is kept, or None to keep it in memory.
        table: what is in it before a file is read.
        clock: stamps the version.
        journal: takes notes; None has the file written with each of them.
    """

    _member: ClassVar[str]
    """The table's name in the file and on the wire."""

    def __init__(
        self, file: JsonFile | None, table: dict[str, Row], clock: Clock, journal: ConfigJournal | None = None
    ) -> None:
        super().__init__(file, table, journal)
        self._clock = clock
        self.data_version = DataVersion(timestamp_ms=clock.now_ms(), counter=0)
        self.deleted: Event[[str]] = Event()
        """What has a name was deleted: what others remember of it is to be forgotten."""

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Row]:
        return iter(list(self._table.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def delete(self, name: str) -> bool:
        """Forget what has a name, and note it; False when it was not there.

        Raises:
            StoreError: the disk refused; nothing was changed.
        """
        if name not in self._table:
            return False
        self._change({name: None})
        self.deleted.publish(name)
        return True

    def replace(self, value: Mapping[str, Any]) -> None:
        before = set(self._table)
        super().replace(value)
        for name in before - self._table.keys():
            self.deleted.publish(name)

    def to_wire(self) -> dict[str, Any]:
        """Return what the file holds, and what the whole table is on the wire."""
        version = self.data_version
        return self._wire(version, self._table.copy())

    def encoded(self) -> Iterator[bytes]:
        """Return the whole table as a body, in pieces that take a fraction of a millisecond each."""
        return self._encoded(self.data_version, _rows(self._table))

    def _encoded(self, version: DataVersion, rows: Iterable[tuple[str, Row]]) -> Iterator[bytes]:
        return fastjson.table_pieces({"dataVersion": version}, self._member, rows)

    def _pieces(self) -> Iterator[bytes]:
        version = self.data_version
        return fastjson.pretty_table_pieces({"dataVersion": version}, self._member, _rows(self._table.copy()))

    def _wire(self, version: DataVersion, rows: Mapping[str, Row]) -> dict[str, Any]:
        table: dict[str, Any] = msgspec.to_builtins({"dataVersion": version, self._member: rows})
        return table

    def _change(self, rows: Mapping[str, Row | None]) -> None:
        """Note rows by name, None of those that are gone, and put them into the table.

        Raises:
            StoreError: the disk refused; nothing was changed.
        """
        version = self.data_version.next(self._clock)
        if self._journal is not None:
            note = self._wire(version, {name: row for name, row in rows.items() if row is not None})
            deleted = [name for name, row in rows.items() if row is None]
            self.note(note | {"deleted": deleted} if deleted else note)
        self._apply(version, rows)
        if self._journal is None:
            self.persist()

    def _apply(self, version: DataVersion, rows: Mapping[str, Row | None]) -> None:
        """Put rows into the table; None takes one out."""
        self.data_version = version
        for name, row in rows.items():
            if row is not None:
                self._table[name] = row
            else:
                self._table.pop(name, None)

    def _merge_note(self, note: Mapping[str, Any]) -> None:
        for name in read_as({"deleted": note.get("deleted")}, _Deleted).deleted:
            self._table.pop(name, None)
        self._merge(note)


def _rows(table: Mapping[str, Row]) -> Iterable[tuple[str, Row]]:
    """Return names and rows as they are now. Pairs that are all made at once would have the collector look at everything."""
    return zip(list(table), list(table.values()), strict=True)


def _counter(value: Any) -> int:
    """Return how often a table had changed; -1 where there is none, or none that says so."""
    return read_as(value, _Versioned).data_version.counter if isinstance(value, Mapping) else -1


class JsonFile:
    """One file of JSON in RocketMQ's dialect with its backup. Not thread-safe; both calls block on the disk.

    Args:
        path: the file; its folder is made by the first :meth:`save`.
        disk: where it lies.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._disk = disk
        self._is_readable = True
        """Whether the file may become the backup: one that could not be read must not replace a good one."""

    def load(self) -> Any:
        """Return the file's value; the backup's when the file is missing, empty or unreadable; None when neither is
        there.

        Raises:
            StoreFormatError: there are files, and none of them can be read.
        """
        reasons = []
        for path in (self.path, self.backup_path):
            try:
                raw = self._disk.read(path)
                if raw.strip():
                    return fastjson.loads(raw)
            except FileNotFoundError:
                continue
            except (OSError, JsonSyntaxError) as error:
                self._is_readable = False
                reasons.append(f"{path}: {error}")
        if reasons:
            raise StoreFormatError("; ".join(reasons))
        return None

    def save(self, value: Any) -> None:
        """Replace the file by a value, durably; the old content becomes the backup.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full). The old file is still there.
        """
        self.save_pieces([fastjson.dumps_pretty(value).encode("utf-8")])

    def save_text(self, text: str) -> None:
        """Replace the file as :meth:`save` does, by a value that was written as text already. Raises StoreError."""
        self.save_pieces([text.encode("utf-8")])

    def save_pieces(self, pieces: Iterable[bytes]) -> None:
        """Replace the file by what its pieces make together, as :meth:`save` does; other threads get their turn in between."""
        made = []
        for piece in pieces:
            made.append(piece)
            time.sleep(_BETWEEN_PIECES_S)
        new = b"".join(made)
        temporary = self.path.with_name(self.path.name + ".tmp")
        disk = self._disk
        with written(self.path):
            disk.make_folder(self.path.parent)
            disk.write_file(temporary, new)
            if self._is_readable and disk.exists(self.path) and (old := disk.read(self.path)).strip():
                disk.write_file(self.backup_path, old)
            disk.replace(temporary, self.path)
        self._is_readable = True
