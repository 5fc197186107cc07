"""Pulls ranges of queues from brokers with several requests at a time, returns the records in order, and reports missing
messages.

The offset of the next pull is known only when the previous answer has arrived. Ranges are therefore cut into parts that are
pulled at the same time, and their records are returned in the order of the ranges. To bound the memory, pulling a part stops
when the part has ``STRETCH_BYTES`` of data. The rest of the part is pulled after this data was returned.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from flintmq.core.broker.subscription import SubscriptionData, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.decoder.chain import BATCH_BYTES_MAX, walk
from flintmq.plugins.spark.decoder.slices import Ints
from flintmq.plugins.spark.errors import BadRecordError, DataLossError
from flintmq.plugins.spark.wire.client import WireClient, again
from flintmq.plugins.spark.wire.ranges import QueueRange
from flintmq.remoting.client.broker_api import PulledRecords, PullStatus

if TYPE_CHECKING:
    import pyarrow


log = event_log("flintmq.spark")

STRETCH_ROWS: Final = 2_048
STRETCH_BYTES: Final = 4 * 1024 * 1024
QUEUE_OFFSET_AT: Final = 20
"""Position of the field with the message's queue offset, in bytes from the beginning of a commit log record
(docs/internals/store-format.md, Commit log record)."""
PATIENCE: Final = 8
"""Maximum number of attempts to pull messages that a queue should have but does not have yet. After a restart, a broker's
queues lack messages until the broker has read its log."""
PATIENCE_PAUSE_S: Final = 0.5


@attrs.frozen
class Pulled:
    """The records of one queue in one answer to a pull request."""

    queue: MessageQueue
    records: bytes
    starts: Ints
    """Positions of the wanted records in :attr:`records`."""


@attrs.frozen
class _Stretch:
    """A part of a queue's range that one coroutine pulls, and the pulled records."""

    wanted: QueueRange
    found: tuple[Pulled, ...] = ()


@attrs.frozen
class Puller:
    """Pulls ranges of queues from brokers, several ranges at a time."""

    client: WireClient
    tags: tuple[str, ...] = ()
    """Tags by whose hashes the broker filters the messages; empty for all messages."""
    pull_batch_size: int = 256
    timeout_ms: int = 3_000
    """Time limit in ms for each answer of a broker."""
    pipeline: int = 4
    """Number of pull requests that may wait for their answers at the same time."""
    fail_on_data_loss: bool = True
    """Whether missing messages cause an error. If False, the read skips missing messages and logs a warning."""
    patience_ms: int = 0
    """Longest time in ms to wait for a broker that does not answer."""

    def pull(self, ranges: Sequence[QueueRange]) -> Iterator[Pulled]:
        """Pull ranges of queues, and yield their records in the order of the ranges. Messages whose tag has another hash than
        all requested tags are left out.

        Raises:
            DataLossError: messages to be pulled no longer exist.
            BadRecordError: a broker's answer contains bytes that are not records.
            SparkPluginError: a broker refuses, or does not answer.
        """
        waiting = collections.deque(_stretches(ranges, max(STRETCH_ROWS, self.pull_batch_size)))
        under_way: collections.deque[concurrent.futures.Future[_Stretch]] = collections.deque()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.pipeline:
                    under_way.append(self.client.start(self._pull_stretch(waiting.popleft())))
                done = self.client.result(under_way.popleft())
                if done.wanted.rows:
                    # The pull returned before the end of its range, so the rest of the range is pulled next.
                    under_way.appendleft(self.client.start(self._pull_stretch(done.wanted)))
                yield from done.found
        finally:
            for future in under_way:
                future.cancel()

    async def _pull_stretch(self, wanted: QueueRange) -> _Stretch:
        """Pull a range of a queue until the range is complete or ``STRETCH_BYTES`` have arrived. Return the pulled records and
        the rest of the range."""
        subscription = build_subscription(wanted.queue.topic, "||".join(self.tags) or "*")
        found: list[Pulled] = []
        size_bytes = 0
        impatience = 0
        while wanted.rows and size_bytes < STRETCH_BYTES:
            try:
                answer = await self._ask(wanted, subscription)
            except (RefusedError, RemotingError) as error:
                if not await self.client.is_gone(wanted.queue):
                    raise
                self._lost(wanted, wanted.end, f"the queue does not exist any more ({error})")
                return _Stretch(attrs.evolve(wanted, start=wanted.end), tuple(found))
            if _ends_before(answer, wanted):
                impatience += 1
                if impatience > PATIENCE:
                    self._lost(wanted, wanted.end, f"the queue ends at {answer.max_queue_offset}")
                    return _Stretch(attrs.evolve(wanted, start=wanted.end), tuple(found))
                await asyncio.sleep(PATIENCE_PAUSE_S)
                continue
            pulled = _wanted(answer.records, wanted)
            self._check(answer, wanted, pulled)
            if len(pulled.starts):
                found.append(pulled)
                size_bytes += len(pulled.records)
            wanted = attrs.evolve(wanted, start=min(wanted.end, max(wanted.start, answer.next_begin_queue_offset)))
        return _Stretch(wanted, tuple(found))

    async def _ask(self, wanted: QueueRange, subscription: SubscriptionData) -> PulledRecords:
        async def ask() -> PulledRecords:
            try:
                return await self.client.api.pull_records(
                    wanted.queue,
                    wanted.start,
                    subscription=subscription,
                    max_messages=min(self.pull_batch_size, wanted.rows),
                    timeout_ms=self.timeout_ms,
                )
            except (RefusedError, RemotingConnectError) as error:
                if isinstance(error, RefusedError) and error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                if await self.client.is_gone(wanted.queue):
                    code, text = ResponseCode.TOPIC_NOT_EXIST, f"no topic {wanted.queue.topic} at its broker any more"
                    raise RefusedError(code, text, reason="topic.unknown") from error
                raise RemotingConnectError(f"broker {wanted.queue.broker_name} cannot be reached: {error}") from error

        try:
            return await again(ask, patience_ms=self.patience_ms)
        except RefusedError as refused:
            hint = f"{refused} (topic {wanted.queue.topic}, group {self.client.api.group})"
            raise RefusedError(refused.code, hint, reason=refused.reason) from refused

    def _check(self, answer: PulledRecords, wanted: QueueRange, pulled: Pulled) -> None:
        """Check that a broker's answer to a pull did not skip messages that should exist."""
        behind = min(answer.next_begin_queue_offset, wanted.end)
        if behind <= wanted.start:
            # An answer with neither messages nor a next offset is an error, because the pull would be repeated forever.
            raise BadRecordError(f"{_place(wanted)}: the broker answered {answer.status.name} without a next offset")
        if wanted.start < answer.min_queue_offset:
            self._lost(wanted, min(answer.min_queue_offset, behind), f"the queue begins at {answer.min_queue_offset}")
        elif answer.status is PullStatus.OFFSET_ILLEGAL or (
            not self.tags and len(pulled.starts) != behind - wanted.start
        ):
            self._lost(
                wanted, behind, f"{len(pulled.starts)} came, the broker continues at {answer.next_begin_queue_offset}"
            )

    def _lost(self, wanted: QueueRange, end: int, why: str) -> None:
        message = f"{_place(wanted)}: messages before queue offset {end} are gone: {why}"
        if self.fail_on_data_loss:
            raise DataLossError(
                f"{message}. With option failOnDataLoss=false the read continues after the lost messages"
            )
        log.warning("spark.data_loss", "%(what)s; failOnDataLoss=false: the read continues", what=message)


