"""The checker itself is checked: bugs a store might have, planted one by one, and each is caught within a small budget.

A suite that finds nothing may be one that looks at nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.log.commit_log import Appender
from flintmq.core.log.mapped_file_queue import MappedFile, MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.record import log_walk
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.core.recovery import last_stop, plan, recovery, repair
from flintmq.core.recovery.last_stop import StoreMarks
from flintmq.core.recovery.plan import RecoveryPlan
from flintmq.core.recovery.recovery import Recovery
from flintmq.core.recovery.start_walk import Recovered, walk_log
from flintmq.core.store import message_reader
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.opened_store import OpenedStore
from flintmq.core.waiters import DONE
from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.dispatchers.index.index_file import IndexFile
from flintmq.dispatchers.index.index_service import IndexService
from flintmq.flush.group_commit import GroupCommit
from flintmq.testing.simulated_disk import SimulatedDisk, SimulatedRegion
from flintmq.tests.support.crash_run import CrashFailure, Kind
from flintmq.tests.support.crash_suite import explore, explore_errors
from flintmq.tests.support.effort import first

Patch = pytest.MonkeyPatch
BUDGET = 600
"""States; the suite itself tries three times as many of each strategy."""


def acknowledge_before_the_sync(patch: Patch) -> None:
    patch.setattr(GroupCommit, "submit", lambda _self, _end: DONE)


def advance_after_a_failed_sync(patch: Patch) -> None:
    def flush(self: MappedFile, **_options: object) -> int:
        end = self.readable
        with contextlib.suppress(OSError):
            self.region.sync()
        self.flushed = end
        return end

    patch.setattr(MappedFile, "flush", flush)


def sync_again_after_a_failed_sync(patch: Patch) -> None:
    sync = SimulatedRegion.sync

    def twice(self: SimulatedRegion) -> None:
        try:
            sync(self)
        except OSError:
            sync(self)

    patch.setattr(SimulatedRegion, "sync", twice)


def flush_only_the_newest_file(patch: Patch) -> None:
    def first_unflushed(self: MappedFileQueue) -> MappedFile | None:
        last = self.files[-1] if self.files else None
        return last if last is not None and last.flushed < last.readable else None

    patch.setattr(MappedFileQueue, "first_unflushed", first_unflushed)


def forget_to_sync_the_name(patch: Patch) -> None:
    def sync(self: SimulatedRegion) -> None:
        self._unnamed.clear()
        self._disk.sync_file(self._path, self._file)

    patch.setattr(SimulatedRegion, "sync", sync)


def forget_to_sync_the_name_of_a_folder(patch: Patch) -> None:
    sync_folder = SimulatedDisk.sync_folder

    def some(self: SimulatedDisk, folder: Path) -> None:
        if folder.name != "store":
            sync_folder(self, folder)

    patch.setattr(SimulatedDisk, "sync_folder", some)


def sync_without_the_last_page(patch: Patch) -> None:
    patch.setattr(SimulatedRegion, "sync", lambda _self: None)


def show_what_is_not_flushed(patch: Patch) -> None:
    patch.setattr(Watermarks, "readable", property(lambda self: self.wrote))


def dispatch_less_than_all(patch: Patch) -> None:
    put = ConsumeQueueTable._put_requests
    patch.setattr(
        ConsumeQueueTable, "_put_requests", lambda self, batch: put(self, batch[:-1] if len(batch) > 3 else batch)
    )


def describe_a_message_twice(patch: Patch) -> None:
    put = ConsumeQueueTable._put_requests

    def again(self: ConsumeQueueTable, batch: Sequence[Any]) -> None:
        for queue in self.queues.values():
            queue.max_physical_offset_bytes = -1
        put(self, batch)

    patch.setattr(ConsumeQueueTable, "_put_requests", again)
    patch.setattr(ConsumeQueue, "truncate_physical", lambda _self, _end: None)


def reuse_a_queue_offset(patch: Patch) -> None:
    def next_offsets(self: OpenedStore) -> dict[tuple[str, int], int]:
        return {key: max(0, queue.max_queue_offset - 1) for key, queue in self.consume_queues.queues.items()}

    patch.setattr(OpenedStore, "next_queue_offsets", next_offsets)


def begin_offsets_anew(patch: Patch) -> None:
    patch.setattr(OpenedStore, "next_queue_offsets", lambda _self: {})


def let_the_checkpoint_run_ahead(patch: Patch) -> None:
    patch.setattr(ConsumeQueueTable, "flush", lambda _self, _least: None)


def trust_what_the_checkpoint_says_for_ever(patch: Patch) -> None:
    patch.setattr(StoreCheckpoint, "rewind", lambda _self, _ms: None)
    patch.setattr(plan, "is_whole", lambda *_all: False)


def trust_every_unit(patch: Patch) -> None:
    patch.setattr(plan._Planner, "_crashed_dispatch_start", lambda _self, walked: walked.end_offset_bytes)


def trust_torn_units(patch: Patch) -> None:
    patch.setattr(recovery, "drop_torn_units", lambda *_all: None)
    patch.setattr(plan, "count_between", lambda *_all: -1)
    patch.setattr(ConsumeQueue, "truncate_physical", lambda _self, _end: None)


def trust_memory_after_a_power_cut(patch: Patch) -> None:
    patch.setattr(last_stop, "is_same_boot", lambda *_all: True)


def trust_memory_after_a_failed_sync(patch: Patch) -> None:
    patch.setattr(StoreMarks, "forget_boot", lambda _self: None)


def write_the_index_header_first(patch: Patch) -> None:
    put = IndexFile.put

    def header_first(self: IndexFile, entries: Sequence[tuple[int, int, int]]) -> int:
        count = min(len(entries), self._entries - self.index_count)
        if count > 0:
            before = self.index_count, self.end_physical_offset_bytes, self.end_timestamp_ms
            self.index_count += count
            self.end_physical_offset_bytes, self.end_timestamp_ms = entries[count - 1][1:]
            self._write_header()
            self.index_count, self.end_physical_offset_bytes, self.end_timestamp_ms = before
        return put(self, entries)

    patch.setattr(IndexFile, "put", header_first)


def index_a_record_twice(patch: Patch) -> None:
    patch.setattr(IndexFile, "count_at_end", lambda _self, _physical: 0)


def keep_an_index_that_is_ahead_of_the_log(patch: Patch) -> None:
    patch.setattr(IndexService, "truncate", lambda _self, _end: None)


def forget_what_the_index_lacks(patch: Patch) -> None:
    patch.setattr(IndexService, "committed", lambda _self: None)


def check_no_crc(patch: Patch) -> None:
    patch.setattr(plan, "walk_log", lambda *files, **more: walk_log(*files, **{**more, "check_crc": False}))


def take_torn_properties(patch: Patch) -> None:
    patch.setattr(log_walk.LogWalk, "_is_torn", lambda *_all: False)


def cut_behind_the_first_bad_record(patch: Patch) -> None:
    patch.setattr(plan, "walk_log", lambda *files, **more: walk_log(*files, **{**more, "skips_damage": False}))
    patch.setattr(MappedFileQueue, "first_unflushed", lambda self: _newest_first(self))


def _newest_first(queue: MappedFileQueue) -> MappedFile | None:
    return next((file for file in reversed(queue.files) if file.flushed < file.readable), None)


def leave_units_at_the_end_where_a_message_is_lost(patch: Patch) -> None:
    patch.setattr(ConsumeQueueTable, "_put_with_gaps", ConsumeQueueTable._put_plain)


def drop_the_quarantine(patch: Patch) -> None:
    patch.setattr(repair, "_keep", lambda *_all: None)


def leave_the_torn_tail(patch: Patch) -> None:
    patch.setattr(recovery, "repair", lambda _disk, _folder, _log, found: found)


def count_what_was_found_as_synced(patch: Patch) -> None:
    run = Recovery.run

    def unsynced(self: Recovery, made: RecoveryPlan) -> Recovered | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimulatedRegion, "sync", lambda _self: None)
            return run(self, made)

    patch.setattr(Recovery, "run", unsynced)


def say_nothing_of_being_in_use(patch: Patch) -> None:
    patch.setattr(StoreMarks, "abort_file", property(lambda self: self._root / "flint" / "unused"))
    exists = SimulatedDisk.exists
    patch.setattr(SimulatedDisk, "exists", lambda self, path: path.name != "unused" and exists(self, path))


def call_a_store_clean_too_early(patch: Patch) -> None:
    settle = MessageStore._settle

    def early(self: MessageStore) -> bool:
        self.noter.stopped(self.noter.at_stop())
        self._opened.marks.remove_abort()
        return settle(self)

    patch.setattr(MessageStore, "_settle", early)


def refuse_a_store_with_a_missing_file(patch: Patch) -> None:
    patch.setattr(MappedFileQueue, "_close_gap", lambda _self, _start: None)


def find_the_minimum_nowhere(patch: Patch) -> None:
    patch.setattr(ConsumeQueue, "correct_min_offset", lambda _self, _physical: None)


def read_fillers_as_messages(patch: Patch) -> None:
    patch.setattr(message_reader, "FILLER_SIZE", -1)


def commit_without_copying(patch: Patch) -> None:
    def commit(self: MappedFile, *_writer: object) -> None:
        self.committed = self.wrote

    patch.setattr(MappedFile, "commit", commit)


def write_a_blank_where_nothing_is_allocated(patch: Patch) -> None:
    grow = MappedFile.grow
    patch.setattr(MappedFile, "grow", lambda self, end: grow(self, end) if end > self.wrote + UNIT_BYTES else None)


def give_a_batch_one_offset(patch: Patch) -> None:
    def same(real: Any) -> Any:
        def put(self: Appender, *arguments: Any) -> Any:
            found = real(self, *arguments)
            last = found[-1]
            self.next_queue_offset[(last.topic, last.queue_id)] = last.queue_offset
            return found

        return put

    patch.setattr(Appender, "_batch", same(Appender._batch))
    patch.setattr(Appender, "_several", same(Appender._several))


SYNC, REAL, POOL = "group_commit", "flush_real_time", "commit_real_time"
Bug = Callable[[Patch], None]
# The bug, the strategy it shows with, and the script with which to begin: the first ones to meet it take longer.
BUGS: list[tuple[Bug, str, int]] = [
    (acknowledge_before_the_sync, SYNC, 0),
    (flush_only_the_newest_file, SYNC, 4),
    (forget_to_sync_the_name, SYNC, 0),
    (forget_to_sync_the_name_of_a_folder, SYNC, 0),
    (sync_without_the_last_page, SYNC, 0),
    (show_what_is_not_flushed, SYNC, 4),
    (dispatch_less_than_all, SYNC, 0),
    (describe_a_message_twice, SYNC, 4),
    (reuse_a_queue_offset, SYNC, 0),
    (begin_offsets_anew, SYNC, 0),
    (let_the_checkpoint_run_ahead, SYNC, 25),
    (trust_every_unit, SYNC, 0),
    (trust_torn_units, SYNC, 0),
    (trust_memory_after_a_power_cut, SYNC, 9),
    (write_the_index_header_first, SYNC, 0),
    (index_a_record_twice, SYNC, 2),
    (keep_an_index_that_is_ahead_of_the_log, REAL, 9),
    (forget_what_the_index_lacks, SYNC, 4),
    (check_no_crc, SYNC, 2),
    (take_torn_properties, REAL, 7),
    (cut_behind_the_first_bad_record, SYNC, 0),
    (leave_units_at_the_end_where_a_message_is_lost, REAL, 4),
    (drop_the_quarantine, SYNC, 0),
    (leave_the_torn_tail, SYNC, 1),
    (count_what_was_found_as_synced, REAL, 7),
    (say_nothing_of_being_in_use, SYNC, 0),
    (call_a_store_clean_too_early, SYNC, 6),
    (refuse_a_store_with_a_missing_file, REAL, 25),
    (find_the_minimum_nowhere, SYNC, 7),
    (read_fillers_as_messages, REAL, 5),
    (commit_without_copying, POOL, 0),
    (write_a_blank_where_nothing_is_allocated, SYNC, 0),
    (give_a_batch_one_offset, SYNC, 0),
]
DISK_BUGS: list[tuple[Bug, str, int]] = [
    (advance_after_a_failed_sync, SYNC, 0),
    (sync_again_after_a_failed_sync, SYNC, 0),
    (trust_memory_after_a_failed_sync, REAL, 2),
]
HIDDEN: list[Bug] = [
    flush_only_the_newest_file,
    let_the_checkpoint_run_ahead,
    trust_torn_units,
    check_no_crc,
    leave_units_at_the_end_where_a_message_is_lost,
    refuse_a_store_with_a_missing_file,
    sync_again_after_a_failed_sync,
]
"""Those that show in few states, each with half a second of search."""


def _cases(bugs: list[tuple[Bug, str, int]]) -> list[Any]:
    return first([bug for bug, _, _ in bugs if bug not in HIDDEN], bugs)


@pytest.fixture
def patch() -> Iterator[Patch]:
    with pytest.MonkeyPatch.context() as context:
        yield context


def _named(kinds: list[Kind], name: str) -> Kind:
    return next(kind for kind in kinds if kind.strategy.name == name)


@pytest.mark.parametrize(
    ("bug", "strategy", "begin"), _cases(BUGS), ids=lambda value: getattr(value, "__name__", value)
)
def test_the_crash_tests_fail_for_each_bug_deliberately_added_to_the_store(
    bug: Bug, strategy: str, begin: int, kinds: list[Kind], patch: Patch
) -> None:
    """Each of these a broker has had."""
    bug(patch)
    with pytest.raises(CrashFailure):
        explore(_named(kinds, strategy), BUDGET, begin)


@pytest.mark.parametrize(
    ("bug", "strategy", "begin"), _cases(DISK_BUGS), ids=lambda value: getattr(value, "__name__", value)
)
def test_the_disk_error_tests_fail_for_each_bug_deliberately_added_to_the_store(
    bug: Bug, strategy: str, begin: int, kinds: list[Kind], patch: Patch
) -> None:
    """What happens after a failed sync is seen only where one fails."""
    bug(patch)
    with pytest.raises(CrashFailure):
        explore_errors(_named(kinds, strategy), BUDGET, begin)
