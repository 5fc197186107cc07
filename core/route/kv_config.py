"""The name server's key-value configuration (docs/internals/protocol.md, Name server)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import ConfigManager, DataVersion, JsonFile
from flintmq.core.io.typed_json import read_as
from flintmq.core.limits import KV_CONFIG_ENTRIES_MAX, KV_CONFIG_MAX_BYTES
from flintmq.core.response_code import ResponseCode

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics. Its keys are topics, and its values are order configurations such as
``broker-a:4;broker-b:4``."""


class _StoredKeyValues(msgspec.Struct, rename="camel"):
    """The content of ``kvConfig.json`` (``KVConfigSerializeWrapper``)."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class _Noted(msgspec.Struct, rename="camel"):
    """The data version in a line of the journal. It orders the changes that the lines describe."""

    data_version: DataVersion


class _Note(msgspec.Struct, rename="camel"):
    """A change of one value in the key-value configuration; the value None deletes the key."""

    namespace: str
    key: str
    value: str | None = None


def _size(namespace: str, key: str, value: str | None) -> int:
    return 0 if value is None else sum(len(text.encode("utf-8", "replace")) for text in (namespace, key, value))


class KVConfigManager(ConfigManager[dict[str, str]]):
    """The name server's key-value configuration (``KVConfigManager`` of RocketMQ), with values by namespace and key.

    Used only on the event loop's thread. When a call returns, its change survives a kill; after :meth:`durable` it also
    survives a power failure.

    Args:
        file: the file ``kvConfig.json``; None: the table is only in memory.
        journal: the journal of changes; None: each change writes the whole file.
    """

    def __init__(self, file: JsonFile | None = None, journal: ConfigJournal | None = None) -> None:
        super().__init__(file, {}, journal)
        self._size_bytes = 0
        self._counter = 0
        """Number of the newest change in the journal of the key-value configuration. At a start, the number is read from the
        journal, because ``kvConfig.json`` does not contain it."""

    def __len__(self) -> int:
        return sum(map(len, self._table.values()))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set the value of a key in a namespace of the key-value configuration.

        Raises:
            RefusedError: the configuration would exceed its maximum size; nothing has changed.
            StoreError: the disk refused the write; nothing has changed.
        """
        before = self.get(namespace, key)
        entries, size_bytes = len(self) + (before is None), self._size_bytes + _size(namespace, key, value)
        if before is not None:
            size_bytes -= _size(namespace, key, before)
        if entries > KV_CONFIG_ENTRIES_MAX or size_bytes > KV_CONFIG_MAX_BYTES:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the name server would store {entries} values of {size_bytes} bytes; at most {KV_CONFIG_ENTRIES_MAX} values "
                f"and {KV_CONFIG_MAX_BYTES} bytes are allowed",
                reason="kv.too_many",
                measured=str(size_bytes),
            )
        self._change(namespace, key, value)

    def _change(self, namespace: str, key: str, value: str | None) -> None:
        if self._journal is not None:
            change = {"namespace": namespace, "key": key, "value": value}
            self.note({"dataVersion": {"counter": self._counter + 1}, "change": change})
            self._counter += 1
        self._apply(namespace, key, value)
        if self._journal is None:
            self.persist()

    def _apply(self, namespace: str, key: str, value: str | None) -> None:
        before = self.get(namespace, key)
        self._size_bytes += _size(namespace, key, value) - _size(namespace, key, before)
        if value is not None:
            self._table.setdefault(namespace, {})[key] = value
        else:
            self._table.get(namespace, {}).pop(key, None)

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value of a key in a namespace of the key-value configuration; None if the key has no value."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Delete the value of a key in the key-value configuration; a missing value is not an error. Raises StoreError if the
        disk refuses the write; nothing has changed."""
        if key in self._table.get(namespace, {}):
            self._change(namespace, key, None)

    def list_namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace of the key-value configuration, keyed by key; None if the namespace does not
        exist."""
        values = self._table.get(namespace)
        return dict(values) if values is not None else None

    def to_wire(self) -> dict[str, Any]:
        return {"configTable": {namespace: dict(values) for namespace, values in self._table.copy().items()}}

    def _merge(self, value: Mapping[str, Any]) -> None:
        self._table.update(read_as(value, _StoredKeyValues).config_table)
        self._size_bytes = sum(
            _size(namespace, key, one) for namespace, values in self._table.items() for key, one in values.items()
        )

    def _merge_note(self, note: Mapping[str, Any]) -> None:
        change = read_as(note.get("change"), _Note)
        self._counter = read_as(note, _Noted).data_version.counter
        self._apply(change.namespace, change.key, change.value)
