"""Tables that are stored in configuration files (docs/internals/store-format.md, Configuration files).

A file survives a crash at any time. The new content is written to ``<file>.tmp`` and synced, and the old content is copied to
``<file>.bak``. Then the file is replaced atomically and the folder is synced. RocketMQ deletes the file before the rename and
syncs nothing, but uses the same format.

Later changes are appended to a journal (:mod:`flintmq.core.io.config_journal`), so the cost of a change does not depend on the
size of the table.
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
from flintmq.core.io.threads import background
from flintmq.core.io.typed_json import Long, of_file, read_as

Value = TypeVar("Value")
Row = TypeVar("Row", bound=msgspec.Struct)

_BETWEEN_PIECES_S: Final = 0.0005
"""Pause in seconds between the pieces of a file that a thread writes. In the pause the event loop gets the interpreter lock."""


class DataVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a table (``DataVersion``): a timestamp and a counter of the table's changes. Two versions are equal if
    their timestamps and their counters are equal.

    Members that RocketMQ 5 adds (``stateVersion``) are ignored. See docs/internals/algorithms.md, Topics and groups.
    """

    counter: Long = 0
    """Number of changes of the table."""
    timestamp_ms: Long = msgspec.field(name="timestamp", default=0)
    """Time of the last change of the table, in ms since 1970."""

    def next(self, clock: Clock) -> DataVersion:
        """Return the table's version after one more change: the current time, and the counter increased by 1."""
        return DataVersion(timestamp_ms=clock.now_ms(), counter=self.counter + 1)


class _Versioned(msgspec.Struct, rename="camel"):
    """The member that every configuration table's file has: the table's data version."""

    data_version: DataVersion = DataVersion(counter=-1)


PERSIST_INTERVAL_S: Final = 5.0
"""Interval in seconds at which a table that has changes in its journal is written to its file."""


class NotedFile(ABC):
    """Writes a table to its file, and its changes to a journal. Loop thread, except :meth:`write`; file accesses block.

    :meth:`note` writes a change to the journal, at a cost that does not depend on the table's size. The change then survives
    the end of the process, and after :meth:`durable` also a power failure. The file is written regularly by :meth:`compact`,
    and at the stop.

    Args:
        file: the table's file; None: the table is only in memory.
        journal: the journal of changes; None: each change writes the whole file.
    """

    def __init__(self, file: JsonFile | None, journal: ConfigJournal | None = None) -> None:
        self._file = file
        self._journal = journal
        self._writing = threading.Lock()
        self._compacting = asyncio.Lock()
        self._changes = 0
        """Number of changes of the table that were written to the table's journal."""
        self._durable = 0
        """Number of changes written to the table's journal that survive a power failure."""
        self._syncing: asyncio.Task[tuple[int, StoreError | None]] | None = None

    @property
    def noted(self) -> int:
        """Number of changes that are in the table's journal and not yet in the table's file."""
        return self._journal.notes if self._journal is not None else 0

    @property
    def is_dirty(self) -> bool:
        """Whether the table's file lacks changes that are in the table's journal."""
        return self.noted > 0

    @abstractmethod
    def _pieces(self) -> Iterator[bytes]:
        """Yield the content to write to the table's file, in pieces. Can be called from any thread."""

    def persist(self) -> bool:
        """Write the whole table to its file, and clear the journal, because the file then contains all changes in the journal.
        The result is always True: the file was written. Methods of subclasses return False if they write nothing, because the
        table has not changed. Raises StoreError."""
        changes = self._changes
        self.write()
        self._durable = changes
        if self._journal is not None:
            self._journal.clear()
        return True

    def note(self, change: Mapping[str, Any]) -> None:
        """Append a change to the table's journal, as a table with only the changed part. The change survives a kill of the
        process. Raises StoreError."""
        if self._journal is None:
            self.persist()
            return
        self._journal.append(change)
        self._changes += 1

    async def durable(self) -> None:
        """Wait until all changes that were written to the journal before this call survive a power failure. Concurrent calls
        share a sync.

        Raises:
            StoreError: the sync failed. The changes are in force, but may be lost in a power failure.
        """
        wanted = self._changes
        while self._durable < wanted:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.get_running_loop().create_task(self._sync(self._changes))
            reached, error = await asyncio.shield(self._syncing)
            if error is not None and reached >= wanted:
                raise type(error)(f"{error}. The change is in effect, but a power cut may undo it") from error

    async def _sync(self, changes: int) -> tuple[int, StoreError | None]:
        journal = self._journal
        # After a failed sync of the journal, a later sync can succeed although bytes of the journal are lost.
        # If any sync of the journal has failed (``is_sound`` is false), the whole table is written to the table's file.
        work = journal.sync if journal is not None and journal.is_sound else self.write
        try:
            await background(work)
        except StoreError as error:
            return changes, error
        self._durable = max(self._durable, changes)
        return changes, None

    async def compact(self) -> None:
        """Write the table's file on a thread, and remove the changes that the file contains from the journal. Raises
        StoreError."""
        async with self._compacting:
            changes, journal = self._changes, self._journal
            if journal is not None:
                journal.turn()
            await background(self.write)
            self._durable = max(self._durable, changes)
            if journal is not None:
                await background(journal.remove_older)

    def write(self) -> None:
        """Write the table's current content to the file. Can be called from any thread. Raises StoreError."""
        if self._file is not None:
            with self._writing:
                self._file.save_pieces(self._pieces())


