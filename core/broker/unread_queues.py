"""Counts messages in queues that consumers do not read.

A topic has such queues if it once had more read queues than now, or if it has more write queues than read queues. A pull from
such a queue is refused. Clients send no such pull, because the route has only ``readQueueNums`` queues. The lag that RocketMQ
reports does not include these messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.groups import is_system_group

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_RUNS_MAX: Final = 10
NOBODY = ""
"""Key, in place of a group's name, for the number of messages in a queue in which no group has a consumer offset."""


def waiting_messages(api: BrokerApi, topic: str, queue_id: int) -> dict[str, int]:
    """Return the number of messages in a queue that each group has not consumed, keyed by group.

    Only groups with a consumer offset before the queue's end are included. If no group has an offset in the queue, the result
    has the number of all messages in the queue under the key :data:`NOBODY`.
    """
    reader, offsets = api.log.reader, api.offsets
    first, end = reader.min_queue_offset(topic, queue_id), reader.max_queue_offset(topic, queue_id)
    if end <= max(0, first):
        return {}
    groups = (group for group in offsets.which_group_by_topic(topic) if not is_system_group(group))
    known = {group: offsets.query(topic, group, queue_id) for group in groups}
    known = {group: consumer_offset for group, consumer_offset in known.items() if consumer_offset >= 0} or {NOBODY: 0}
    return {group: end - max(first, begin) for group, begin in known.items() if begin < end}


def queue_list(queue_ids: Iterable[int]) -> str:
    """Return the ids of queues as a text such as ``4 to 7, 9``, with at most ten ranges."""
    runs: list[list[int]] = []
    for queue_id in sorted(queue_ids):
        if runs and queue_id == runs[-1][1] + 1:
            runs[-1][1] = queue_id
        else:
            runs.append([queue_id, queue_id])
    texts = [str(low) if low == high else f"{low} to {high}" for low, high in runs]
    return ", ".join(texts if len(texts) <= _RUNS_MAX else [*texts[:_RUNS_MAX], "…"])
