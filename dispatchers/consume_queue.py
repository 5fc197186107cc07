"""BuildConsumeQueue: gives each visible record its place in its queue (docs/internals/algorithms.md, Dispatch)."""

from __future__ import annotations

from typing import Protocol

from flintmq.core.errors import PluginError
from flintmq.core.kernel.ports import AppendedBatch, RecordBatch
from flintmq.core.record.sys_flag import is_queued


class ConsumeQueues(Protocol):
    """The store's consume queues, as this dispatcher sees them."""

    def put(self, batch: RecordBatch) -> None:
        """Append a unit per visible record; records that a queue has already are ignored."""
        ...


class Queue(Protocol):
    """A consume queue, as :class:`CheckConsumeQueue` sees it."""

    @property
    def max_queue_offset(self) -> int: ...


class FoundQueues(Protocol):
    """The store's consume queues, as :class:`CheckConsumeQueue` sees them."""

    def find(self, topic: str, queue_id: int) -> Queue | None: ...


class BuildConsumeQueue:
    """Records of transaction type none or commit get a consume queue unit; prepared and rolled back ones stay invisible.

    Essential: a record without a unit can never be consumed. Loop thread.
    """

    def __init__(self, consume_queues: ConsumeQueues) -> None:
        self._consume_queues = consume_queues

    def dispatch(self, batch: RecordBatch) -> None:
        self._consume_queues.put(batch)


class CheckConsumeQueue:
    """Stands behind a plugin's dispatcher of the name ``consume_queue``. Essential; loop thread.

    Consumers, and the next start, which goes on counting where the queues end, read the store's own queues. What a replacement
    does not put there would be lost to the ones and numbered twice by the other, so that nothing more is acknowledged then.

    Args:
        consume_queues: the store's.
        owner: the plugin, for the error.
    """

    def __init__(self, consume_queues: FoundQueues, owner: object) -> None:
        self._consume_queues = consume_queues
        self._owner = owner

    def dispatch(self, batch: RecordBatch) -> None:
        """Raise PluginError where a visible record has no place in its queue."""
        for unit in batch.units():
            if is_queued(unit.sys_flag):
                last = unit.queue_offset + len(unit) - 1 if isinstance(unit, AppendedBatch) else unit.queue_offset
                self._check(unit.topic, unit.queue_id, last)

    def _check(self, topic: str, queue_id: int, queue_offset: int) -> None:
        queue = self._consume_queues.find(topic, queue_id)
        if queue is None or queue.max_queue_offset <= queue_offset:
            raise PluginError(
                f"{self._owner}: its dispatcher 'consume_queue' gave message {queue_offset} of queue {topic}/{queue_id} no "
                "place in context.store.consume_queues, which consumers read; call put there before dispatch returns, "
                "or list the plugin in 'disabled_plugins': the next start makes the queues from the log"
            )
