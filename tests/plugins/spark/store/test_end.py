"""How far a store is read: what a broker says, else what is there for sure; and a clear word where neither will do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from reading import batch, places, planned, transport

from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.log.store_lock import is_locked
from flintmq.core.record.record import decode_record
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, FeedWriter, feed_path
from flintmq.plugins.spark.errors import BadRecordError, UnsettledStoreError
from flintmq.plugins.spark.store import visible_end as ends
from flintmq.plugins.spark.store.log_files import LogFiles
from flintmq.plugins.spark.store.visible_end import visible_end
from flintmq.testing.store import message, open_store

NOW_MS = 1_700_000_000_000


def put(store: MessageStore, count: int, *, dispatched: bool = True) -> None:
    for number in range(count):
        store.put([message("orders", number % 2, b"x" * 50, tags="a")])
    if dispatched:
        store.dispatch()


def end_of(root: Path, **options: object) -> ends.VisibleEnd:
    return visible_end(root, LogFiles([root / "commitlog"]), None, reads_torn=False, now_ms=NOW_MS, **options)  # type: ignore[arg-type]


def test_a_store_in_use_is_read_up_to_its_last_dispatched_message(tmp_path: Path) -> None:
    """Without a feed the last unit tells; what is not dispatched yet may be half written."""
    store = open_store(tmp_path)
    try:
        put(store, 10)
        put(store, 5, dispatched=False)
        assert is_locked(tmp_path)
        assert end_of(tmp_path).state == "written"
        assert len(batch(tmp_path)) == 10
        with pytest.raises(UnsettledStoreError, match=r"spark_feed.*visibility=dispatched"):
            planned(tmp_path, visibility="flushed")
        assert len(batch(tmp_path, visibility="dispatched")) == 10
        store.dispatch()
        assert len(batch(tmp_path, subscribe="orders")) == 15
    finally:
        store.close()
    assert not is_locked(tmp_path)
    assert end_of(tmp_path).state == "stopped"
    assert len(batch(tmp_path, visibility="flushed")) == 15


def test_reading_a_store_in_use_returns_messages_that_have_no_consume_queue_unit_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker writes a batch's units queue by queue: one queue may show a message before another shows an older one."""
    monkeypatch.setattr(ends, "IN_FLIGHT", 6)
    store = open_store(tmp_path)
    try:
        put(store, 20)
        found = end_of(tmp_path)
        last = [row["physicalOffset"] for row in batch(tmp_path)]
        assert last[-8] < found.units_complete_to <= last[-6]
        # The unit of an older message of the other queue is not there yet: it is read all the same.
        queue = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())[0]
        raw = queue.read_bytes()
        queue.write_bytes(raw[:180] + bytes(20) + raw[200:])
        assert len(batch(tmp_path, subscribe="orders")) == 20
        queue.write_bytes(raw)
    finally:
        store.close()


@pytest.mark.parametrize(("visibility", "expected"), [("dispatched", 9), ("flushed", 6), ("confirmed", 3), (None, 6)])
def test_the_visibility_option_determines_the_log_position_at_which_a_read_ends(
    tmp_path: Path, visibility: str | None, expected: int
) -> None:
    """Each of its marks is what the option of that name waits for."""
    store = open_store(tmp_path)
    try:
        put(store, 10)
        starts = [row["physicalOffset"] for row in batch(tmp_path)]
        marks = FeedMarks(
            state=FeedState.RUNNING,
            epoch=store.epochs.epochs.current.number,
            min_offset_bytes=0,
            dispatched_offset_bytes=starts[9],
            flushed_offset_bytes=starts[6],
            confirmed_offset_bytes=starts[3],
            written_at_ms=2**50,
        )
        writer = FeedWriter(OS_DISK, feed_path(tmp_path))
        writer.write(marks)
        options = {} if visibility is None else {"visibility": visibility}
        assert len(batch(tmp_path, **options)) == expected
        assert len(batch(tmp_path, subscribe="orders", **options)) == expected
        writer.close()
    finally:
        store.close()


