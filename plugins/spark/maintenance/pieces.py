"""Pieces of a log: what one task reads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from flintmq.plugins.doctor.files import FileView, StoreFiles
from flintmq.plugins.spark.decoder.chain import walk
from flintmq.plugins.spark.maintenance.errors import MaintenanceError

PIECE_BYTES: Final = 64 * 1024 * 1024
"""Pieces are no smaller where a file has to be cut: a task costs more than a record."""


@attrs.frozen
class Piece:
    """Consecutive records of one file."""

    path: str
    base: int
    """The file's place in the log."""
    at: int
    """Where in the file the first record begins."""
    end_at: int
    """Where in the file the piece ends at the latest: the start of the next one, or the file's end."""

    @property
    def size_bytes(self) -> int:
        return self.end_at - self.at

    @property
    def start_offset_bytes(self) -> int:
        """Physical offset of its first record."""
        return self.base + self.at


def plan(files: StoreFiles, wanted: int, end_offset_bytes: int | None = None) -> list[Piece]:
    """Cut a log into pieces: its files, and parts of them where there are fewer than wanted.

    Args:
        files: the store.
        wanted: so many tasks can run at once.
        end_offset_bytes: a boundary behind which nothing is read: what a running broker's feed says. None for the log's end.

    Raises:
        MaintenanceError: a file is missing in the middle, or damaged where it was to be cut.
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
    """Where the parts of a file begin: records that a walk from the file's start came by."""
    starts = walk(np.frombuffer(file.view, np.uint8), 0, end).starts
    if not len(starts):
        return [0]
    used = int(starts[-1])
    step = max(PIECE_BYTES, -(-used // parts))
    found = np.unique(starts[np.searchsorted(starts, np.arange(0, used, step))])
    return [int(at) for at in found]


def log_bytes(pieces: Sequence[Piece]) -> int:
    """What progress counts up to."""
    return sum(piece.size_bytes for piece in pieces)
