"""Consume queues that are not FlintMQ's own survive crashes as the built-in ones do, and those stay away.

They are those of the example in SQLite, over a database that is crashed at the same moment as the store: what it had committed
is there.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import pytest

import flintmq
from flintmq.core.kernel.ports import ConsumeQueues, QueueReader, StoreFolder
from flintmq.core.store.message_store import MessageStore
from flintmq.tests.support.crash_check import Check
from flintmq.tests.support.crash_run import ROOT, ChangeSpec, CrashFailure, Kind
from flintmq.tests.support.foreign_crash import crash_everywhere

EXAMPLE: Final = Path(str(flintmq.__file__)).resolve().parent / "examples" / "flintmq-sqlite-store" / "src"


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example on the import path, forgotten afterwards."""
    if not EXAMPLE.is_dir():
        pytest.skip("the examples are part of the repository, not of the wheel")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "flintmq_sqlite_store"]:
        del sys.modules[name]


@attrs.define
class Database:
    """What was committed, and behind which operation of the disk."""

    commits: list[tuple[int, bytes]] = attrs.Factory(list)

    def at(self, number: int) -> Database:
        """What a crash behind so many operations leaves of it."""
        left = [image for done, image in self.commits if done <= number]
        return Database([(0, image) for image in left[-1:]])

    def connect(self, journal: Sequence[object]) -> sqlite3.Connection:
        """Opens what was committed last."""
        database = self

        class Noted(sqlite3.Connection):
            def __del__(self) -> None:
                self.close()  # a crash leaves it open

            def __exit__(self, *error: Any) -> Any:
                done = super().__exit__(*error)
                database.commits.append((len(journal), self.serialize()))
                return done

        rows = sqlite3.connect(":memory:", factory=Noted, check_same_thread=False)
        if self.commits:
            rows.deserialize(self.commits[-1][1])
        return rows


def store_over(database: Database) -> ChangeSpec:
    """Stores whose consume queues lie in a database."""

    def foreign_queues(folder: StoreFolder) -> ConsumeQueues:
        rows = database.connect(getattr(folder.disk, "journal", ()))
        made: ConsumeQueues = importlib.import_module("flintmq_sqlite_store.queues").SqliteConsumeQueues(
            rows, folder.root
        )
        return made

    return lambda spec: msgspec.structs.replace(spec, make_queues=foreign_queues)


class ForeignCheck(Check):
    """Reads the units from the database."""

    def look(self, store: MessageStore) -> None:
        super().look(store)
        if files := store.disk.list_folders(ROOT / "consumequeue"):
            raise CrashFailure(f"the built-in queues stay away; seen: {files}")

    def _stored_units(self, queue: QueueReader) -> tuple[int, bytes]:
        first = queue.min_queue_offset
        return first, bytes(queue.unit_bytes(first, queue.max_queue_offset - first))


def test_a_crash_loses_no_message_if_a_plugin_stores_the_consume_queues(kind: Kind) -> None:
    """Killed and without power, at operations all over the scripts that were thought out; restarts and kills within them."""
    looked = crash_everywhere(kind, Database, store_over, ForeignCheck)
    assert looked > 100