def test_log_positions_published_by_a_stopped_or_killed_broker_are_ignored(
    tmp_path: Path,
) -> None:
    """A broker that has stopped, or one that was killed long ago and followed by another that feeds nobody."""
    store = open_store(tmp_path)
    try:
        put(store, 10)
        for state, written_at_ms in ((FeedState.CLOSED, NOW_MS), (FeedState.RUNNING, NOW_MS - 60_000)):
            writer = FeedWriter(OS_DISK, feed_path(tmp_path))
            marks = FeedMarks(
                state=state,
                epoch=1,
                min_offset_bytes=0,
                dispatched_offset_bytes=0,
                flushed_offset_bytes=0,
                confirmed_offset_bytes=0,
                written_at_ms=written_at_ms,
            )
            writer.write(marks)
            writer.close()
            assert end_of(tmp_path).state == "written"
    finally:
        store.close()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a kill leaves: the abort file, and nobody holding the lock."""
    live, root = tmp_path / "live", tmp_path / "killed"
    store = open_store(live)
    put(store, 10)
    store.close()
    shutil.copytree(live, root)
    (root / "abort").touch()
    return root


def last_record(root: Path) -> tuple[Path, int, int]:
    """File of the last record, where it begins in it, and its size."""
    rows = batch(root)
    start, size = rows[-1]["physicalOffset"], rows[-1]["storeSize"]
    file = [path for path in sorted((root / "commitlog").iterdir()) if int(path.name) <= start][-1]
    return file, start - int(file.name), size


def test_a_crashed_store_is_read_to_its_last_whole_record(killed: Path) -> None:
    """The queues of a crashed store may have lost units, so the read must not depend on them."""
    assert end_of(killed).state == "crashed"
    whole = batch(killed)
    assert len(whole) == 10
    for queue in (killed / "consumequeue" / "orders" / "1").iterdir():
        queue.write_bytes(bytes(queue.stat().st_size))
    assert batch(killed, subscribe="orders") == whole
    shutil.rmtree(killed / "consumequeue")
    assert batch(killed) == whole


@pytest.mark.parametrize("damage", ["second half", "size only", "body", "garbage behind"])
def test_the_error_about_a_torn_last_record_of_the_log_names_the_remedy(killed: Path, damage: str) -> None:
    """A start of the broker would cut it; badRecords=skip reads up to there."""
    file, start, size = last_record(killed)
    raw = bytearray(file.read_bytes())
    if damage == "second half":
        raw[start + size // 2 : start + size] = bytes(size - size // 2)
    elif damage == "size only":
        raw[start + 4 : start + size] = bytes(size - 4)
    elif damage == "body":
        raw[start + 100] ^= 0xFF
    else:
        raw[start + size : start + size + 40] = b"\xab" * 40
    file.write_bytes(raw)
    with pytest.raises(UnsettledStoreError, match=rf"torn at {int(file.name) + start}|torn at .*badRecords=skip"):
        planned(killed)
    assert len(batch(killed, badRecords="skip")) == (10 if damage == "garbage behind" else 9)
    (killed / "abort").unlink()
    if damage == "garbage behind":
        assert len(batch(killed)) == 10  # a recovery of the Java broker leaves such bytes: they are behind the end


def test_the_option_for_bad_records_decides_whether_damage_inside_the_log_is_an_error_or_is_skipped(
    killed: Path,
) -> None:
    """The read continues at the next record that a queue names, because bodies may look like records."""
    rows = batch(killed)
    fake = decode_record(sorted((killed / "commitlog").iterdir())[0].read_bytes())
    assert fake.topic == "orders"
    file = sorted((killed / "commitlog").iterdir())[0]
    raw = bytearray(file.read_bytes())
    raw[rows[3]["physicalOffset"] + 4] ^= 0xFF
    file.write_bytes(raw)
    (killed / "abort").unlink()
    with pytest.raises(BadRecordError, match=rf"no record at {rows[3]['physicalOffset']}.*badRecords=skip"):
        batch(killed)
    assert places(batch(killed, badRecords="skip")) == places(rows[:3] + rows[4:])
    assert places(batch(killed, badRecords="skip", subscribe="orders")) == places(rows[:3] + rows[4:])


def test_the_log_is_read_from_all_folders_listed_in_the_option_commit_log_path(killed: Path, tmp_path: Path) -> None:
    """storePathCommitLog may name another disk, or several."""
    (killed / "abort").unlink()
    rows = batch(killed)
    for number, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        for file in sorted((killed / "commitlog").iterdir())[number::2]:
            file.rename(tmp_path / name / file.name)
    assert batch(killed, commitLogPath=f"{tmp_path / 'a'},{tmp_path / 'b'}") == rows
    assert transport(killed).root == killed
