"""Where the life of a topic ends, and where a queue begins again: the one rule for everything that makes queues of a log.

A topic that is deleted and made again begins at queue offset 0, so a log may hold two messages of one queue with one queue
offset. Two things in the log tell them apart:

* a *deletion*, which is a record of its own: it names a topic that was deleted there. All queues of the topic end;
* a record with queue offset 0 that lies behind the newest message of its queue. So queues of logs that RocketMQ wrote, which
  have no deletions, begin again, too. Another offset below the queue's end says nothing: no checksum covers the field, and one
  bit that flipped must not take a whole queue.

Deletions are ordinary records of a topic of their own, so that its queue leads to all of them. That topic is closed to clients.
As one could have written there through a RocketMQ broker, a deletion has a preparedOffset that no client can set.

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
"""The preparedOffset of a deletion. Brokers write 0 for messages of clients, and the place of the half message when it is
committed."""
DELETIONS: Final = (DELETED_TOPIC, 0)
"""The (topic, queue id) of all deletions."""


class _Told(Protocol):
    """What a record says of itself."""

    @property
    def topic(self) -> str: ...

    @property
    def prepared_transaction_offset_bytes(self) -> int: ...

    @property
    def properties(self) -> Mapping[str, str]: ...


def begins_again(queue_offset: int, next_queue_offset: int) -> bool:
    """Return whether a queue begins again with a record that lies behind its newest one: it forgets all units then.

    Args:
        queue_offset: the record's.
        next_queue_offset: where the queue ends.
    """
    return queue_offset == 0 < next_queue_offset


def deletion(topic: str, now_ms: int) -> MessageExtBrokerInner:
    """Return the message whose record says that a topic is deleted.

    Args:
        topic: the topic's name.
        now_ms: the time.
    """
    properties = {props.REAL_TOPIC: topic}
    stored = props.properties_to_string(properties).encode()
    return MessageExtBrokerInner(
        *DELETIONS, b"", properties, stored, now_ms, _NOWHERE, _NOWHERE, prepared_transaction_offset_bytes=_MARK
    )


def deleted_topic(record: _Told) -> str:
    """Return the name of the topic that a record says is deleted; empty for every other record."""
    if record.topic != DELETED_TOPIC or record.prepared_transaction_offset_bytes != _MARK:
        return ""
    return record.properties.get(props.REAL_TOPIC, "")


def deleted_topics(batch: RecordBatch) -> list[str]:
    """Return the topics that are deleted by records of a batch, in the order of the log."""
    return [topic for request in batch.requests_of({DELETIONS}) if (topic := deleted_topic(request))]
