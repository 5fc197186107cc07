"""A table that is kept in a configuration file (reference: store-format 7)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from flintmq.core.io.json_file import JsonFile

Value = TypeVar("Value")


class ConfigManager(ABC, Generic[Value]):
    """Loads and persists a table by name. Not thread-safe; both block on the disk.

    Args:
        file: where it is kept, or None to keep it in memory.
        table: what is in it before a file is read.
    """

    def __init__(self, file: JsonFile | None, table: dict[str, Value]) -> None:
        self._file = file
        self._table = table

    @abstractmethod
    def to_wire(self) -> dict[str, Any]:
        """What the file holds."""

    @abstractmethod
    def _merge(self, value: Mapping[str, Any]) -> None:
        """Puts what a file holds over the table."""

    def persist(self) -> None:
        """Writes the file. Raises StoreError."""
        if self._file is not None:
            self._file.save(self.to_wire())

    def load(self) -> bool:
        """Reads the file over what is in the table, which is kept where the file lacks it; False when there is no file.

        Raises:
            StoreFormatError: the file and its backup cannot be read.
        """
        value = self._file.load() if self._file is not None else None
        if value is None:
            return False
        self._merge(value)
        return True

    def replace(self, value: Mapping[str, Any]) -> None:
        """Takes over another's table; what that does not have is gone. If it raises, nothing changes."""
        before = dict(self._table)
        self._table.clear()
        try:
            self._merge(value)
        except BaseException:
            self._table = before
            raise
