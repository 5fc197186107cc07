"""What makes bytes a record of a log: the conditions, in one place, and why bytes fail them.

A start walks a log with them, a slave lets a master's bytes in by them, and the doctor judges by them.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.lazy_numpy import numpy
from flintmq.core.io.paths import topic_folder
from flintmq.core.limits import PROPERTIES_MAX_BYTES
from flintmq.core.record.bulk_scan import Topics, rows_before_false
from flintmq.core.record.heads import Heads
from flintmq.core.record.layout import HEAD_V4, picked
from flintmq.core.record.record import MAGIC_V1, RECORD_MIN_BYTES, Record, RecordError, decode_record
from flintmq.core.record.sys_flag import HOSTS_V6, is_queued

if TYPE_CHECKING:
    from flintmq.core.record.bulk_scan import Column

_PLAIN: Final = picked(
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "store_timestamp",
    "body_length",
)
_BODY_AT: Final = HEAD_V4.size
_CRC_MASK: Final = 0x7FFFFFFF
_TOPICS_MAX: Final = 65_536
_NUMBERED_MAX: Final = 8_192
"""Each part that is checked costs a little for each of them."""
_ANYWHERE: Final = Path()

Plain = tuple[int, int, int, int]
"""Of a record: where it ends, its sysFlag, its store time in ms, and where its properties begin."""


@lru_cache(maxsize=8_192)
def why_no_topic(topic: str) -> str:
    """Return why no queue can belong to a topic; empty where one can."""
    try:
        topic_folder(_ANYWHERE, topic)
    except StoreFormatError as error:
        return str(error)
    return ""


def check_record(view: memoryview, at: int, physical_offset_bytes: int, *, check_crc: bool = True) -> Record:
    """Return the record at a place of a log.

    Args:
        view: of the bytes.
        at: the place in the view.
        physical_offset_bytes: the place in the log.
        check_crc: whether the body is compared with its CRC.

    Raises:
        RecordError: no record of that place lies there; says why.
    """
    record = decode_record(view, at, check_crc=check_crc)
    if record.commit_log_offset_bytes != physical_offset_bytes:
        raise RecordError(f"the record says it lies at {record.commit_log_offset_bytes}")
    if is_queued(record.sys_flag):
        if why := why_no_topic(record.topic):
            raise RecordError(why)
        if record.queue_id < 0:
            raise RecordError(f"queue id {record.queue_id} is negative")
        if record.queue_offset < 0:
            raise RecordError(f"queue offset {record.queue_offset} is negative")
    return record


class RecordCheck:
    """Checks many records of one log. ``check_crc``: whether bodies are compared with their CRC."""

    def __init__(self, *, check_crc: bool = True) -> None:
        self._check_crc = check_crc
        self._topics: set[bytes] = set()
        """Topics that were met, each with its length before it."""
        self._numbered = Topics()
        self._is_folder: list[bool] = []
        """Whether a topic can have queues, by its number."""

    def record(self, view: memoryview, at: int, physical_offset_bytes: int) -> Record:
        """Return the record at a place, as :func:`check_record` does, and remember its topic. Raises RecordError."""
        record = check_record(view, at, physical_offset_bytes, check_crc=self._check_crc)
        raw = record.topic.encode("utf-8")
        if is_queued(record.sys_flag) and len(raw) < 128:
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()  # most may be of topics that were deleted
            self._topics.add(bytes((len(raw),)) + raw)
        return record

    def outline(self, view: memoryview, at: int, physical_offset_bytes: int) -> Plain:
        """Return the outline of the record at a place, checked as :meth:`record` does. Raises RecordError."""
        plain = self.plain(view, at, len(view), physical_offset_bytes)
        if plain is not None:
            return plain
        record = self.record(view, at, physical_offset_bytes)
        end = at + record.size_bytes
        return end, record.sys_flag, record.store_timestamp_ms, end - len(record.properties_bytes)

    def plain(self, view: memoryview, at: int, limit: int, physical_offset_bytes: int) -> Plain | None:
        """Return the outline of the record at a place if it is of the plain kind and passes the same conditions.

        Plain are records between IPv4 hosts, of magic V1, whose topic was met before: nearly all. They are checked without
        an object for each field. None says nothing: :meth:`record` tells what lies there.

        Args:
            limit: the place in the view that the record must not reach beyond.
        """
        if at > limit - RECORD_MIN_BYTES:
            return None
        size, magic, crc, queue_id, queue_offset, physical, sys_flag, stored_ms, body_bytes = _PLAIN.unpack_from(
            view, at
        )
        end = at + size
        topic_at = at + _BODY_AT + body_bytes
        if (
            magic == MAGIC_V1
            and physical == physical_offset_bytes
            and not sys_flag & HOSTS_V6
            and end <= limit
            and at + _BODY_AT <= topic_at < end - 2
            and queue_id >= 0
            and queue_offset >= 0
            and (length_at := topic_at + 1 + view[topic_at]) + 2 <= end
            and view[length_at] << 8 | view[length_at + 1] == end - length_at - 2 <= PROPERTIES_MAX_BYTES
            and view[topic_at:length_at].tobytes() in self._topics
            and (not self._check_crc or not body_bytes or zlib.crc32(view[at + _BODY_AT : topic_at]) & _CRC_MASK == crc)
        ):
            return end, sys_flag, stored_ms, length_at + 2
        return None

    def rows(self, view: memoryview, rows: Heads, start_offset_bytes: int) -> int:
        """Return how many consecutive records pass the same conditions before the first that does not, with numpy.

        Args:
            start_offset_bytes: the view's place in the log.
        """
        is_good = rows.column("physical_offset") == start_offset_bytes + rows.start
        is_good &= self._can_be_queued(view, rows)
        good = rows_before_false(is_good)
        if good and self._check_crc:
            good = rows_before_false(_has_its_checksum(view, rows.first(good)))
        return good

    def _can_be_queued(self, view: memoryview, rows: Heads) -> Column:
        """Return whether topic, queue id and queue offset can be those of a queue, or need not be."""
        if len(self._numbered.names) > _NUMBERED_MAX:  # of topics that were deleted, too
            self._numbered, self._is_folder = Topics(), []
        codes = self._numbered.codes(view, rows)
        for name in self._numbered.names[len(self._is_folder) :]:
            self._is_folder.append(not why_no_topic(name))
        can_be = (
            numpy.array(self._is_folder)[codes] & (rows.column("queue_id") >= 0) & (rows.column("queue_offset") >= 0)
        )
        can_be |= ~is_queued(rows.sys_flag)
        if self._numbered.broken:
            can_be &= ~numpy.isin(codes, self._numbered.broken)
        return can_be


def _has_its_checksum(view: memoryview, rows: Heads) -> Column:
    begins = rows.body_at.tolist()
    ends = (rows.body_at + rows.body_length).tolist()
    crc32 = zlib.crc32
    found = numpy.array([crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)], numpy.int64)
    return ((found & _CRC_MASK) == rows.column("body_crc")) | (rows.body_length == 0)  # type: ignore[no-any-return]
