"""Reads a piece (a part of one log file) in a Spark worker: finds the beginnings of the piece's records, and decodes the
records in batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.log_events import event_log
from flintmq.core.record.java_hash import tags_hash
from flintmq.plugins.spark.decoder import Decoder, chain
from flintmq.plugins.spark.decoder.decoder import reason_of
from flintmq.plugins.spark.decoder.slices import Ints
from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.store.log_files import LogFiles, map_file
from flintmq.plugins.spark.store.pieces import Piece
from flintmq.plugins.spark.store.queue_units import QueueUnits, in_log_order, list_queues, list_topics
from flintmq.plugins.spark.store.unit_rows import Span, UnitRows, told_by_units

log = event_log("flintmq.spark")

ASKED_FROM_BYTES: Final = 4 * 1024 * 1024
"""Minimum size in bytes of a piece of the log in which messages are found by consume queues. For a smaller piece, reading all
records of the log is faster."""
_ASKED_MAX: Final = 256
_GAPS_MAX: Final = 1_000


class PieceReader:
    """Reads pieces of one store's log. A piece is a part of one log file. Between two reads, a reader keeps only caches. Not
    thread-safe."""

    def __init__(self, root: Path, options: ReadOptions, decoder: Decoder) -> None:
        self._root = root
        self._options = options
        self._decoder = decoder
        self._queues: list[QueueUnits] | None = None
        self._asked: list[QueueUnits] | None = None
        self._units: dict[bool, UnitRows | None] = {}

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read a piece of the log, and yield its rows in the order of the log, as Arrow batches. No batch is empty.

        Raises:
            DataLossError: the file of the piece no longer exists, unless ``failOnDataLoss`` is off.
            BadRecordError: no record begins at a position at which a record must begin, and ``badRecords`` is ``fail``.
            StoreError: the file cannot be read.
        """
        data = map_file(piece.path)
        if data is None:
            self._options.lost(
                f"{piece.path} was deleted before messages {piece.start} to {piece.end} of the log were read from it: keep "
                "messages longer (fileReservedTime)"
            )
            return
        units = self._unit_rows(piece)
        if units is None:
            yield from self._from_log(data, piece)
            return
        for found in units.read(data, piece, complete=not piece.by_units):
            if isinstance(found, Span):
                yield from self._from_log(data, attrs.evolve(piece, start=found.start, end=found.end))
            else:
                yield found

    def _unit_rows(self, piece: Piece) -> UnitRows | None:
        """Return the object that makes the rows for a range of the commit log (``piece``) without decoding the log's records.
        The object reads the units of consume queues instead, which is faster.

        Return None if the records must be decoded, for example because the units lack a requested column.
        """
        options, rows = self._options, self._decoder.rows
        if not told_by_units(options.columns, rows, examines_records=options.examines_records):
            return None
        if not piece.by_units and piece.size < ASKED_FROM_BYTES:
            return None
        if piece.by_units not in self._units:
            queues = self._wanted_queues() if piece.by_units else self._few_queues()
            units = None if queues is None else UnitRows(queues, self._decoder, options.batch_rows)
            self._units[piece.by_units] = units if units is not None and units.tells_topics else None
        return self._units[piece.by_units]

    def _from_log(self, data: npt.NDArray[np.uint8], piece: Piece) -> Iterator[pa.RecordBatch]:
        """Decode the records in a piece of the log, and yield the rows."""
        for run in self._runs(data, piece):
            if isinstance(run, pa.RecordBatch):
                yield run
                continue
            for some in chain.in_batches(run, self._options.batch_rows, self._options.batch_bytes):
                for batch, _ in self._decoder.batches(
                    data, some, piece.path, piece.file_start, self._options.batch_bytes
                ):
                    if batch.num_rows:
                        yield batch

    def _runs(self, data: npt.NDArray[np.uint8], piece: Piece) -> Iterator[Ints | pa.RecordBatch]:
        """Yield the positions in the log file at which the records of a piece of the log begin. With ``badRecords=keep``, also
        yield a row for each damaged part between the records."""
        if self._options.bad_records == "keep":
            yield from self._walk(data, piece)
        else:
            yield self._named(piece) if piece.by_units else self._all(data, piece)

    def _named(self, piece: Piece) -> Ints:
        """Find the messages of a piece of the log by the units of the wanted consume queues, without a scan of the log. Return
        the positions of the messages in the log file, in ascending order. If the query filters by tags, units with other tags
        codes are left out."""
        rows = self._decoder.rows
        codes = None if rows.tags is None else np.array(sorted({tags_hash(tag) for tag in rows.tags}), np.int64)
        found = [
            queue.within(piece.start, piece.end, None if queue.topic == SCHEDULE_TOPIC else codes)
            for queue in self._wanted_queues()
        ]
        return in_log_order(found).position - piece.file_start

    def _all(self, data: npt.NDArray[np.uint8], piece: Piece) -> Ints:
        """Return the positions in the log file of all records in a piece of the log.

        Consume queues are read first, because this is several times as fast as reading the log record by record. Consume queues
        do not refer to prepared and rolled back messages of transactions, or to messages of deleted topics, and units may be
        missing. Only the gaps between the messages to which units refer are read record by record.
        """
        queues = self._few_queues() if piece.size >= ASKED_FROM_BYTES else None
        if queues is None:
            return self._walked(data, piece)
        units = in_log_order([queue.within(piece.start, piece.end) for queue in queues])
        position = units.position
        ends = position + units.size
        begins = np.concatenate([position, [piece.end]])
        ends = np.concatenate([[piece.start], ends])
        gaps = np.flatnonzero(begins != ends)
        if len(gaps) > _GAPS_MAX or (begins < ends).any():
            return self._walked(data, piece)
        parts: list[Ints] = []
        done = 0
        for gap in gaps.tolist():
            parts.append(position[done:gap] - piece.file_start)
            between = attrs.evolve(piece, start=int(ends[gap]), end=int(begins[gap]))
            parts.append(self._walked(data, between))
            done = gap
        parts.append(position[done:] - piece.file_start)
        return np.concatenate(parts)

    def _wanted_queues(self) -> list[QueueUnits]:
        """Return the consume queues whose messages can become rows."""
        if self._queues is None:
            self._queues = list(list_queues(self._root, self._decoder.rows))
        return self._queues

    def _few_queues(self) -> list[QueueUnits] | None:
        """Return all consume queues of the store; None if the store has too many queues to read all of them."""
        if self._asked is None:
            if len(list_topics(self._root)) > _ASKED_MAX:
                return None
            self._asked = list(islice(list_queues(self._root), _ASKED_MAX + 1))
        return self._asked if len(self._asked) <= _ASKED_MAX else None

    def _walked(self, data: npt.NDArray[np.uint8], piece: Piece) -> Ints:
        """Read a piece of the log record by record, and return the positions of the records in the log file."""
        return np.concatenate([run for run in self._walk(data, piece) if not isinstance(run, pa.RecordBatch)])

    def _walk(self, data: npt.NDArray[np.uint8], piece: Piece) -> Iterator[Ints | pa.RecordBatch]:
        """Read a piece of the log record by record, and yield the positions of the records in the log file. With
        ``badRecords=keep``, also yield a row for each damaged part. A damaged part ends at the next record to which a consume
        queue unit refers."""
        at, end = piece.start - piece.file_start, piece.end - piece.file_start
        while True:
            run = chain.walk(data, at, end)
            yield run.starts
            if run.why == "end" or (run.why == "blank" and end == len(data)):
                return
            if self._options.bad_records == "fail":
                raise BadRecordError(
                    f"{piece.path}: no record at {run.end} (physical offset {piece.file_start + run.end}), at which a "
                    "record must begin. Check the store with `flintmq store verify`, or skip damaged records with option "
                    "badRecords=skip, or keep them as rows with badRecords=keep"
                )
            bad = piece.file_start + run.end
            place = self._next_place(piece, bad + 1)
            if self._options.bad_records == "skip":
                log.warning(
                    "spark.record_missing",
                    "%(path)s: no record at %(position)d; the read continues with the next record that a consume queue names",
                    path=piece.path,
                    position=run.end,
                )
            else:
                row = self._decoder.damaged(bad, (place or piece.end) - bad, reason_of(data, run.end))
                if row.num_rows:
                    yield row
            if place is None:
                return
            at = place - piece.file_start

    def _next_place(self, piece: Piece, position: int) -> int | None:
        """Find the first record, at or after ``position`` in a piece of the log, to which a consume queue unit refers. Return
        the record's position; None if no such record is found."""
        log_files = LogFiles([Path(piece.path).parent])
        found = piece.end
        for queue in list_queues(self._root):
            number = queue.first_at(position)
            while (unit := queue.unit(number)) is not None and unit[0] < found:
                if log_files.has_record(unit[0], unit[1]):
                    found = unit[0]
                number += 1
        return found if found < piece.end else None
