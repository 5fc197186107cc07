"""Queues and index are derived from the log; however the records get to them, the bytes must be the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.host import pack_host
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.core.store import reput_message_service
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store, opened, snapshot
from flintmq.tests.support.effort import examples

V6 = pack_host("fd00::1", 1)


@st.composite
def messages(draw: st.DrawFn) -> MessageExtBrokerInner:
    number = draw(st.integers(0, 10_000))
    words = draw(st.lists(st.sampled_from(["k1", "k2", "ü"]), max_size=2))
    extra = {"born_host": V6} if draw(st.booleans()) else {}
    return message(
        draw(st.sampled_from(["A", "B", "SCHEDULE_TOPIC_XXXX"])),
        draw(st.integers(0, 1)),
        b"b" * draw(st.integers(0, 900)),
        tags=draw(st.sampled_from(["", "TagA", "标"])),
        keys=" ".join(words),
        uniq_key=f"{number:032X}" if number % 3 else "",
        sys_flag=draw(st.sampled_from([0, 1, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])),
        DELAY=draw(st.sampled_from(["", "2"])),
        **extra,
    )


class Recorder:
    """A dispatcher that remembers, and checks the ceiling at the moment it is called."""

    def __init__(self) -> None:
        self.seen: list[DispatchRequest] = []
        self.ceiling = 0

    def dispatch(self, batch: RecordBatch) -> None:
        assert batch.end_offset_bytes <= self.ceiling
        self.seen += batch.requests()


STEPS = st.lists(st.one_of(st.lists(messages(), min_size=1, max_size=5), st.integers(0, 1_000)), max_size=25)


@pytest.mark.parametrize("forget", [False, True])
@given(STEPS)
@settings(max_examples=examples(40))
def test_every_readable_record_is_dispatched_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, forget: bool, steps: list[list[MessageExtBrokerInner] | int]
) -> None:
    """Random batches under a random ceiling (as a slave's acknowledgements move it, also into the middle of a record), from
    memory or read back from the log: the same requests, and the same bytes as a rebuild."""
    root = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        if forget:
            patch.setattr(reput_message_service, "_WAITING_MAX", 3)
        patch.setattr(reput_message_service, "_BATCH", 4)
        recorder = Recorder()
        store = open_store(root / "a", recorder, strategy=BY_HAND, clock=ManualClock())
        watermarks = store.watermarks
        watermarks.replicated = 0
        appended: list[DispatchRequest] = []
        for step in steps:
            if isinstance(step, int):
                ahead = watermarks.wrote - watermarks.replicated
                watermarks.replicated += ahead * step // 1_000
                recorder.ceiling = watermarks.readable
                while store.dispatch():
                    pass
                assert watermarks.dispatched <= watermarks.readable
            else:
                appended += [result for result in store.put(list(step)).results if isinstance(result, DispatchRequest)]
        watermarks.replicated = None
        recorder.ceiling = watermarks.readable
        while store.dispatch():
            pass
        assert watermarks.dispatched == watermarks.wrote
        assert recorder.seen == appended
        assert list(store.commit_log.requests(0, watermarks.wrote)) == appended
        store.close()
    shutil.copytree(root / "a", root / "b", ignore=shutil.ignore_patterns("consumequeue", "index"))
    open_store(root / "b").close()
    assert snapshot(root / "a", "consumequeue") == snapshot(root / "b", "consumequeue")
    assert list(snapshot(root / "a", "index").values()) == list(snapshot(root / "b", "index").values())


def test_message_arrivals_are_published_after_the_dispatchers_have_run(tmp_path: Path) -> None:
    """A pull that is woken must find its message."""
    with opened(tmp_path) as store:
        seen: list[int] = []

        def arrived(batch: RecordBatch) -> None:
            seen.append(store.reader.max_queue_offset("T", 0))
            assert batch[-1].queue_offset == 1

        store.reput.arrived.subscribe(arrived)
        store.put([message(), message()])
        assert store.reput.behind_bytes > 0
        store.dispatch()
        assert store.reput.behind_bytes == 0
        assert seen == [2]


def test_messages_with_many_keys_are_dispatched_in_small_batches(tmp_path: Path) -> None:
    """One batch has room for two million keys: nobody waits until they are all in the index, and they get there."""
    keys = " ".join(f"k{number}" for number in range(200))
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path, strategy=BY_HAND) as store:
        patch.setattr(reput_message_service, "_KEYS_LENGTH", 1_000)
        batches: list[int] = []
        store.reput.arrived.subscribe(lambda batch: batches.append(len(batch)))
        store.put([message(keys=keys) for _ in range(10)])
        while store.dispatch():
            pass
        assert batches == [1] * 10
        assert len(store.index.query("T", "k199", 64, 0, 2**62)[0]) == 10
        store.put([message(keys="few") for _ in range(10)])
        store.dispatch()
        assert batches[10:] == [10]


def test_a_dispatch_run_ends_after_its_time_limit(tmp_path: Path) -> None:
    """Whatever dispatchers do with a batch: the loop gets its turn when the time is up."""
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path, strategy=BY_HAND) as store:
        patch.setattr(reput_message_service, "_BATCH", 1)
        patch.setattr(reput_message_service, "_RUN_S", -1.0)
        store.put([message() for _ in range(3)])
        assert [store.dispatch() for _ in range(3)] == [True, True, False]


def test_a_dispatch_run_stops_after_the_given_maximum_number_of_batches(tmp_path: Path) -> None:
    """The loop gets its turn between them."""
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path, strategy=BY_HAND) as store:
        patch.setattr(reput_message_service, "_BATCH", 1)
        patch.setattr(reput_message_service, "_RUN_S", 60.0)
        store.put([message() for _ in range(10)])
        assert store.reput.run(max_batches=3)
        assert store.reader.max_queue_offset("T", 0) == 3
        assert not store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 10


def test_dispatching_a_backlog_in_bulk_writes_the_same_queue_and_index_bytes_as_single_dispatch(tmp_path: Path) -> None:
    """A slave that catches up has nothing in memory; the bytes are those of a master."""
    lazy_numpy.load()
    sent = [
        message("T", number % 3, b"b" * 200, tags="TagA", keys=f"k{number}", uniq_key=f"{number:032X}")
        for number in range(3_000)
    ]
    with opened(tmp_path / "a", strategy=BY_HAND, clock=ManualClock()) as store:
        store.put(sent)
        while store.dispatch():
            pass
        store.index.flush()
    with opened(tmp_path / "b", strategy=BY_HAND, clock=ManualClock()) as store:
        arrived: list[RecordBatch] = []
        store.reput.arrived.subscribe(arrived.append)
        store.put(sent)
        store.reput.forget()
        while store.dispatch():
            pass
        bulk = [len(batch) for batch in arrived if batch.has_columns]
        assert sum(map(len, arrived)) == len(sent)
        assert len(bulk) > 1, "in portions"
        assert len(sent) - sum(bulk) < 1_000, "the end, which is not worth it"
        store.index.flush()
    for folder in ("commitlog", "consumequeue"):
        assert snapshot(tmp_path / "a", folder) == snapshot(tmp_path / "b", folder)
    assert list(snapshot(tmp_path / "a", "index").values()) == list(snapshot(tmp_path / "b", "index").values())


def test_records_are_dispatched_one_by_one_if_a_bulk_write_to_the_consume_queues_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the bulk way must not keep messages from their queues."""
    lazy_numpy.load()
    with opened(tmp_path, strategy=BY_HAND) as store:
        failed: list[int] = []

        def fail(columns: RecordColumns) -> None:
            failed.append(len(columns))
            raise ValueError("on purpose")

        monkeypatch.setattr(store.consume_queues, "_put_columns", fail)
        store.put([message(body=b"b" * 200) for _ in range(2_000)])
        store.reput.forget()
        while store.dispatch():
            pass
        assert failed
        assert store.reput.error is None
        assert store.reader.max_queue_offset("T", 0) == 2_000