def _ends_before(answer: PulledRecords, wanted: QueueRange) -> bool:
    """Return whether an answer to a pull says that the queue ends before the start of a range. Such a queue has lost its last
    messages, or was recreated."""
    if answer.status is PullStatus.OFFSET_ILLEGAL:
        return answer.max_queue_offset < wanted.start and answer.next_begin_queue_offset <= wanted.start
    return answer.status is PullStatus.NO_NEW_MESSAGE


def _stretches(ranges: Sequence[QueueRange], rows: int) -> Iterator[QueueRange]:
    for one in ranges:
        for start in range(one.start, one.end, rows):
            yield attrs.evolve(one, start=start, end=min(one.end, start + rows))


def _wanted(records: bytes, wanted: QueueRange) -> Pulled:
    """Return the records in an answer to a pull whose queue offsets lie in the wanted range."""
    data = np.frombuffer(records, np.uint8)
    chain = walk(data, 0, len(data))
    if chain.why != "end":
        raise BadRecordError(f"{_place(wanted)}: the answer of {len(data)} bytes holds no record at {chain.end}")
    if not len(chain.starts):
        return Pulled(wanted.queue, b"", chain.starts)
    queue_offsets = np.ndarray((len(data) - 7,), ">i8", records, 0, (1,))[chain.starts + QUEUE_OFFSET_AT]
    inside = (queue_offsets >= wanted.start) & (queue_offsets < wanted.end)
    return Pulled(wanted.queue, records, chain.starts if inside.all() else chain.starts[inside])


def _place(wanted: QueueRange) -> str:
    queue = wanted.queue
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}, queue offset {wanted.start}"


def batches(
    pulled: Iterable[Pulled], decoder: Decoder, batch_rows: int, batch_bytes: int
) -> Iterator[pyarrow.RecordBatch]:
    """Decode the records in the answers to pull requests, and yield the rows in Arrow batches.

    A batch contains records of a single broker: at most ``batch_rows`` records, with at most ``batch_bytes`` as stored. Only a
    single answer that is larger may exceed these limits. If the decoder decompresses message bodies, a batch also ends when its
    decompressed bodies have ``batch_bytes``.

    Raises:
        BadRecordError: see :meth:`Decoder.decode`.
    """
    held: list[Pulled] = []
    rows = size_bytes = 0
    batch_bytes = min(batch_bytes, BATCH_BYTES_MAX)
    for one in pulled:
        full = rows + len(one.starts) > batch_rows or size_bytes + len(one.records) > batch_bytes
        if held and (full or one.queue.broker_name != held[0].queue.broker_name):
            yield from _decoded(held, decoder, batch_bytes)
            held, rows, size_bytes = [], 0, 0
        held.append(one)
        rows += len(one.starts)
        size_bytes += len(one.records)
    if held:
        yield from _decoded(held, decoder, batch_bytes)


def _decoded(held: list[Pulled], decoder: Decoder, batch_bytes: int) -> Iterator[pyarrow.RecordBatch]:
    begins = np.cumsum([0, *(len(one.records) for one in held)])
    starts = np.concatenate([one.starts + begin for one, begin in zip(held, begins, strict=False)])
    records = held[0].records if len(held) == 1 else b"".join(one.records for one in held)
    queue = held[0].queue
    named = attrs.evolve(decoder, broker_name=queue.broker_name)
    for batch, _ in named.batches(records, starts, f"answers of {queue.broker_name}", batch_bytes=batch_bytes):
        if batch.num_rows:
            yield batch
