"""The module that the entry point names: hooks that register the consume queues and the index builder ``sqlite``."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from flintmq.core.kernel.hookspecs import FolderContext, RegisterDispatcher, RegisterIndexBuilder, hookimpl
from flintmq_sqlite_store.index import SqliteIndex
from flintmq_sqlite_store.queues import SqliteConsumeQueues


@hookimpl
def flintmq_dispatchers(register: RegisterDispatcher) -> None:
    register("consume_queue", make_queues, essential=True)


@hookimpl
def flintmq_index_builders(register: RegisterIndexBuilder) -> None:
    register("sqlite", make_index)


def make_queues(context: FolderContext[object]) -> SqliteConsumeQueues:
    folder = context.folder.root / "flint"
    return SqliteConsumeQueues(_connect(folder / "queues.db"), folder)


def make_index(context: FolderContext[object]) -> SqliteIndex:
    return SqliteIndex(_connect(context.folder.root / "flint" / "index.db"))


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, check_same_thread=False)
