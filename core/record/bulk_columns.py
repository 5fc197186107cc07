"""The fields of many stored records as numpy columns, the bulk form of :class:`.record_batch.RecordBatch`.

::

    for columns in ColumnReader(asked).read(view, start, at, end_at, request_at):
        columns.physical, columns.queue_offset, columns.tags_code …      one value per record
        columns.key_row, columns.key_hash                                one value per key, in the order of the index

A row has the same values as the request that :meth:`flintmq.core.log.commit_log.CommitLog.request_at` returns for that record.
Reading stops at a record that cannot be read in bulk; the caller continues record by record. Every program that has a file of
the log in memory can use this module: a broker at its start, a rebuild, or another process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.record import bulk_scan
from flintmq.core.record.bulk_scan import Topics
from flintmq.core.record.bulk_texts import Properties, index_key_hashes
from flintmq.core.record.heads import Heads
from flintmq.core.record.message_keys import index_keys
from flintmq.core.record.sys_flag import is_indexed, is_queued

if TYPE_CHECKING:
    from flintmq.core.record.bulk_scan import Column
    from flintmq.core.record.dispatch_request import DispatchRequest

_ROWS_FIRST: Final = 1_024

RequestAt = Callable[[int], "DispatchRequest"]
"""Function that reads the record at a position in a file. The function raises ``RecordError`` if the record is not valid."""


class RecordColumns(msgspec.Struct, frozen=True, eq=False):
    """Consecutive records of one commit log file as columns. A column has one value per record; a column of keys has one value
    per key."""

    physical: Column
    """Physical offset of each record, in bytes."""
    size: Column
    """Size of each record, in bytes."""
    topic_code: Column
    """For each record, the index of the record's topic; the list ``topics`` has the topics."""
    topics: list[str]
    queue_id: Column
    queue_offset: Column
    sys_flag: Column
    store_timestamp_ms: Column
    prepared: Column
    """Physical offset of each record's half message, in bytes."""
    tags_code: Column
    """Tags code of each record, as stored in the consume queue."""
    key_row: Column
    """For each key of the index, the row of the record that has the key, in ascending order. A record's keys are in the order
    of :func:`.message_keys.index_keys`."""
    key_hash: Column
    """Hash of each key, as stored in the index. The keys are in the order of ``key_row``."""
    end_offset_bytes: int
    """Physical offset just past the last record."""
    begin_at: Column
    """Position of each record in its file, which is the argument of ``request_at``."""
    request_at: RequestAt

    def __len__(self) -> int:
        return len(self.physical)

    @property
    def visible(self) -> Column:
        """Mask of the records that have a unit in a consume queue; records of prepared and rolled back messages have none."""
        return is_queued(self.sys_flag)

    @property
    def indexed(self) -> Column:
        """Mask of the records whose keys are in the index; the keys of rolled back messages are not in the index."""
        return is_indexed(self.sys_flag)

    def queues(self) -> set[tuple[str, int]]:
        """Return the distinct (topic, queue id) of all records."""
        pairs = set(zip(self.topic_code.tolist(), self.queue_id.tolist(), strict=True))
        return {(self.topics[code], queue_id) for code, queue_id in pairs}

    def rows_of(self, queues: Set[tuple[str, int]]) -> Column:
        """Return the ascending row numbers of the records that belong to the given queues. A queue is a pair (topic, queue
        id)."""
        pairs = zip(self.topic_code.tolist(), self.queue_id.tolist(), strict=True)
        topics = self.topics
        return numpy.array([row for row, (code, number) in enumerate(pairs) if (topics[code], number) in queues], int)

    def requests(self, rows: Column | None = None) -> list[DispatchRequest]:
        """Read records from the file, and return their dispatch requests.

        Args:
            rows: selects the records: an array of row numbers, or a mask with a boolean for each record. None selects all
                records.

        Raises:
            RecordError: a selected record is not valid.
        """
        places = self.begin_at if rows is None else self.begin_at[rows]
        return [self.request_at(at) for at in places.tolist()]


