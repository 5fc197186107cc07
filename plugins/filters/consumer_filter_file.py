"""Reads and writes ``consumerFilter.json`` (docs/internals/store-format.md, Configuration files).

It is written by another thread than the loop's, and of a topic that has not changed since the last time the text is known.
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
    """The filters of a topic as they were taken, and their text in the file, which is made once."""

    __slots__ = ("_groups", "_text", "_topic")

    def __init__(self, topic: str, groups: Mapping[str, ConsumerFilterData]) -> None:
        self._topic = topic
        self._groups = groups
        self._text = ""

    def text(self) -> str:
        """Return the text. Any thread, one at a time."""
        if not self._text:
            whole = fastjson.dumps_pretty({"filterDataByTopic": {self._topic: _entry(self._topic, self._groups)}})
            self._text = whole[len(_HEAD) : -len(_TAIL)]
        return self._text


def _entry(topic: str, groups: Mapping[str, ConsumerFilterData]) -> dict[str, Any]:
    return {"groupFilterData": {group: data.to_wire() for group, data in groups.items()}, "topic": topic}


class ConsumerFilterFile:
    """The file. Loop thread but for :meth:`write`.

    Args:
        file: ``config/consumerFilter.json``, or None for a table that is kept in memory.
    """

    def __init__(self, file: JsonFile | None) -> None:
        self._file = file
        self._parts: dict[str, FilePart] = {}
        """Topic → its part of the file, where it has not changed since that was taken."""
        self.is_dirty = False
        """Whether something has changed since the file was taken or read."""

    def changed(self, topic: str) -> None:
        """Take note that the filters of a topic are others."""
        self.is_dirty = True
        self._parts.pop(topic, None)

    def take(self, table: Mapping[str, Mapping[str, ConsumerFilterData]]) -> list[FilePart] | None:
        """Return what the file is made of, for :meth:`write`; None when nothing has changed since the last time.

        Args:
            table: the filters by topic and group.
        """
        if not self.is_dirty or self._file is None:
            return None
        self.is_dirty = False
        for topic, groups in table.items():
            if topic not in self._parts:
                self._parts[topic] = FilePart(topic, dict(groups))
        return [self._parts[topic] for topic in table]

    def write(self, parts: list[FilePart]) -> None:
        """Write the file. Any thread, one at a time.

        Raises:
            StoreError: the disk refused it; it is written with what :meth:`take` returns next.
        """
        texts = ",".join(part.text() for part in parts)
        try:
            if self._file is not None:
                self._file.save_text(f"{_HEAD}{texts}{_TAIL if texts else _TAIL_OF_NONE}")
        except BaseException:
            self.is_dirty = True
            raise

    def load(self) -> list[ConsumerFilterData]:
        """Return the filters in the file; none without one. Raises ``StoreFormatError``."""
        value = self._file.load() if self._file is not None else None
        return [] if value is None else list(_entries(value))


def _entries(value: Any) -> list[ConsumerFilterData]:
    """Return the filters of a file. Malformed entries are left out, because the next heartbeat repeats them."""
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
