"""Reads parts of a commit log from its files, without the broker, for the lander."""

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
"""Maximum size in bytes of the rows that one read of the log makes in memory; the last batch of rows may exceed this size. The
limit is needed because decompressed bodies may be much larger than stored bodies."""


class LogReader:
    """Reads records of a log between given boundaries. Not thread-safe.

    Args:
        folders: the folders of the commit log's files.
        decoder: chooses the records that become rows, and the columns.
    """

    def __init__(self, folders: Sequence[str], decoder: Decoder) -> None:
        self._folders = folders
        self._decoder = decoder

    def read(self, start_offset_bytes: int, limit_offset_bytes: int, max_bytes: int) -> tuple[pyarrow.Table, int]:
        """Return the rows of the records that follow a position in the log. The records lie in one file. Together they have at
        most ``max_bytes``, except that the first record may be larger.

        Args:
            start_offset_bytes: the physical offset of a record, or of the blank record at the end of a log file.
            limit_offset_bytes: the physical offset of a later record boundary, up to which the broker allows reading (see the
                broker's file ``flint/feed``).
            max_bytes: the maximum number of bytes of the log to read.

        Returns:
            the rows, and the physical offset where reading continues.

        Raises:
            LandingLossError: retention has deleted the file.
            BadRecordError: the bytes at the start or after a record are not a record. The text names file and position.
            StoreError, OSError: the log cannot be read.
        """
        file = self._file(start_offset_bytes)
        at = start_offset_bytes - file.start
        end = min(file.size, limit_offset_bytes - file.start)
        # Each call maps the log file again, because a permanent mapping would keep a deleted file's disk space occupied.
        data = np.asarray(np.memmap(file.path, np.uint8, "r", shape=(file.size,)))
        chain = walk(data, at, min(end, at + max_bytes))
        starts = chain.starts
        if not len(starts) and chain.why == "bad":
            # ``max_bytes`` may be too small for the first record, so one record of any size is read.
            chain = walk(data, at, end)
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
        """Decode records in the order of ``starts`` until their rows have more than :data:`TABLE_BYTES_MAX` bytes or all
        records are decoded. Return the rows, and the number of decoded records."""
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
            raise BadRecordError(f"{self._folders[0]}: no file contains position {position_bytes}")
        raise LandingLossError(
            f"the log's files between position {position_bytes} and {beyond} are deleted, before their messages "
            "could land. Raise store.file_reserved_hours or store.retention_bytes; set "
            "spark_feed.landing.fail_on_data_loss to false to continue after the gap",
            position_bytes,
            beyond,
        )
