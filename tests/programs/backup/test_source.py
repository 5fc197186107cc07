"""How far a store may be copied is told by its broker's feed or its queues, and never guessed."""

from __future__ import annotations

import attrs
import pytest

from flintmq.core.errors import StoreFormatError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.io.paths import feed_path
from flintmq.core.log.epochs import epochs_path
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, FeedWriter
from flintmq.programs.backup.source import Source, newest_units

from .conftest import FILE_BYTES, Live

NOW_MS = 1_700_000_100_000


def feed(live: Live, **marks: object) -> FeedMarks:
    made = FeedMarks(
        state=FeedState.RUNNING,
        epoch=1,
        min_offset_bytes=0,
        dispatched_offset_bytes=live.store.watermarks.dispatched,
        flushed_offset_bytes=0,
        confirmed_offset_bytes=0,
        written_at_ms=NOW_MS,
    )
    made = attrs.evolve(made, **marks)  # type: ignore[arg-type]
    writer = FeedWriter(OS_DISK, feed_path(live.root))
    writer.write(made)
    writer.close()
    return made


def test_a_backup_of_a_running_broker_ends_at_the_dispatched_log_position_that_the_broker_published(live: Live) -> None:
    """It says what is dispatched, and what is synced, without a look into queues."""
    live.put(10)
    wanted = feed(live, dispatched_offset_bytes=live.store.watermarks.dispatched - 5, flushed_offset_bytes=7)
    found = Source(live.root).position(0, NOW_MS)
    assert (found.told_by, found.end_offset_bytes) == ("feed", wanted.dispatched_offset_bytes)
    assert found.flushed_offset_bytes == 7


@pytest.mark.parametrize("marks", [{"state": FeedState.CLOSED}, {"written_at_ms": NOW_MS - 31_000}])
def test_a_backup_ignores_the_log_positions_in_a_file_that_the_broker_no_longer_updates(
    live: Live, marks: dict[str, object]
) -> None:
    """Another broker may have written since."""
    live.put(10)
    feed(live, dispatched_offset_bytes=1, **marks)
    assert Source(live.root).position(0, NOW_MS).end_offset_bytes == live.store.watermarks.dispatched


def test_a_backup_ends_at_the_offset_to_which_the_broker_has_just_truncated_its_commit_log(live: Live) -> None:
    """A broker that has just begun has not written its feed again."""
    live.put(10)
    feed(live, dispatched_offset_bytes=1_000)
    epochs = live.store.epochs.epochs
    epochs_path(live.root).write_bytes(epochs.begun(700, "recovered").to_bytes())
    assert Source(live.root).position(0, NOW_MS).end_offset_bytes == 700


def test_a_backup_ignores_an_incomplete_last_unit_of_a_consume_queue(live: Live) -> None:
    """The unit of another queue counts then."""
    live.put(30, queue_id=0)
    live.put(1, queue_id=1)
    before = live.store.watermarks.dispatched
    live.put(1, queue_id=2)
    units = sorted(newest_units(live.root / "consumequeue"))
    assert units[-1][0] == before
    path = live.root / "consumequeue" / "T" / "2" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff")  # half a position
    assert Source(live.root).position(0, NOW_MS).end_offset_bytes == before


def test_a_backup_is_refused_if_a_running_broker_has_no_published_log_position_and_no_consume_queue(live: Live) -> None:
    """They may be kept elsewhere; the feed helps."""
    live.put(3, dispatch=False)
    with pytest.raises(StoreFormatError, match=r"the end of the log is unknown.*spark_feed"):
        Source(live.root).position(0, NOW_MS)


def test_a_backup_of_a_log_with_a_missing_file_or_folder_is_refused(live: Live) -> None:
    """Part of it lies in a folder that was not named."""
    live.put(60)
    with pytest.raises(StoreFormatError, match="there is no such folder"):
        Source(live.folder / "nowhere")
    other = live.folder / "other"
    other.mkdir()
    with pytest.raises(StoreFormatError, match="no store lies there"):
        Source(other)
    moved = live.root / "commitlog" / f"{FILE_BYTES:020d}"
    moved.rename(other / moved.name)
    with pytest.raises(StoreFormatError, match=r"part of the commit log is missing.*store\.commit_log_paths"):
        Source(live.root)
    assert Source(live.root, [live.root / "commitlog", other]).files[1].path == other / moved.name
    (other / moved.name).rename(moved)
