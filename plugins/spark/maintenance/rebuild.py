"""Rebuilds the consume queues and the index of a large store in parallel, with the same bytes that a broker writes.

The content of a consume queue depends only on the log. The byte position of a message's unit is 20 times the message's queue
offset. Therefore each task can write the units of its part of the log at their final positions. Tasks neither sort nor exchange
units (docs/large-stores.md, "Rebuild and repair").

The rebuild checks these conditions:

1. The queue offsets in a queue have neither repeats nor gaps, and the queue's topic was not deleted. If this is not true for a
   queue, the broker's own code builds the queue in the order of the log.
2. No message belongs to several queues (INNER_MULTI_DISPATCH). Otherwise the rebuild is refused.
3. The store has no extension files, because their content depends on past filters. Otherwise the rebuild is refused.
4. No broker runs on the store. Otherwise the rebuild is refused.

The rebuild makes files like the broker's:

* A queue that begins above 0 begins with filler units, which stand for no message.
* Prepared and rolled back messages have no units.
* In the schedule topic the tags code is the time of delivery, by the delay levels that the store records.
* Queue files have the size of the store's files, or the configured size if there are none. Their unused ends are zeros.
* An index file has as many keys as fit. Its name is the time of its first key.

New folders are made and verified, and then replace the old ones.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import queue_folder, sync_file, sync_folder
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.record.queue_unit import UNIT, UNIT_BYTES
from flintmq.core.record.topic_lives import deleted_topic
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS, DelayTimes
from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.maintenance.engines import Engine, Report, silent
from flintmq.plugins.spark.maintenance.pieces import Piece, columns_of, damage, new_folder, plan
from flintmq.plugins.spark.maintenance.rebuild_task import (
    PieceDone,
    RebuildTask,
    build_index,
    index_tasks,
    key_file,
    rebuild_piece,
    write_units,
)
from flintmq.programs.doctor.delays import delays_of
from flintmq.programs.doctor.expected import QueueKey
from flintmq.programs.doctor.files import StoreFiles, map_read_only
from flintmq.programs.doctor.rebuild import (
    fitting,
    log_folders,
    opened,
    set_aside,
    warn_of_guessed_delays,
)

_UNIT: Final = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_FILLER: Final = UNIT.pack(0, 0x7FFFFFFF, 0)
_DERIVED: Final = ("consumequeue", "index")
WORK_FOLDER: Final = "rebuild"
"""Name of the folder in ``flint`` in which a rebuild makes the new files. At the end of the rebuild, the new files replace the
old files."""


@attrs.frozen(kw_only=True)
class Rebuilt:
    """The result of a rebuild of a store's consume queues and index."""

    records: int
    units: int
    queues: int
    sequential_queues: tuple[str, ...]
    """Queues whose queue offsets have gaps or repeats, or whose topic was deleted. Parallel tasks cannot compute the positions
    of the units in such a queue. The rebuild therefore dispatched the queue's messages one after the other in the order of the
    log, as a broker does. An element is a text ``topic/queue id``."""
    keys: int
    index_files: int
    log_ends_at: int
    replaced_are_in: str | None
    """Folder to which the rebuild moved the old queues and index; None if nothing was replaced."""
    seconds: float


def rebuild(
    root: Path,
    config: BrokerConfig,
    delay_level_ms: Mapping[int, int] | None,
    engine: Engine,
    *,
    out: Path | None = None,
    report: Report = silent,
) -> Rebuilt:
    """Rebuild a store's consume queues and index from its commit log, and return counts.

    Args:
        root: the store. No broker may run on the store, and the last broker that ran on it must have stopped without a crash.
        config: the broker's configuration, for the index, the delay levels and file sizes.
        delay_level_ms: delay in ms, keyed by delay level, if the store does not record them.
        engine: runs the tasks.
        out: a new folder that gets ``consumequeue`` and ``index``; the store is then not changed. None to replace the store's
            folders.
        report: called to report progress.

    Raises:
        StoreLockedError: a broker runs on the store.
        MaintenanceError: the store cannot be rebuilt in this way, and was not changed. The text names the remedy.
        StoreError: the new queues cannot be written, or a broker cannot start on them.
    """
    began_s = time.monotonic()
    lock = StoreLock(root)
    try:
        files = StoreFiles(root, log_folders=log_folders(config))
        config = fitting(config, files)
        _check(files, config)
        work = out or root / "flint" / WORK_FOLDER
        if out is None:
            # If an earlier rebuild was killed, its work folder still exists and must be removed.
            shutil.rmtree(work, ignore_errors=True)
        new_folder(work)
        delays = delays_of(files, delay_level_ms)
        times = DelayTimes(delays.times.levels, delay_level_ms or DELAY_LEVEL_MS)
        job = _Job(files, config, times, engine, work, report)
        made = job.run()
        kept = None
        if out is None:
            delays.keep(root)
            kept = _swap(root, work)
    finally:
        lock.release()
    # ``files`` and ``job`` keep the store's files mapped into memory, so both are deleted before the rebuilt store is opened.
    del files, job
    if out is None:
        # The rebuilt store is opened as a last check. Opening the store also writes the store's checkpoint.
        with opened(config, delay_level_ms) as store:
            warn_of_guessed_delays(store)
            if store.watermarks.dispatched != made.log_ends_at:
                raise MaintenanceError(f"{root}: the log grew while the queues were built; run the command again")
    return attrs.evolve(
        made, replaced_are_in=str(kept) if kept is not None else None, seconds=round(time.monotonic() - began_s, 3)
    )


