"""Tables that are kept in configuration files (docs/internals/store-format.md, Configuration files).

A file survives a crash at any moment. It is written as: new content to ``<file>.tmp`` and synced, the old file's content to
``<file>.bak``, then one atomic replace and a sync of the folder. RocketMQ deletes the file before it renames and syncs nothing;
what it reads and writes is the same.

What was added since is noted in a journal, so that the file need not be written for every addition: a file of lines, each a
table in small, such as ``flint/new-topics`` for ``config/topics.json``. A line is the operating system's when
:meth:`ConfigJournal.append` returns, so a killed broker finds it again; only the file itself is synced.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from flintmq.core.errors import JsonSyntaxError, StoreError, StoreFormatError, store_error_kind
from flintmq.core.event import Event
from flintmq.core.io import fastjson
from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.typed_json import Long, of_file, read_as

Value = TypeVar("Value")


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
"""How often additions that were only noted are written to the file."""


class ConfigManager(ABC, Generic[Value]):
    """Loads and persists a table by name. Not thread-safe but for :meth:`write`; what touches files blocks on the disk.

    What administration changes is in the file when :meth:`persist` returns. What clients add by the thousand is noted
    (:meth:`note`), and written now and then: ``note`` … ``write`` on any thread → ``forget_notes``.

    Args:
        file: where it is kept, or None to keep it in memory.
        table: what is in it before a file is read.
        journal: takes notes; None has the file written with each of them.
    """

    def __init__(self, file: JsonFile | None, table: dict[str, Value], journal: ConfigJournal | None = None) -> None:
        self._file = file
        self._table = table
        self._journal = journal
        self._writing = threading.Lock()
        self.noted = 0
        """Additions that are noted, and not in the file yet."""

    @abstractmethod
    def to_wire(self) -> dict[str, Any]:
        """Return what the file holds. Called on any thread: reads the version before it copies the table, because a
        file may have more than its version says, never less."""

    @abstractmethod
    def _merge(self, value: Mapping[str, Any]) -> None:
        """Put what a file holds over the table. Raises JsonTypeError."""

    def persist(self) -> None:
        """Write the file. Raises StoreError."""
        self.write()
        self.forget_notes(self.noted)

    def note(self, addition: Mapping[str, Any]) -> None:
        """Note what was added, as a table of its own; it survives the end of the process. Raises StoreError."""
        if self._journal is None:
            self.persist()
            return
        self.noted += 1
        self._journal.append(addition)

    def write(self) -> None:
        """Write the file; any thread, each time what is in the table then. Raises StoreError."""
        if self._file is not None:
            with self._writing:
                self._file.save(self.to_wire())

    def forget_notes(self, noted: int) -> None:
        """Forget the notes once the file holds all of them; it was written when so many additions were noted."""
        if self._journal is not None and noted and self.noted == noted:
            self._journal.clear()
            self.noted = 0

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
        for addition in self._journal.additions() if self._journal is not None else ():
            self.noted += 1
            with of_file(self._journal.path if self._journal is not None else None):
                if _counter(addition) > counter:
                    self._merge(addition)
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


class VersionedTable(ConfigManager[Value]):
    """A table with the version by which name servers and slaves see that it changed. Loop thread.

    Args:
        file: where it is kept, or None to keep it in memory.
        table: what is in it before a file is read.
        clock: stamps the version.
        journal: takes notes; None has the file written with each of them.
    """

    def __init__(
        self, file: JsonFile | None, table: dict[str, Value], clock: Clock, journal: ConfigJournal | None = None
    ) -> None:
        super().__init__(file, table, journal)
        self._clock = clock
        self.data_version = DataVersion(timestamp_ms=clock.now_ms(), counter=0)
        self.deleted: Event[[str]] = Event()
        """What has a name was deleted: what others remember of it is to be forgotten."""

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Value]:
        return iter(list(self._table.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def delete(self, name: str) -> bool:
        """Forget what has a name, and persist; False when it was not there. Raises StoreError."""
        if self._table.pop(name, None) is None:
            return False
        self.deleted.publish(name)
        self._changed()
        return True

    def _changed(self) -> None:
        self.data_version = self.data_version.next(self._clock)
        self.persist()


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
        self.save_text(fastjson.dumps_pretty(value))

    def save_text(self, text: str) -> None:
        """Replace the file as :meth:`save` does, by a value that was written as text already. Raises StoreError."""
        new = text.encode("utf-8")
        temporary = self.path.with_name(self.path.name + ".tmp")
        disk = self._disk
        with _written(self.path):
            disk.make_folder(self.path.parent)
            disk.write_file(temporary, new)
            if self._is_readable and disk.exists(self.path) and (old := disk.read(self.path)).strip():
                disk.write_file(self.backup_path, old)
            disk.replace(temporary, self.path)
        self._is_readable = True


class ConfigJournal:
    """The additions to one file. Not thread-safe; all calls block on the disk, none for a sync.

    Args:
        path: where they are noted; the folder is made with the first.
        disk: where that lies.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self._disk = disk
        self._size_bytes: int | None = None
        """Of the file; None while that is not known."""

    def append(self, addition: Mapping[str, Any]) -> None:
        """Note an addition.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full).
        """
        # A line that the disk took half of is ended by the next one's first character.
        line = b"\n%b\n" % fastjson.dumps(addition).encode("utf-8")
        with _written(self.path):
            end = self._size_bytes
            if end is None:
                self._disk.make_folder(self.path.parent)
                end = self._disk.size(self.path) if self._disk.exists(self.path) else 0
            self._size_bytes = None
            self._disk.write_at(self.path, end, line)
            self._size_bytes = end + len(line)

    def additions(self) -> Iterator[Mapping[str, Any]]:
        """Yield what was noted, in order; a line that a crash cut short is left out.

        Raises:
            StoreFormatError: the file cannot be read.
        """
        try:
            lines = self._disk.read(self.path).split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFormatError(f"{self.path}: {error.strerror}") from error
        for line in lines:
            with contextlib.suppress(JsonSyntaxError):
                addition = fastjson.loads(line) if line.strip() else None
                if isinstance(addition, Mapping):
                    yield addition

    def clear(self) -> None:
        """Forget everything: the file has it. That it is still there after a power cut does no harm."""
        self._size_bytes = None
        with contextlib.suppress(OSError):
            self._disk.discard(self.path)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    """Name the file in what the disk raises while it is written."""
    try:
        yield
    except OSError as error:
        kind = store_error_kind(error)
        raise kind(f"{path}: cannot be written: {error.strerror or error}") from error
    except StoreError as error:
        raise type(error)(f"{path}: cannot be written: {error}") from error
