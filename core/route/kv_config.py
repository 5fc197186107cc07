"""The name server's key-value configuration (reference: protocol 6)."""

from __future__ import annotations

from typing import Any, Final

from flintmq.core.io.json_file import JsonFile

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: topic to ``broker-a:4;broker-b:4``."""


class KVConfigManager:
    """Values by namespace and key. Loop thread; a change is written to disk before the call returns.

    Args:
        file: ``kvConfig.json``, or None to keep the table in memory.
    """

    def __init__(self, file: JsonFile | None = None) -> None:
        self._file = file
        self._table: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a value. Raises StoreError."""
        self._table.setdefault(namespace, {})[key] = value
        self.persist()

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Removes a value; one that is not there is nothing. Raises StoreError."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self.persist()

    def list_namespace(self, namespace: str) -> dict[str, str] | None:
        """Everything in a namespace; None when there is no such namespace."""
        values = self._table.get(namespace)
        return dict(values) if values is not None else None

    def to_wire(self) -> dict[str, Any]:
        return {"configTable": {namespace: dict(values) for namespace, values in self._table.items()}}

    def persist(self) -> None:
        """Writes the file. Raises StoreError."""
        if self._file is not None:
            self._file.save(self.to_wire())

    def load(self) -> bool:
        """Reads the file; False when there is none.

        Raises:
            StoreFormatError: the file and its backup cannot be read.
        """
        value = self._file.load() if self._file is not None else None
        if value is None:
            return False
        for namespace, values in (value.get("configTable") or {}).items():
            self._table[str(namespace)] = {str(key): str(member) for key, member in (values or {}).items()}
        return True
