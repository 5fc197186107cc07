"""The built-in dispatchers hand on exactly the records RocketMQ does, and the kit finds out who does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports import CommitLogDispatcher, DispatchRequest, MessageFilter, RecordBatch
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.record.bloom import BloomFilter, BloomFilterData
from flintmq.core.record.bulk_columns import columns_of
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.dispatchers.spark_feed.spark_feed import SparkFeed
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.testing.clock import ManualClock
from flintmq.testing.dispatcher_kit import check_dispatcher, sample_batch, sample_requests
from flintmq.testing.failure import KitFailure
from flintmq.testing.simulated_disk import SimulatedDisk


class ObservedQueues(ConsumeQueueTable):
    """Queues on a disk in memory."""

    def __init__(self) -> None:
        super().__init__(SimulatedDisk(), Path("/store/consumequeue"), 400)

    def dispatch(self, batch: RecordBatch) -> None:
        """Takes the samples under topics that can be names of folders."""
        names = {"Заказы-1": "Orders-1"}
        renamed = [msgspec.structs.replace(r, topic=names.get(r.topic, r.topic)) for r in batch.requests()]
        super().dispatch(in_columns(renamed) if batch.has_columns else RecordBatch.of_requests(renamed))

    def made(self) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
        """The units of each queue."""
        return {
            key: [unit for at in range(queue.max_queue_offset) if (unit := queue.unit(at)) is not None]
            for key, queue in self.queues.items()
        }

    def offsets(self) -> set[int]:
        return {unit[0] for units in self.made().values() for unit in units}


class ObservedIndex(IndexService):
    """An index on a disk in memory."""

    def __init__(self) -> None:
        disk = SimulatedDisk()
        checkpoint = StoreCheckpoint(disk, Path("/store/checkpoint"))
        super().__init__(disk, Path("/store/index"), 16, 64, checkpoint, ManualClock())

    def made(self) -> dict[tuple[str, str], list[int]]:
        """The records of each key of the samples."""
        keys = {(r.topic, key) for r in sample_requests() for key in (r.uniq_key, *r.keys.split(" ")) if key}
        found = {key: self.query(*key, 99, 0, 2**62)[0] for key in keys}
        return {key: offsets for key, offsets in found.items() if offsets}

    def offsets(self) -> set[int]:
        return {offset for offsets in self.made().values() for offset in offsets}


def in_columns(requests: Sequence[DispatchRequest]) -> RecordBatch:
    pytest.importorskip("numpy", reason="columns need numpy")
    return RecordBatch.of_columns(columns_of(requests))


FORMS = [RecordBatch.of_requests, in_columns]


class GroupFilter:
    """A group that filters by a property."""

    def __init__(self, expression: str) -> None:
        self.compiled: MessageFilter | None = sql92_filter(expression, frozenset())
        self.bloom: BloomFilterData | None = ConsumerFilters.bloom_filter.positions(expression)


class ConsumerFilters:
    """Two groups that read one of the topics."""

    bloom_filter = BloomFilter(20, 32)

    def of_topic(self, topic: str) -> Sequence[GroupFilter]:
        return [GroupFilter("TAGS = 'TagA'"), GroupFilter("UNIQ_KEY IS NULL")] if topic == "Orders" else []


class ObservedBitMaps(CalcBitMap):
    """Remembers what those behind it see."""

    def __init__(self) -> None:
        super().__init__(ConsumerFilters())
        self.maps: dict[int, bytes | None] = {}

    def dispatch(self, batch: RecordBatch) -> None:
        super().dispatch(batch)
        self.maps |= {request.commit_log_offset_bytes: request.bit_map for request in batch.requests()}


class Publisher:
    """A feed that nobody reads."""

    def touch(self) -> None: ...

    def close(self) -> None: ...


PASSES_THE_KIT: dict[str, Callable[[], None]] = {
    "consume_queue": lambda: check_dispatcher(ObservedQueues, observe=lambda made: made.made()),
    "index": lambda: check_dispatcher(ObservedIndex, observe=lambda made: made.made()),
    "filter_bitmap": lambda: check_dispatcher(ObservedBitMaps, observe=lambda made: made.maps),
    "spark_feed": lambda: check_dispatcher(
        lambda: SparkFeed(Publisher()), observe=lambda made: (made.end_offset_bytes, made.messages)
    ),
}


@pytest.mark.parametrize("name", PASSES_THE_KIT)
def test_built_in_dispatchers_pass_the_test_kit_for_dispatchers(name: str) -> None:
    """Authors are told to run it: what the house does itself must not be an exception to it."""
    PASSES_THE_KIT[name]()


def test_every_built_in_dispatcher_is_tested_with_the_test_kit_for_dispatchers() -> None:
    """A new one is run through the kit as well."""
    kernel = Kernel.assemble((), BUILTIN_PLUGINS, use_entry_points=False)
    for info in kernel.describe():
        for one in info.registered:
            kind, _, name = one.rpartition(" ")
            assert kind != "dispatcher" or name in PASSES_THE_KIT


def test_the_sample_records_for_tests_of_dispatchers_match_different_consumer_filters() -> None:
    """Otherwise it would say nothing about them: none, of one group, of the other."""
    made = ObservedBitMaps()
    made.dispatch(sample_batch())
    assert len(set(made.maps.values())) == 3


def test_the_message_count_of_the_spark_feed_includes_records_dispatched_after_a_log_truncation() -> None:
    """Other records lie where the log was cut: readers of the feed are told of them."""
    made, requests = SparkFeed(Publisher()), sample_requests()
    made.dispatch(RecordBatch.of_requests(requests))
    made.truncate(requests[20].commit_log_offset_bytes)
    made.dispatch(RecordBatch.of_requests(requests[20:30]))
    assert made.end_offset_bytes == requests[29].commit_log_offset_bytes + requests[29].message_size_bytes
    assert made.messages == 50


@pytest.mark.parametrize(("dispatcher", "types"), [(ObservedQueues, {0x0, 0x8}), (ObservedIndex, {0x0, 0x4, 0x8})])
@pytest.mark.parametrize("form", FORMS)
def test_queues_skip_prepared_and_rolled_back_records_and_the_index_skips_only_rolled_back_records(
    dispatcher: type[ObservedQueues] | type[ObservedIndex],
    types: set[int],
    form: Callable[[Sequence[DispatchRequest]], RecordBatch],
) -> None:
    """A prepared message in a queue would be consumed before its transaction commits.

    See docs/internals/algorithms.md, Dispatch.
    """
    made = dispatcher()
    requests = [r for r in sample_requests() if r.uniq_key or r.keys]
    made.dispatch(form(requests))
    assert made.offsets() == {r.commit_log_offset_bytes for r in requests if r.sys_flag & 0xC in types}


@pytest.mark.parametrize("dispatcher", [ObservedQueues, ObservedIndex])
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_rolled_back_messages_creates_no_queue_and_no_file(
    dispatcher: type[ObservedQueues] | type[ObservedIndex], form: Callable[[Sequence[DispatchRequest]], RecordBatch]
) -> None:
    """Not a queue, and not a file."""
    made = dispatcher()
    made.dispatch(form([one for one in sample_requests() if one.sys_flag & 0xC == 0xC]))
    assert not made.made()


class Rows:
    """A correct dispatcher to derive broken ones from."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.last = -1

    def dispatch(self, batch: RecordBatch) -> None:
        for request in batch.requests():
            if request.commit_log_offset_bytes > self.last:
                self.last = request.commit_log_offset_bytes
                self.rows.append(request.commit_log_offset_bytes)


