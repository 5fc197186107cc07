"""The commit log: every message in the order of arrival, in files of one size.

See docs/internals/store-format.md, Commit log record; docs/internals/algorithms.md, Append.

The loop thread appends; the flush service's threads call :meth:`CommitLog.commit` and :meth:`CommitLog.flush`. An append
takes many: sizes first, then one join and one slice assignment per file, so that a message costs one header pack and
one CRC. What was appended comes back as it will be handed to the dispatchers: a ``DispatchRequest`` for a message, one
``AppendedBatch`` for all messages of a batch send.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final
from zlib import crc32

from flintmq.core.errors import RefusedError, StoreError, StoreExhaustedError, StoreFencedError, is_exhausted
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, FileWriter, RecordBatch, TagsCodes
from flintmq.core.log.mapped_file_queue import OS_PAGE_BYTES, MappedFile, MappedFileQueue
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.record import bulk_scan
from flintmq.core.record import properties as props
from flintmq.core.record import record as rec
from flintmq.core.record.batch import MessageBatch, look_into
from flintmq.core.record.batch_records import batch_records, batch_size, batch_sys_flag
from flintmq.core.record.bulk_columns import ColumnReader, RecordColumns
from flintmq.core.record.host import V4_BYTES
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.record import (
    HEAD_V4_BYTES,
    MessageExtBrokerInner,
    check_host,
    encode_blank,
    encode_record,
    pack_head_v4,
    record_size,
    record_tail,
)
from flintmq.core.record.sys_flag import HOSTS_V6, TRANSACTION_MASK, is_queued
from flintmq.core.response_code import ResponseCode

log = logging.getLogger("flintmq.store")

_BATCH: Final = 2_048
"""Records of a batch that are read back one by one."""
_UNCHECKED_HOST: Final = bytes(1 + V4_BYTES)
_UNUSUAL_FLAGS: Final = TRANSACTION_MASK | HOSTS_V6

Appendable = MessageExtBrokerInner | MessageBatch | list[MessageExtBrokerInner]
"""One message, or several that must lie in one piece with consecutive queue offsets."""
Appended = DispatchRequest | AppendedBatch | list[DispatchRequest] | StoreError | RefusedError
"""What became of an :data:`Appendable`, in the same place."""


class CommitLog:
    """The log.

    Args:
        queue: its files.
        watermarks: every position.
        checkpoint: what is known to be on disk.
        clock: time.
        tags_codes: by topic, what computes the tags code of a unit where that is not the hash of the tags.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        watermarks: Watermarks,
        checkpoint: StoreCheckpoint,
        clock: Clock,
        tags_codes: Mapping[str, TagsCodes] = MappingProxyType({}),
    ) -> None:
        self.queue = queue
        self.watermarks = watermarks
        self._checkpoint = checkpoint
        self._clock = clock
        self.tags_codes = tags_codes
        self.next_queue_offset: dict[tuple[str, int], int] = {}
        """Next logical offset of (topic, queueId); absent means 0."""
        self._tail: tuple[int, int] = (0, 0)
        self._flush_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._slow_flushes, self._slow_commits = SlowLog(clock), SlowLog(clock)
        self.on_progress: Callable[[], None] = _nothing
        """Called on the flush service's thread when committed or flushed moved."""
        self.on_fenced: Callable[[str], None] = _ignore
        """Called once, on the flush service's thread, when a sync failed."""

    # positions

    @property
    def wrote_offset_bytes(self) -> int:
        return self.watermarks.wrote

    @property
    def committed_offset_bytes(self) -> int:
        return self.watermarks.committed

    @property
    def flushed_offset_bytes(self) -> int:
        return self.watermarks.flushed

    @property
    def min_offset_bytes(self) -> int:
        """Start of the oldest file."""
        return self.queue.min_offset_bytes

    @property
    def max_offset_bytes(self) -> int:
        """End of what can be read."""
        return self.watermarks.readable

    # append

    def append(self, messages: Sequence[Appendable]) -> list[Appended]:
        """Appends messages in order. Loop thread only.

        Returns one entry per message, in order: the dispatch request (its offsets are the message's), what a batch became,
        the list of requests for several messages, or the error that kept it out: StoreFullError when there is no room for
        the next file, RefusedError (MESSAGE_ILLEGAL) when it would not fit an empty file, or when a field has a value that a
        record cannot hold.

        Raises:
            StoreFencedError: a sync failed earlier; nothing was appended.
        """
        watermarks = self.watermarks
        if watermarks.fence_reason is not None:
            raise StoreFencedError(watermarks.fence_reason)
        now_ms = self._clock.now_ms()
        parts: list[bytes] = []
        file = self.queue.last()
        position = start = ceiling = 0
        if file is not None:
            position, start, ceiling = file.wrote, file.start, self._ceiling(file)
        plain, position = self._plain(messages, start, position, ceiling, now_ms, parts)
        results: list[Appended] = [*plain]
        full: StoreError | None = None
        record_of = self._record
        for message in messages[len(plain) :] if plain else messages:
            result: Appended
            try:
                if isinstance(message, MessageExtBrokerInner):
                    size = record_size(message)
                elif isinstance(message, MessageBatch):
                    size = batch_size(message)
                else:
                    size = sum([record_size(member) for member in message])
                if position + size > ceiling:
                    if full is not None:
                        results.append(full)
                        continue
                    try:
                        self._make_room(file, parts, position, size)
                    except RefusedError as error:
                        results.append(error)
                        continue
                    except StoreError as error:
                        results.append(error)
                        full = error
                        continue
                    last = self.queue.files[-1]
                    if last is not file:
                        file, position, start = last, 0, last.start
                    ceiling = self._ceiling(last)
                if isinstance(message, MessageExtBrokerInner):
                    result = record_of(message, size, start + position, now_ms, parts)
                elif isinstance(message, MessageBatch):
                    result = self._batch(message, size, start + position, now_ms, parts)
                else:
                    result = self._several(message, start + position, now_ms, parts)
            except (struct.error, ValueError) as error:
                results.append(_unwritable(error))
                continue
            position += size
            results.append(result)
        if file is not None and parts:
            file.append(
                b"".join(parts), head_last=len(messages) > 1 or not isinstance(messages[0], MessageExtBrokerInner)
            )
        self._moved(file, now_ms)
        return results

    def append_raw(self, physical_offset_bytes: int, data: bytes, store_timestamp_ms: int) -> None:
        """Appends bytes of a master's log as they are: whole records, or a file's BLANK end. Loop thread only.

        A log without files begins where the first bytes belong.

        Args:
            physical_offset_bytes: their place: this log's end.
            data: the bytes, all of one file.
            store_timestamp_ms: store time of the last record among them; 0 without any.

        Raises:
            StoreFencedError: a sync failed earlier; nothing was appended.
            StoreFullError: no room on the disk; nothing was appended.
            StoreError: they belong elsewhere.
        """
        watermarks = self.watermarks
        if watermarks.fence_reason is not None:
            raise StoreFencedError(watermarks.fence_reason)
        file = self.queue.last()
        if file is not None and physical_offset_bytes != watermarks.wrote:
            raise StoreError(
                f"bytes of position {physical_offset_bytes} cannot follow a log that ends at {watermarks.wrote}"
            )
        at = physical_offset_bytes % self.queue.file_bytes
        if at + len(data) > self.queue.file_bytes or (at and file is None):
            raise StoreError(f"{len(data)} bytes at position {physical_offset_bytes} are not of one file of the log")
        if file is None:
            watermarks.set_all(physical_offset_bytes)
            watermarks.dispatched = physical_offset_bytes
        if not at:
            file = self.queue.roll(physical_offset_bytes, len(data))
        assert file is not None
        file.grow(at + len(data))
        file.append_in_order(data)
        self._moved(file, store_timestamp_ms or self._tail[1])

    def _ceiling(self, file: MappedFile) -> int:
        """How far records may reach: room for a BLANK stays, and so far the file is backed by disk."""
        return min(file.size, file.grown) - rec.BLANK_MIN_BYTES

    def _make_room(self, file: MappedFile | None, parts: list[bytes], position: int, size: int) -> None:
        """Makes the last file one that takes a record: the same one grown, or the next one; then the parts are written.

        Raises:
            RefusedError: the record fits no file.
            StoreError: no room on the disk; records that fit the old file may still follow.
        """
        needed = size + rec.BLANK_MIN_BYTES
        if needed > self.queue.file_bytes:
            raise self._too_large(size)
        if file is None or position + needed > file.size:
            self._next_file(file, parts, needed)
        else:
            file.grow(position + needed)

    def _plain(
        self,
        messages: Sequence[Appendable],
        start: int,
        position: int,
        ceiling: int,
        now_ms: int,
        parts: list[bytes],
    ) -> tuple[list[DispatchRequest], int]:
        """As :meth:`_record` for the messages in front that are of the plain kind, and fit the file as it is: nearly all that
        ever come, at half the cost.

        Args:
            start: physical offset of the last file.
            position: where in it the next record belongs.
            ceiling: how far records may reach there.

        Returns:
            What became of those messages, and where in the file the one after them belongs.
        """
        requests: list[DispatchRequest] = []
        next_queue_offset = self.next_queue_offset
        born_host = store_host = _UNCHECKED_HOST
        for message in messages:
            if type(message) is not MessageExtBrokerInner or message.about is None:
                break
            body, stored = message.body, message.properties_bytes
            topic, queue_id, sys_flag = message.topic, message.queue_id, message.sys_flag
            if sys_flag & _UNUSUAL_FLAGS or queue_id < 0:
                break
            try:
                if message.born_host is not born_host or message.store_host is not store_host:
                    born_host, store_host = message.born_host, message.store_host
                    check_host(born_host)
                    check_host(store_host)
                    if len(born_host) != V4_BYTES or len(store_host) != V4_BYTES:
                        break
                tail = record_tail(topic, len(stored))
                size = HEAD_V4_BYTES + len(body) + len(tail) + len(stored)
                if position + size > ceiling:
                    break
                key = (topic, queue_id)
                queue_offset = next_queue_offset.get(key, 0)
                physical_offset_bytes = start + position
                head = pack_head_v4(
                    size,
                    rec.MAGIC_V1,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    message.flag,
                    queue_offset,
                    physical_offset_bytes,
                    sys_flag,
                    message.born_timestamp_ms,
                    born_host,
                    now_ms,
                    store_host,
                    message.reconsume_times,
                    0,
                    len(body),
                )
            except (struct.error, ValueError):
                break  # whoever takes it apart says what is wrong with it
            next_queue_offset[key] = queue_offset + 1
            parts += (head, body, tail, stored)
            requests.append(
                DispatchRequest(
                    topic,
                    queue_id,
                    physical_offset_bytes,
                    size,
                    message.about[0],
                    now_ms,
                    queue_offset,
                    message.about[1],
                    message.about[2],
                    sys_flag,
                    0,
                    message.properties,
                )
            )
            position += size
        return requests, position

    def _record(
        self,
        message: MessageExtBrokerInner,
        size_bytes: int,
        physical_offset_bytes: int,
        now_ms: int,
        parts: list[bytes],
    ) -> DispatchRequest:
        """Adds a record's pieces to the parts and gives it its place in its queue.

        Raises struct.error when a field has a value the record cannot hold; then nothing has changed.
        """
        topic = message.topic
        queue_id = message.queue_id
        properties = message.properties
        if b"\0" in message.properties_bytes:
            raise props.nul_error()
        sys_flag = message.sys_flag
        get = properties.get
        tags = get("TAGS")
        tags_code = tags_hash(tags) if tags else 0
        if topic in self.tags_codes:
            tags_code = self.tags_codes[topic].tags_code(properties, tags_code, now_ms, None)
        if not is_queued(sys_flag):
            queue_offset = 0
            pieces = encode_record(message, size_bytes, 0, physical_offset_bytes, now_ms)
        else:
            key = (topic, queue_id)
            queue_offset = self.next_queue_offset.get(key, 0)
            pieces = encode_record(message, size_bytes, queue_offset, physical_offset_bytes, now_ms)
            self.next_queue_offset[key] = queue_offset + 1
        parts += pieces
        if sys_flag or len(pieces[0]) != rec.HEAD_V4_BYTES:
            sys_flag = rec.sys_flag_at(pieces[0], 0)  # as stored: with the hosts' IPv6 bits
        return DispatchRequest(
            topic,
            queue_id,
            physical_offset_bytes,
            size_bytes,
            tags_code,
            now_ms,
            queue_offset,
            get("KEYS", ""),
            get("UNIQ_KEY", ""),
            sys_flag,
            message.prepared_transaction_offset_bytes,
            properties,
        )

    def _batch(
        self, batch: MessageBatch, size_bytes: int, physical_offset_bytes: int, now_ms: int, parts: list[bytes]
    ) -> AppendedBatch:
        """As :meth:`_record`, for a batch as a whole."""
        key = (batch.topic, batch.queue_id)
        first_queue_offset = self.next_queue_offset.get(key, 0)
        pieces, positions, sizes = batch_records(batch, first_queue_offset, physical_offset_bytes, now_ms)
        tags_codes, keys, uniq_keys = look_into(batch)
        parts += pieces
        self.next_queue_offset[key] = first_queue_offset + len(positions)
        return AppendedBatch(
            batch.topic,
            batch.queue_id,
            physical_offset_bytes,
            size_bytes,
            now_ms,
            first_queue_offset,
            batch_sys_flag(batch),
            positions,
            sizes,
            tags_codes,
            keys,
            uniq_keys,
            batch.stored_properties,
        )

    def _several(
        self, members: list[MessageExtBrokerInner], physical_offset_bytes: int, now_ms: int, parts: list[bytes]
    ) -> list[DispatchRequest]:
        """As :meth:`_record`, for all members or none: a member that cannot be written leaves no hole in any queue."""
        requests: list[DispatchRequest] = []
        kept = len(parts)
        try:
            for member in members:
                size = record_size(member)
                requests.append(self._record(member, size, physical_offset_bytes, now_ms, parts))
                physical_offset_bytes += size
        except (struct.error, ValueError):
            del parts[kept:]
            for request in reversed(requests):
                if is_queued(request.sys_flag):
                    self.next_queue_offset[(request.topic, request.queue_id)] = request.queue_offset
            raise
        return requests

    def _moved(self, file: MappedFile | None, now_ms: int) -> None:
        if file is None:
            return
        watermarks = self.watermarks
        watermarks.wrote = file.start + file.wrote
        self._tail = (watermarks.wrote, now_ms)
        if not self.queue.pooled:
            watermarks.committed = watermarks.wrote
        # With a pool even a file that has no buffer may lie behind one that has: only commit() may tell.

    def _next_file(self, file: MappedFile | None, parts: list[bytes], needed: int) -> None:
        """Ends the file with a BLANK and starts the next one; made first, so that a full disk leaves all as it was."""
        if file is not None and parts:
            file.append(b"".join(parts), head_last=True)
            parts.clear()
        if file is not None:
            # A file found at the start is backed by disk as far as it was written since, and the BLANK must not be what ends
            # the process.
            file.grow(min(file.size, file.wrote + rec.BLANK_MIN_BYTES))
        self.queue.roll(0 if file is None else file.start + file.size, needed)
        if file is not None and file.wrote < file.size:
            file.append(encode_blank(file.size - file.wrote))
            file.wrote = file.size

    def _too_large(self, size_bytes: int) -> RefusedError:
        return RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message does not fit a commit log file",
            reason="message.larger_than_file",
            measured=f"{size_bytes} bytes",
            key="store.commit_log_file_bytes (mappedFileSizeCommitLog)",
        )

    # durability

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """See :class:`flintmq.core.kernel.ports.FlushableLog`."""
        if not self.queue.pooled:
            return self.watermarks.committed  # the appender's to move: two that do would move it back
        with self._commit_lock:
            if write is not None and self.watermarks.fence_reason is not None:
                raise StoreFencedError(self.watermarks.fence_reason)
            for file in self.queue.files:
                waiting = file.wrote - file.committed
                if file.buffer is None:
                    file.committed = file.wrote
                elif waiting and (
                    file.wrote == file.size or least_pages == 0 or waiting >= least_pages * OS_PAGE_BYTES
                ):
                    self._commit_one(file, write)
                    break
                elif waiting:
                    break
            committed = self._contiguous_committed()
            if committed > self.watermarks.committed:
                self.watermarks.committed = committed
                if not self.watermarks.synchronous:  # there the flush will tell
                    self.on_progress()
            return self.watermarks.committed

    def _commit_one(self, file: MappedFile, write: FileWriter | None) -> None:
        began_bytes, began_s = file.committed, self._clock.monotonic_s()
        try:
            self.queue.commit_one(write)
        except OSError as error:
            raise self._failed(file, "write", error) from error
        took_s = self._clock.monotonic_s() - began_s
        if took_s > SLOW_S:
            self._tell_slow(self._slow_commits, "Commit data to file", took_s, file, began_bytes, file.committed)

    @staticmethod
    def _tell_slow(told: SlowLog, what: str, took_s: float, file: MappedFile, began_bytes: int, end_bytes: int) -> None:
        told.warn(
            f"{what} costs {took_s * 1000:.0f} ms: {end_bytes - began_bytes} bytes at {file.start + began_bytes}, "
            f"file {file.path}"
        )

    def _failed(self, file: MappedFile, what: str, error: OSError) -> StoreError:
        """What a write or a sync that failed is to the flush service.

        The kernel may have dropped pages: no retry can prove anything, so it is final. But where nothing could be opened for
        it, nothing was tried, or nothing had failed so far: it is tried again.
        """
        if is_exhausted(error):
            return StoreExhaustedError(f"{file.path}: {what} not possible now: {error.strerror}")
        reason = f"{file.path}: {what} failed: {error.strerror}; restart the broker to recover"
        self.watermarks.fence_reason = reason
        log.critical("%s", reason)
        self.on_fenced(reason)
        return StoreFencedError(reason)

    def _contiguous_committed(self) -> int:
        committed = self.watermarks.committed
        for file in self.queue.files:
            committed = max(committed, file.start + file.readable)
            if file.readable < file.size:
                break
        return committed

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """See :class:`flintmq.core.kernel.ports.FlushableLog`."""
        with self._flush_lock:
            watermarks = self.watermarks
            if watermarks.fence_reason is not None:
                raise StoreFencedError(watermarks.fence_reason)
            file = self.queue.first_unflushed()
            if file is None:
                return watermarks.flushed
            end = file.readable
            pages = end // OS_PAGE_BYTES - file.flushed // OS_PAGE_BYTES
            if least_pages > 0 and pages < least_pages and end < file.size:
                return watermarks.flushed
            tail_offset, tail_timestamp_ms = self._tail
            began_bytes, began_s = file.flushed, self._clock.monotonic_s()
            try:
                flushed = file.start + file.flush(written_through=written_through)
            except OSError as error:
                raise self._failed(file, "sync", error) from error
            took_s = self._clock.monotonic_s() - began_s
            if took_s > SLOW_S:
                self._tell_slow(self._slow_flushes, "Flush data to disk", took_s, file, began_bytes, file.flushed)
            watermarks.flushed = max(watermarks.flushed, flushed)
            if flushed >= tail_offset:
                self._checkpoint.physic_msg_timestamp_ms = tail_timestamp_ms
            self.on_progress()
            return watermarks.flushed

    # read

    def slice(self, commit_log_offset_bytes: int, size_bytes: int) -> memoryview | None:
        """Bytes of the log without a copy, or None when they are deleted or not readable yet."""
        file = self.queue.find(commit_log_offset_bytes)
        if file is None or size_bytes <= 0:
            return None
        at = commit_log_offset_bytes - file.start
        if at + size_bytes > file.size or commit_log_offset_bytes + size_bytes > self.watermarks.readable:
            return None
        return file.view[at : at + size_bytes]

    def record(self, commit_log_offset_bytes: int, size_bytes: int | None = None) -> rec.Record | None:
        """The record at a physical offset, or None when no whole record is there."""
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
        """Store time of the record at an offset known to hold one; -1 when it is deleted."""
        file = self.queue.find(commit_log_offset_bytes)
        if file is None or commit_log_offset_bytes + rec.RECORD_MIN_BYTES > self.watermarks.readable:
            return -1
        return rec.store_timestamp_at(file.view, commit_log_offset_bytes - file.start)

    def next_file_start(self, commit_log_offset_bytes: int) -> int:
        """Where the file behind the one that holds a position begins."""
        size = self.queue.file_bytes
        return commit_log_offset_bytes - commit_log_offset_bytes % size + size

    # walk

    def requests(self, from_offset_bytes: int, to_offset_bytes: int) -> Iterator[DispatchRequest]:
        """Walks the records between two positions of the live log, reading headers only.

        Raises:
            StoreError: bytes that are no record where one must be; names the position.
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
                    f"it says that it lies at {request.commit_log_offset_bytes}"
                )
            yield request
            physical_offset_bytes += request.message_size_bytes

    def columns(self, from_offset_bytes: int, to_offset_bytes: int) -> Iterator[RecordColumns]:
        """As :meth:`requests`, but many records at a time; ends where they cannot be read so.

        That is at bytes that are no record, at a record that reaches beyond the end, at once when it is not worth while, and
        without numpy. :meth:`batches` goes on with :meth:`requests` there.
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
        """Read the records between two positions back, in log order: many at a time where that is possible and worth it.

        Raises:
            StoreError: bytes that are no record where one must be; names the position.
        """
        position = from_offset_bytes
        for columns in self.columns(from_offset_bytes, to_offset_bytes):
            yield RecordBatch.of_columns(columns)
            position = columns.end_offset_bytes
        requests = self.requests(position, to_offset_bytes)
        while batch := list(islice(requests, _BATCH)):
            yield RecordBatch.of_requests(batch)

    def request_at(self, file: MappedFile, at: int) -> DispatchRequest:
        """The dispatch request of the record at a place in a file. Raises RecordError."""
        view = file.view
        values, _body_at, topic_at, properties_at, end = rec.read_fields(view, at)
        size, _, _, queue_id, _, queue_offset, physical, sys_flag, _, _, stored_ms, _, _, prepared_offset, _ = values
        topic = rec.read_topic(view, topic_at, properties_at)
        stored = bytes(view[properties_at:end])
        properties = props.stored_properties(stored)
        padded = b"\x02%b\x02" % stored
        tags = props.stored_value(padded, b"TAGS")
        tags_code = tags_hash(tags) if tags else 0
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

    def set_tail(self, offset_bytes: int, store_timestamp_ms: int) -> None:
        """After recovery: where the log ends and when its last record was stored."""
        self._tail = (offset_bytes, store_timestamp_ms)
        last = self.queue.last()
        if last is not None:
            # Another maker's file may be sparse, and a write into a hole of a full disk would end the process.
            last.grown = 0


def _is_file_end(file: MappedFile, at: int) -> bool:
    """Whether nothing but the blank end of a file lies at a place: it says itself how long it is."""
    left = file.size - at
    return left < rec.BLANK_MIN_BYTES or rec.SIZE_AND_MAGIC.unpack_from(file.view, at) == (left, rec.MAGIC_BLANK)


def _next_columns(found: Iterator[RecordColumns]) -> RecordColumns | None:
    """Return the next columns; None where nothing more can be read in bulk."""
    try:
        return next(found, None)
    except Exception:
        log.warning("records cannot be read in bulk and are read one by one", exc_info=True)
        return None


def _unwritable(error: Exception) -> RefusedError:
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message cannot be written: {error}",
        reason="message.field_out_of_range",
    )


def _nothing() -> None:
    """The listener nobody has set."""


def _ignore(_reason: str) -> None:
    """The listener nobody has set."""
