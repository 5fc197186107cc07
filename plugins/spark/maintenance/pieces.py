"""Divides a commit log into pieces, one for each task of a maintenance job, and reads the records of a piece."""

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
    """A piece of the commit log: consecutive records in one file, which one maintenance task reads."""

    path: str
    base: int
    """Physical offset of the first byte of the file that contains the piece."""
    at: int
    """Position of the piece's first record in the log file."""
    end_at: int
    """Position in the log file at which the piece ends at the latest: the start of the next piece, or the end of the file."""

    @property
    def start_offset_bytes(self) -> int:
        """Physical offset of the first record in the piece."""
        return self.base + self.at


@attrs.frozen
class PieceTask:
    """The picklable input of a maintenance task that reads one piece of the log."""

    piece: Piece

    @property
    def size(self) -> int:
        return self.piece.end_at - self.piece.at


def plan(files: StoreFiles, wanted: int, end_offset_bytes: int | None = None) -> list[Piece]:
    """Divide a commit log into pieces, and return the pieces. A piece is a whole file, or a part of a file if the log has too
    few files for ``wanted`` tasks.

    Args:
        files: the store.
        wanted: the number of tasks that can run at the same time.
        end_offset_bytes: the physical offset of the record boundary at which reading ends; None for the log's end. If a broker
            runs on the store, the offset comes from the broker's file ``flint/feed``.

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
    """Return the positions at which to divide a file of the log into parts. A walk from the file's start finds a record at each
    position."""
    starts = walk(np.frombuffer(file.view, np.uint8), 0, end).starts
    if not len(starts):
        return [0]
    used = int(starts[-1])
    step = max(PIECE_BYTES, -(-used // parts))
    found = np.unique(starts[np.searchsorted(starts, np.arange(0, used, step))])
    return [int(at) for at in found]


def columns_of(view: memoryview, piece: Piece, delays: DelayTimes) -> Iterator[RecordColumns]:
    """Read a piece of the commit log, and yield the fields of its records as columns; see
    :class:`flintmq.core.record.bulk_columns.ColumnReader`."""

    def request_at(at: int) -> DispatchRequest:
        return request_of(rec.decode_record(view, at, check_crc=False), delays)

    return ColumnReader((SCHEDULE_TOPIC,)).read(view, piece.base, piece.at, piece.end_at, request_at)


def check_end(view: memoryview, piece: Piece, at: int) -> tuple[int, bool]:
    """Check the position at which reading a piece stopped. Return the end of the piece, and whether this end may be the end of
    the log.

    If a blank record ends the file, the piece's end is the file's end.

    Raises:
        MaintenanceError: the bytes at the position are not a valid end of a piece.
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
    """Return the error for a position in a piece at which a record must begin but no record begins."""
    return MaintenanceError(
        f"{piece.path}: no record at position {piece.base + at}: the log is damaged there, or torn. "
        "flintmq store repair mends it; flintmq store explain says more"
    )


def decoded(piece: Piece, decoder: Decoder, positions: Ints | None = None) -> Iterator[pyarrow.RecordBatch]:
    """Decode the records of a piece, or only the records at ``positions``, and yield the rows in batches. Raises BadRecordError
    and MaintenanceError for a damaged piece."""
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
    """Return the store time in ms of the first record in a piece; None if the piece does not begin with a record."""
    view = map_read_only(Path(piece.path))
    try:
        return rec.decode_record(view, piece.at, check_crc=False).store_timestamp_ms
    except rec.RecordError:
        return None


def new_folder(out: Path) -> None:
    """Create the folder for the result of a maintenance job. Raises MaintenanceError if the folder exists and is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MaintenanceError(f"{out} is not empty; name a new folder")
    out.mkdir(parents=True, exist_ok=True)


def present_lives(files: StoreFiles, end_offset_bytes: int | None) -> tuple[Life, ...]:
    """Return where the messages of each recreated topic begin in the log. The log is searched up to ``end_offset_bytes``, or to
    its end if this is None. Raises StoreError."""
    log = LogFiles(files.log_folders)
    end = log.end if end_offset_bytes is None else end_offset_bytes
    return lives(files.root, log, end, end if files.is_clean or end_offset_bytes is not None else 0)
