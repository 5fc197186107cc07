"""Compaction by key: writes the newest message of each topic and key as Parquet.

Compaction runs in two passes. The first pass reads only topics, keys and positions, and finds the last position for each
(topic, key). The second pass writes the messages at these last positions. The store is not changed.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.maintenance.engines import Engine, Report, silent
from flintmq.plugins.spark.maintenance.export import PartTask, write_part
from flintmq.plugins.spark.maintenance.pieces import PieceTask, decoded, new_folder, plan, present_lives
from flintmq.programs.doctor.files import StoreFiles

if TYPE_CHECKING:
    import pyarrow

_WORK: Final = ".work"
_COLUMNS: Final = ("topic", "keys", "physicalOffset")


@attrs.frozen
class NewestTask(PieceTask):
    """The task to find the last position of each key in one piece of the log, in the first pass of a compaction."""

    rows: RowFilter
    path: str
    """Path of the file to which the task writes the position of each key's newest message."""


@attrs.frozen
class NewestDone:
    """The counts of one task in the first pass of a compaction."""

    rows: int
    without_key: int
    keys: int


@attrs.frozen(kw_only=True)
class Compacted:
    """The result of a compaction, which keeps only the newest message of each topic and key: the numbers of messages and files,
    and the duration."""

    rows_read: int
    rows_without_key: int
    """Number of messages without the property KEYS, which compaction leaves out."""
    rows: int
    files: int
    file_bytes: int
    seconds: float


def newest_of_piece(task: NewestTask) -> NewestDone:
    """Find the last position of each (topic, key) in a piece of the log, write the positions to an Arrow file, and return
    counts."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.feather as feather

    batches = list(decoded(task.piece, Decoder(columns=_COLUMNS, rows=task.rows)))
    rows = sum(batch.num_rows for batch in batches)
    if not rows:
        return NewestDone(0, 0, 0)
    table = pa.Table.from_batches(batches)
    keyed = table.filter(pc.greater(pc.binary_length(pc.fill_null(table["keys"], "")), 0))
    newest = newest_of(keyed)
    feather.write_feather(newest, task.path, compression="uncompressed")
    return NewestDone(rows, rows - keyed.num_rows, newest.num_rows)


def newest_of(rows: pyarrow.Table) -> pyarrow.Table:
    """Return, for each (topic, key) in a table of messages, the largest physical offset."""
    found = rows.group_by(["topic", "keys"], use_threads=False).aggregate([("physicalOffset", "max")])
    return found.rename_columns(
        [{"physicalOffset_max": "physicalOffset"}.get(name, name) for name in found.column_names]
    )


def compact(
    files: StoreFiles,
    out: Path,
    engine: Engine,
    *,
    topics: frozenset[str] | None = None,
    broker_name: str | None = None,
    compression: str = "zstd",
    end_offset_bytes: int | None = None,
    report: Report = silent,
) -> Compacted:
    """Write the newest message of each topic and key into a new folder of Parquet files.

    The key is the producer's property KEYS. The driver holds all distinct keys in memory.

    Args:
        files: the store.
        out: a new folder that every worker of the engine can reach.
        engine: runs the tasks.
        topics: the topics to read; None for all but system topics.
        broker_name: the value of the column ``brokerName``.
        compression: ``zstd``, ``snappy`` or ``none``.
        end_offset_bytes: the physical offset at which reading ends; see :func:`flintmq.plugins.spark.maintenance.pieces.plan`.
        report: called to report progress.

    Raises:
        MaintenanceError: ``out`` is not empty, or the log is damaged.
        StoreError, OSError: a file cannot be read or written.
    """
    began_s = time.monotonic()
    new_folder(out)
    work = out / _WORK
    work.mkdir()
    pieces = plan(files, engine.parallelism, end_offset_bytes)
    rows = RowFilter(topics=topics, system_topics=False, lives=present_lives(files, end_offset_bytes))
    first = [NewestTask(piece, rows, str(work / f"{number:08d}.arrow")) for number, piece in enumerate(pieces)]
    found = engine.run("keys", newest_of_piece, first, report)
    chosen = _merge([task.path for task, done in zip(first, found, strict=True) if done.keys])
    second = []
    for number, piece in enumerate(pieces):
        low, high = np.searchsorted(chosen, [piece.base + piece.at, piece.base + piece.end_at])
        if low < high:
            path = work / f"{number:08d}.chosen"
            chosen[low:high].tofile(path)
            second.append(PartTask(piece, str(out), rows, broker_name, compression, str(path)))
    written = engine.run("writing", write_part, second, report)
    shutil.rmtree(work)
    return Compacted(
        rows_read=sum(done.rows for done in found),
        rows_without_key=sum(done.without_key for done in found),
        rows=sum(done.rows for done in written),
        files=sum(done.rows > 0 for done in written),
        file_bytes=sum(done.file_bytes for done in written),
        seconds=round(time.monotonic() - began_s, 3),
    )


def _merge(paths: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the ascending positions of the messages that a compaction keeps: the newest message of each topic and key.

    Each task has written its newest messages to a file. The files are merged one by one, so that only distinct keys are in
    memory.

    Args:
        paths: the files of the tasks.
    """
    import pyarrow as pa
    import pyarrow.feather as feather

    newest: pyarrow.Table | None = None
    for path in paths:
        piece = feather.read_table(path)
        newest = piece if newest is None else newest_of(pa.concat_tables([newest, piece.select(newest.column_names)]))
    if newest is None:
        return np.empty(0, np.int64)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.sort(newest["physicalOffset"].to_numpy())
    return found
