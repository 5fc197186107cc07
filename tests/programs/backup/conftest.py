"""A store that is in use while it is backed up, and backups that are ended at any step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.io.config_manager import JsonFile
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.backup import log_copy, manifest, writing
from flintmq.programs.backup.backup import BackupPlan, BackupResult, make_backup
from flintmq.programs.backup.restore import RestorePlan, RestoreResult, restore_backup
from flintmq.programs.backup.writing import Writer
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.report import Report
from flintmq.programs.doctor.verify import verify
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store

FILE_BYTES = 4096
SEGMENT_BYTES = 1024
CHUNK_BYTES = 512


class EndedError(Exception):
    """Stands for the end of the process."""


class EndingWriter(Writer):
    """Ends at a step, as a killed process does; counts steps."""

    def __init__(self, end_at: int = sys.maxsize) -> None:
        super().__init__()
        self.end_at = end_at
        self.steps: list[tuple[str, str]] = []

    def step(self, kind: str, path: Path) -> None:
        if len(self.steps) >= self.end_at:
            raise EndedError
        self.steps.append((kind, path.name))


class Live:
    """A store of small files with a group's offsets, in use by this process."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "store"
        self.target = folder / "backup"
        self.folder = folder
        self.clock = ManualClock(1_700_000_000_000)
        self.restored = 0
        self.sent = 0
        self.open()

    def open(self) -> None:
        self.store = open_store(self.root, clock=self.clock, commit_log_file_bytes=FILE_BYTES)
        self.offsets = ConsumerOffsetManager(JsonFile(self.root / "config" / "consumerOffset.json"))
        self.offsets.load()
        self.offsets.cut(self.store.reader.max_queue_offset)

    def put(
        self, count: int = 1, size: int = 100, topic: str = "T", queue_id: int = 0, *, dispatch: bool = True
    ) -> None:
        for _ in range(count):
            self.sent += 1
            self.clock.advance_ms(7)
            body = (b"%d " % self.sent * size)[:size]
            self.store.put([message(topic, queue_id, body, keys=f"k{self.sent}", uniq_key=f"U{self.sent}")])
        if dispatch:
            self.dispatch()

    def dispatch(self) -> None:
        while self.store.dispatch():
            pass
        self.store.index.flush()

    def commit(self, group: str = "billing", topic: str = "T", queue_id: int = 0, behind: int = 0) -> None:
        """The group has consumed all that is visible, but for so many messages."""
        end = self.store.reader.max_queue_offset(topic, queue_id)
        self.offsets.commit(topic, group, queue_id, max(0, end - behind))
        self.offsets.persist()

    def write_topics(self, *topics: str) -> None:
        table = {"topicConfigTable": {name: {"topicName": name} for name in topics}}
        JsonFile(self.root / "config" / "topics.json").save(table)

    def back_up(self, writer: Writer | None = None, **plan: Any) -> BackupResult:
        return make_backup(BackupPlan(**{"store": self.root, "target": self.target, **plan}), writer=writer)

    def restore(self, **plan: Any) -> tuple[Path, RestoreResult]:
        """Restores the backup to a new folder."""
        self.restored += 1
        store = self.folder / f"restored{self.restored}"
        return store, restore_backup(RestorePlan(backup=self.target, store=store, **plan))

    def log(self, root: Path | None = None) -> dict[int, bytes]:
        return {int(path.name): path.read_bytes() for path in sorted((root or self.root).glob("commitlog/*"))}


def prefix(log: dict[int, bytes], begin: int, end: int) -> bytes:
    """The bytes of a log between two positions."""
    return b"".join(
        data[max(0, begin - start) : max(0, end - start)]
        for start, data in sorted(log.items())
        if start + len(data) > begin
    )


def verified(root: Path) -> Report:
    return verify(StoreFiles(root), DELAY_LEVEL_MS)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a file of 4 KiB have several segments, and a segment several chunks."""
    small_pieces(monkeypatch)


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (manifest, log_copy):
        monkeypatch.setattr(module, "SEGMENT_BYTES", SEGMENT_BYTES)
    monkeypatch.setattr(log_copy, "CHUNK_BYTES", CHUNK_BYTES)
    assert writing.CHUNK_BYTES >= CHUNK_BYTES


@pytest.fixture(name="live")
def make_live(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    yield live
    live.store.close()


Make = Callable[..., Live]
