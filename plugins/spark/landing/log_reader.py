"""Reads a stretch of a log's own files, without the broker."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.decoder.chain import walk
from flintmq.plugins.spark.decoder.heads import Ints
from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.landing.errors import LandingLossError

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * 1024 * 1024
TABLE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Rows of one stretch take no more memory than this and a batch: bodies may be many times their stored size."""
_NAME_DIGITS: Final = 20

Bytes = npt.NDArray[np.uint8]


@attrs.frozen
class Stretch:
    """Rows of a part of the log."""

    rows: pyarrow.Table
    end_offset_bytes: int
    """Where reading continues."""
    records: int
    """How many records lie in it, rows or not."""


class LogReader:
    """Reads records between positions that are known to be boundaries, and far enough behind the log's end. One thread.

    Args:
        folders: where the commit log's files lie.
        decoder: what becomes a row, and which columns it has.
    """

    def __init__(self, folders: Sequence[Path], decoder: Decoder) -> None:
        self._folders = folders
        self._decoder = decoder

    def read(self, start_offset_bytes: int, limit_offset_bytes: int, max_bytes: int) -> Stretch:
        """The records from a boundary on, at most so many bytes of them but at least one; of one file.

        Args:
            start_offset_bytes: where a record, or the blank end of a file, begins.
            limit_offset_bytes: a boundary behind it that the broker vouches for (see the feed file).
            max_bytes: how much of the log is read at most.

        Raises:
            LandingLossError: retention has deleted the file.
            BadRecordError: bytes that are no record where one must be; names file and position.
        """
        path, base, size = self._file(start_offset_bytes)
        at = start_offset_bytes - base
        end = min(size, limit_offset_bytes - base)
        data = np.frombuffer(_mapped(path, size), np.uint8)
        chain = walk(data, at, min(end, at + max_bytes))
        starts = chain.starts
        if not len(starts) and chain.why == "bad":
            chain = walk(data, at, end)  # one record larger than the limit, or none at all
            starts = chain.starts[:1]
        whole = len(starts) == len(chain.starts)
        if (not len(starts) and chain.why == "bad") or (whole and chain.why == "zero"):
            raise BadRecordError(f"{path}: no record at position {base + chain.end} ({chain.why})")
        rows, done = self._decode(data, starts, path)
        stopped = at if not done else _end_of(data, int(starts[done - 1]))
        if done == len(chain.starts) and chain.why == "blank":
            stopped = size
        return Stretch(rows, base + stopped, done)

    def _decode(self, data: Bytes, starts: Ints, path: Path) -> tuple[pyarrow.Table, int]:
        """The rows of the first records, and how many records that were."""
        import pyarrow as pa

        batches = [self._decoder.decode(data, starts[:0], str(path))]
        done = taken = 0
        while done < len(starts) and taken <= TABLE_BYTES_MAX:
            upto = int(np.searchsorted(starts, int(starts[done]) + BATCH_BYTES))
            upto = min(max(upto, done + 1), done + BATCH_ROWS)
            batches.append(self._decoder.decode(data, starts[done:upto], str(path)))
            taken += batches[-1].nbytes
            done = upto
        return pa.Table.from_batches(batches), done

    def _file(self, position_bytes: int) -> tuple[Path, int, int]:
        """The file that holds a position: its path, where it begins, and its size."""
        files = sorted(
            (int(path.name), path)
            for folder in self._folders
            if folder.is_dir()
            for path in folder.iterdir()
            if len(path.name) == _NAME_DIGITS and path.name.isdecimal()
        )
        found = [one for one in files if one[0] <= position_bytes]
        if found:
            base, path = found[-1]
            try:
                size = path.stat().st_size
            except FileNotFoundError:  # deleted since it was listed
                size = 0
            if position_bytes < base + size:
                return path, base, size
        beyond = [base for base, _path in files if base > position_bytes]
        if beyond:
            raise LandingLossError(
                f"the log's files between position {position_bytes} and {beyond[0]} are deleted, before their messages "
                "could land. Raise store.file_reserved_hours or store.retention_bytes; set "
                "spark_feed.landing.fail_on_data_loss to false to go on behind the gap",
                position_bytes,
                beyond[0],
            )
        raise BadRecordError(f"{self._folders[0]}: no file holds position {position_bytes}")


def _end_of(data: Bytes, start: int) -> int:
    return start + int.from_bytes(data[start : start + 4].tobytes(), "big")


def _mapped(path: Path, size: int) -> mmap.mmap:
    """The file's bytes. They stay readable when it is deleted; the map goes with the last array that looks at it."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
