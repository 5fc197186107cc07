"""Reads and writes ``consumerFilter.json`` (docs/internals/store-format.md, Configuration files).

A worker thread writes the file. The text of a topic that has not changed since the last write is reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.typed_json import read_as
from flintmq.core.log_events import client_log
from flintmq.plugins.filters.consumer_filter_data import ConsumerFilterData, StoredFilter

_log = client_log(__name__)
_HEAD: Final = '{\n\t"filterDataByTopic":{'
_TAIL: Final = "\n\t}\n}"
_TAIL_OF_NONE: Final = "}\n}"


class FilePart:
    """A snapshot of a topic's filters, and the text of these filters in ``consumerFilter.json``. The text is made once."""

    __slots__ = ("_groups", "_text", "_topic")

    def __init__(self, topic: str, groups: Mapping[str, ConsumerFilterData]) -> None:
        self._topic = topic
        self._groups = groups
        self._text = ""

    def text(self) -> str:
        """Return the text of a topic's filters in ``consumerFilter.json``. Any thread, but only one thread at a time."""
        if not self._text:
            whole = fastjson.dumps_pretty({"filterDataByTopic": {self._topic: _entry(self._topic, self._groups)}})
            self._text = whole[len(_HEAD) : -len(_TAIL)]
        return self._text


def _entry(topic: str, groups: Mapping[str, ConsumerFilterData]) -> dict[str, Any]:
    return {"groupFilterData": {group: data.to_wire() for group, data in groups.items()}, "topic": topic}


class ConsumerFilterFile:
    """Reads and writes ``consumerFilter.json``. Loop thread, except :meth:`write`.

    Args:
        file: ``config/consumerFilter.json``, or None for a table that is kept in memory.
    """

    def __init__(self, file: JsonFile | None) -> None:
        self._file = file
        self._parts: dict[str, FilePart] = {}
        """Parts of ``consumerFilter.json``, keyed by topic. They are kept so that an unchanged topic is not encoded again. A
        topic has no part if one of its filters has changed since the last call of :meth:`take`."""
        self.is_dirty = False
        """Whether a filter has changed since the last snapshot of the filter table. Before the first snapshot: whether a filter
        has changed since the filter file was read."""

    def changed(self, topic: str) -> None:
        """Mark the filters of a topic as changed since the last write of ``consumerFilter.json``."""
        self.is_dirty = True
        self._parts.pop(topic, None)

    def take(self, table: Mapping[str, Mapping[str, ConsumerFilterData]]) -> list[FilePart] | None:
        """Return the parts of ``consumerFilter.json`` for :meth:`write`; None if no filter has changed since the last call.

        Args:
            table: the filters, keyed by topic and group.
        """
        if not self.is_dirty or self._file is None:
            return None
        self.is_dirty = False
        for topic, groups in table.items():
            if topic not in self._parts:
                self._parts[topic] = FilePart(topic, dict(groups))
        return [self._parts[topic] for topic in table]

    def write(self, parts: list[FilePart]) -> None:
        """Write ``consumerFilter.json``. Any thread, but only one thread at a time.

        Args:
            parts: the filters of each topic, from :meth:`take`.

        Raises:
            StoreError: the file cannot be written. The next call of :meth:`take` returns the filters of all topics for another
                write, even if no filter has changed since the failure.
        """
        texts = ",".join(part.text() for part in parts)
        try:
            if self._file is not None:
                self._file.save_text(f"{_HEAD}{texts}{_TAIL if texts else _TAIL_OF_NONE}")
        except BaseException:
            self.is_dirty = True
            raise

    def load(self) -> list[ConsumerFilterData]:
        """Return the filters in ``consumerFilter.json``; an empty list if the file does not exist.

        Raises:
            StoreFormatError: the file is damaged.
        """
        value = self._file.load() if self._file is not None else None
        return [] if value is None else list(_entries(value))


def _entries(value: Any) -> list[ConsumerFilterData]:
    """Return the filters in the content of ``consumerFilter.json``. Malformed entries are left out, because the next heartbeats
    of the groups send the filters again."""
    found: list[ConsumerFilterData] = []
    topics = value.get("filterDataByTopic") if isinstance(value, Mapping) else None
    for of_topic in topics.values() if isinstance(topics, Mapping) else ():
        groups = of_topic.get("groupFilterData") if isinstance(of_topic, Mapping) else None
        for entry in groups.values() if isinstance(groups, Mapping) else ():
            try:
                found.append(ConsumerFilterData.of(read_as(entry, StoredFilter)))
            except ValueError as error:
                _log.warning("filter.left_out", "a consumer filter in the file is left out: %(error)s", error=error)
    return found