class TakesTwice(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        self.rows += [request.commit_log_offset_bytes for request in batch.requests()]


class Reverses(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        new = [r.commit_log_offset_bytes for r in batch.requests() if r.commit_log_offset_bytes > self.last]
        self.rows += reversed(new)
        self.last = max(new, default=self.last)


class WantsAFirst(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        assert batch.requests()[0].topic
        super().dispatch(batch)


class SkipsOverlaps(Rows):
    """Ignores a whole batch when its first record is known."""

    def dispatch(self, batch: RecordBatch) -> None:
        if len(batch) and batch.begin_offset_bytes > self.last:
            super().dispatch(batch)


class ChangesRequests(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        super().dispatch(batch)
        for request in batch.requests():
            request.topic = request.topic.upper()


class CountsInBitMaps(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        super().dispatch(batch)
        for request in batch.requests():
            request.bit_map = (request.bit_map or b"") + b"x"


class EmptiesTheBatch(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        super().dispatch(batch)
        requests = batch.requests()
        if isinstance(requests, list):
            requests.clear()


class KeepsNothing(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        """Does nothing."""


class IsACoroutine(Rows):
    def dispatch(self, batch: RecordBatch) -> None:
        super().dispatch(batch)
        return iter(())  # type: ignore[return-value]


class Promises(Rows):
    """A correct one that says what it has for good: everything but the last record."""

    def __init__(self) -> None:
        super().__init__()
        self.safe: int | None = None

    def dispatch(self, batch: RecordBatch) -> None:
        super().dispatch(batch)
        if self.rows:
            self.safe = self.rows[-1]

    def committed(self) -> int | None:
        return self.safe


class PromisesTooMuch(Promises):
    def committed(self) -> int | None:
        return None if self.safe is None else self.safe + 10_000


class TakesBack(Promises):
    def committed(self) -> int | None:
        return None if self.safe is None else self.safe if len(self.rows) < 5 else 0


class PromisesHalfARecord(Promises):
    def committed(self) -> int | None:
        return None if not self.safe else self.safe + 7


class CatchesUpInSilence(Promises):
    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> None:
        """Does not say whether it does."""


@pytest.mark.parametrize(
    ("dispatcher", "rule"),
    [
        (PromisesTooMuch, "nothing is committed that was not dispatched"),
        (TakesBack, "committed never goes back"),
        (PromisesHalfARecord, "where a record begins"),
        (CatchesUpInSilence, "says whether it reads the log itself"),
        (TakesTwice, "comes again is ignored"),
        (Reverses, "one by one makes the same"),
        (WantsAFirst, "dispatch of an empty batch raised IndexError"),
        (SkipsOverlaps, "overlap are taken once"),
        (ChangesRequests, "lets its batch and the requests alone"),
        (CountsInBitMaps, "gets the same bit map"),
        (EmptiesTheBatch, "lets its batch and the requests alone"),
        (KeepsNothing, "observe sees what was dispatched"),
        (IsACoroutine, "dispatch returns nothing"),
    ],
)
def test_the_test_kit_for_dispatchers_fails_on_each_deliberately_broken_dispatcher(
    dispatcher: Callable[[], Rows], rule: str
) -> None:
    with pytest.raises(KitFailure, match=rule):
        check_dispatcher(dispatcher, observe=lambda made: made.rows)


def test_the_test_kit_for_dispatchers_can_check_a_dispatcher_without_reading_its_output() -> None:
    check_dispatcher(Rows, observe=lambda made: made.rows)
    check_dispatcher(Promises, observe=lambda made: made.rows)
    blind: Callable[[], CommitLogDispatcher] = Rows
    check_dispatcher(blind)
