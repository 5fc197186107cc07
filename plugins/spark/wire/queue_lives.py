"""Checks whether the queues in a checkpoint were deleted or recreated since the checkpoint was written. Topics may be deleted,
be recreated, get fewer queues, or lose messages.

The position of a queue is never removed from an offset. Data is lost if messages were known, were not read, and no longer
exist. If a queue that was read to its end is missing, no data is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError
from flintmq.core.log_events import event_log
from flintmq.plugins.spark.errors import CheckpointError, DataLossError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.wire.client import WireClient, again
from flintmq.plugins.spark.wire.offsets import Edges, WireOffset
from flintmq.plugins.spark.wire.queue_edges import queue_name
from flintmq.plugins.spark.wire.ranges import QueueRange, ordered
from flintmq.remoting.wire.bodies import TopicOffset

log = event_log("flintmq.spark")


class QueueLives:
    """Compares the offsets in a query's checkpoint with the queues of the brokers. Not thread-safe."""

    def __init__(self, options: ReadOptions, client: Callable[[], WireClient]) -> None:
        self._options = options
        self._client = client

    def settled(self, offset: WireOffset, edges: Edges) -> WireOffset:
        """Compare an offset with the queues of the brokers, and return the offset with positions that exist in the queues. The
        position in a queue of a recreated topic becomes the queue's first message.

        With ``failOnDataLoss`` off, missing messages are skipped.

        Raises:
            CheckpointError: a queue ends before the position in the offset, and is not known to be recreated.
            DataLossError: messages that follow a position no longer exist.
        """
        known = [queue for queue in ordered(offset.queues) if queue in edges]
        read_and_empty = [queue for queue in known if offset.queues[queue] and not edges[queue].max_queue_offset]
        ends = self._ask(read_and_empty, lambda client, queue: client.api.max_offset(queue))
        # If a broker's statistics lack a queue, the queue looks empty, as if the topic had been deleted and created again.
        # The broker is therefore asked for the maximum offset of each empty queue: 0 if the topic was created again.
        known = [queue for queue in known if not ends.get(queue)]
        remade = self._remade(offset, {queue: edges[queue] for queue in known})
        moved: dict[MessageQueue, int] = {}
        for queue in known:
            place, edge = offset.queues[queue], edges[queue]
            if queue in remade:
                self._tell_remade(offset, queue)
                place = 0
            elif place > edge.max_queue_offset:
                self._options.lost(
                    f"{queue_name(queue)}: the checkpoint is at {place}, but the queue ends at {edge.max_queue_offset}: its "
                    "broker lost its end, or the topic was deleted and created again",
                    CheckpointError,
                )
            if place < edge.min_queue_offset:
                self._options.lost(
                    f"{queue_name(queue)}: messages {place} to {edge.min_queue_offset - 1} are gone", DataLossError
                )
            place = min(max(place, edge.min_queue_offset), edge.max_queue_offset)
            if place != offset.queues[queue]:
                moved[queue] = place
        return offset.moved(moved, edges, moved) if moved else offset

    def check_missing(self, offset: WireOffset, queues: Collection[MessageQueue], edges: Edges) -> None:
        """Check for lost messages in queues that are in a query's checkpoint but no longer exist at their brokers. Messages are
        lost if the query had not read them when their queue was deleted.

        The checkpoint's offset keeps the positions of the deleted queues. The queues of a broker that is not registered are not
        checked, because they may return with the broker. If ``failOnDataLoss`` is off, lost messages are logged and raise no
        error.

        Raises:
            CheckpointError: messages were unread, or the checkpoint does not record whether messages were unread.
        """
        missing = [queue for queue in ordered(offset.queues) if queue in queues and queue not in edges]
        if not missing:
            return
        client = self._client()
        here = client.run(client.registered())
        for queue in missing:
            place, end = offset.queues[queue], offset.waiting.get(queue, 0)
            if queue.broker_name not in here:
                log.warning(
                    "spark.queue_away",
                    "%(queue)s is away; the query continues at %(queue_offset)d when it is back",
                    queue=queue_name(queue),
                    queue_offset=place,
                )
            elif offset.seen_ms is None:
                self._options.lost(f"{queue_name(queue)} does not exist any more", CheckpointError)
            elif end > place:
                self._options.lost(
                    f"{queue_name(queue)} does not exist any more, and its messages {place} to {end - 1} were not read",
                    CheckpointError,
                )

    def still_there(self, ranges: Sequence[QueueRange], end: WireOffset) -> list[QueueRange]:
        """Return the ranges of a planned batch without the ranges of queues that were recreated since the batch was planned.

        Raises:
            DataLossError: a queue was recreated, so its planned messages are gone. Not raised if ``failOnDataLoss`` is off.
        """
        earliest_ms = self._earliest_ms([one.queue for one in ranges if end.has_seen_ms(one.queue) is not None])
        found = []
        for one in ranges:
            seen_ms = end.has_seen_ms(one.queue)
            if seen_ms is not None and earliest_ms.get(one.queue, 0) > seen_ms:
                self._options.lost(
                    f"{queue_name(one.queue)}: messages {one.start} to {one.end - 1} are gone since the batch was planned: the "
                    "topic was deleted and created again, or retention has deleted them"
                )
            else:
                found.append(one)
        return found

    def _tell_remade(self, offset: WireOffset, queue: MessageQueue) -> None:
        place, end = offset.queues[queue], offset.waiting.get(queue, 0)
        if end > place:
            self._options.lost(
                f"{queue_name(queue)}: the topic was deleted and created again, and its earlier messages {place} to {end - 1} "
                "were not read"
            )
        log.warning(
            "spark.topic_remade",
            "%(queue)s: the topic was deleted and created again; it is read from its first message",
            queue=queue_name(queue),
        )

    def _remade(self, offset: WireOffset, edges: Edges) -> set[MessageQueue]:
        """Return the queues that were deleted and recreated under the same name since the query read them."""
        read = {queue: edge for queue, edge in edges.items() if offset.queues[queue] > 0}
        suspects = [
            queue for queue, edge in read.items() if edge.max_queue_offset and _has_changed(offset, queue, edge)
        ]
        earliest_ms = self._earliest_ms(suspects)
        emptied = {queue for queue, edge in read.items() if not edge.max_queue_offset and offset.seen_ms is not None}
        return emptied | {queue for queue in suspects if earliest_ms.get(queue, 0) > (offset.has_seen_ms(queue) or 0)}

    def _earliest_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return, keyed by queue, the store time in ms of the queue's first message. Queues whose broker does not answer are
        left out."""
        return self._ask(queues, lambda client, queue: client.earliest_ms(queue))

    def _ask(
        self, queues: Sequence[MessageQueue], what: Callable[[WireClient, MessageQueue], Awaitable[int]]
    ) -> dict[MessageQueue, int]:
        """Call ``what`` for each queue, and return the results, keyed by queue. The function ``what`` asks the broker of a
        queue for a number. Queues whose broker does not answer are left out."""
        if not queues:
            return {}
        client = self._client()
        found: dict[MessageQueue, int] = {}

        async def ask(queue: MessageQueue) -> None:
            try:
                found[queue] = await again(lambda: what(client, queue))
            except FlintError as error:
                # If the broker does not answer, the state of the queue stays unknown.
                # A broker's failure to answer is only logged, because a later pull from the queue raises the error.
                log.warning(
                    "spark.unanswered",
                    "%(queue)s: its broker did not answer a request for the state of the queue: %(error)s",
                    queue=queue_name(queue),
                    error=error,
                )

        async def ask_all() -> None:
            await asyncio.gather(*map(ask, queues))

        client.run(ask_all())
        return found


def _has_changed(offset: WireOffset, queue: MessageQueue, edge: TopicOffset) -> bool:
    """Return whether a queue that has messages may have been deleted and recreated since a query read the queue.

    The result is True if the queue's last store time is later than the newest store time that the query's checkpoint has for
    the topic at the broker, or if the queue ends before the next queue offset that the query would read. If neither is true,
    the queue has no message that was stored since the read, so the queue was not recreated. If the checkpoint has no store
    time, the result is False.
    """
    seen_ms = offset.has_seen_ms(queue)
    if seen_ms is None:
        return False
    return edge.last_update_timestamp_ms > seen_ms or edge.max_queue_offset < offset.queues[queue]
