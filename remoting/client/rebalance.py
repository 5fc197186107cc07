"""Which member consumes which queue: every member of a group computes the same answer from the same lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flintmq.core.broker.message_queue import MessageQueue

AllocateStrategy = Callable[[str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]]
"""(client id, all members, all queues) → the queues of this client."""


def allocate_averagely(client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """RocketMQ's default: neighbouring queues, evenly; the first members get one more when it does not come out even.

    Members and queues are put in order first. A client that is not a member gets nothing.
    """
    ordered = sorted(members)
    if client_id not in ordered:
        return []
    index = ordered.index(client_id)
    share, rest = divmod(len(queues), len(ordered))
    start = index * share + min(index, rest)
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))[
        start : start + share + (index < rest)
    ]
