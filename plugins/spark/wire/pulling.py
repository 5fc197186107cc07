"""Pulls ranges of queues: several requests under way, records in order, and nothing missing unnoticed.

A range is cut into stretches that are pulled at the same time, because the next pull's offset is known only when the one before
has come; what comes is handed on in the order of the ranges. How much is held in memory is bounded: a stretch that has become
large hands over what it has and continues later.
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
"""Where the queue offset stands in a record (docs/internals/store-format.md, Commit log record)."""
PATIENCE: Final = 8
"""How often a queue is asked again that has not what it said it has: a broker that restarts reads its log first."""
PATIENCE_PAUSE_S: Final = 0.5


@attrs.frozen
class Pulled:
    """Records of one queue."""

    queue: MessageQueue
    records: bytes
    starts: Ints
    """Where in them the wanted ones begin."""


@attrs.frozen
class _Stretch:
    """What a coroutine of its own pulls."""

    wanted: QueueRange
    found: tuple[Pulled, ...] = ()


@attrs.frozen
class Puller:
    """How ranges are pulled."""

    client: WireClient
    tags: tuple[str, ...] = ()
    """Chosen by the broker, by their hashes; empty for all."""
    pull_batch_size: int = 256
    timeout_ms: int = 3_000
    """For each answer."""
    pipeline: int = 4
    """Requests under way."""
    fail_on_data_loss: bool = True
    """Whether messages that are gone are an error, or logged and passed over."""
    patience_ms: int = 0
    """How long a broker that is away is waited for."""

    def pull(self, ranges: Sequence[QueueRange]) -> Iterator[Pulled]:
        """Yield every message of the ranges, in their order; those of another tag left out where the hashes differ.

        Raises:
            DataLossError: messages are gone.
            BadRecordError: a broker answers with bytes that are no records.
            SparkPluginError: a broker refuses, or does not answer.
        """
        waiting = collections.deque(_stretches(ranges, max(STRETCH_ROWS, self.pull_batch_size)))
        under_way: collections.deque[concurrent.futures.Future[_Stretch]] = collections.deque()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.pipeline:
                    under_way.append(self.client.start(self._pull_stretch(waiting.popleft())))
                done = self.client.result(under_way.popleft())
                if done.wanted.rows:  # it has become large: what is left comes next
                    under_way.appendleft(self.client.start(self._pull_stretch(done.wanted)))
                yield from done.found
        finally:
            for future in under_way:
                future.cancel()

    async def _pull_stretch(self, wanted: QueueRange) -> _Stretch:
        """Pull until a range is complete or much has come; say what is left of it."""
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
                raise RemotingConnectError(f"broker {wanted.queue.broker_name} is away: {error}") from error

        try:
            return await again(ask, patience_ms=self.patience_ms)
        except RefusedError as refused:
            hint = f"{refused} (topic {wanted.queue.topic}, group {self.client.api.group})"
            raise RefusedError(refused.code, hint, reason=refused.reason) from refused

    def _check(self, answer: PulledRecords, wanted: QueueRange, pulled: Pulled) -> None:
        """Check that a broker passed over no messages that should be there."""
        behind = min(answer.next_begin_queue_offset, wanted.end)
        if behind <= wanted.start:
            # Neither messages nor a way on: asked again it would say the same for ever.
            raise BadRecordError(f"{_place(wanted)}: the broker answers {answer.status.name} and no next offset")
        if wanted.start < answer.min_queue_offset:
            self._lost(wanted, min(answer.min_queue_offset, behind), f"the queue begins at {answer.min_queue_offset}")
        elif answer.status is PullStatus.OFFSET_ILLEGAL or (
            not self.tags and len(pulled.starts) != behind - wanted.start
        ):
            self._lost(
                wanted, behind, f"{len(pulled.starts)} came, the broker goes on at {answer.next_begin_queue_offset}"
            )

    def _lost(self, wanted: QueueRange, end: int, why: str) -> None:
        message = f"{_place(wanted)}: messages before queue offset {end} are gone: {why}"
        if self.fail_on_data_loss:
            raise DataLossError(f"{message}. With option failOnDataLoss=false the read goes on behind them")
        log.warning("spark.data_loss", "%(what)s; failOnDataLoss=false: going on", what=message)


def _ends_before(answer: PulledRecords, wanted: QueueRange) -> bool:
    """Return whether the queue has no message at a place or behind it: it lost its end, or was made again."""
    if answer.status is PullStatus.OFFSET_ILLEGAL:
        return answer.max_queue_offset < wanted.start and answer.next_begin_queue_offset <= wanted.start
    return answer.status is PullStatus.NO_NEW_MESSAGE


def _stretches(ranges: Sequence[QueueRange], rows: int) -> Iterator[QueueRange]:
    for one in ranges:
        for start in range(one.start, one.end, rows):
            yield attrs.evolve(one, start=start, end=min(one.end, start + rows))


def _wanted(records: bytes, wanted: QueueRange) -> Pulled:
    """Return the records of an answer that lie in a range."""
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
    """Decode what is pulled, in batches of ``batch_rows`` or ``batch_bytes``, whichever comes first, and one answer more.

    The bytes are those of the records, and those of the bodies when they are decompressed.

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
