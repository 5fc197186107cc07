"""The conditions that make bytes a valid record of a log, and the reasons why bytes fail them.

Recovery, a slave that copies its master's log, and the ``doctor`` command use these checks.
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
"""Maximum number of topics to which a checker of records assigns numbers. Every bulk check costs a little for each numbered
topic. Beyond this number, the numbering begins again without the old topics."""
_ANYWHERE: Final = Path()

Plain = tuple[int, int, int, int]
"""The values of a record that a scan of the log needs: position of the record's end, sysFlag, store time in ms, position of the
properties."""


@lru_cache(maxsize=8_192)
def why_no_topic(topic: str) -> str:
    """Return the reason why a topic name is not valid for queues; empty if the name is valid."""
    try:
        topic_folder(_ANYWHERE, topic)
    except StoreFormatError as error:
        return str(error)
    return ""


def check_record(view: memoryview, at: int, physical_offset_bytes: int, *, check_crc: bool = True) -> Record:
    """Return the record at a position of a log, if it passes all checks.

    Args:
        view: the bytes that contain the record.
        at: the position of the record in the view.
        physical_offset_bytes: the physical offset of the record in the log.
        check_crc: whether to compare the body with its CRC.

    Raises:
        RecordError: the bytes at ``at`` are not a valid record, or the record names another physical offset; the message gives
            the reason.
    """
    record = decode_record(view, at, check_crc=check_crc)
    if record.commit_log_offset_bytes != physical_offset_bytes:
        raise RecordError(
            f"the record's physical offset field contains {record.commit_log_offset_bytes}; expected {physical_offset_bytes}"
        )
    if is_queued(record.sys_flag):
        if why := why_no_topic(record.topic):
            raise RecordError(why)
        if record.queue_id < 0:
            raise RecordError(f"queue id {record.queue_id} is negative")
        if record.queue_offset < 0:
            raise RecordError(f"queue offset {record.queue_offset} is negative")
    return record


class RecordCheck:
    """Checks many records of one log, with faster paths for ordinary records. Use a checker from one thread.

    Args:
        check_crc: whether to compare bodies with their CRCs.
    """

    def __init__(self, *, check_crc: bool = True) -> None:
        self._check_crc = check_crc
        self._topics: set[bytes] = set()
        """Valid topics of earlier records, each as its length byte and its name."""
        self._numbered = Topics()
        self._is_folder: list[bool] = []
        """Whether each topic's name is a valid name for the folder of the topic's consume queues, indexed by topic number."""

    def record(self, view: memoryview, at: int, physical_offset_bytes: int) -> Record:
        """Return the record at a position of a log, with the checks of :func:`check_record`, and remember the record's topic as
        valid. Raises RecordError."""
        record = check_record(view, at, physical_offset_bytes, check_crc=self._check_crc)
        raw = record.topic.encode("utf-8")
        if is_queued(record.sys_flag) and len(raw) < 128:
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()  # Many of the remembered topics may be deleted.
            self._topics.add(bytes((len(raw),)) + raw)
        return record

    def outline(self, view: memoryview, at: int, physical_offset_bytes: int) -> Plain:
        """Return end, sysFlag, store time and properties' position of the record at a position, see :data:`Plain`.

        The checks are those of :meth:`record`. Raises RecordError.
        """
        plain = self.plain(view, at, len(view), physical_offset_bytes)
        if plain is not None:
            return plain
        record = self.record(view, at, physical_offset_bytes)
        end = at + record.size_bytes
        return end, record.sys_flag, record.store_timestamp_ms, end - len(record.properties_bytes)

    def plain(self, view: memoryview, at: int, limit: int, physical_offset_bytes: int) -> Plain | None:
        """Return the values (:data:`Plain`) of the record at a position if it is plain and passes the checks; otherwise None.

        Plain records have IPv4 hosts, magic V1 and a topic of an earlier record, as nearly all records do. Plain records are
        checked without creating an object for each field. If the result is None, call :meth:`record`, which makes all checks.

        Args:
            view: the bytes that contain the record.
            at: the position of the record in the view.
            limit: the position in the view that the record must not exceed.
            physical_offset_bytes: the physical offset of the record in the log.
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
        """Return the number of consecutive records before the first record that fails the checks, computed with numpy.

        Args:
            view: the bytes that contain the records.
            rows: the heads of consecutive records.
            start_offset_bytes: the physical offset of the view's start.
        """
        is_good = rows.column("physical_offset") == start_offset_bytes + rows.start
        is_good &= self._can_be_queued(view, rows)
        good = rows_before_false(is_good)
        if good and self._check_crc:
            good = rows_before_false(_has_its_checksum(view, rows.first(good)))
        return good

    def _can_be_queued(self, view: memoryview, rows: Heads) -> Column:
        """Return a mask of the records whose topic, queue id and queue offset are valid, or that have no unit in a queue."""
        if len(self._numbered.names) > _NUMBERED_MAX:
            # If the table of topics and their numbers is full, it is emptied, because many of its topics may be deleted by now.
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
