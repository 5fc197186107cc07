"""Divides a log into pieces, one for each task, and reads pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record import record as rec
from flintmq.core.record.bulk_columns import ColumnReader, RecordColumns
from flintmq.dispatchers.consume_queue.delay_times import DelayTimes
from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.decoder.chain import in_batches, walk
from flintmq.plugins.spark.decoder.rows import Life
from flintmq.plugins.spark.decoder.slices import Ints
from flintmq.plugins.spark.errors import MaintenanceError
from flintmq.plugins.spark.store.lives import lives
from flintmq.plugins.spark.store.log_files import LogFiles
from flintmq.programs.doctor.expected import request_of
from flintmq.programs.doctor.files import FileView, StoreFiles, map_read_only

if TYPE_CHECKING:
    import pyarrow

PIECE_BYTES: Final = 64 * 1024 * 1024
"""Minimum size in bytes of the pieces into which a file of the log is divided. A smaller piece would not be worth a task."""


@attrs.frozen
class Piece:
    """Consecutive records in one file of the log."""

    path: str
    base: int
    """Physical offset of the first byte of the file that contains the piece."""
    at: int
    """Position in the file of the first record of the piece."""
    end_at: int
    """Position in the file at which the piece ends at the latest: the start of the next piece, or the end of the file."""

    @property
    def start_offset_bytes(self) -> int:
        """Physical offset of the first record."""
        return self.base + self.at


@attrs.frozen
class PieceTask:
    """The picklable input of a task that reads one piece."""

    piece: Piece

    @property
    def size(self) -> int:
        return self.piece.end_at - self.piece.at


def plan(files: StoreFiles, wanted: int, end_offset_bytes: int | None = None) -> list[Piece]:
    """Return the pieces of a log: its files, or parts of files if there are too few files for ``wanted`` tasks.

    Args:
        files: the store.
        wanted: the number of tasks that can run at the same time.
        end_offset_bytes: the record boundary at which reading ends, from a running broker's feed. None for the log's end.

    Raises:
        MaintenanceError: a file in the middle is missing, or a file to be divided is damaged.
    """
    log = [file for file in files.log if file.size and (end_offset_bytes is None or file.start < end_offset_bytes)]
    for before, after in itertools.pairwise(log):
        if before.start + before.size != after.start:
            raise MaintenanceError(
                f"{after.path}: the file before it ends at {before.start + before.size}: a commit log file is missing; "
                "flintmq store verify says more"
            )
    parts = -(-2 * wanted // len(log)) if log and wanted > 1 else 1
    pieces: list[Piece] = []
    for file in log:
        end = file.size if end_offset_bytes is None else min(file.size, end_offset_bytes - file.start)
        cuts = _cuts(file, end, parts) if parts > 1 and end >= 2 * PIECE_BYTES else [0]
        ends = [*cuts[1:], end]
        pieces += [Piece(str(file.path), file.start, at, end_at) for at, end_at in zip(cuts, ends, strict=True)]
    return pieces


def _cuts(file: FileView, end: int, parts: int) -> list[int]:
    """Return the positions in a file at which its parts begin. A walk from the file's start has found a record at each."""
    starts = walk(np.frombuffer(file.view, np.uint8), 0, end).starts
    if not len(starts):
        return [0]
    used = int(starts[-1])
    step = max(PIECE_BYTES, -(-used // parts))
    found = np.unique(starts[np.searchsorted(starts, np.arange(0, used, step))])
    return [int(at) for at in found]


def columns_of(view: memoryview, piece: Piece, delays: DelayTimes) -> Iterator[RecordColumns]:
    """Yield the records of a piece as columns; see :class:`flintmq.core.record.bulk_columns.ColumnReader`."""

    def request_at(at: int) -> DispatchRequest:
        return request_of(rec.decode_record(view, at, check_crc=False), delays)

    return ColumnReader((SCHEDULE_TOPIC,)).read(view, piece.base, piece.at, piece.end_at, request_at)


def check_end(view: memoryview, piece: Piece, at: int) -> tuple[int, bool]:
    """Return the end of a piece and whether the log may end there, from the position at which reading stopped.

    If a blank record ends the file, the piece's end is the file's end.

    Raises:
        MaintenanceError: the bytes at the position are not a valid end.
    """
    if at == piece.end_at:
        return at, False
    if piece.end_at == len(view):
        if len(view) - at < rec.BLANK_MIN_BYTES:
            if not any(view[at:]):
                return at, True
        else:
            size, magic = rec.SIZE_AND_MAGIC.unpack_from(view, at)
            if magic == rec.MAGIC_BLANK:
                return len(view), False
            if not size and not magic:
                return at, True
    raise damage(piece, at)


def damage(piece: Piece, at: int) -> MaintenanceError:
    """Return the error for a position at which a record must be and is not."""
    return MaintenanceError(
        f"{piece.path}: no record at position {piece.base + at}: the log is damaged there, or torn. "
        "flintmq store repair mends it; flintmq store explain says more"
    )


def decoded(piece: Piece, decoder: Decoder, positions: Ints | None = None) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a piece, or only those at some positions, in batches. Raises BadRecordError and MaintenanceError for
    damage."""
    view = map_read_only(Path(piece.path))
    data = np.frombuffer(view, np.uint8)
    chain = walk(data, piece.at, piece.end_at)
    check_end(view, piece, chain.end)
    starts = chain.starts
    if positions is not None:
        starts = starts[np.isin(starts + piece.base, positions, assume_unique=True)]
    for some in in_batches(starts):
        for batch, _ in decoder.batches(data, some, piece.path):
            yield batch


def first_store_time_ms(piece: Piece) -> int | None:
    """Return the store time of a piece's first record; None if there is no record."""
    view = map_read_only(Path(piece.path))
    try:
        return rec.decode_record(view, piece.at, check_crc=False).store_timestamp_ms
    except rec.RecordError:
        return None


def new_folder(out: Path) -> None:
    """Create the folder of a result. Raises MaintenanceError if it exists and is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MaintenanceError(f"{out} is not empty; name a new folder")
    out.mkdir(parents=True, exist_ok=True)


def present_lives(files: StoreFiles, end_offset_bytes: int | None) -> tuple[Life, ...]:
    """Return the beginnings of recreated topics in the log before ``end_offset_bytes``, or in the whole log if it is None.
    Raises StoreError."""
    log = LogFiles(files.log_folders)
    end = log.end if end_offset_bytes is None else end_offset_bytes
    return lives(files.root, log, end, end if files.is_clean or end_offset_bytes is not None else 0)
