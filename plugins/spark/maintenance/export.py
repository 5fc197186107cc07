"""Exports the messages of a time range to Parquet files, one per piece of the log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from flintmq.core.io.paths import sync_file, sync_folder
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.maintenance.engines import Engine, Report, silent
from flintmq.plugins.spark.maintenance.pieces import (
    Piece,
    PieceTask,
    decoded,
    first_store_time_ms,
    new_folder,
    plan,
    present_lives,
)
from flintmq.plugins.spark.ports import Range
from flintmq.programs.doctor.files import StoreFiles

SLACK_MS: Final = 600_000
"""Time in ms by which a message's store time may be earlier than the store time of the message before it, because a broker's
clock was corrected. An export of a time range also reads pieces of the log that are outside the range by at most this time."""


@attrs.frozen
class PartTask(PieceTask):
    """The task to export one piece of the commit log to a Parquet file."""

    folder: str
    rows: RowFilter
    broker_name: str | None
    compression: str
    chosen_path: str | None = None
    """Path of a file with the physical offsets of the records to export, ascending, in 8 bytes each; None to export all
    records."""


@attrs.frozen
class PartDone:
    """The counts of one piece of the log that was exported as a Parquet file."""

    rows: int
    file_bytes: int


def write_part(task: PartTask) -> PartDone:
    """Export the messages of one piece of the log to a Parquet file. The file gets its name when it is complete. A piece
    without rows gets no file.

    Raises:
        BadRecordError, MaintenanceError: the log is damaged in this piece.
        OSError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    piece = task.piece
    decoder = Decoder(rows=task.rows, broker_name=task.broker_name)
    path = Path(task.folder) / f"part-{piece.start_offset_bytes:020d}.parquet"
    hidden = path.with_name(f".{path.name}")
    positions = np.fromfile(task.chosen_path, np.int64) if task.chosen_path is not None else None
    rows = 0
    writer = None
    try:
        for batch in decoded(piece, decoder, positions):
            if batch.num_rows:
                if writer is None:
                    writer = pq.ParquetWriter(hidden, batch.schema, compression=task.compression)
                writer.write_table(pa.Table.from_batches([batch]))
                rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        return PartDone(0, 0)
    sync_file(hidden)
    hidden.replace(path)
    sync_folder(path.parent)
    return PartDone(rows, path.stat().st_size)


@attrs.frozen(kw_only=True)
class Exported:
    """The counts of a finished export of messages to Parquet files."""

    rows: int
    files: int
    file_bytes: int
    pieces: int
    pieces_left_out: int
    """Number of pieces of the log that were not read because they are outside the time range of the export."""
    seconds: float


def export(
    files: StoreFiles,
    out: Path,
    engine: Engine,
    *,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    topics: frozenset[str] | None = None,
    system_topics: bool = False,
    broker_name: str | None = None,
    compression: str = "zstd",
    end_offset_bytes: int | None = None,
    report: Report = silent,
) -> Exported:
    """Write messages into a new folder of Parquet files with every column of the data source.

    Args:
        files: the store; if a broker runs on it, give ``end_offset_bytes``.
        out: a new folder that every worker of the engine can reach.
        engine: runs the tasks.
        begin_ms: the earliest store time in ms since 1970; None for no limit.
        end_ms: the store time in ms before which messages are exported; None for no limit.
        topics: the topics to export; None for all, without system topics unless ``system_topics`` is set.
        system_topics: also export system topics.
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
    everything = plan(files, engine.parallelism, end_offset_bytes)
    low = begin_ms if begin_ms is not None else Range().low
    high = end_ms - 1 if end_ms is not None else Range().high
    pieces = within(everything, low, high)
    rows = RowFilter(
        topics=topics,
        system_topics=system_topics,
        store_timestamp_ms=Range(low, high),
        lives=present_lives(files, end_offset_bytes),
    )
    tasks = [PartTask(piece, str(out), rows, broker_name, compression) for piece in pieces]
    done = engine.run("exporting", write_part, tasks, report)
    return Exported(
        rows=sum(one.rows for one in done),
        files=sum(one.rows > 0 for one in done),
        file_bytes=sum(one.file_bytes for one in done),
        pieces=len(pieces),
        pieces_left_out=len(everything) - len(pieces),
        seconds=round(time.monotonic() - began_s, 3),
    )


def within(pieces: list[Piece], low_ms: int, high_ms: int) -> list[Piece]:
    """Return the pieces of the log that may contain messages stored in a time range. Store times increase along the log, unless
    a broker's clock was set back."""
    if low_ms == Range().low and high_ms == Range().high:
        return pieces
    begins = [first_store_time_ms(piece) for piece in pieces]
    kept = []
    for number, piece in enumerate(pieces):
        begin = begins[number]
        following = next((later for later in begins[number + 1 :] if later is not None), None)
        if begin is not None and begin - SLACK_MS > high_ms:
            continue
        if following is not None and following + SLACK_MS < low_ms:
            continue
        kept.append(piece)
    return kept
