"""A unit of the schedule topic can only be made again by whoever knows the delay that held when its record was stored."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.errors import StoreFormatError
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.opened_store import recover
from flintmq.dispatchers.consume_queue.delay_times import (
    DelayTimes,
    delay_times_path,
    is_unknown_due,
    load_delay_times,
    may_be_due,
    save_delay_times,
    tags_codes_with,
    unknown_due,
)
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, snapshot, start_store, store_spec

LEVELS = {1: 3_000, 2: 60_000}
OTHERS = {1: 7_000, 2: 60_000, 3: 1_000}


def started(root: Path, levels: Mapping[int, int], clock: ManualClock) -> MessageStore:
    """A store as a broker with these levels starts it."""
    spec = store_spec(root, tags_codes={SCHEDULE_TOPIC: partial(tags_codes_with, levels)}, clock=clock)
    with contextlib.closing(recover(spec)) as opened:
        opened.begin_tags_codes()
    return start_store(spec)


def put(store: MessageStore, count: int, level: int = 1) -> None:
    for _ in range(count):
        store.put([message(SCHEDULE_TOPIC, level - 1, b"later", DELAY=str(level))])
    store.dispatch()


@given(
    st.dictionaries(
        st.integers(1, 20),
        st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, unique_by=lambda run: run[0]),
    )
)
def test_saved_delay_times_of_all_delay_levels_are_loaded_unchanged_from_their_file(
    tmp_path_factory: pytest.TempPathFactory, levels: dict[int, list[tuple[int, int]]]
) -> None:
    root = tmp_path_factory.mktemp("store")
    times = DelayTimes({level: sorted(runs) for level, runs in levels.items()})
    save_delay_times(root, times)
    assert load_delay_times(root) == times


def test_a_change_of_delay_levels_applies_only_to_messages_stored_after_the_change() -> None:
    times = DelayTimes()
    assert times.begin(100, LEVELS)
    assert not times.begin(150, LEVELS)
    assert times.begin(200, OTHERS)
    assert [times.delay_ms(1, at) for at in (99, 100, 199, 200, 10**15)] == [None, 3_000, 3_000, 7_000, 7_000]
    assert [times.delay_ms(level, 200) for level in (2, 3, 4)] == [60_000, 1_000, None]
    assert times.begin(200, LEVELS), "nothing was stored with the others"
    assert times.delay_ms(1, 200) == 3_000
    told = times.extended(DelayTimes({1: [(0, 1_000), (150, 5)], 4: [(0, 9_000)]}))
    assert [told.delay_ms(1, at) for at in (0, 99, 100)] == [1_000, 1_000, 3_000]
    assert told.delay_ms(4, 0) == 9_000
    assert DelayTimes(guessed_ms=LEVELS).delay_ms(30, 0) == 60_000


@pytest.mark.parametrize("text", ["[]", '{"delayLevels":{"a":[[0,1]]}}', '{"delayLevels":{"1":[[0,"1"]]}}', "{"])
def test_a_malformed_delay_times_file_is_refused(tmp_path: Path, text: str) -> None:
    delay_times_path(tmp_path).parent.mkdir()
    delay_times_path(tmp_path).write_text(text)
    with pytest.raises(StoreFormatError, match=r"delay_levels\.json"):
        load_delay_times(tmp_path)


def test_a_flipped_bit_in_a_delivery_time_is_detected_even_if_the_delay_is_unknown() -> None:
    """A flipped bit never makes another number of whole seconds."""
    stored_ms = 1_700_000_000_123
    wanted = unknown_due(stored_ms)
    assert is_unknown_due(wanted)
    assert not is_unknown_due(stored_ms)
    for delay_ms in (0, 1_000, 7_200_000):
        assert may_be_due(wanted, stored_ms + delay_ms)
        assert [bit for bit in range(63) if may_be_due(wanted, (stored_ms + delay_ms) ^ (1 << bit))] == []


@pytest.mark.parametrize("crashed", [False, True])
def test_delivery_times_of_stored_messages_do_not_change_when_the_delay_levels_change(
    tmp_path: Path, crashed: bool
) -> None:
    """A start after a crash makes the queues' last part anew, messages of the earlier levels among it."""
    clock = ManualClock(1_700_000_000_000)
    store = started(tmp_path / "a", LEVELS, clock)
    put(store, 5)
    clock.advance_ms(10)
    if crashed:
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        shutil.rmtree(tmp_path / "b" / "consumequeue")
    store.close()
    before = snapshot(tmp_path / "a", "consumequeue")
    store = started(tmp_path / ("b" if crashed else "a"), OTHERS, clock)
    try:
        assert [value for name, value in snapshot(store.root, "consumequeue").items()] == [*before.values()]
        put(store, 2)
        queue = store.consume_queues.find(SCHEDULE_TOPIC, 0)
        assert queue is not None
        delays = [tags - 1_700_000_000_000 for _, _, tags in queue.units(0, 10)]
        assert delays == [3_000] * 5 + [7_010] * 2
    finally:
        store.close()
