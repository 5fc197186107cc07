"""A table that is kept in a configuration file (docs/internals/store-format.md, Configuration files)."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.json_file import JsonFile
from flintmq.core.io.typed_json import Long, of_file, read_as

Value = TypeVar("Value")


class _Version(msgspec.Struct):
    counter: Long = -1


class _Versioned(msgspec.Struct, rename="camel"):
    """What every table's file has."""

    data_version: _Version = msgspec.field(default_factory=_Version)


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
        """What the file holds. Called on any thread: reads the version before it copies the table, because a file may have
        more than its version says, never less."""

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
        """The file was written when so many additions were noted: they are in it, and without others the notes go."""
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


def _counter(value: Any) -> int:
    """How often a table had changed; -1 where there is none, or none that says so."""
    return read_as(value, _Versioned).data_version.counter if isinstance(value, Mapping) else -1
