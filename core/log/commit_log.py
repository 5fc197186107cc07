"""The commit log: all messages in the order of arrival, in files of equal size.

The loop thread appends (:class:`Appender`) and reads (:mod:`.log_reader`); the flush service's threads call
:meth:`CommitLog.commit` and :meth:`CommitLog.flush` (:mod:`.durability`).

An append takes many messages. An append computes sizes first, then makes one join and one slice assignment per file, so that a
message costs one header pack and one CRC. The result has the values for the dispatchers: a ``DispatchRequest`` for each
message, and one ``AppendedBatch`` for a batch send.

See docs/internals/store-format.md, Commit log record; docs/internals/algorithms.md, Append.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from zlib import crc32

from flintmq.core.errors import RefusedError, StoreError, StoreFencedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, FileWriter, TagsCodes
from flintmq.core.log.durability import Durability
from flintmq.core.log.log_reader import LogReader
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.record import properties as props
from flintmq.core.record import record as rec
from flintmq.core.record.batch import MessageBatch, look_into
from flintmq.core.record.batch_records import batch_records, batch_sys_flag, record_sizes
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

_UNCHECKED_HOST: Final = bytes(1 + V4_BYTES)
_UNUSUAL_FLAGS: Final = TRANSACTION_MASK | HOSTS_V6

Appendable = MessageExtBrokerInner | MessageBatch | list[MessageExtBrokerInner]
"""A message, or several messages that are stored together with consecutive queue offsets."""
Appended = DispatchRequest | AppendedBatch | list[DispatchRequest] | StoreError | RefusedError
"""The result of appending an :data:`Appendable`: the stored records, or the error for which they were not stored."""


class Appender:
    """Writes records at the commit log's end. Used only on the event loop's thread.

    Args:
        queue: the log's files.
        watermarks: the log's positions; an append moves ``wrote``, and without a pool also ``committed``.
        clock: the source of store times.
        tags_codes: the rules that compute tags codes, keyed by topic, for topics whose codes are not hashes of the tags.
    """

    def __init__(
        self, queue: MappedFileQueue, watermarks: Watermarks, clock: Clock, tags_codes: Mapping[str, TagsCodes]
    ) -> None:
        self._queue = queue
        self._watermarks = watermarks
        self._clock = clock
        self._tags_codes = tags_codes
        self.next_queue_offset: dict[tuple[str, int], int] = {}
        """Queue offset of the next message of each queue, keyed by (topic, queue id); a queue without an entry begins at 0."""

    def append(self, messages: Sequence[Appendable]) -> list[Appended]:
        """Append messages to the log, in order.

        Returns:
            One result per item of ``messages``, in order. The result of a message is a :class:`DispatchRequest`, that of a
            :class:`MessageBatch` is an :class:`AppendedBatch`, and that of a list of messages is a list of dispatch requests.
            An item that was not appended has an error: StoreFullError if the disk has no space for the next file, or
            RefusedError (MESSAGE_ILLEGAL) if the item does not fit in an empty file or a record cannot hold a field.

        Raises:
            StoreFencedError: a sync failed earlier; nothing was appended.
        """
        watermarks = self._watermarks
        if watermarks.fence_reason is not None:
            raise StoreFencedError(watermarks.fence_reason)
        now_ms = self._clock.now_ms()
        parts: list[bytes] = []
        file = self._queue.last()
        position = start = ceiling = 0
        if file is not None:
            position, start, ceiling = file.wrote, file.start, self._ceiling(file)
        plain, position = self._plain(messages, start, position, ceiling, now_ms, parts)
        results: list[Appended] = [*plain]
        full: StoreError | None = None
        record_of = self._record
        sizes: Sequence[int] = ()
        for message in messages[len(plain) :] if plain else messages:
            result: Appended
            try:
                if isinstance(message, MessageExtBrokerInner):
                    size = record_size(message)
                elif isinstance(message, MessageBatch):
                    sizes = record_sizes(message)
                    size = sum(sizes)
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
                    last = self._queue.files[-1]
                    if last is not file:
                        file, position, start = last, 0, last.start
                    ceiling = self._ceiling(last)
                if isinstance(message, MessageExtBrokerInner):
                    result = record_of(message, size, start + position, now_ms, parts)
                elif isinstance(message, MessageBatch):
                    result = self._batch(message, sizes, start + position, now_ms, parts)
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
        """Append bytes of a master's log unchanged: complete records, or the blank end of a file.

        If the log has no files, it begins at the position of the first bytes.

        Args:
            physical_offset_bytes: the physical offset of the bytes, which must be this log's end.
            data: the bytes, all from one file.
            store_timestamp_ms: the store time of the last record in ``data``; 0 if it has no record.

        Raises:
            StoreFencedError: a sync failed earlier; nothing was appended.
            StoreFullError: the disk has no space; nothing was appended.
            StoreError: the bytes do not begin at the log's end, or are not from one file.
        """
        watermarks = self._watermarks
        if watermarks.fence_reason is not None:
            raise StoreFencedError(watermarks.fence_reason)
        file = self._queue.last()
        if file is not None and physical_offset_bytes != watermarks.wrote:
            raise StoreError(
                f"bytes of position {physical_offset_bytes} cannot follow a log that ends at {watermarks.wrote}"
            )
        at = physical_offset_bytes % self._queue.file_bytes
        if at + len(data) > self._queue.file_bytes or (at and file is None):
            raise StoreError(f"{len(data)} bytes at position {physical_offset_bytes} do not lie in one file of the log")
        if file is None:
            watermarks.set_all(physical_offset_bytes)
            watermarks.dispatched = physical_offset_bytes
        if not at:
            file = self._queue.roll(physical_offset_bytes, len(data))
        assert file is not None
        file.grow(at + len(data))
        file.append_in_order(data)
        self._moved(file, store_timestamp_ms or watermarks.tail[1])

    def _ceiling(self, file: MappedFile) -> int:
        """Return the end of the part of a log file that records may use: its allocated part, with space left for a blank."""
        return min(file.size, file.grown) - rec.BLANK_MIN_BYTES

    def _make_room(self, file: MappedFile | None, parts: list[bytes], position: int, size: int) -> None:
        """Make space for a record, by growing the log's last file or adding a file.

        ``parts`` contains the bytes of records that are encoded but not written yet. Before a file is added, these records are
        written to the current last file, and removed from ``parts``.

        Raises:
            RefusedError: the record does not fit in any file.
            StoreError: the disk has no space; smaller records may still fit in the last file.
        """
        needed = size + rec.BLANK_MIN_BYTES
        if needed > self._queue.file_bytes:
            raise self._too_large(size)
        if file is None or position + needed > file.size:
            self._next_file(file, parts, needed)
        else:
            file.grow(position + needed)

    def _plain(
        self, messages: Sequence[Appendable], start: int, position: int, ceiling: int, now_ms: int, parts: list[bytes]
    ) -> tuple[list[DispatchRequest], int]:
        """Encode the leading plain messages that fit in the log's last file without growing it, as in nearly all appends.

        Plain messages have IPv4 hosts and checked properties, and are not part of a transaction.

        Args:
            messages: the messages to append; encoding stops at the first message that is not plain or does not fit.
            start: the physical offset of the file.
            position: the position of the next record in the file.
            ceiling: the end of the usable part of the file.
            now_ms: the store time.
            parts: the list to which the bytes of the records are added.

        Returns:
            The requests of the encoded messages, and the position in the file after them.
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
                    if not _are_v4(born_host, store_host):
                        break
                tail = record_tail(topic, len(stored))
                size = HEAD_V4_BYTES + len(body) + len(tail) + len(stored)
                if position + size > ceiling:
                    break
                key = (topic, queue_id)
                queue_offset = next_queue_offset.get(key, 0)
                at = start + position
                head = pack_head_v4(
                    size,
                    rec.MAGIC_V1,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    message.flag,
                    queue_offset,
                    at,
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
                break  # append() tries again to encode a message that failed here, and returns the error as its result.
            next_queue_offset[key] = queue_offset + 1
            parts += (head, body, tail, stored)
            tags_code, keys, uniq_key = message.about
            properties = message.properties
            requests.append(
                DispatchRequest(
                    topic, queue_id, at, size, tags_code, now_ms, queue_offset, keys, uniq_key, sys_flag, 0, properties
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
        """Encode a message, add its bytes to the list ``parts``, and assign its queue offset; return its dispatch request.

        Raises struct.error if a field has a value that a record cannot hold; nothing has changed then.
        """
        topic = message.topic
        queue_id = message.queue_id
        properties = message.properties
        if b"\0" in message.properties_bytes:
            raise props.nul_error()
        sys_flag = message.sys_flag
        get = properties.get
        tags_code = tags_hash(get("TAGS", ""))
        if topic in self._tags_codes:
            tags_code = self._tags_codes[topic].tags_code(properties, tags_code, now_ms, None)
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
            # encode_record() adds flags for hosts that have IPv6 addresses, so the flags are read from the encoded record.
            sys_flag = rec.sys_flag_at(pieces[0], 0)
        keys, uniq_key, prepared = get("KEYS", ""), get("UNIQ_KEY", ""), message.prepared_transaction_offset_bytes
        at, size = physical_offset_bytes, size_bytes
        return DispatchRequest(
            topic, queue_id, at, size, tags_code, now_ms, queue_offset, keys, uniq_key, sys_flag, prepared, properties
        )

    def _batch(
        self, batch: MessageBatch, sizes: Sequence[int], physical_offset_bytes: int, now_ms: int, parts: list[bytes]
    ) -> AppendedBatch:
        """Encode the records of a batch send, as :meth:`_record` does for one message."""
        key = (batch.topic, batch.queue_id)
        first_queue_offset = self.next_queue_offset.get(key, 0)
        pieces, positions = batch_records(batch, sizes, first_queue_offset, physical_offset_bytes, now_ms)
        tags_codes, keys, uniq_keys = look_into(batch)
        parts += pieces
        self.next_queue_offset[key] = first_queue_offset + len(positions)
        return AppendedBatch(
            batch.topic,
            batch.queue_id,
            physical_offset_bytes,
            positions[-1] + sizes[-1] - physical_offset_bytes,
            now_ms,
            first_queue_offset,
            batch_sys_flag(batch),
            positions,
            sizes,
            tags_codes,
            keys,
            "".join(keys),
            uniq_keys,
            batch.stored_properties,
        )

    def _several(
        self, members: list[MessageExtBrokerInner], physical_offset_bytes: int, now_ms: int, parts: list[bytes]
    ) -> list[DispatchRequest]:
        """Encode all of several messages or none, so that a message that cannot be written leaves no gap in a queue."""
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
        """Move the log's watermarks to the end of the appended records."""
        if file is None:
            return
        watermarks = self._watermarks
        watermarks.wrote = file.start + file.wrote
        watermarks.tail = (watermarks.wrote, now_ms)
        if not self._queue.pooled:
            watermarks.committed = watermarks.wrote
        # With a transient store pool, only commit() sets ``committed``, even for a file without a buffer.

    def _next_file(self, file: MappedFile | None, parts: list[bytes], needed: int) -> None:
        """Add the log's next file, and end the current file with a blank. If the disk is full, the log is not changed."""
        if file is not None and parts:
            file.append(b"".join(parts), head_last=True)
            parts.clear()
        if file is not None:
            # Disk space is allocated before the blank record is written: an earlier start may have left the file sparse.
            # On a full disk, a write into a hole of a sparse file kills the process (SIGBUS).
            file.grow(min(file.size, file.wrote + rec.BLANK_MIN_BYTES))
        self._queue.roll(0 if file is None else file.start + file.size, needed)
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


def _are_v4(born_host: bytes, store_host: bytes) -> bool:
    """Return whether a record's born host and store host both have IPv4 addresses. Raises ValueError if a host is malformed."""
    check_host(born_host)
    check_host(store_host)
    return len(born_host) == len(store_host) == V4_BYTES


def _unwritable(error: Exception) -> RefusedError:
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message cannot be written: {error}",
        reason="message.field_out_of_range",
    )


class CommitLog(LogReader):
    """The commit log (``CommitLog`` of RocketMQ): reads and appends records, and makes them durable.

    Args:
        queue: the log's files.
        watermarks: the log's positions.
        checkpoint: the file that records up to which store time the log is on disk.
        clock: the source of time.
        tags_codes: the rules that compute tags codes, keyed by topic, for topics whose codes are not hashes of the tags.
        on_progress: called on the flush service's thread when ``committed`` or ``flushed`` has moved.
        on_fenced: called once, on the flush service's thread, with the reason, after a failed sync.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        watermarks: Watermarks,
        checkpoint: StoreCheckpoint,
        clock: Clock,
        tags_codes: Mapping[str, TagsCodes] = MappingProxyType({}),
        *,
        on_progress: Callable[[], None] = lambda: None,
        on_fenced: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        super().__init__(queue, watermarks, tags_codes)
        self.appender = Appender(queue, watermarks, clock, tags_codes)
        """The appender, which writes records at the log's end and assigns queue offsets."""
        self.durability = Durability(queue, watermarks, checkpoint, clock, on_progress, on_fenced)
        """The object with which the flush service commits and syncs the log. It also logs commits and syncs that are slow."""

    @property
    def wrote_offset_bytes(self) -> int:
        """The physical end of the log's appended records."""
        return self.watermarks.wrote

    @property
    def committed_offset_bytes(self) -> int:
        """The physical end of the records in the log's pages; later records are only in buffers of the transient pool."""
        return self.watermarks.committed

    @property
    def flushed_offset_bytes(self) -> int:
        """The physical end of the log's synced records."""
        return self.watermarks.flushed

    def append(self, messages: Sequence[Appendable]) -> list[Appended]:
        """Append messages to the log, in order; see :meth:`Appender.append`. Called only on the event loop's thread."""
        return self.appender.append(messages)

    def append_raw(self, physical_offset_bytes: int, data: bytes, store_timestamp_ms: int) -> None:
        """Append bytes of a master's log unchanged; see :meth:`Appender.append_raw`. Called only on the event loop's thread."""
        self.appender.append_raw(physical_offset_bytes, data, store_timestamp_ms)

    def commit(self, least_pages: int, write: FileWriter | None = None) -> int:
        """Copy bytes of the transient pool into one file of the log, and return the committed position.

        See :meth:`flintmq.core.kernel.ports.FlushableLog.commit`.
        """
        return self.durability.commit(least_pages, write)

    def flush(self, least_pages: int, *, written_through: bool = False) -> int:
        """Sync one file of the log; return the flushed position. See :meth:`flintmq.core.kernel.ports.FlushableLog.flush`."""
        return self.durability.flush(least_pages, written_through=written_through)

    def set_tail(self, offset_bytes: int, store_timestamp_ms: int) -> None:
        """Set the log's end and the store time of its last record, after a recovery."""
        self.watermarks.tail = (offset_bytes, store_timestamp_ms)
        last = self.queue.last()
        if last is not None:
            # No part of the last log file counts as allocated, because another broker may have left the file sparse.
            # On a full disk, a write into a hole of a sparse file kills the process (SIGBUS).
            last.grown = 0
