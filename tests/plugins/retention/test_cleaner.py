"""The cleaner deletes files of a live store: what is left must be one for readers, for writers and for the next start."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

from flintmq.core.broker.log_files import LogFiles
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io.os_disk import OsDisk
from flintmq.core.log.multi_path_queue import MultiPathMappedFileQueue
from flintmq.core.store.message_reader import GetMessageStatus
from flintmq.plugins.retention.cleaner import MANUAL_ROUNDS, CleanCommitLogService
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, opened
from flintmq.tests.support.log_parts import view_of

HOUR_MS = 3_600_000
FILE = 4096
BODY = bytes(900)
T = TypeVar("T")


class SmallDisk(OsDisk):
    """The real file system, with as much room as a test says, and files that cannot be deleted."""

    def __init__(self) -> None:
        self.usages: dict[str, tuple[int, int, int]] = {}
        self.used = 10
        self.undeletable: set[str] = set()
        self.removed: list[str] = []

    def usage(self, path: Path) -> tuple[int, int, int]:
        if self.used < 0:
            raise StoreError(f"{path}: gone")
        return self.usages.get(path.name, (1000 << 20, self.used * (10 << 20), (100 - self.used) * (10 << 20)))

    def remove(self, path: Path) -> None:
        if path.name in self.undeletable:
            raise OSError(5, "cannot be deleted", str(path))
        super().remove(path)
        self.removed.append(path.name)


class Later(Executor):
    """Runs nothing until told to: what happens meanwhile is the test's."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.jobs.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class Bench:
    """A store of small files in which four messages of 900 bytes fill one, and its cleaner."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.clock = ManualClock()
        self.disk = SmallDisk()
        self.options = {"delete_when": f"{(self.hour + 12) % 24:02d}", **options}
        self.path = path
        self.offsets = ConsumerOffsetManager()
        self.open()

    def open(self) -> None:
        self.store = open_store(self.path, clock=self.clock, disk=self.disk, **self.options)
        self.cleaner = CleanCommitLogService(
            LogFiles(self.store, view_of(self.store)), self.offsets, {"SCHEDULE_TOPIC_XXXX"}
        )

    @property
    def hour(self) -> int:
        return time.localtime(self.clock.now_ms() // 1000).tm_hour

    def configure(self, **values: Any) -> None:
        config = self.store.config
        self.store.update_config(attrs.evolve(config, store=attrs.evolve(config.store, **values)))

    def fill(self, count: int, topic: str = "T", queue_id: int = 0) -> None:
        for number in range(count):
            self.store.put([message(topic, queue_id, BODY, uniq_key=f"{topic}-{number}")])
        self.store.dispatch()
        self.store.consume_queues.flush(0)
        self.store.index.flush()

    @property
    def log_names(self) -> list[int]:
        return sorted(int(path.name) for path in self.path.glob("commitlog/*"))

    def queue_names(self, topic: str = "T") -> list[int]:
        return sorted(int(path.name) for path in self.path.glob(f"consumequeue/{topic}/0/*"))

    def manual_round(self) -> None:
        self.cleaner.delete_manually()
        self.cleaner.run()


@pytest.fixture(name="make")
def make_bench(tmp_path: Path) -> Any:
    """``make(key=value)``: a bench on a store with these settings, closed with the test."""
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        bench = Bench(tmp_path / f"store{len(made)}", **options)
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.store.close()


def test_expired_log_files_are_deleted_with_their_consume_queue_and_index_files(make: Any) -> None:
    """Log, queue files and index files agree on where the store begins; what is left is read as before."""
    bench = make(max_index_num=8)
    bench.fill(24)
    bench.clock.advance_ms(80 * HOUR_MS)
    bench.fill(4)
    bench.clock.advance_ms(HOUR_MS)
    bench.configure(delete_when=f"{bench.hour:02d}")
    first_name = next(iter(bench.store.index.files)).path.name
    last = bench.store.commit_log.queue.files[-1].start
    bench.cleaner.run()
    store = bench.store
    # The file in which the young messages begin is kept: its newest message is young.
    assert bench.log_names[0] == store.commit_log.min_offset_bytes > 0
    assert bench.log_names[-1] == last
    low = store.reader.min_queue_offset("T", 0)
    record = store.reader.get_message("T", 0, low, 1, None)
    assert record.status is GetMessageStatus.FOUND
    assert store.reader.get_message("T", 0, low - 1, 1, None).status is GetMessageStatus.OFFSET_TOO_SMALL
    assert store.consume_queues.find("T", 0).unit(low)[0] == store.commit_log.min_offset_bytes
    assert bench.queue_names()[0] == low * 20 // 200 * 200
    assert not (bench.path / "index" / first_name).exists()
    assert store.reader.query_message("T", "T-3", 10, 0, 2**60)[0] != []
    bench.store.close()
    bench.open()
    assert bench.store.reader.min_queue_offset("T", 0) == low
    assert bench.store.reader.max_queue_offset("T", 0) == 28
    assert bench.store.recovered.cut is None


def test_a_deletion_started_by_an_admin_request_ends_after_a_fixed_number_of_cleaning_rounds(make: Any) -> None:
    """Code 329 starts twenty rounds, not a habit."""
    bench = make()
    bench.fill(12)
    bench.clock.advance_ms(80 * HOUR_MS)
    bench.fill(1)
    bench.clock.advance_ms((bench.hour == int(bench.store.config.store.delete_when)) * HOUR_MS)
    bench.cleaner.run()
    assert bench.log_names[0] == 0
    bench.cleaner.delete_manually()
    assert bench.cleaner.manual_rounds == MANUAL_ROUNDS
    for _ in range(MANUAL_ROUNDS):
        bench.cleaner.run()
    assert bench.cleaner.manual_rounds == 0
    assert bench.log_names[0] > 0


def test_the_age_of_a_log_file_is_determined_by_its_messages_and_not_by_its_modification_time(make: Any) -> None:
    """A restored backup has young files full of old messages; strict copies RocketMQ, which waits three days more."""
    strict, safe = make(compat="strict"), make()
    for bench in (strict, safe):
        bench.fill(9)
        bench.clock.advance_ms(100 * HOUR_MS)
        bench.fill(4)
        for path in bench.path.glob("commitlog/*"):
            os.utime(path, (bench.clock.now_ms() // 1000,) * 2)
        bench.manual_round()
    assert strict.log_names[0] == 0
    assert safe.log_names[0] > 0
    for path in strict.path.glob("commitlog/*"):
        os.utime(path, (0, 0))
    strict.manual_round()
    assert len(strict.log_names) == 1


def test_messages_already_fetched_for_a_pull_stay_readable_after_their_log_file_is_deleted(make: Any) -> None:
    """An answer that is being sent when its file is deleted arrives whole."""
    bench = make()
    bench.fill(12)
    result = bench.store.reader.get_message("T", 0, 0, 3, None)
    before = [bytes(piece) for piece in result.slices]
    bench.disk.used = 88
    bench.cleaner.run()
    assert bench.log_names[0] > 0
    assert [bytes(piece) for piece in result.slices] == before
    assert bench.store.reader.get_message("T", 0, 0, 3, None).status is GetMessageStatus.OFFSET_TOO_SMALL


def test_a_full_disk_refuses_writes_until_space_is_free(make: Any) -> None:
    """The client is told what was measured and which key to look at; nothing must be restarted."""
    bench = make(clean_forcibly=False)
    bench.fill(1)
    bench.disk.used = 91
    bench.cleaner.run()
    with pytest.raises(RefusedError) as refused:
        bench.store.put([message()])
    assert refused.value.code == 14
    assert refused.value.reason == "store.disk_full"
    assert "store.disk_full_ratio" in refused.value.remark
    assert "91.0% used" in refused.value.remark
    assert bench.store.reader.get_message("T", 0, 0, 1, None).status is GetMessageStatus.FOUND
    bench.disk.used = 90
    bench.cleaner.run()
    bench.fill(1)


def test_a_disk_that_cannot_be_measured_causes_no_deletion_and_no_refused_send(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and neither deletes nor refuses."""
    bench = make()
    bench.fill(12)
    bench.disk.used = -1
    bench.cleaner.run()
    bench.cleaner.run()
    bench.fill(1)
    assert bench.log_names[0] == 0
    assert (
        len([r for r in caplog.records if "cannot" in r.message or "gone" in r.message]) == 2
    )  # the log's, the queues'