def _check(files: StoreFiles, config: BrokerConfig) -> None:
    root = files.root
    if not files.is_clean:
        raise MaintenanceError(
            f"{root}: the last broker did not shut down cleanly, because the file abort exists. First start and stop the "
            "broker, or run flintmq store repair"
        )
    ext = root / "consumequeue_ext"
    if config.store.consume_queue_ext_enable or (ext.is_dir() and any(ext.iterdir())):
        raise MaintenanceError(
            f"{root} has consume queue extension files, whose content depends on the filters at the time of each message: use "
            "flintmq store repair, which builds them with the present filters"
        )


@attrs.frozen
class _Job:
    """Rebuilds the consume queues and the index of one store, in new folders that can replace the store's folders."""

    _files: StoreFiles
    _config: BrokerConfig
    _delays: DelayTimes
    _engine: Engine
    _work: Path
    _report: Report

    def run(self) -> Rebuilt:
        pieces = plan(self._files, self._engine.parallelism)
        keys_folder = self._work / ".keys"
        for name in (*_DERIVED, keys_folder.name):
            (self._work / name).mkdir(exist_ok=True)
        index = self._config.index
        tasks = [
            RebuildTask(
                piece,
                str(self._work),
                self._config.store.consume_queue_file_bytes,
                self._delays,
                key_file(keys_folder, number) if index.enable else None,
            )
            for number, piece in enumerate(pieces)
        ]
        found = self._engine.run("queues", rebuild_piece, tasks, self._report)
        end = log_end(pieces, found, self._files.log_start)
        runs, irregular = _runs(found)
        for key in irregular:
            shutil.rmtree(self._folder(key), ignore_errors=True)
        self._fill_beginnings(runs)
        if irregular:
            self._make_in_order(pieces, irregular)
            # Queues of deleted topics are not rebuilt, and have no folder, so they are left out of the check and the report.
            irregular = frozenset(key for key in irregular if self._folder(key).exists())
        index_files = list(index_tasks([done.keys for done in found], keys_folder, self._work, index))
        self._engine.run("index", build_index, index_files, self._report)
        shutil.rmtree(keys_folder)
        units = self._verify(runs, irregular)
        _sync_tree(self._work, self._report)
        return Rebuilt(
            records=sum(done.records for done in found),
            units=units,
            queues=len(runs) + len(irregular),
            sequential_queues=tuple(f"{topic}/{queue_id}" for topic, queue_id in sorted(irregular)),
            keys=sum(done.keys for done in found),
            index_files=len(index_files),
            log_ends_at=end,
            replaced_are_in=None,
            seconds=0.0,
        )

    def _folder(self, key: QueueKey) -> Path:
        return queue_folder(self._work / "consumequeue", *key)

    def _fill_beginnings(self, runs: Mapping[QueueKey, tuple[int, int]]) -> None:
        """Write filler units, which stand for no message, at the beginning of consume queues. A queue needs filler units if its
        oldest messages are deleted and its first message lies inside a queue file."""
        size = self._config.store.consume_queue_file_bytes
        for key, (first, _count) in runs.items():
            fill = first * UNIT_BYTES % size
            if fill:
                write_units(self._folder(key), size, first * UNIT_BYTES - fill, _FILLER * (fill // UNIT_BYTES))

    def _make_in_order(self, pieces: Sequence[Piece], irregular: frozenset[QueueKey]) -> None:
        """Rebuild the consume queues in ``irregular``, by dispatching the queues' messages in the order of the log. These
        queues have gaps or repeats in their queue offsets, or their topic was deleted."""
        settings = self._config.store
        table = ConsumeQueueTable(
            OS_DISK,
            self._work / "consumequeue",
            settings.consume_queue_file_bytes,
            fills_gaps=settings.compat == "safe",
        )
        topics = {DELETED_TOPIC, *(topic for topic, _queue_id in irregular)}
        try:
            for number, piece in enumerate(pieces):
                for columns in columns_of(map_read_only(Path(piece.path)), piece, self._delays):
                    names = np.array([topic in topics for topic in columns.topics])
                    rows = np.flatnonzero(columns.visible & names[columns.topic_code])
                    _dispatch(table, columns.requests(rows), irregular)
                self._report("queues in order", number + 1, len(pieces))
        finally:
            table.close()

    def _verify(self, runs: Mapping[QueueKey, tuple[int, int]], irregular: frozenset[QueueKey]) -> int:
        """Check the rebuilt consume queues, and return the number of their units.

        Each queue in ``runs`` must have all its units, and each unit must refer to a later message than the previous unit.
        Raises MaintenanceError.
        """
        size = self._config.store.consume_queue_file_bytes
        units = 0
        for number, (key, (first, count)) in enumerate(runs.items()):
            physical = _physical_of(self._folder(key), size, first, count)
            if len(physical) != count or not (np.diff(physical) > 0).all():
                raise MaintenanceError(
                    f"queue {key[0]}/{key[1]} was not written correctly; check whether the disk is full or faulty"
                )
            units += count
            self._report("verifying", number + 1, len(runs))
        for key in irregular:
            for path in self._folder(key).iterdir():
                data = np.frombuffer(map_read_only(path), np.uint8).reshape(-1, UNIT_BYTES)
                units += int((data.any(axis=1)).sum())
        return units


def _dispatch(table: ConsumeQueueTable, requests: Sequence[DispatchRequest], queues: Set[QueueKey]) -> None:
    """Dispatch the records that belong to ``queues`` to a table of consume queues. If a record declares a topic deleted, delete
    the topic's queues from the table before later records are dispatched."""
    begin = 0
    for at, request in enumerate([*requests, None]):
        topic = deleted_topic(request) if request is not None else ""
        if topic or request is None:
            theirs = [one for one in requests[begin:at] if (one.topic, one.queue_id) in queues]
            table.dispatch(RecordBatch.of_requests(theirs))
            begin = at
        if request is not None and topic:
            table.end_topic(topic, request.commit_log_offset_bytes)


def log_end(pieces: Sequence[Piece], found: Sequence[PieceDone], log_start: int) -> int:
    """Return the physical offset at which the records of the log end; preallocated files may follow. Raises MaintenanceError if
    records follow the zeros after this end."""
    ended = next((number for number, done in enumerate(found) if done.ends_log), len(found) - 1)
    if any(done.records for done in found[ended + 1 :]):
        raise damage(pieces[ended], found[ended].end_offset_bytes - pieces[ended].base)
    return found[ended].end_offset_bytes if found else log_start


def _runs(found: Sequence[PieceDone]) -> tuple[dict[QueueKey, tuple[int, int]], frozenset[QueueKey]]:
    """Divide queues into regular and irregular queues. A queue is regular if its queue offsets have no gaps or repeats, and its
    topic was not deleted. Return the first queue offset and the number of messages of each regular queue, and the set of
    irregular queues."""
    runs: dict[QueueKey, tuple[int, int]] = {}
    irregular: set[QueueKey] = set()
    deleted = frozenset(topic for done in found for topic in done.deleted)
    for done in found:
        for key, run in done.queues.items():
            first, count = runs.get(key, (run.first, 0))
            if not run.is_run or run.first != first + count or key[0] in deleted:
                irregular.add(key)
            runs[key] = (first, count + run.count)
    for key in irregular:
        del runs[key]
    return runs, frozenset(irregular)


def _physical_of(folder: Path, file_bytes: int, first: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the physical offsets in ``count`` consume queue units, from the queue offset ``first`` on."""
    parts = []
    position, end = first * UNIT_BYTES, (first + count) * UNIT_BYTES
    while position < end:
        start = position // file_bytes * file_bytes
        upto = min(end, start + file_bytes)
        count = (upto - position) // UNIT_BYTES
        units = np.fromfile(folder / f"{start:020d}", _UNIT, count, "", position - start)
        parts.append(units["physical"].astype(np.int64))
        position = upto
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _sync_tree(work: Path, report: Report) -> None:
    """Sync all rebuilt consume queue and index files to disk, before these files replace the store's files."""
    paths = [path for name in _DERIVED for path in sorted((work / name).rglob("*"))]
    for number, path in enumerate(paths):
        if path.is_dir():
            sync_folder(path)
        else:
            sync_file(path)
        report("syncing", number + 1, len(paths))
    for name in _DERIVED:
        sync_folder(work / name)
    sync_folder(work)


def _swap(root: Path, work: Path) -> Path | None:
    """Replace the store's consume queues and index by the rebuilt folders. Move the old folders to ``flint/replaced``, and
    return the folder that contains them; None if the store had no such folders.

    If the process is killed before all folders are replaced, the next broker rebuilds the missing files from the log.
    """
    kept = set_aside(root)
    for name in _DERIVED:
        (work / name).rename(root / name)
    sync_folder(root)
    with contextlib.suppress(OSError):
        work.rmdir()
    return kept
