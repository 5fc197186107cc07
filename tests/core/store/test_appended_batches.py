"""A batch send stays one object from the log to the dispatchers; nobody who looks at the store may be able to tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.core.errors import StoreFullError
from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import AppendedBatch, DispatchRequest, RecordBatch, requests_of
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.store import reput_message_service
from flintmq.core.store.message_store import open_store
from flintmq.core.store.opened_store import OpenedStore
from flintmq.dispatchers.index import index_bulk
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import (
    BY_HAND,
    BY_HAND_SYNCHRONOUS,
    batch,
    message,
    opened,
    snapshot,
    start_store,
    store_spec,
)
from flintmq.tests.support.effort import examples

V6 = pack_host("fd00::1", 1)
FOLDERS = ("commitlog", "consumequeue", "index")
Members = list[MessageExtBrokerInner]
"""Those of a batch send; one alone is no batch."""


@st.composite
def members(draw: st.DrawFn) -> Members:
    """Alike in all but their ids, as one sender's are, in body and properties, in properties only, or in nothing."""
    count = draw(st.integers(1, 7))
    topic, queue_id = draw(st.sampled_from(["A", "B"])), draw(st.integers(0, 1))
    born_host = draw(st.sampled_from([pack_host("127.0.0.1", 5), V6]))
    first = draw(st.integers(0, 10_000))
    kind = draw(st.sampled_from(["alike", "alike bodies", "alike properties", "unlike"]))
    digits = draw(st.sampled_from([1, 32, 56, 70]))
    length, tags, keys = draw(st.integers(0, 200)), draw(st.sampled_from(["", "TagA", "标"])), draw(WORDS)
    found = []
    for number in range(first, first + count):
        if kind in ("unlike", "alike properties"):
            length = draw(st.integers(0, 200))
        if kind in ("unlike", "alike bodies"):
            tags, keys = draw(st.sampled_from(["", "TagA", "标", "T" * 65])), draw(WORDS)
        uniq_key = f"{number:0{digits}X}" if kind != "unlike" or number % 3 else draw(st.sampled_from(["", "ü"]))
        flag = number if kind == "unlike" else 7
        body = bytes([number % 256]) * length
        found.append(
            message(topic, queue_id, body, tags=tags, keys=keys, uniq_key=uniq_key, born_host=born_host, flag=flag)
        )
    return found


WORDS = st.lists(st.sampled_from(["k1", "k2", "ü", ""]), max_size=3).map(" ".join)
PUTS = st.lists(st.lists(members(), min_size=1, max_size=4), min_size=1, max_size=8)


def with_numpy(patch: pytest.MonkeyPatch, fast: bool) -> None:
    patch.setattr(lazy_numpy, "ready", lambda: True)
    patch.setattr(index_bulk, "LEAST", 1 if fast else 1 << 62)


def whole(found: Members) -> object:
    return batch(found) if len(found) > 1 else found[0]


def put_all(root: Path, puts: list[list[Members]], *, together: bool, eager: bool = True) -> dict[str, bytes]:
    """What lies in a store where batches went as batches, or message by message as one that must stay together."""
    with opened(root, clock=ManualClock(), commit_log_file_bytes=16_384) as store:
        for put in puts:
            items = [whole(one) if together else one for one in put]
            results = store.put(items).results  # type: ignore[arg-type]
            assert not any(isinstance(result, Exception) for result in results)
            if eager:
                store.dispatch()
    return snapshot(root, *FOLDERS)


@pytest.mark.parametrize("fast", [True, False], ids=["numpy", "plain"])
@given(PUTS, st.booleans())
@settings(max_examples=examples(60))
def test_batch_sends_write_the_same_files_as_their_messages_sent_singly(
    tmp_path_factory: pytest.TempPathFactory, fast: bool, puts: list[list[Members]], eager: bool
) -> None:
    """Log, queues and index, whatever batches and single messages stand between them, and with numpy or without."""
    root = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        with_numpy(patch, fast)
        found = put_all(root / "batches", puts, together=True, eager=eager)
        patch.setattr(index_bulk, "LEAST", 1 << 62)
        assert found == put_all(root / "messages", puts, together=False)