class ConfigManager(NotedFile, Generic[Value]):
    """Loads and stores a table keyed by name (``ConfigManager`` of RocketMQ). Loop thread, except :meth:`write`.

    Args:
        file: the table's file; None: the table is only in memory.
        table: the content before a file is read.
        journal: the journal of changes; None: each change writes the whole file.
    """

    def __init__(self, file: JsonFile | None, table: dict[str, Value], journal: ConfigJournal | None = None) -> None:
        super().__init__(file, journal)
        self._table = table

    @abstractmethod
    def to_wire(self) -> dict[str, Any]:
        """Return the content to write to the table's file.

        Can be called from any thread. The version is read before the table is copied, because a file may contain more changes
        than its version counts, but never fewer.
        """

    @abstractmethod
    def _merge(self, value: Mapping[str, Any]) -> None:
        """Merge the content of the table's file into the table. Raises JsonTypeError."""

    def _merge_note(self, note: Mapping[str, Any]) -> None:
        """Change the table as described by ``note``, a change that was read from the journal. Raises JsonTypeError."""
        self._merge(note)

    def _pieces(self) -> Iterator[bytes]:
        yield fastjson.dumps_pretty(self.to_wire()).encode("utf-8")

    def load(self) -> bool:
        """Merge the table's file and its journal into the table; return False if the file does not exist.

        Raises:
            StoreFormatError: the file and its backup cannot be read, or have values of a wrong type.
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
        """Replace the whole table by another table in the file's format. If this method raises, the table has not changed."""
        before = dict(self._table)
        self._table.clear()
        try:
            self._merge(value)
        except BaseException:
            self._table = before
            raise


class _Deleted(msgspec.Struct):
    """Type of the JSON member ``deleted`` of a line in a table's journal. The member is a list of the names that the change in
    this line has deleted from the table."""

    deleted: list[str] = []


class VersionedTable(ConfigManager[Row]):
    """A table with a data version, by which name servers and slaves detect changes. Used only on the event loop's thread.

    Args:
        file: the table's file; None: the table is only in memory.
        table: the content before a file is read.
        clock: the source of the version's timestamp.
        journal: the journal of changes; None: each change writes the whole file.
    """

    _member: ClassVar[str]
    """Name of the JSON member that contains the table, in the table's file and in responses."""

    def __init__(
        self, file: JsonFile | None, table: dict[str, Row], clock: Clock, journal: ConfigJournal | None = None
    ) -> None:
        super().__init__(file, table, journal)
        self._clock = clock
        self.data_version = DataVersion(timestamp_ms=clock.now_ms(), counter=0)
        self.deleted: Event[[str]] = Event()
        """Event published with a name that was deleted from the table, so that other tables drop their data about the name."""

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Row]:
        return iter(list(self._table.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def delete(self, name: str) -> bool:
        """Delete a name from the table, and write the deletion to the journal; return False if the table does not have the
        name.

        Raises:
            StoreError: the disk refused the write to the journal; nothing has changed.
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
        """Return the whole table in the format of the file, which requests and answers also use."""
        version = self.data_version
        return self._wire(version, self._table.copy())

    def encoded(self) -> Iterator[bytes]:
        """Yield the whole table as a response body, in pieces that each take a fraction of a millisecond."""
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
        """Write changed rows to the journal, and put these rows into the table; the value None deletes a row.

        Raises:
            StoreError: the disk refused the write to the journal; nothing has changed.
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
        """Put rows into the table and set the table's version; the value None removes a row."""
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
    """Return an iterable of a table's names and rows; creating all pairs at once would trigger a full garbage collection."""
    return zip(list(table), list(table.values()), strict=True)


def _counter(value: Any) -> int:
    """Return the change counter in a table's file content; -1 if the content has no counter."""
    return read_as(value, _Versioned).data_version.counter if isinstance(value, Mapping) else -1


class JsonFile:
    """A file with JSON in RocketMQ's dialect, and its backup. Not thread-safe; loading and saving block on the disk.

    Args:
        path: the path of the file; its folder is created by the first :meth:`save`.
        disk: the disk interface.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._disk = disk
        self._is_readable = True
        """Whether the JSON file could be read at the last load. At the next save, a file that could not be read does not
        replace the backup."""

    def load(self) -> Any:
        """Return the value in the file, or in its backup if the file is missing, empty or unreadable.

        The result is None if neither file exists.

        Raises:
            StoreFormatError: files exist, but none of them can be read.
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
        """Write a value to the file, atomically and durably; the old content becomes the backup.

        Raises:
            StoreError: the disk refused the write (StoreFullError: the disk is full). The old file is unchanged.
        """
        self.save_pieces([fastjson.dumps_pretty(value).encode("utf-8")])

    def save_text(self, text: str) -> None:
        """Write a text of JSON to the file, as :meth:`save` does. Raises StoreError."""
        self.save_pieces([text.encode("utf-8")])

    def save_pieces(self, pieces: Iterable[bytes]) -> None:
        """Write joined pieces to the file, as :meth:`save` does; other threads can run between pieces. Raises StoreError."""
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