def columns_of(requests: Sequence[DispatchRequest]) -> RecordColumns:
    """Return the columns of records that are given as dispatch requests."""
    keys = [(row, one.topic, key) for row, one in enumerate(requests) for key in index_keys(one)]
    codes = {topic: code for code, topic in enumerate(dict.fromkeys(one.topic for one in requests))}

    def column(values: Iterable[int]) -> Column:
        return numpy.fromiter(values, numpy.int64)

    return RecordColumns(
        physical=column(one.commit_log_offset_bytes for one in requests),
        size=column(one.message_size_bytes for one in requests),
        topic_code=column(codes[one.topic] for one in requests),
        topics=[*codes],
        queue_id=column(one.queue_id for one in requests),
        queue_offset=column(one.queue_offset for one in requests),
        sys_flag=column(one.sys_flag for one in requests),
        store_timestamp_ms=column(one.store_timestamp_ms for one in requests),
        prepared=column(one.prepared_transaction_offset_bytes for one in requests),
        tags_code=column(one.tags_code for one in requests),
        key_row=column(row for row, _topic, _key in keys),
        key_hash=column(index_key_hashes([topic for _row, topic, _key in keys], [key for _row, _topic, key in keys])),
        end_offset_bytes=requests[-1].commit_log_offset_bytes + requests[-1].message_size_bytes if requests else 0,
        begin_at=numpy.arange(len(requests)),
        request_at=requests.__getitem__,
    )


class ColumnReader:
    """Reads the records of a log's files in bulk. Use a reader from one thread. The columns that it returns stay valid when the
    file is closed.

    Args:
        asked: topics whose tags codes are not hashes of tags; the code of each of their records is read one by one.
    """

    def __init__(self, asked: Collection[str] = ()) -> None:
        self._topics = Topics()
        self._asked = asked

    def read(
        self, view: memoryview, start_offset_bytes: int, at: int, end_at: int, request_at: RequestAt
    ) -> Iterator[RecordColumns]:
        """Yield the columns of the complete records between two positions in a file, some thousands of records at a time.

        The reading ends before the first blank, or before the first bytes that are not a valid record.

        Args:
            view: the content of the file.
            start_offset_bytes: the physical offset of the file's start.
            at: the position of the first record in the file.
            end_at: the position in the file at which reading ends.
            request_at: reads a single record of this file, for values that cannot be read in bulk. For example, the tags codes
                of some topics, which the constructor's argument ``asked`` names, are not hashes of tags.
        """
        rows_max = _ROWS_FIRST
        while True:
            places = bulk_scan.chain(view, at, end_at, rows_max)
            rows = bulk_scan.whole_heads(view, places)
            if rows is None:
                return
            codes = self._topics.codes(view, rows)
            is_good = rows.column("physical_offset") == start_offset_bytes + rows.start
            if self._topics.broken:
                is_good &= ~numpy.isin(codes, self._topics.broken)
            whole = bulk_scan.rows_before_false(is_good)
            if not whole:
                return
            yield self._columns(view, start_offset_bytes, rows.first(whole), codes[:whole], request_at)
            if whole < len(places):
                return
            at = rows.end
            rows_max = bulk_scan.ROWS_MAX

    def _columns(
        self, view: memoryview, start_offset_bytes: int, rows: Heads, topic_codes: Column, request_at: RequestAt
    ) -> RecordColumns:
        topics = self._topics
        properties = Properties(view, rows)
        tags_code = properties.tags().tags_codes(len(rows))
        for asked in self._asked:
            code = topics.known(asked)
            if code is not None:
                for row in numpy.flatnonzero(topic_codes == code).tolist():
                    tags_code[row] = request_at(int(rows.start[row])).tags_code
        keys = properties.index_keys()
        key_row = numpy.concatenate([texts.row for texts in keys])
        key_hash = numpy.concatenate([texts.key_hashes(topics, topic_codes) for texts in keys])
        order = numpy.argsort(key_row, kind="stable")
        return RecordColumns(
            rows.column("physical_offset"),
            rows.size,
            topic_codes,
            topics.names,
            rows.column("queue_id"),
            rows.column("queue_offset"),
            rows.column("sys_flag"),
            rows.store_timestamp_ms,
            rows.column("prepared_offset"),
            tags_code,
            key_row[order],
            key_hash[order],
            start_offset_bytes + rows.end,
            rows.start,
            request_at,
        )