class Recorder:
    """Takes requests only; checks the ceiling when it is called."""

    def __init__(self, store: OpenedStore) -> None:
        self._marks = store.watermarks
        self.seen: list[DispatchRequest] = []
        self.turns: list[int] = []

    def dispatch(self, batch: RecordBatch) -> None:
        assert batch.end_offset_bytes <= self._marks.readable
        requests = self._requests(batch)
        assert len(requests) == len(batch)
        assert all(type(one) is DispatchRequest for one in requests)
        self.seen += requests
        self.turns.append(len(requests))

    def _requests(self, batch: RecordBatch) -> Sequence[DispatchRequest]:
        return batch.requests()


class UnitRecorder(Recorder):
    """Takes batch sends as a whole."""

    def _requests(self, batch: RecordBatch) -> Sequence[DispatchRequest]:
        return requests_of(batch.units())


STEPS = st.lists(st.one_of(st.lists(members(), min_size=1, max_size=3), st.integers(0, 1_000)), max_size=15)


@pytest.mark.parametrize("kind", [Recorder, UnitRecorder])
@pytest.mark.parametrize("forget", [False, True])
@given(STEPS)
@settings(max_examples=examples(30))
def test_messages_of_a_batch_are_dispatched_once_and_in_order_if_parts_become_readable_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, kind: type[Recorder], forget: bool, steps: list[list[Members] | int]
) -> None:
    """A slave's acknowledgement, a sync or a commit may end within a batch, or within a record: each message is dispatched
    once, in order, below the ceiling, and what queues and index hold is what they would hold otherwise."""
    root = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        if forget:
            patch.setattr(reput_message_service, "_WAITING_MAX", 3)
        patch.setattr(reput_message_service, "_BATCH", 4)
        spec = store_spec(root / "a", strategy=BY_HAND, clock=ManualClock(), commit_log_file_bytes=16_384)
        store = open_store(spec, lambda opened: [opened.consume_queues, opened.index, kind(opened)])
        recorder = store.reput.dispatchers[-1]
        assert isinstance(recorder, Recorder)
        marks = store.watermarks
        marks.replicated = 0
        arrived: list[DispatchRequest] = []
        store.reput.arrived.subscribe(lambda batch: arrived.extend(batch.requests()))
        appended: list[DispatchRequest] = []
        for step in steps:
            if isinstance(step, int):
                marks.replicated += (marks.wrote - marks.replicated) * step // 1_000
                while store.dispatch():
                    pass
                fits = [
                    one for one in appended if one.commit_log_offset_bytes + one.message_size_bytes <= marks.readable
                ]
                assert recorder.seen == fits
            else:
                appended += requests_of(store.put([whole(one) for one in step]).records)  # type: ignore[misc]
        marks.replicated = None
        while store.dispatch():
            pass
        assert recorder.seen == appended == arrived
        assert max(recorder.turns, default=0) <= 4
        store.close()
    puts = [step for step in steps if not isinstance(step, int)]
    assert snapshot(root / "a", *FOLDERS) == put_all(root / "b", puts, together=False)


class Failing(UnitRecorder):
    """A dispatcher whose calls fail until the test allows them."""

    def __init__(self, store: OpenedStore, error: Exception) -> None:
        super().__init__(store)
        self.error: Exception | None = error

    def dispatch(self, batch: RecordBatch) -> None:
        if self.error is not None:
            raise self.error
        super().dispatch(batch)


class FailingWithRequests(Failing):
    """Has the requests made before it fails: what waits again must be the same records."""

    def dispatch(self, batch: RecordBatch) -> None:
        batch.requests()
        super().dispatch(batch)


