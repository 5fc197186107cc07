"""Writes the messages of a time range into Parquet files, one for each piece of the log."""

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
"""Store times may go back by so much when a broker's clock is set: pieces are left out with this to spare."""


@attrs.frozen
class PartTask(PieceTask):
    """What one task writes."""

    folder: str
    rows: RowFilter
    broker_name: str | None
    compression: str
    chosen_path: str | None = None
    """A file of physical offsets (8 bytes, ascending): only the records there. None for all."""


@attrs.frozen
class PartDone:
    """What it wrote."""

    rows: int
    file_bytes: int


def write_part(task: PartTask) -> PartDone:
    """Write the piece's rows into one Parquet file, which gets its name when it is whole; none without rows.

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
    """What an export wrote."""

    rows: int
    files: int
    file_bytes: int
    pieces: int
    pieces_left_out: int
    """Pieces outside the time range, which were not read."""
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
        files: the store; where a broker runs on it, give ``end_offset_bytes``.
        out: a new folder, on a disk that every worker of the engine reaches.
        engine: where the work is done.
        begin_ms: messages stored at or after; None from the first one on.
        end_ms: messages stored before; None to the last one.
        topics: only these; None for all but, without ``system_topics``, the broker's own.
        system_topics: the broker's own topics too.
        broker_name: for the column ``brokerName``.
        compression: ``zstd``, ``snappy`` or ``none``.
        end_offset_bytes: where the log is read to; see :func:`flintmq.plugins.spark.maintenance.pieces.plan`.
        report: called with the progress.

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
    """Return the pieces that may hold messages of a time range: store times grow along the log, but for a clock that is
    set."""
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