def test_a_failed_file_deletion_is_retried_before_later_files_are_deleted(make: Any) -> None:
    """With the second file gone and the first one there the store could not be opened."""
    bench = make()
    bench.fill(20)
    bench.disk.undeletable = {f"{0:020d}"}
    bench.disk.used = 88
    bench.cleaner.run()
    bench.cleaner.run()
    assert bench.log_names[0] == 0
    assert len(bench.log_names) == 5
    assert bench.store.commit_log.min_offset_bytes == 4 * FILE
    bench.disk.undeletable.clear()
    bench.cleaner.run()
    assert bench.log_names == [4 * FILE]
    logs = [name for name in bench.disk.removed if int(name) % FILE == 0 and len(name) == 20 and int(name) >= FILE]
    assert logs == sorted(logs)


def test_log_files_whose_deletion_failed_are_loaded_again_at_the_next_start(make: Any) -> None:
    """The broker stops before the background came to it: the next start finds a longer log, not a broken one."""
    bench = make()
    bench.fill(12)
    bench.disk.undeletable = {f"{0:020d}"}
    bench.disk.used = 88
    bench.cleaner.run()
    bench.store.close()
    bench.disk.used = 10
    bench.disk.undeletable.clear()
    bench.open()
    assert bench.store.commit_log.min_offset_bytes == 0
    assert bench.store.reader.max_queue_offset("T", 0) == 12
    bench.fill(1)


