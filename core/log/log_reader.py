"""Reads the commit log: slices without a copy, single records, and all records between two positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from flintmq.core.errors import StoreError
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch, TagsCodes
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.log_events import event_log
from flintmq.core.record import bulk_scan
from flintmq.core.record import properties as props
from flintmq.core.record import record as rec
from flintmq.core.record.bulk_columns import ColumnReader, RecordColumns
from flintmq.core.record.java_hash import tags_hash

log = event_log("flintmq.store")

_BATCH: Final = 2_048
"""Number of records in a batch when the log is read record by record."""


class LogReader:
    """Reads the readable part of a log. The log is not changed. Any thread, while the log is open.

    Args:
        queue: the log's files.
        watermarks: the log's positions, which limit the readable part.
        tags_codes: the rules that compute tags codes, keyed by topic, for topics whose codes are not hashes of the tags.
    """

    def __init__(self, queue: MappedFileQueue, watermarks: Watermarks, tags_codes: Mapping[str, TagsCodes]) -> None:
        self.queue = queue
        self.watermarks = watermarks
        self.tags_codes = tags_codes

    @property
    def min_offset_bytes(self) -> int:
        """The physical start of the log's oldest file."""
        return self.queue.min_offset_bytes

    @property
    def max_offset_bytes(self) -> int:
        """The physical end of the log's readable part."""
        return self.watermarks.readable

    def slice(self, commit_log_offset_bytes: int, size_bytes: int) -> memoryview | None:
        """Return bytes of the log without a copy; None if the bytes are deleted or not readable yet."""
        file = self.queue.find(commit_log_offset_bytes)
        if file is None or size_bytes <= 0:
            return None
        at = commit_log_offset_bytes - file.start
        if at + size_bytes > file.size or commit_log_offset_bytes + size_bytes > self.watermarks.readable:
            return None
        return file.view[at : at + size_bytes]

    def record(self, commit_log_offset_bytes: int, size_bytes: int | None = None) -> rec.Record | None:
        """Return the record at a physical offset of the log; None if no complete record begins there."""
        file = self.queue.find(commit_log_offset_bytes)
        if file is None or commit_log_offset_bytes < 0:
            return None
        end = min(file.size, self.watermarks.readable - file.start)
        at = commit_log_offset_bytes - file.start
        if at >= end:
            return None
        try:
            record = rec.decode_record(file.view[at:end])
        except rec.RecordError:
            return None
        if record.commit_log_offset_bytes != commit_log_offset_bytes:
            return None
        return record if size_bytes is None or record.size_bytes == size_bytes else None

    def store_timestamp_ms(self, commit_log_offset_bytes: int) -> int:
        """Return the store time, in ms since 1970, of the record at a physical offset; -1 if it is deleted.

        A record must begin at this offset, or must have begun there before it was deleted.
        """
        file = self.queue.find(commit_log_offset_bytes)
        if file is None or commit_log_offset_bytes + rec.RECORD_MIN_BYTES > self.watermarks.readable:
            return -1
        return rec.store_timestamp_at(file.view, commit_log_offset_bytes - file.start)

    def next_file_start(self, commit_log_offset_bytes: int) -> int:
        """Return the physical start of the log file after the file that contains a position."""
        size = self.queue.file_bytes
        return commit_log_offset_bytes - commit_log_offset_bytes % size + size

    def requests(self, from_offset_bytes: int, to_offset_bytes: int) -> Iterator[DispatchRequest]:
        """Yield a dispatch request for each record between two physical offsets of the log; bodies are not checked.

        Raises:
            StoreError: no valid record begins at a position at which the log must have one; the message states the position.
        """
        physical_offset_bytes = from_offset_bytes
        while physical_offset_bytes < to_offset_bytes:
            file = self.queue.find(physical_offset_bytes)
            if file is None:
                raise StoreError(f"{self.queue.folder}: no file holds position {physical_offset_bytes}")
            at = physical_offset_bytes - file.start
            if _is_file_end(file, at):
                physical_offset_bytes = file.start + file.size
                continue
            try:
                request = self.request_at(file, at)
            except rec.RecordError as error:
                raise StoreError(f"{file.path}: no record at position {physical_offset_bytes}: {error}") from error
            if request.commit_log_offset_bytes != physical_offset_bytes:
                raise StoreError(
                    f"{file.path}: no record at position {physical_offset_bytes}: "
                    f"the record there has physical offset {request.commit_log_offset_bytes}"
                )
            yield request
            physical_offset_bytes += request.message_size_bytes

    def columns(self, from_offset_bytes: int, to_offset_bytes: int) -> Iterator[RecordColumns]:
        """Yield the records between two physical offsets as columns, which are read in bulk.

        If the range is too small for numpy, nothing is yielded. The iteration ends early at bytes that are not a valid record,
        and at a record that extends beyond the range. :meth:`batches` reads the remaining records with :meth:`requests`.
        """
        if not bulk_scan.is_worth_it(to_offset_bytes - from_offset_bytes):
            return
        reader = ColumnReader(self.tags_codes)
        physical_offset_bytes = from_offset_bytes
        while physical_offset_bytes < to_offset_bytes:
            file = self.queue.find(physical_offset_bytes)
            if file is None:
                return
            end_at = min(file.size, to_offset_bytes - file.start)
            request_at = partial(self.request_at, file)
            at = physical_offset_bytes - file.start
            found = reader.read(file.view, file.start, at, end_at, request_at)
            while (columns := _next_columns(found)) is not None:
                yield columns
                at = columns.end_offset_bytes - file.start
            if not _is_file_end(file, at):
                return
            physical_offset_bytes = file.start + file.size

    def batches(self, from_offset_bytes: int, to_offset_bytes: int) -> Iterator[RecordBatch]:
        """Yield the log's records between two physical offsets as batches, in log order. Records are read in bulk if possible.

        Raises:
            StoreError: no valid record begins at a position at which the log must have one; the message states the position.
        """
        position = from_offset_bytes
        for columns in self.columns(from_offset_bytes, to_offset_bytes):
            yield RecordBatch.of_columns(columns)
            position = columns.end_offset_bytes
        requests = self.requests(position, to_offset_bytes)
        while batch := list(islice(requests, _BATCH)):
            yield RecordBatch.of_requests(batch)

    def request_at(self, file: MappedFile, at: int) -> DispatchRequest:
        """Return the dispatch request of the record at a position in a log file. Raises RecordError for a malformed record."""
        view = file.view
        values, _body_at, topic_at, properties_at, end = rec.read_fields(view, at)
        size, _, _, queue_id, _, queue_offset, physical, sys_flag, _, _, stored_ms, _, _, prepared_offset, _ = values
        topic = rec.read_topic(view, topic_at, properties_at)
        stored = bytes(view[properties_at:end])
        properties = props.stored_properties(stored)
        padded = b"\x02%b\x02" % stored
        tags_code = tags_hash(props.stored_value(padded, b"TAGS"))
        if topic in self.tags_codes:
            tags_code = self.tags_codes[topic].tags_code(properties, tags_code, stored_ms, file.start + at)
        return DispatchRequest(
            topic,
            queue_id,
            physical,
            size,
            tags_code,
            stored_ms,
            queue_offset,
            props.stored_value(padded, b"KEYS"),
            props.stored_value(padded, b"UNIQ_KEY"),
            sys_flag,
            prepared_offset,
            properties,
        )


def _is_file_end(file: MappedFile, at: int) -> bool:
    """Return whether the blank end of a commit log file begins at a position. The blank contains its length."""
    left = file.size - at
    return left < rec.BLANK_MIN_BYTES or rec.SIZE_AND_MAGIC.unpack_from(file.view, at) == (left, rec.MAGIC_BLANK)


def _next_columns(found: Iterator[RecordColumns]) -> RecordColumns | None:
    """Return the next records as columns; None after the last record, or if reading in bulk fails. A failure is logged."""
    try:
        return next(found, None)
    except Exception:
        log.warning("store.bulk_read_failed", "records cannot be read in bulk and are read one by one", exc_info=True)
        return None
