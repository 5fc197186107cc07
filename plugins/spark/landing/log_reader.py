"""Reads a stretch of a log's own files, without the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.decoder.chain import in_batches, walk
from flintmq.plugins.spark.decoder.slices import Ints
from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.landing.task import LandingLossError
from flintmq.plugins.spark.store.log_files import LogFile, LogFiles

if TYPE_CHECKING:
    import pyarrow

TABLE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Rows of one stretch take no more memory than this and a batch: bodies may be many times their stored size."""


class LogReader:
    """Reads records between positions that are known to be boundaries, and far enough behind the log's end. One thread.

    Args:
        folders: where the commit log's files lie.
        decoder: what becomes a row, and which columns it has.
    """

    def __init__(self, folders: Sequence[str], decoder: Decoder) -> None:
        self._folders = folders
        self._decoder = decoder

    def read(self, start_offset_bytes: int, limit_offset_bytes: int, max_bytes: int) -> tuple[pyarrow.Table, int]:
        """Return the rows from a boundary on, of at most so many bytes of one file but of at least one record.

        Args:
            start_offset_bytes: where a record, or the blank end of a file, begins.
            limit_offset_bytes: a boundary behind it that the broker vouches for (see the feed file).
            max_bytes: how much of the log is read at most.

        Returns:
            the rows, and the physical offset where reading continues.

        Raises:
            LandingLossError: retention has deleted the file.
            BadRecordError: bytes that are no record where one must be; names file and position.
            StoreError, OSError: the log cannot be read.
        """
        file = self._file(start_offset_bytes)
        at = start_offset_bytes - file.start
        end = min(file.size, limit_offset_bytes - file.start)
        # Mapped each time: a map that is kept holds the disk space of a file that retention deletes.
        data = np.asarray(np.memmap(file.path, np.uint8, "r", shape=(file.size,)))
        chain = walk(data, at, min(end, at + max_bytes))
        starts = chain.starts
        if not len(starts) and chain.why == "bad":
            chain = walk(data, at, end)  # one record larger than the limit, or none at all
            starts = chain.starts[:1]
        whole = len(starts) == len(chain.starts)
        if (not len(starts) and chain.why == "bad") or (whole and chain.why == "zero"):
            raise BadRecordError(f"{file.path}: no record at position {file.start + chain.end} ({chain.why})")
        rows, done = self._decode(data, starts, file.path)
        if done == len(chain.starts) and chain.why == "blank":
            return rows, file.end
        last = int(starts[done - 1]) if done else 0
        stopped = last + int.from_bytes(data[last : last + 4].tobytes(), "big") if done else at
        return rows, file.start + stopped

    def _decode(self, data: npt.NDArray[np.uint8], starts: Ints, path: str) -> tuple[pyarrow.Table, int]:
        """Return the rows of the first records, and how many records that were."""
        import pyarrow as pa

        batches = [self._decoder.decode(data, starts[:0], path)]
        done = taken = 0
        for some in in_batches(starts):
            for batch, count in self._decoder.batches(data, some, path):
                batches.append(batch)
                taken += batch.nbytes
                done += count
                if taken > TABLE_BYTES_MAX:
                    return pa.Table.from_batches(batches), done
        return pa.Table.from_batches(batches), done

    def _file(self, position_bytes: int) -> LogFile:
        log = LogFiles(self._folders)
        file = log.holding(position_bytes)
        if file is not None:
            return file
        beyond = next((file.start for file in log.files if file.start > position_bytes), None)
        if beyond is None:
            raise BadRecordError(f"{self._folders[0]}: no file holds position {position_bytes}")
        raise LandingLossError(
            f"the log's files between position {position_bytes} and {beyond} are deleted, before their messages "
            "could land. Raise store.file_reserved_hours or store.retention_bytes; set "
            "spark_feed.landing.fail_on_data_loss to false to go on behind the gap",
            position_bytes,
            beyond,
        )
