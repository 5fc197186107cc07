"""The rule by which queues are built from a log in which topics were deleted and created again.

A topic that is deleted and created again begins at queue offset 0. So a log can contain two messages with the same queue and
queue offset. Two things in the log distinguish such messages:

* A *deletion* is a record that names a topic that was deleted at this point of the log. All queues of the topic end there.
* A record with queue offset 0 after the newest message of its queue restarts the queue. This covers logs written by RocketMQ,
  which have no deletions. Any other offset below the queue's end is ignored: no checksum covers the field, and a single
  flipped bit must not discard a whole queue.

Deletions are records of an internal topic, whose queue lists all of them. Clients cannot write to that topic. A client could
have written to that topic through a RocketMQ broker, so a deletion also has a preparedOffset that no client can set.

See docs/internals/store-format.md, Deletion; docs/internals/algorithms.md, Lives of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.core.record import properties as props
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.record_batch import RecordBatch

_NOWHERE: Final = pack_host("0.0.0.0", 0)
_MARK: Final = -1
"""Value of the field preparedOffset that marks the record of a topic's deletion.

In records of clients' messages, brokers set the field to 0. In the record of a committed transaction, the field contains the
physical offset of the half message.
"""
DELETIONS: Final = (DELETED_TOPIC, 0)
"""Topic and queue id of the queue that contains the records of all deletions of topics."""


class _Told(Protocol):
    """The values of a record that show whether it is a deletion of a topic."""

    @property
    def topic(self) -> str: ...

    @property
    def prepared_transaction_offset_bytes(self) -> int: ...

    @property
    def properties(self) -> Mapping[str, str]: ...


def begins_again(queue_offset: int, next_queue_offset: int) -> bool:
    """Return whether a record after a queue's newest message restarts the queue, which then drops all its units.

    Args:
        queue_offset: the queue offset of the record.
        next_queue_offset: the end of the queue, the offset that its next message would get.
    """
    return queue_offset == 0 < next_queue_offset


def deletion(topic: str, now_ms: int) -> MessageExtBrokerInner:
    """Return the message to append as the deletion of a topic.

    Args:
        topic: the name of the deleted topic.
        now_ms: the current time, in ms since 1970.
    """
    properties = {props.REAL_TOPIC: topic}
    stored = props.properties_to_string(properties).encode()
    return MessageExtBrokerInner(
        *DELETIONS, b"", properties, stored, now_ms, _NOWHERE, _NOWHERE, prepared_transaction_offset_bytes=_MARK
    )


def deleted_topic(record: _Told) -> str:
    """Return the topic whose deletion a record states; empty if the record is not the deletion of a topic."""
    if record.topic != DELETED_TOPIC or record.prepared_transaction_offset_bytes != _MARK:
        return ""
    return record.properties.get(props.REAL_TOPIC, "")


def deleted_topics(batch: RecordBatch) -> list[str]:
    """Return the topics whose deletion the records of a batch state, in log order."""
    return [topic for request in batch.requests_of({DELETIONS}) if (topic := deleted_topic(request))]
