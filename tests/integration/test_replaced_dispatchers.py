"""What a plugin puts in the place of index or consume queue gets every message, also through a recovery, or is refused."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.core.errors import PluginError
from flintmq.core.kernel.hookspecs import (
    DispatcherContext,
    FolderContext,
    RegisterDispatcher,
    RegisterIndexBuilder,
    hookimpl,
)
from flintmq.core.kernel.ports import CommitLogDispatcher, IndexBuilder, RecordBatch
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable, make_consume_queues
from flintmq.dispatchers.index.index_service import make_index

Configure = Callable[..., Any]


class SqliteIndex:
    """An index in a database: each batch is a transaction, what is there already is left."""

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect(path, check_same_thread=False)
        self._rows.execute("CREATE TABLE IF NOT EXISTS keys (topic, key, at, PRIMARY KEY (topic, key, at))")

    def dispatch(self, batch: RecordBatch) -> None:
        rows = [(r.topic, key, r.commit_log_offset_bytes) for r in batch.requests() for key in r.keys.split(" ") if key]
        with self._rows:
            self._rows.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", rows)

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        sql = "SELECT at FROM keys WHERE topic = ? AND key = ? ORDER BY at DESC LIMIT ?"
        return [at for (at,) in self._rows.execute(sql, (topic, key, max_num))], 0, 0

    def flush(self) -> None: ...

    def close(self) -> None:
        self._rows.close()


class SqliteIndexPlugin:
    """Registers it; the database lies beside the store."""

    plugin_name = "sqlite_index"

    def __init__(self, path: Path) -> None:
        self._path = path

    @hookimpl
    def flintmq_index_builders(self, register: RegisterIndexBuilder) -> None:
        def make(_context: FolderContext) -> IndexBuilder:
            return SqliteIndex(self._path)

        register("sqlite", make)


def elsewhere(context: FolderContext) -> ConsumeQueueTable:
    """Queues like the built-in ones, in another folder."""
    return make_consume_queues(attrs.evolve(context.folder, root=context.folder.root / "mine"))


class NoQueues:
    """Keeps messages elsewhere."""

    def __init__(self, _context: FolderContext) -> None:
        self.got = 0

    def dispatch(self, batch: RecordBatch) -> None:
        self.got += len(batch)


class QueuePlugin:
    """Replaces ``consume_queue``."""

    plugin_name = "my_queues"

    def __init__(self, make: Callable[[FolderContext], CommitLogDispatcher]) -> None:
        self._make = make

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        register("consume_queue", self._make)


class ContextsPlugin:
    """Keeps what its factories are given."""

    plugin_name = "contexts"

    def __init__(self) -> None:
        self.of_index: list[FolderContext] = []
        self.found: list[tuple[int, set[str], int]] = []

    @hookimpl
    def flintmq_index_builders(self, register: RegisterIndexBuilder) -> None:
        def make(context: FolderContext) -> IndexBuilder:
            self.of_index.append(context)
            return make_index(context.folder)

        register("kept", make)

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        def make(context: DispatcherContext) -> CommitLogDispatcher:
            store = context.store
            found = (store.commit_log.max_offset_bytes, store.reader.topics(), store.watermarks.dispatched)
            self.found.append(found)
            return NoQueues(context)

        register("kept", make)


def put(broker: flintmq.Broker, *numbers: int) -> None:
    broker.put([flintmq.Message("T", b"x" * 100, keys=f"k{number}") for number in numbers])


def kill(root: Path, copy: Path, queues: str = "consumequeue") -> None:
    """What a killed broker leaves: its files as they are, and queues that had not been told of the last messages."""
    shutil.copytree(root, copy)
    for path in sorted((copy / queues / "T").rglob("*")):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    assert (copy / "abort").exists()


@pytest.mark.parametrize("switched_off_before", [False, True])
def test_an_index_builder_plugin_receives_the_records_recovered_after_a_broker_is_killed(
    configure: Configure, tmp_path: Path, switched_off_before: bool
) -> None:
    """Killed between append and dispatch: each key is found after the start, and the built-in index has no fragments."""
    plugins = (SqliteIndexPlugin(tmp_path / "index.db"),)
    foreign = "index.builder=sqlite"
    with flintmq.Broker(configure(*(() if switched_off_before else (foreign,))), plugins=plugins) as broker:
        put(broker, *range(40))
        kill(tmp_path / "store", tmp_path / "killed")
    (tmp_path / "index.db").unlink(missing_ok=True)  # the database was slower than all the rest
    if switched_off_before:
        shutil.rmtree(tmp_path / "killed" / "index", ignore_errors=True)
    with flintmq.Broker(configure(foreign, store="killed"), plugins=plugins) as broker:
        put(broker, 40)
        for number in range(41):
            found, _time_ms, _offset = broker.state.store.reader.query_message("T", f"k{number}", 32, 0, 2**62)
            assert len(found) == 1, number
    assert not any((tmp_path / "killed" / "index").glob("*"))


def test_a_consume_queue_plugin_receives_the_records_recovered_after_a_broker_is_killed(
    configure: Configure, tmp_path: Path
) -> None:
    """Queue offsets go on behind what was recovered through the plugin, and nothing is missing."""
    plugins = (QueuePlugin(elsewhere),)
    with flintmq.Broker(configure("topics.default_queue_nums=1"), plugins=plugins) as broker:
        put(broker, *range(8))
        kill(tmp_path / "store", tmp_path / "killed", "mine/consumequeue")
    with flintmq.Broker(configure("topics.default_queue_nums=1", store="killed"), plugins=plugins) as broker:
        ends = [broker.state.store.reader.max_queue_offset("T", queue_id) for queue_id in range(4)]
        put(broker, *range(8, 12))
        after = [broker.state.store.reader.max_queue_offset("T", queue_id) for queue_id in range(4)]
    assert sum(ends) == 8
    assert sum(after) == 12
    assert not any((tmp_path / "killed" / "consumequeue").glob("*"))


def test_a_consume_queue_plugin_without_methods_for_reading_is_refused(configure: Configure, tmp_path: Path) -> None:
    """Its messages could not be consumed, and the next start would number from zero: a broker does not start with it."""
    with flintmq.Broker(configure()) as broker:
        put(broker, 0)
    with pytest.raises(PluginError, match=r"my_queues.*consume_queue.*find\(topic, queue_id\)"):
        flintmq.Broker(configure(), plugins=(QueuePlugin(NoQueues),)).__enter__()
    with flintmq.Broker(configure()) as broker:
        assert sum(broker.state.store.reader.max_queue_offset("T", queue_id) for queue_id in range(4)) == 1
        put(broker, 2)


def test_plugin_factories_get_the_store_only_after_recovery(configure: Configure, tmp_path: Path) -> None:
    """An index builder is made before the recovery that needs it; a dispatcher sees the whole of a recovered store."""
    plugin = ContextsPlugin()
    settings = ("index.builder=kept", "dispatchers=consume_queue,index,kept")
    with flintmq.Broker(configure(*settings), plugins=[plugin]) as broker:
        put(broker, 1, 2)
        end = broker.state.store.watermarks.wrote
    with flintmq.Broker(configure(*settings), plugins=[plugin]):
        pass
    assert not any(hasattr(context, "store") for context in plugin.of_index)
    assert plugin.found[0][0] == 0
    at, topics, dispatched = plugin.found[1]
    assert (at, dispatched) == (end, end)
    assert "T" in topics
