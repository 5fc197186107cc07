"""The wheel must give every entry back once, in order, when it is due, and keep only what is near in memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.plugins.timer.timer_wheel import ENTRY, LOAD_BELOW, SLOT_MS, TimerWheel

NOW = 1_700_000_000_000 // SLOT_MS * SLOT_MS


def entry(due_ms: int, queue_offset: int) -> bytes:
    return ENTRY.pack(due_ms, queue_offset, queue_offset * 100, 100)


@pytest.fixture
def wheel(tmp_path: Path) -> TimerWheel:
    made = TimerWheel(tmp_path / "wheel")
    made.turn(NOW)
    return made


def taken(wheel: TimerWheel, now_ms: int, limit: int = 1_000_000) -> list[tuple[int, int]]:
    wheel.turn(now_ms)
    return [(due, offset) for due, offset, _, _ in map(ENTRY.unpack, wheel.pop_due(now_ms, limit))]


@pytest.mark.slow
def test_a_hundred_thousand_timer_entries_are_returned_in_order_of_delivery_time(
    wheel: TimerWheel, tmp_path: Path
) -> None:
    """Three days of them, of which only a minute is in memory at a time; no file is left in the end."""
    choose = random.Random(1)
    wanted = sorted((NOW + choose.randrange(1, 3 * 86_400_000), offset) for offset in range(100_000))
    made = [entry(due, offset) for due, offset in wanted]
    choose.shuffle(made)
    for at in range(0, len(made), 10_000):
        wheel.put(made[at : at + 10_000])
    assert len(wheel) == 100_000
    assert wheel.in_memory < 100, "only this minute's"
    assert wheel.low_queue_offset() == 0
    got = []
    now_ms = NOW
    while (next_ms := wheel.next_ms()) is not None:
        now_ms = max(now_ms + 1_000, next_ms)
        found = taken(wheel, now_ms)
        assert all(now_ms - SLOT_MS - 1_000 < due <= now_ms for due, _ in found)
        assert wheel.in_memory < 200
        got += found
    assert got == wanted
    assert len(wheel) == 0
    assert wheel.low_queue_offset() is None
    assert list((tmp_path / "wheel").iterdir()) == []


def test_no_timer_entry_is_returned_before_its_delivery_time(wheel: TimerWheel) -> None:
    """Not by a millisecond, in memory or from a file."""
    wheel.put([entry(NOW + 500, 1), entry(NOW + 5 * SLOT_MS + 500, 2)])
    assert wheel.next_ms() == NOW + 500
    assert taken(wheel, NOW + 499) == []
    assert taken(wheel, NOW + 500) == [(NOW + 500, 1)]
    assert wheel.next_ms() == NOW + 5 * SLOT_MS, "when the minute begins, its file is read"
    assert taken(wheel, NOW + 5 * SLOT_MS + 499) == []
    assert wheel.next_ms() == NOW + 5 * SLOT_MS + 500
    assert taken(wheel, NOW + 5 * SLOT_MS + 500) == [(NOW + 5 * SLOT_MS + 500, 2)]


def test_a_timer_entry_that_is_added_twice_is_returned_once(wheel: TimerWheel) -> None:
    """A put that failed halfway is repeated."""
    far = NOW + 2 * SLOT_MS
    for _ in range(2):
        wheel.put([entry(NOW + 1, 1), entry(far, 2), entry(far, 3)])
    assert taken(wheel, NOW + 1) == [(NOW + 1, 1)]
    assert taken(wheel, far) == [(far, 2), (far, 3)]


def test_popped_entries_can_be_put_back_into_the_timer_wheel(
    wheel: TimerWheel,
) -> None:
    wheel.put([entry(NOW + 1, 1), entry(NOW + 2, 2)])
    wheel.give_back(wheel.pop_due(NOW + 5, 10))
    assert taken(wheel, NOW + 5) == [(NOW + 1, 1), (NOW + 2, 2)]


def test_memory_is_bounded_while_a_hundred_thousand_overdue_timer_entries_are_returned(wheel: TimerWheel) -> None:
    """After a week's standstill all of it is overdue: minutes are loaded as they are taken."""
    wanted = [(NOW + SLOT_MS + 30 * offset, offset) for offset in range(100_000)]
    wheel.put(entry(due, offset) for due, offset in wanted)
    later = NOW + 7 * 86_400_000
    got: list[tuple[int, int]] = []
    while found := taken(wheel, later, 500):
        assert wheel.in_memory <= LOAD_BELOW + 2_000
        got += found
    assert got == wanted