def test_large_log_files_are_unlinked_in_the_background(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop lets go of a file at once; the disk takes its time elsewhere."""
    bench = make()
    bench.fill(12)
    later = Later()
    monkeypatch.setattr(bench.store, "background", later)
    cleaner = CleanCommitLogService(LogFiles(bench.store, view_of(bench.store)))
    bench.disk.used = 88
    cleaner.run()
    assert bench.store.commit_log.min_offset_bytes > 0
    assert bench.log_names[0] == 0
    later.run()
    assert bench.log_names[0] == bench.store.commit_log.min_offset_bytes


def test_log_files_with_unsynced_or_undispatched_messages_are_not_deleted(tmp_path: Path) -> None:
    """The flush service would sync a closed file, and fence the store; the dispatchers would find a hole.

    The file before one that was never synced stays as well: a power cut takes that one, and no log would be left.
    """
    from flintmq.testing.store import BY_HAND

    disk = SmallDisk()
    disk.used = 88
    with opened(tmp_path, disk=disk, strategy=BY_HAND) as store:
        for _ in range(12):
            store.put([message(body=BODY)])
        cleaner = CleanCommitLogService(LogFiles(store, view_of(store)))
        cleaner.run()
        assert store.commit_log.min_offset_bytes == 0
        store.commit_log.flush(0)
        cleaner.run()
        assert store.commit_log.min_offset_bytes == 0
        store.dispatch()
        cleaner.run()
        assert store.commit_log.min_offset_bytes == 0
        store.commit_log.flush(0)
        cleaner.run()
        assert store.commit_log.min_offset_bytes == FILE


def test_the_configured_retention_size_bounds_the_commit_log(make: Any) -> None:
    """A log bounded in length is bounded at any hour, and keeps what was promised."""
    bench = make(retention_bytes=2 * FILE)
    bench.fill(20)
    bench.cleaner.run()
    store = bench.store
    kept = store.watermarks.wrote - store.commit_log.min_offset_bytes
    assert 2 * FILE <= kept < 3 * FILE


def test_the_retention_of_a_topic_expires_messages_of_this_topic_only(make: Any) -> None:
    """Its messages cannot be read any more, its queue files go; the others' stay, and a restart changes nothing."""
    bench = make(topic_retention=("short=24h",))
    for topic in ("short", "long"):
        bench.fill(25, topic)
    bench.clock.advance_ms(25 * HOUR_MS)
    bench.fill(1, "short")
    bench.cleaner.run()
    assert bench.log_names[0] == 0
    assert bench.store.reader.min_queue_offset("short", 0) == 25
    assert bench.queue_names("short") == [400]
    assert bench.store.reader.min_queue_offset("long", 0) == 0
    assert bench.queue_names("long") == [0, 200, 400]
    bench.store.close()
    bench.open()
    bench.cleaner.expire_topics()
    assert bench.store.reader.min_queue_offset("short", 0) == 25
    bench.clock.advance_ms(25 * HOUR_MS)
    bench.cleaner.run()
    assert bench.store.reader.min_queue_offset("short", 0) == bench.store.reader.max_queue_offset("short", 0) == 26
    bench.fill(1, "short")
    assert bench.store.reader.get_message("short", 0, 26, 1, None).status is GetMessageStatus.FOUND


def test_a_warning_is_logged_for_a_group_whose_unread_messages_are_deleted(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Which group, which queue, how many: once for each group and file, and nothing about those who have read all."""
    bench = make()
    bench.fill(12)
    bench.offsets.commit("T", "slow", 0, 1)
    bench.offsets.commit("T", "done", 0, 12)
    bench.disk.used = 88
    bench.cleaner.run()
    told = [r.message for r in caplog.records if "has not consumed" in r.message]
    assert len(told) == 2
    assert "group slow has not consumed 3 messages (T queue 0: 3)" in told[0]
    assert "it is deleted" in told[0]
    assert "has not consumed 4 messages" in told[1]


def test_files_with_unread_messages_are_kept_only_up_to_the_configured_number_of_log_bytes(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """hold_until_consumed keeps them even on a nearly full disk; hold_max_bytes ends that, with a warning."""
    bench = make(hold_until_consumed=True, hold_max_bytes=1 << 30)
    bench.fill(12)
    bench.offsets.commit("T", "slow", 0, 2)
    bench.disk.used = 88
    for _ in range(3):
        bench.cleaner.run()
    assert bench.log_names[0] == 0
    told = [r.message for r in caplog.records if "has not consumed" in r.message]
    assert len(told) == 1
    assert "it is kept" in told[0]
    bench.offsets.commit("T", "slow", 0, 4)
    bench.cleaner.run()
    assert bench.log_names[0] == FILE
    bench.configure(hold_max_bytes=2000)
    bench.cleaner.run()
    assert bench.log_names[0] == 2 * FILE
    assert "store.hold_max_bytes" in [r.message for r in caplog.records if "has not consumed" in r.message][-1]


def test_consume_queues_without_messages_are_removed_on_request(make: Any) -> None:
    """Code 306: a queue nobody has written to since; one with messages stays, and so do the delayed ones."""
    bench = make()
    for topic in ("old", "SCHEDULE_TOPIC_XXXX"):
        bench.fill(2, topic)
    bench.fill(12)
    for topic in ("old", "T"):
        bench.offsets.commit(topic, "g", 0, 2)
    bench.disk.used = 88
    bench.cleaner.run()
    assert bench.store.reader.min_queue_offset("old", 0) == 2
    assert bench.cleaner.clean_expired_queues() == 1
    assert bench.store.reader.topics() == {"T", "SCHEDULE_TOPIC_XXXX"}
    assert not (bench.path / "consumequeue" / "old").exists()
    assert bench.offsets.topics() == ["T"], "an offset of a queue that is gone stands for nothing"
    bench.fill(1, "old")
    assert bench.store.reader.max_queue_offset("old", 0) == 1
    assert bench.store.reader.get_message("old", 0, 0, 1, None).status is GetMessageStatus.FOUND


def test_a_cleaning_round_is_split_into_several_event_loop_iterations(make: Any) -> None:
    """With thousands of queues the loop has its turn in between; the timer waits only behind a whole round."""
    bench = make()
    for queue_id in range(300):
        bench.store.put([message("T", queue_id)])
    bench.fill(12)
    bench.disk.used = 88
    bench.offsets.commit("T", "g", 0, 0)
    waits = [bench.cleaner.tick()]
    while waits[-1] == 0.0:
        waits.append(bench.cleaner.tick())
    assert len(waits) > 10
    assert waits[-1] == 10.0
    assert bench.log_names[0] > 0


# several folders, and files made ahead


def test_log_files_are_spread_over_folders_as_in_rocketmq(tmp_path: Path) -> None:
    """As RocketMQ spreads them, so that either broker opens what the other one made."""
    folders = [tmp_path / name for name in ("b", "a")]
    clock, disk = ManualClock(), SmallDisk()
    options: dict[str, Any] = {
        "commit_log_paths": tuple(str(folder) for folder in folders),
        "clock": clock,
        "disk": disk,
    }
    with opened(tmp_path / "s", **options) as store:
        for _ in range(16):
            store.put([message(body=BODY)])
        store.dispatch()
        assert isinstance(store.commit_log.queue, MultiPathMappedFileQueue)
        assert [int(p.name) // FILE for p in sorted((tmp_path / "a").iterdir())] == [0, 2]
        assert [int(p.name) // FILE for p in sorted((tmp_path / "b").iterdir())] == [1, 3]
        disk.usages = {"a": (1000, 880, 120)}
        cleaner = CleanCommitLogService(LogFiles(store, view_of(store)))
        cleaner.run()
        assert store.disk_full is None
        for _ in range(4):
            store.put([message(body=BODY)])
        assert (tmp_path / "b" / f"{4 * FILE:020d}").exists()  # its place would be a, but that disk is nearly full
    moved = {"commit_log_paths": (str(tmp_path / "b"),), "read_only_commit_log_paths": (str(tmp_path / "a"),)}
    with opened(tmp_path / "s", **(options | moved)) as store:
        assert store.reader.max_queue_offset("T", 0) == 20
        for _ in range(8):
            store.put([message(body=BODY)])
        store.dispatch()
        assert len(list((tmp_path / "a").iterdir())) == 2
        assert sum(store.reader.get_message("T", 0, first, 10, None).message_count for first in (0, 10, 20)) == 28


def test_a_new_log_file_is_created_in_the_next_folder_if_the_first_folder_is_full(tmp_path: Path) -> None:
    """The disk may fill up between two looks at it: the next folder takes the file."""
    from flintmq.tests.support.faulty_disk import FaultyDisk

    disk = FaultyDisk()
    paths = tuple(str(tmp_path / name) for name in ("a", "b"))
    with opened(tmp_path / "s", commit_log_paths=paths, disk=disk) as store:
        disk.fail("map_file", within="a")
        store.put([message(body=BODY)])
        assert (tmp_path / "b" / f"{0:020d}").exists()
        assert not list((tmp_path / "a").glob("*"))


def test_the_store_can_allocate_the_disk_space_of_a_log_file_before_the_first_append(tmp_path: Path) -> None:
    """No append faults a page in; an unused one is gone after the stop, and a full disk only costs the warmth."""
    from flintmq.tests.support.faulty_disk import FaultyDisk

    disk = FaultyDisk()
    with opened(tmp_path, warm=True, disk=disk, commit_log_file_bytes=1 << 20) as store:
        assert (tmp_path / "commitlog" / f"{0:020d}").stat().st_blocks * 512 >= 1 << 20
        store.put([message(body=BODY)])
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    disk.fail("write", within="commitlog", times=1)
    with opened(tmp_path / "other", warm=True, disk=disk, commit_log_file_bytes=1 << 20) as store:
        store.put([message(body=BODY)])
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 1
