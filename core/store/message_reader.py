"""Reads messages of a queue: finds the messages by the queue's units, and returns slices of the commit log.

See docs/internals/algorithms.md, Pull.
"""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Final

import msgspec

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.config.sections.store import StoreSection
from flintmq.core.kernel.ports import ConsumeQueues, IndexBuilder, MessageFilter, SupportsQuerySteps
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.record import record as rec
from flintmq.core.record.message_keys import index_keys
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES
from flintmq.core.record.sys_flag import is_queued
from flintmq.core.steps import run_steps

_SCAN_UNITS: Final = 800
_READ_S: Final = 0.010
"""Seconds that one pull may read records to apply a client's filter. The client's next pull continues where this pull ended."""
_READ_STEP: Final = 8


class MessageReader:
    """Reads an open store: messages of queues, single records, offsets by time, and messages by key. Used only on the event
    loop's thread.

    Args:
        commit_log: the log with the records.
        queues: the consume queues, which give each message's physical offset in the log.
        index: the index that finds messages by key.
        settings: the store's settings, such as the limits of one answer.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: IndexBuilder,
        settings: StoreSection,
        now_s: Callable[[], float],
    ) -> None:
        self._now_s = now_s
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self.settings = settings
        """The store's settings. The settings may be replaced while the store is in use."""
        self._total_memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @property
    def _memory_bytes(self) -> int:
        return self._total_memory_bytes * self.settings.access_in_memory_ratio // 100

    def is_in_memory(self, commit_log_offset_bytes: int) -> bool:
        """Return whether a message is near enough to the log's end to be presumed in the page cache."""
        return self._commit_log.max_offset_bytes - commit_log_offset_bytes <= self._memory_bytes

    def topics(self) -> set[str]:
        """Return the names of the topics that have queues, without the internal topic of topic deletions."""
        return {topic for topic, _queue in self._queues.queues} - {DELETED_TOPIC}

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that a queue's next message will get; 0 for a queue that does not exist."""
        queue = self._queues.find(topic, queue_id)
        return queue.max_queue_offset if queue is not None else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of a queue's oldest message; 0 for a queue that does not exist."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_queue_offset if queue is not None else 0

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of a queue's message stored nearest to a time (ms since 1970), by binary search.

        The result is 0 for a queue that does not exist. See docs/internals/algorithms.md, Offset by time.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.queue_offset_by_time(
            timestamp_ms, self._commit_log.min_offset_bytes, self._commit_log.store_timestamp_ms
        )

    def message_store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time in ms since 1970 of the message at a queue offset; -1 if no message has this offset."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        return self._commit_log.store_timestamp_ms(unit[0]) if unit is not None else -1

    def earliest_message_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store time in ms since 1970 of a queue's oldest message; -1 if the queue is empty."""
        return self.message_store_time(topic, queue_id, self.min_queue_offset(topic, queue_id))

    def check_in_mem_by_consume_offset(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the message at a queue offset is presumed in memory; also true if no message has this offset.

        See docs/internals/algorithms.md, Offset by time.
        """
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        return unit is None or self.is_in_memory(unit[0])

    def message_at(self, commit_log_offset_bytes: int, size_bytes: int | None = None) -> rec.Record | None:
        """Return the log's record at a physical offset; None if no complete record of the given size begins there."""
        return self._commit_log.record(commit_log_offset_bytes, size_bytes)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[memoryview], int, int]:
        """Find messages by key in one call, with the arguments and the result of :meth:`query_message_steps`."""
        return run_steps(self.query_message_steps(topic, key, max_num, begin_timestamp_ms, end_timestamp_ms))

    def query_message_steps(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> Generator[None, None, tuple[list[memoryview], int, int]]:
        """Find records of a topic with a key (KEYS or UNIQ_KEY) that were stored in a time range (ms since 1970).

        The function is a generator that yields after some milliseconds of work, so that a server can do other work before it
        continues the generator.

        Returns:
            A tuple of three values. The first is a list of records, in log order. As in RocketMQ, the index finds the newest
            ``max_num`` records with a key of the same hash, and the list contains only the records among them that have the key
            itself. The second and the third value are the store time in ms and the physical offset of the newest record in the
            index.
        """
        args = (topic, key, max_num, begin_timestamp_ms, end_timestamp_ms)
        if isinstance(self._index, SupportsQuerySteps):
            found_at, index_time_ms, index_offset = yield from self._index.query_steps(*args)
        else:
            found_at, index_time_ms, index_offset = self._index.query(*args)
        found: list[memoryview] = []
        for physical in sorted(found_at):
            yield
            record = self._commit_log.record(physical)
            if record is None or record.topic != topic:
                continue
            if not begin_timestamp_ms <= record.store_timestamp_ms <= end_timestamp_ms:
                continue
            if self._is_of_earlier_life(record):
                continue
            if key not in index_keys(record):
                continue
            piece = self._commit_log.slice(physical, record.size_bytes)
            if piece is not None:
                found.append(piece)
        return found, index_time_ms, index_offset

    def _is_of_earlier_life(self, record: rec.Record) -> bool:
        """Return whether a record is older than all messages in its queue, because its topic was deleted and created again."""
        if not is_queued(record.sys_flag):
            return False
        queue = self._queues.find(record.topic, record.queue_id)
        first = queue.unit(queue.min_queue_offset) if queue is not None else None
        return first is None or record.commit_log_offset_bytes < first[0]

    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, max_num: int, message_filter: MessageFilter | None
    ) -> GetMessageResult:
        """Read messages of a queue from a queue offset on, as slices of the log (docs/internals/algorithms.md, Pull).

        The read examines at most 800 units, or ``max_num`` units if this is more. The first matching message is always
        returned, however large it is.

        Args:
            topic, queue_id, queue_offset: the queue, and the queue offset of the first message.
            max_num: the maximum number of messages.
            message_filter: selects the messages; None selects all.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
        low, high = queue.min_queue_offset, queue.max_queue_offset
        if high == 0:
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
        if queue_offset < low:
            return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high, [])
        if queue_offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high, [])
        if queue_offset > high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [])
        units = queue.unit_bytes(queue_offset, max(_SCAN_UNITS, max_num))
        if not units:
            next_file = queue.next_file_queue_offset(queue_offset)
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, next_file, low, high, [])
        result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, queue_offset, low, high, [])
        if message_filter is not None:
            message_filter = queue.resolving(message_filter)
        if message_filter is not None or not self._collect_all(units, max_num, result):
            self._collect(units, max_num, message_filter, result)
        return result

    def _collect_all(self, units: memoryview, max_num: int, result: GetMessageResult) -> bool:
        """Read all messages of a pull at once if the pull is ordinary; return whether the messages were read.

        An ordinary pull has no filter, and its messages are in one file, presumed in memory, and within the limits of an
        answer. A pull with a filler unit is not ordinary, because the size in a filler unit is greater than every limit of an
        answer. If the pull is not ordinary, ``result`` stays unchanged.
        """
        # _collect() would give the same result for an ordinary pull, but takes several times as long as _collect_all().
        settings = self.settings
        count = min(max_num, settings.max_transfer_count_in_memory, len(units) // UNIT_BYTES)
        if count <= 0:
            return False
        fields = _units_struct(count).unpack_from(units)
        physical, sizes = fields[::3], fields[1::3]
        first, end, total = physical[0], physical[-1] + sizes[-1], sum(sizes)
        commit_log = self._commit_log
        file = commit_log.queue.find(first)
        max_offset = commit_log.watermarks.readable
        if (
            file is None
            or total > settings.max_transfer_bytes_in_memory
            or max_offset - first > self._memory_bytes
            or end > min(max_offset, file.start + file.size)
        ):
            return False
        view, start = file.view, file.start
        run_start = run_end = first - start
        if end - first == total:
            run_end = end - start
        else:
            for at, size in zip(physical, sizes, strict=True):
                if at - start != run_end:
                    result.slices.append(view[run_start:run_end])
                    run_start = run_end = at - start
                run_end += size
        result.slices.append(view[run_start:run_end])
        result.status = GetMessageStatus.FOUND
        result.message_count = count
        result.size_bytes = total
        result.next_begin_offset += count
        return True

    def _collect(
        self, units: memoryview, max_num: int, message_filter: MessageFilter | None, result: GetMessageResult
    ) -> None:
        settings = self.settings
        commit_log = self._commit_log
        max_offset = commit_log.max_offset_bytes
        memory = self._memory_bytes
        slices = result.slices
        count = total = 0
        run_start = run_end = -1  # Adjacent records of the log become one slice, so that the answer has few buffers.
        skip_until = -1
        last_physical = max_offset
        scanned = read = 0
        until_s = self._now_s() + _READ_S
        for physical, size, tags_code in UNIT.iter_unpack(units):
            if size == FILLER_SIZE and not physical:
                scanned += 1  # A filler unit in a consume queue stands for a lost message, so it is skipped.
                continue
            last_physical = physical
            if physical < skip_until:
                scanned += 1
                continue
            if total:
                if max_offset - physical > memory:
                    limit_bytes, limit_count = settings.max_transfer_bytes_in_disk, settings.max_transfer_count_in_disk
                else:
                    limit_bytes, limit_count = (
                        settings.max_transfer_bytes_in_memory,
                        settings.max_transfer_count_in_memory,
                    )
                if count >= max_num or total + size > limit_bytes or count >= limit_count:
                    break
            scanned += 1
            if message_filter is not None and not message_filter.matches_tags_code(tags_code):
                continue
            piece: memoryview | None = None
            if physical != run_end or message_filter is not None:
                piece = commit_log.slice(physical, size)
                if piece is None:
                    if not total:
                        result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                    skip_until = commit_log.next_file_start(physical)
                    continue
                if message_filter is not None and message_filter.needs_properties:
                    read += 1
                    if not read % _READ_STEP and self._now_s() > until_s:
                        scanned -= 1
                        break
                    record = rec.decode_record(piece, check_crc=False)
                    if not message_filter.matches_properties(record.properties):
                        continue
            if physical == run_end and (longer := commit_log.slice(run_start, run_end + size - run_start)) is not None:
                slices[-1] = longer
                run_end += size
            else:
                piece = piece if piece is not None else commit_log.slice(physical, size)
                if piece is None:
                    skip_until = commit_log.next_file_start(physical)
                    continue
                slices.append(piece)
                run_start, run_end = physical, physical + size
            count += 1
            total += size
            skip_until = -1
        if total:
            result.status = GetMessageStatus.FOUND
        result.message_count = count
        result.size_bytes = total
        result.next_begin_offset += scanned
        result.suggest_slave = max_offset - last_physical > memory


@lru_cache(maxsize=256)
def _units_struct(count: int) -> struct.Struct:
    """Return the struct that unpacks ``count`` queue units at once."""
    return struct.Struct(">" + "qiq" * count)


class GetMessageStatus(enum.Enum):
    """The status of a read of a queue. The names are RocketMQ's, because the broker sends them in the remark of its answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(msgspec.Struct):
    """The result of a read of a queue: status, and messages as slices of the log, which stay readable while referenced."""

    status: GetMessageStatus
    next_begin_offset: int
    """Queue offset at which the next read begins."""
    min_offset: int
    """The queue offset of the queue's oldest message."""
    max_offset: int
    """The queue offset that the queue's next message will get."""
    slices: list[memoryview]
    """Slices of the log, each with one or more adjacent complete records."""
    message_count: int = 0
    size_bytes: int = 0
    suggest_slave: bool = False
    """Whether the read messages are too old to be presumed in memory, so that the next read should use a slave."""
