"""Asks services for messages that retention has deleted (:class:`flintmq.core.kernel.ports.ServesOlderMessages`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flintmq.core.record import properties as props
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.record import Record, decode_record
from flintmq.core.store.message_reader import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from flintmq.core.broker.outlet import Wanted
    from flintmq.core.kernel.ports.filter import MessageFilter

ReadOlder = Callable[[str, int, int, int], Sequence[memoryview] | None]
"""Function that returns records of a queue, checked for damage, given the topic, the queue id, the first queue offset and the
maximum number of records. The function returns None if it does not have the records, and must not raise."""


class OlderMessages:
    """The services that have older messages than the store. Used only on the event loop's thread. Most brokers have no such
    service."""

    __slots__ = ("_reads",)

    def __init__(self) -> None:
        self._reads: tuple[ReadOlder, ...] = ()

    def add(self, read: ReadOlder) -> None:
        """Add a service that has older messages than the store. Services are called in the order in which they were added."""
        self._reads = (*self._reads, read)

    def find(self, wanted: Wanted, message_filter: MessageFilter | None, result: GetMessageResult) -> bool:
        """Replace the result of a read below a queue's minimum offset by messages of a service that has older messages.

        If the service has to fetch the messages first, the result is changed so that the pull may wait. If no service has
        the messages, the result is not changed.

        Returns:
            Whether the result has messages now.
        """
        queue_offset, max_count = wanted.queue_offset, wanted.max_count
        for read in self._reads if queue_offset >= 0 else ():
            records = read(wanted.topic, wanted.queue_id, queue_offset, max_count)
            if records is not None:
                break
        else:
            return False
        records = records[:max_count]
        result.next_begin_offset = queue_offset + len(records)
        if not records:
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            return False
        result.slices = [one for one in records if message_filter is None or _accepts(message_filter, one)]
        result.message_count = len(result.slices)
        result.size_bytes = sum(map(len, result.slices))
        result.status = GetMessageStatus.FOUND if result.slices else GetMessageStatus.NO_MATCHED_MESSAGE
        return bool(result.slices)


def check_records(
    records: Sequence[bytes | memoryview], topic: str, queue_id: int, queue_offset: int
) -> list[memoryview]:
    """Check that the given records are the messages of a queue from a queue offset on, and return views of the records.

    Raises:
        RecordError: a given record is damaged.
        ValueError: a given record is another message, or has bytes after its end.
    """
    views = [memoryview(one) for one in records]
    for expected, view in enumerate(views, queue_offset):
        record: Record = decode_record(view)
        found = (record.topic, record.queue_id, record.queue_offset, record.size_bytes)
        if found != (topic, queue_id, expected, len(view)):
            raise ValueError(
                f"expected message {expected} of {topic} queue {queue_id}, {len(view)} bytes; found message "
                f"{record.queue_offset} of {record.topic} queue {record.queue_id}, {record.size_bytes} bytes"
            )
    return views


def _accepts(message_filter: MessageFilter, view: memoryview) -> bool:
    properties = decode_record(view, check_crc=False).properties
    if not message_filter.matches_tags_code(tags_hash(properties.get(props.TAGS, ""))):
        return False
    return not message_filter.needs_properties or message_filter.matches_properties(properties)
