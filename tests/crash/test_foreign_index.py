"""An index builder that is not FlintMQ's own gets whatever a recovery dispatches once more: nothing is lost, nothing stale.

Its rows lie in a database of their own, so it is crashed at the same moment as the store, and keeps what it had made durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec
import pytest

from flintmq.core.kernel.ports import DispatchRequest, IndexBuilder, RecordBatch, StoreFolder
from flintmq.core.record.sys_flag import is_indexed
from flintmq.core.store.message_store import MessageStore
from flintmq.tests.support.crash_check import Check
from flintmq.tests.support.crash_run import ROOT, ChangeSpec, CrashFailure, Kind
from flintmq.tests.support.foreign_crash import crash_everywhere

Rows = dict[int, tuple[str, frozenset[str]]]
"""Topic and keys of each record, by its physical offset."""


@attrs.define
class Database:
    """What is durable, and since which operation of the disk."""

    lazy: bool
    commits: list[tuple[int, Rows, int]] = attrs.Factory(lambda: [(0, {}, 0)])
    """(operations done, rows, position behind the last of them)"""

    def at(self, number: int) -> Database:
        """What a crash behind so many operations leaves of it."""
        left = [commit for commit in self.commits if commit[0] <= number]
        return Database(self.lazy, [(0, *left[-1][1:])])


class ForeignIndex:
    """Ignores records by position. A lazy one commits with a flush only, and says so; the other one with each batch."""

    def __init__(self, database: Database, now: Any) -> None:
        self._database = database
        self._now = now
        _number, rows, self._taken_until = database.commits[-1]
        self.rows = dict(rows)

    def dispatch(self, batch: RecordBatch) -> None:
        for request in batch.requests():
            if is_indexed(request.sys_flag) and request.commit_log_offset_bytes >= self._taken_until:
                keys = frozenset(key for key in (request.uniq_key, *request.keys.split(" ")) if key)
                self.rows[request.commit_log_offset_bytes] = (request.topic, keys)
                self._taken_until = request.commit_log_offset_bytes + request.message_size_bytes
        if not self._database.lazy:
            self.flush()

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        self.flush()
        found = [at for at, (of_topic, keys) in self.rows.items() if of_topic == topic and key in keys]
        return sorted(found, reverse=True)[:max_num], 0, 0

    def committed(self) -> int | None:
        return self._database.commits[-1][2] if self._database.lazy else None

    def truncate(self, end_offset_bytes: int) -> None:
        self.rows = {at: row for at, row in self.rows.items() if at < end_offset_bytes}
        self._taken_until = min(self._taken_until, end_offset_bytes)
        self.flush()

    def flush(self) -> None:
        self._database.commits.append((self._now(), dict(self.rows), self._taken_until))

    def close(self) -> None: ...


def store_over(database: Database) -> ChangeSpec:
    """Stores whose index builder keeps its rows there."""

    def foreign_index(folder: StoreFolder) -> IndexBuilder:
        journal: Sequence[object] = getattr(folder.disk, "journal", ())
        return ForeignIndex(database, lambda: len(journal))

    return lambda spec: msgspec.structs.replace(spec, make_index=foreign_index)


class ForeignCheck(Check):
    """Looks at the foreign rows, and at the folder where the built-in index would lie."""

    def _look_at_index(self, store: MessageStore, records: dict[int, DispatchRequest]) -> None:
        index = store.index
        assert isinstance(index, ForeignIndex)
        wanted: Rows = {}
        for at, request in records.items():
            if is_indexed(request.sys_flag):
                wanted[at] = (request.topic, frozenset(k for k in (request.uniq_key, *request.keys.split(" ")) if k))
        log = store.commit_log
        seen = {at: row for at, row in index.rows.items() if at >= min(records, default=log.max_offset_bytes)}
        if seen != wanted:
            different = sorted(at for at in seen.keys() | wanted.keys() if seen.get(at) != wanted.get(at))
            raise CrashFailure(f"a foreign index has what the log has; seen: {different[:5]} of {len(wanted)}")
        if files := store.disk.list_files(ROOT / "index"):
            raise CrashFailure(f"the built-in index stays empty; seen: {files}")


@pytest.mark.parametrize("lazy", [False, True], ids=["commits each batch", "says what it committed"])
def test_an_index_built_by_a_plugin_contains_every_stored_message_after_a_crash_recovery(
    kind: Kind, lazy: bool
) -> None:
    """Killed and without power, at operations all over the scripts that were thought out; restarts and kills within them."""
    looked = crash_everywhere(kind, lambda: Database(lazy), store_over, ForeignCheck)
    assert looked > 100
