"""Keeps consumer offsets in RocketMQ's file ``consumerOffset.json``.

See docs/internals/algorithms.md, Groups and offsets; docs/internals/store-format.md, Configuration files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import msgspec

from flintmq.core.broker.offset_table import OffsetTable
from flintmq.core.errors import StoreError
from flintmq.core.io import fastjson
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import JsonFile, NotedFile
from flintmq.core.io.typed_json import of_file, read_as

_TOPICS_OF_PIECE: Final = 200
_HEAD: Final = '{\n\t"offsetTable":{'
_TAIL: Final = "\n\t}\n}"


class _Removed(msgspec.Struct, rename="camel"):
    """A journal entry about removed consumer offsets: their topic, group and queue id. The group None stands for all groups,
    and the queue id None for all queues.
    """

    topic: str
    group: str | None = None
    queue_id: int | None = None


class ConsumerOffsetManager(OffsetTable, NotedFile):
    """The table of consumer offsets with its file; RocketMQ's ConsumerOffsetManager. Loop thread, except for :meth:`write`.

    Commits of offsets are written with the whole table at intervals (:meth:`compact`). Removals are journaled at once, so that
    after a crash a new topic or group does not get the offsets of a deleted topic or group with the same name.

    Args:
        file: ``config/consumerOffset.json``, or None to keep the table in memory.
        entries_max: limit of offsets that clients commit.
        journal: journal of removals; None to write removals with the next write of the table.
    """

    def __init__(
        self, file: JsonFile | None = None, *, entries_max: int = 1_000_000, journal: ConfigJournal | None = None
    ) -> None:
        OffsetTable.__init__(self, entries_max=entries_max)
        NotedFile.__init__(self, file, journal)

    def _note(self, topic: str, group: str | None = None, queue_id: int | None = None) -> None:
        if self._journal is not None:
            self.note({"topic": topic, "group": group, "queueId": queue_id})

    @property
    def is_dirty(self) -> bool:
        """Whether the table of consumer offsets has changes that are not in the file."""
        return self._dirty and self._file is not None

    def persist(self) -> bool:
        """Write the file of consumer offsets if the table has changed; return whether it had changed.

        Raises:
            StoreError: the file could not be written; the table stays dirty.
        """
        if not self.is_dirty:
            return False
        super().persist()
        self._dirty = False
        return True

    async def compact(self) -> None:
        """Write the file of consumer offsets in a thread, and delete the journal's entries that the file includes.

        If consumer offsets are removed during the write, for example with a deleted topic, the removal stays in the journal.
        The file may already contain new offsets of the same topic or group, which were committed after the removal. If the
        process is killed before the next write, the next start applies the removal from the journal, and thus also removes the
        new offsets.

        Raises:
            StoreError: the file could not be written; the table stays dirty.
        """
        self._dirty = False
        try:
            await super().compact()
        except StoreError:
            self._dirty = True
            raise

    def _pieces(self) -> Iterator[bytes]:
        every, before = iter(list(self._table)), _HEAD
        while names := list(itertools.islice(every, _TOPICS_OF_PIECE)):
            part = {
                f"{topic}@{group}": dict(queues)
                for topic in names
                for group, queues in list(self._table.get(topic, {}).items())
            }
            if part:
                rows = fastjson.dumps_pretty({"offsetTable": part})[len(_HEAD) : -len(_TAIL)]
                yield (before + rows).encode("utf-8")
                before = ","
        yield (_TAIL if before == "," else fastjson.dumps_pretty({"offsetTable": {}})).encode("utf-8")

    def load(self) -> bool:
        """Read the file of consumer offsets and apply the journal; return whether the file exists.

        Raises:
            StoreFormatError: the file and its backup cannot be read, or a value does not have RocketMQ's type.
        """
        value = self._file.load() if self._file is not None else None
        if self._file is None or value is None:
            return False
        with of_file(self._file.path):
            self.replace(value)
        self._dirty = False
        self._take_notes()
        return True

    def _take_notes(self) -> None:
        # The journal lists removed consumer offsets that the table's file may still contain, so the offsets are removed again.
        # ``_journal`` is None during the removals, so that no removal is appended to the journal a second time.
        journal, self._journal = self._journal, None
        if journal is None:
            return
        with of_file(journal.path):
            for note in journal.read():
                removed = read_as(note, _Removed)
                if removed.queue_id is not None:
                    self.remove_queue(removed.topic, removed.queue_id)
                elif removed.group is not None:
                    self.remove(removed.topic, removed.group)
                else:
                    self.remove_topic(removed.topic)
        self._journal = journal
        self._changes = journal.notes
