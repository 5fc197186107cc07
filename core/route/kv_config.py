"""The name server's key-value configuration (docs/internals/protocol.md, Name server)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flintmq.core.io.config_manager import ConfigManager, JsonFile
from flintmq.core.io.typed_json import read_as

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: topic to ``broker-a:4;broker-b:4``."""


class _StoredKeyValues(msgspec.Struct, rename="camel"):
    """``kvConfig.json`` (``KVConfigSerializeWrapper``)."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfigManager(ConfigManager[dict[str, str]]):
    """Values by namespace and key. Loop thread; a change is written to disk before the call returns.

    Args:
        file: ``kvConfig.json``, or None to keep the table in memory.
    """

    def __init__(self, file: JsonFile | None = None) -> None:
        super().__init__(file, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises StoreError."""
        self._table.setdefault(namespace, {})[key] = value
        self.persist()

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value; a missing one is not an error. Raises StoreError."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self.persist()

    def list_namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace by key; None when the namespace does not exist."""
        values = self._table.get(namespace)
        return dict(values) if values is not None else None

    def to_wire(self) -> dict[str, Any]:
        return {"configTable": {namespace: dict(values) for namespace, values in self._table.items()}}

    def _merge(self, value: Mapping[str, Any]) -> None:
        self._table.update(read_as(value, _StoredKeyValues).config_table)