def test_timer_entries_added_after_their_delivery_time_are_returned_in_order_of_delivery_time(
    wheel: TimerWheel,
) -> None:
    """While many are overdue, a new one that is overdue too waits in its minute's file: nothing is lost between."""
    wheel.put(entry(NOW + SLOT_MS, offset) for offset in range(LOAD_BELOW))
    wheel.put([entry(NOW + 2 * SLOT_MS, LOAD_BELOW)])
    later = NOW + 10 * SLOT_MS
    assert len(taken(wheel, later, 0)) == 0
    wheel.put([entry(NOW + 2 * SLOT_MS + 1, LOAD_BELOW + 1), entry(NOW + 7 * SLOT_MS, LOAD_BELOW + 2)])
    assert len(taken(wheel, later)) == LOAD_BELOW
    assert [offset for _, offset in taken(wheel, later)] == [LOAD_BELOW, LOAD_BELOW + 1, LOAD_BELOW + 2]


def test_clearing_the_timer_wheel_deletes_its_old_files_and_no_other_file_in_the_folder(
    wheel: TimerWheel, tmp_path: Path
) -> None:
    """They may tell of messages that a crash took; what is not the wheel's stays."""
    wheel.put([entry(NOW + 9 * SLOT_MS, 1)])
    (tmp_path / "wheel" / "position.json").write_text("{}")
    again = TimerWheel(tmp_path / "wheel")
    again.clear()
    assert [file.name for file in (tmp_path / "wheel").iterdir()] == ["position.json"]
    assert (len(again), again.next_ms()) == (0, None)
    TimerWheel(tmp_path / "none").clear()


def test_timer_entries_are_counted_per_minute(wheel: TimerWheel) -> None:
    """So that too many for one minute can be refused."""
    wheel.put([entry(NOW + 1, 1), entry(NOW + 3 * SLOT_MS, 2), entry(NOW + 3 * SLOT_MS + 59_999, 3)])
    assert [wheel.count_at(NOW + minute * SLOT_MS) for minute in range(5)] == [1, 0, 0, 2, 0]


def test_a_failed_write_or_read_of_the_wheel_loses_no_entry(wheel: TimerWheel, tmp_path: Path) -> None:
    """The error names the file; when the disk takes it again, all is there."""
    (tmp_path / "wheel").write_text("in the way")
    entries = [entry(NOW + 1, 1), entry(NOW + 2 * SLOT_MS, 2)]
    with pytest.raises(StoreError, match="wheel"):
        wheel.put(entries)
    (tmp_path / "wheel").unlink()
    wheel.put(entries)
    assert taken(wheel, NOW + 2 * SLOT_MS) == [(NOW + 1, 1), (NOW + 2 * SLOT_MS, 2)]
    wheel.put([entry(NOW + 5 * SLOT_MS, 3)])
    path = next((tmp_path / "wheel").iterdir())
    hidden = path.rename(path.with_suffix(".hidden"))
    with pytest.raises(StoreError, match="timers"):
        wheel.turn(NOW + 5 * SLOT_MS)
    hidden.rename(path)
    assert taken(wheel, NOW + 5 * SLOT_MS) == [(NOW + 5 * SLOT_MS, 3)]


def test_entries_are_moved_from_memory_to_files_if_the_clock_is_set_back(wheel: TimerWheel, tmp_path: Path) -> None:
    """Else everything that is sent from then on would be in memory."""
    entries = [entry(NOW + at * SLOT_MS // 2, at) for at in range(1, 9)]
    wheel.turn(NOW + 10 * SLOT_MS)
    wheel.put(entries)
    assert wheel.in_memory == 8
    wheel.turn(NOW + SLOT_MS)
    assert wheel.in_memory == 3
    assert len(wheel) == 8
    assert wheel.first_filed() == (NOW + 2 * SLOT_MS, 4)
    assert sorted(wheel.queue_offsets_before(NOW + SLOT_MS, 2)) == [1]
    got = []
    for minute in range(6):
        got += taken(wheel, NOW + minute * SLOT_MS)
    assert [queue_offset for _, queue_offset in got] == list(range(1, 9))


@pytest.mark.parametrize("harm", ["delete", "cut"])
def test_a_damaged_wheel_file_raises_store_format_error(wheel: TimerWheel, tmp_path: Path, harm: str) -> None:
    """The queue can tell what it held, and the wheel what it has lost."""
    wheel.put([entry(NOW + SLOT_MS + 5, 7), entry(NOW + SLOT_MS + 6, 8)])
    (file,) = (tmp_path / "wheel").iterdir()
    if harm == "delete":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreFormatError):
        wheel.turn(NOW + 2 * SLOT_MS)
    assert wheel.low_queue_offset() == 7
