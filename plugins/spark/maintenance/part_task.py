"""Pieces of the log become Parquet files: all rows that are wanted, or chosen ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from flintmq.core.io.folders import sync_folder
from flintmq.core.record import record as rec
from flintmq.plugins.doctor.files import map_read_only
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.decoder.chain import walk
from flintmq.plugins.spark.decoder.heads import Ints
from flintmq.plugins.spark.maintenance.errors import MaintenanceError
from flintmq.plugins.spark.maintenance.pieces import Piece
from flintmq.plugins.spark.maintenance.rebuild_task import check_end

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * 1024 * 1024


@attrs.frozen
class PartTask:
    """What one task writes."""

    piece: Piece
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
    rows = 0
    writer = None
    try:
        for batch in decoded(piece, decoder, _chosen(task)):
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
    with hidden.open("rb") as file:
        os.fsync(file.fileno())
    hidden.replace(path)
    sync_folder(path.parent)
    return PartDone(rows, path.stat().st_size)


def decoded(
    piece: Piece, decoder: Decoder, choose: Callable[[Ints], Ints] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """A piece's rows, batch by batch. Raises BadRecordError and MaintenanceError for damage."""
    view = map_read_only(Path(piece.path))
    data = np.frombuffer(view, np.uint8)
    chain = walk(data, piece.at, piece.end_at)
    check_end(view, piece, chain.end)
    starts = chain.starts if choose is None else choose(chain.starts)
    done = 0
    while done < len(starts):
        upto = int(np.searchsorted(starts, int(starts[done]) + BATCH_BYTES))
        upto = min(max(upto, done + 1), done + BATCH_ROWS)
        yield decoder.decode(data, starts[done:upto], piece.path)
        done = upto


def first_store_time_ms(piece: Piece) -> int | None:
    """When the piece's first record was stored; None where none begins."""
    view = map_read_only(Path(piece.path))
    try:
        return rec.decode_record(view, piece.at, check_crc=False).store_timestamp_ms
    except rec.RecordError:
        return None


def new_folder(out: Path) -> None:
    """Make the folder of a result. Raises MaintenanceError when something lies there."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MaintenanceError(f"{out} is not empty; name a new folder")
    out.mkdir(parents=True, exist_ok=True)


def _chosen(task: PartTask) -> Callable[[Ints], Ints] | None:
    if task.chosen_path is None:
        return None
    wanted = np.fromfile(task.chosen_path, np.int64)

    def choose(starts: Ints) -> Ints:
        physical = starts + task.piece.base
        kept: Ints = starts[np.isin(physical, wanted, assume_unique=True)]
        return kept

    return choose
