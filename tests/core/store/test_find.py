"""Finding messages by time and by key, held against looking at every message."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.record.record import decode_record
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, opened
from flintmq.tests.support.effort import examples

START_MS = 1_700_000_000_000
FOREVER_MS = 2**63 - 1


def stored(path: Path, gaps_ms: list[int]) -> tuple[MessageStore, list[int]]:
    """A store with one message after each gap, and their store times."""
    clock = ManualClock(START_MS)
    store = open_store(path, clock=clock)
    times = []
    for gap_ms in gaps_ms:
        clock.advance_ms(gap_ms)
        times.append(clock.now_ms())
        store.put([message("T", 0, b"x" * (gap_ms % 400))])
    while store.dispatch():
        pass
    return store, times


def nearest(times: list[int], asked_ms: int, per_file: int) -> set[int]:
    """By looking at every one: the file whose last message is the first not too early, and in it the nearest.

    Of messages stored in the same millisecond any may be answered.
    """
    files = [list(range(at, min(at + per_file, len(times)))) for at in range(0, len(times), per_file)]
    file = next((file for file in files if times[file[-1]] >= asked_ms), files[-1])
    distance = min(abs(times[at] - asked_ms) for at in file)
    found = {at for at in file if abs(times[at] - asked_ms) == distance}
    earlier = {at for at in found if times[at] <= asked_ms}
    return earlier or found


@given(st.lists(st.integers(0, 50), min_size=1, max_size=45), st.lists(st.integers(-20, 1_000), max_size=20))
@settings(max_examples=examples(60))
def test_a_search_by_time_finds_the_message_stored_nearest_to_the_given_time(
    tmp_path_factory: pytest.TempPathFactory, gaps_ms: list[int], asked: list[int]
) -> None:
    """Ties go to the earlier message (docs/internals/algorithms.md, Offset by time)."""
    store, times = stored(tmp_path_factory.mktemp("store"), gaps_ms)
    for asked_ms in {START_MS + offset_ms for offset_ms in asked} | set(times) | {0, FOREVER_MS}:
        assert store.reader.queue_offset_by_time("T", 0, asked_ms) in nearest(times, asked_ms, 10)
    store.close()


def test_searching_an_offset_by_time_never_returns_the_offset_of_a_deleted_message(tmp_path: Path) -> None:
    """The oldest message that exists is the earliest answer."""
    store, times = stored(tmp_path, [399] * 40)
    store.commit_log.queue.delete_before(2 * 4096)
    store.consume_queues.correct_min_offsets(store.commit_log.min_offset_bytes)
    low = store.reader.min_queue_offset("T", 0)
    assert 10 < low < 20
    assert store.reader.queue_offset_by_time("T", 0, times[0]) == low
    assert store.reader.queue_offset_by_time("T", 0, times[low + 1]) == low + 1
    assert store.reader.earliest_message_store_time("T", 0) == times[low]
    store.close()


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["A", "B"]),
        st.lists(st.sampled_from([f"key{n}" for n in range(6)]), max_size=3, unique=True),
        st.booleans(),
        st.integers(0, 2_500),
    ),
    max_size=60,
)


@given(MESSAGES, st.integers(1, 70), st.integers(-1_000, 60_000), st.integers(-1_000, 60_000))
@settings(max_examples=examples(60))
def test_a_key_query_finds_the_same_messages_as_a_search_of_all_messages(
    tmp_path_factory: pytest.TempPathFactory,
    items: list[tuple[str, list[str], bool, int]],
    max_num: int,
    begin: int,
    end: int,
) -> None:
    """Three slots for seven keys: every chain has collisions; 16 entries a file: chains go over several files."""
    clock = ManualClock(START_MS)
    begin_ms, end_ms = START_MS + begin, START_MS + end
    with opened(
        tmp_path_factory.mktemp("store"),
        clock=clock,
        max_hash_slot_num=3,
        max_index_num=16,
        commit_log_file_bytes=65_536,
    ) as store:
        wanted: dict[tuple[str, str], list[int]] = {}
        for number, (topic, keys, with_unique, gap_ms) in enumerate(items):
            clock.advance_ms(gap_ms)
            unique = f"{number:032X}" if with_unique else ""
            store.put([message(topic, 0, b"%d" % number, keys=" ".join(keys), uniq_key=unique)])
            if begin_ms <= clock.now_ms() <= end_ms:
                for key in {*keys, unique} - {""}:
                    wanted.setdefault((topic, key), []).append(clock.now_ms())
            store.dispatch()
        for topic in ("A", "B"):
            for key in [f"key{n}" for n in range(7)] + [f"{n:032X}" for n in range(len(items))]:
                found, _time, _offset = store.reader.query_message(topic, key, 10_000, begin_ms, end_ms)
                assert [decode_record(piece).store_timestamp_ms for piece in found] == wanted.get((topic, key), [])
                few, _time, _offset = store.reader.query_message(topic, key, max_num, START_MS, FOREVER_MS)
                everything, _time, _offset = store.reader.query_message(topic, key, 10_000, START_MS, FOREVER_MS)
                assert len(few) <= max_num
                assert few == everything[len(everything) - len(few) :]


def test_a_key_query_returns_the_store_time_and_physical_offset_of_the_last_indexed_message(tmp_path: Path) -> None:
    """The answer to a query carries the index's last time and offset."""
    clock = ManualClock(START_MS)
    with opened(tmp_path, clock=clock) as store:
        assert store.reader.query_message("T", "k", 1, 0, FOREVER_MS) == ([], 0, 0)
        store.put([message(), message(keys="k")])
        store.dispatch()
        found, time_ms, offset = store.reader.query_message("T", "k", 1, 0, FOREVER_MS)
        assert (len(found), time_ms, offset) == (1, START_MS, 92)


def test_index_files_of_deleted_messages_are_deleted(tmp_path: Path) -> None:
    """Files that only speak of deleted messages are deleted; the last one stays."""
    with opened(tmp_path, max_index_num=4) as store:
        for number in range(12):
            store.put([message(keys=f"k{number}", body=b"b" * 1000)])
        store.dispatch()
        index = store.index
        assert isinstance(index, IndexService)
        index.flush()
        assert len(index.files) == 4
        removed: list[str] = []
        assert index.delete_before(4096 + 1, lambda path, _file: removed.append(path.name)) == 1
        assert index.delete_before(2**62, lambda path, _file: removed.append(path.name)) == 2
        assert removed == [path.name for path in sorted((tmp_path / "index").iterdir())][:3]
        assert len(index.files) == 1
        assert len(store.reader.query_message("T", "k11", 1, 0, FOREVER_MS)[0]) == 1