@pytest.mark.parametrize("kind", [Failing, FailingWithRequests])
@pytest.mark.parametrize("error", [StoreFullError("no room"), ValueError("a defect")])
def test_no_message_is_missed_or_dispatched_twice_after_a_dispatcher_fails_within_a_batch(
    tmp_path: Path, kind: type[Failing], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Dispatch stands still with what the one before has taken already; then nothing is missing, twice or out of order."""
    puts = [[alike(1, 3), alike(4, 1)], [alike(5, 2), alike(7, 4)]]
    spec = store_spec(tmp_path / "a", clock=ManualClock(), commit_log_file_bytes=16_384)
    store = open_store(spec, lambda opened: [opened.consume_queues, kind(opened, error), opened.index])
    failing = store.reput.dispatchers[1]
    assert isinstance(failing, Failing)
    appended: list[DispatchRequest] = []
    appended += requests_of(store.put([whole(one) for one in puts[0]]).records)  # type: ignore[misc]
    for _ in range(3):
        assert not store.dispatch()
        assert store.reput.error is not None
        assert store.watermarks.dispatched == 0
    assert caplog.text.count("stands still") == 1
    assert store.reader.max_queue_offset("T", 0) == 4, "the queues have it, and will not take it twice"
    failing.error = None
    assert not store.dispatch()
    assert store.reput.error is None
    appended += requests_of(store.put([whole(one) for one in puts[1]]).records)  # type: ignore[misc]
    store.dispatch()
    assert failing.seen == appended
    store.close()
    assert snapshot(tmp_path / "a", *FOLDERS) == put_all(tmp_path / "b", puts, together=False)


def alike(first: int, count: int) -> Members:
    return [message(body=b"%04d" % number, uniq_key=f"{number:032X}") for number in range(first, first + count)]


def test_all_dispatchers_get_the_same_dispatch_request_objects(tmp_path: Path) -> None:
    """A dispatcher may note a value in a request, such as the bit map, for the dispatchers after it."""
    spec = store_spec(tmp_path, clock=ManualClock())
    store = open_store(spec, lambda opened: [UnitRecorder(opened), Recorder(opened), Recorder(opened)])
    first, second, third = store.reput.dispatchers
    store.put([batch(alike(0, 3)), message(), batch(alike(3, 2))])
    store.dispatch()
    assert first.seen == second.seen
    assert len(second.seen) == 6
    assert [*map(id, third.seen)] == [*map(id, second.seen)]
    store.close()


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_message_of_a_batch_is_dispatched_only_after_it_has_become_readable(
    tmp_path: Path, synchronous: bool
) -> None:
    """Under a synchronous strategy, and with a pool's buffer, what is appended waits; a sync may cover a part of it."""
    store = start_store(store_spec(tmp_path, strategy=BY_HAND_SYNCHRONOUS if synchronous else BY_HAND))
    marks = store.watermarks
    (appended,) = store.put([batch(alike(0, 5))]).results
    assert isinstance(appended, AppendedBatch)
    for count, position in enumerate([*appended.positions[1:], marks.wrote], 1):
        if synchronous:
            marks.flushed = position - 1
        else:
            marks.committed = position - 1
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == count - 1
        if synchronous:
            marks.flushed = position
        else:
            marks.committed = position
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == count
    store.close()


@pytest.mark.parametrize("properties", [b"UNIQ_KEY\x01%032d", b"KEYS\x01" + b"k " * 4 + b"%09d"])
def test_a_batch_of_4096_messages_is_dispatched_in_several_parts_of_at_most_2048_messages(
    tmp_path: Path, properties: bytes
) -> None:
    """One run does not keep the loop's other work waiting, however much one client sends at once."""
    count = 4_096
    inner = message()
    largest = batch([inner] * count)
    largest.stored_properties = [properties % number for number in range(count)]
    with opened(tmp_path, commit_log_file_bytes=1 << 20, max_index_num=100_000) as store:
        recorder = UnitRecorder(store)
        store.reput.dispatchers = (*store.reput.dispatchers, recorder)
        appended = requests_of(store.put([largest]).records)
        while store.dispatch():
            pass
        assert recorder.seen == appended
        assert max(recorder.turns) <= 2_048
        keys = "".join([one.keys for one in recorder.seen[: recorder.turns[0]]])
        assert len(keys) + 8 * keys.count(" ") <= 16_384
        assert store.reader.max_queue_offset("T", 0) == count


@given(st.lists(members(), min_size=1, max_size=3), st.data())
@example([[message(uniq_key="A"), message(uniq_key="B")]], None)
def test_a_slice_of_an_appended_batch_describes_exactly_the_messages_in_the_slice(
    tmp_path_factory: pytest.TempPathFactory, found: list[Members], data: st.DataObject | None
) -> None:
    """Where a turn or the ceiling ends within a batch, its rest is dispatched later."""
    with opened(tmp_path_factory.mktemp("store"), commit_log_file_bytes=16_384) as store:
        for one in found:
            (appended,) = store.put([batch(one)]).results
            assert isinstance(appended, AppendedBatch)
            begin = data.draw(st.integers(0, len(one) - 1)) if data is not None else 0
            end = data.draw(st.integers(begin + 1, len(one))) if data is not None else 1
            part = appended.part(begin, end)
            assert part.requests() == appended.requests()[begin:end]
            assert (part.commit_log_offset_bytes, part.queue_offset) == (
                part.requests()[0].commit_log_offset_bytes,
                part.requests()[0].queue_offset,
            )
            assert part.message_size_bytes == sum(request.message_size_bytes for request in part.requests())
            assert part.keys == "".join(request.keys for request in part.requests())
