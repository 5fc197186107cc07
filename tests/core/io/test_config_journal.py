"""Notes beside a table's file: each of them comes back, whole or not at all, and a sync is believed only where it may be."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.broker.topics import TopicConfigManager
from flintmq.core.errors import StoreError, StoreFullError
from flintmq.core.io.config_journal import SECOND_FILE, ConfigJournal
from flintmq.core.io.config_manager import JsonFile
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import JournalReplay
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.tests.support.effort import examples

PATH = Path("/store/flint/new-topics")
ADDITIONS = [{"table": {"a": 1}}, {"table": {"ü": "ß"}}, {"table": {}}]


def test_a_new_config_journal_instance_reads_the_entries_of_a_previous_instance_in_order() -> None:
    """The folder is made with the first; nothing is there before it, and nothing after :meth:`clear`."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    assert journal.read() == []
    for addition in ADDITIONS[:2]:
        journal.append(addition)
    again = ConfigJournal(PATH, disk)
    again.append(ADDITIONS[2])
    assert again.read() == ADDITIONS
    again.clear()
    assert ConfigJournal(PATH, disk).read() == []
    again.append(ADDITIONS[0])
    assert again.read() == ADDITIONS[:1]


@pytest.mark.parametrize("cut", range(1, 20))
def test_an_incomplete_journal_line_is_skipped_and_the_next_entry_starts_on_a_new_line(cut: int) -> None:
    """Whatever part of it had reached the file when the broker died."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    whole = disk.read(PATH)
    journal.append(ADDITIONS[1])
    torn = disk.read(PATH)[: len(whole) + cut]
    disk.write_file(PATH, torn)
    again = ConfigJournal(PATH, disk)
    assert again.read()[:1] == ADDITIONS[:1]
    again.append(ADDITIONS[2])
    assert [one for one in again.read() if one != ADDITIONS[1]] == [ADDITIONS[0], ADDITIONS[2]]


def test_the_journal_is_intact_after_a_failed_append_and_the_error_names_the_journal_file() -> None:
    """A full disk refuses one topic; when there is room again no line may be mixed up."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.ENOSPC, operation="resize")
    with pytest.raises(StoreFullError, match="new-topics: cannot be written"):
        journal.append(ADDITIONS[1])
    journal.append(ADDITIONS[2])
    assert journal.read() == [ADDITIONS[0], ADDITIONS[2]]


def test_a_journal_that_cannot_be_read_raises_a_store_error() -> None:
    """A start that went on would write the table without what was noted."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.EIO, operation="read")
    with pytest.raises(StoreError, match="Input/output error"):
        journal.read()


def test_a_sync_of_a_config_journal_makes_both_of_its_files_durable() -> None:
    """Whatever the turn is at that moment; the files' names among it."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    journal.turn()
    journal.append(ADDITIONS[1])
    journal.sync()
    left = SimulatedDisk(JournalReplay(disk).advance(len(disk.journal)).synced())
    assert sorted(map(str, ConfigJournal(PATH, left).read())) == sorted(map(str, ADDITIONS[:2]))


def test_a_sync_of_the_journal_also_flushes_entries_that_a_previous_process_appended() -> None:
    """A change that is asked for again, and that is found done, is acknowledged: it must be as durable as any."""
    disk = SimulatedDisk()
    ConfigJournal(PATH, disk).append(ADDITIONS[0])
    again = ConfigJournal(PATH, disk)
    again.read()
    again.sync()
    left = SimulatedDisk(JournalReplay(disk).advance(len(disk.journal)).synced())
    assert ConfigJournal(PATH, left).read() == ADDITIONS[:1]


def test_a_failed_sync_marks_a_journal_as_unreliable_until_its_entries_are_in_the_table_file() -> None:
    """The kernel may call the pages clean that it could not write; the other file is one that it has not failed for."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.EIO, operation="sync")
    with pytest.raises(StoreError, match="new-topics: cannot be written: Input/output error"):
        journal.sync()
    assert not journal.is_sound
    journal.turn()
    assert not journal.is_sound, "until the table's file has what it could not keep"
    journal.remove_older()
    assert journal.is_sound
    assert journal.path.name.endswith(SECOND_FILE)


def test_a_sync_of_a_removed_journal_file_succeeds() -> None:
    """The table's file has its notes then, which was synced before."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.remove(PATH)
    journal.sync()
    assert journal.is_sound


ROOT = Path("/store")


def _table(disk: SimulatedDisk) -> TopicConfigManager:
    topics = TopicConfigManager(
        JsonFile(ROOT / "config" / "topics.json", disk), ManualClock(), {}, journal=ConfigJournal(PATH, disk)
    )
    topics.load()
    return topics


class History:
    """A table of topics under changes, with what was true after each operation of the disk."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.topics = _table(self.disk)
        self.states: list[tuple[int, frozenset[tuple[str, int]]]] = [(0, frozenset())]
        """Each state of the table, with the operations of the disk when it came to be in force."""
        self.acknowledged: list[tuple[int, int]] = [(0, 0)]
        """Operations at an acknowledgement, and the number of the state that it promises at least."""

    def changed(self) -> int:
        self.states.append((len(self.disk.journal), _state(self.topics)))
        return len(self.states) - 1

    async def change(self, name: str, queue_nums: int) -> None:
        """Create, change or (with no queues) delete a topic, as administration does, and note its acknowledgement."""
        if queue_nums:
            self.topics.put(TopicConfig.with_queues(name, queue_nums))
        else:
            self.topics.delete(name)
        state = self.changed()
        await self.topics.durable()
        self.acknowledged.append((len(self.disk.journal), state))


def _state(topics: TopicConfigManager) -> frozenset[tuple[str, int]]:
    return frozenset((config.topic_name, config.write_queue_nums) for config in topics)


async def _live(steps: Sequence[tuple[str, str, int]]) -> History:
    history = History()
    for what, name, queue_nums in steps:
        if what == "change":
            await history.change(name, queue_nums)
        elif what == "together":
            await asyncio.gather(history.change(name, queue_nums), history.change(name + "2", queue_nums))
        elif what == "compact":
            await asyncio.gather(history.topics.compact(), history.change(name, queue_nums))
        elif what == "restart":
            history.topics = _table(history.disk)
        else:
            history.topics.persist()
    return history


STEPS = st.tuples(
    st.sampled_from(["change", "change", "change", "together", "compact", "compact", "restart", "stop"]),
    st.sampled_from(["A", "B", "C"]),
    st.integers(0, 3),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_acknowledged_changes_of_a_config_table_survive_a_crash_after_any_disk_operation(
    steps: list[tuple[str, str, int]],
) -> None:
    """A power cut, or a kill, behind any operation of the disk, also while the table is written: what a start finds is the
    table as it was at some moment, and no earlier one than the last acknowledgement promises."""
    history = asyncio.run(_live(steps))
    replay = JournalReplay(history.disk)
    for number in range(len(history.disk.journal) + 1):
        promised = max(state for at, state in history.acknowledged if at <= number)
        allowed = {found for _, found in history.states[promised:]}
        replay.advance(number)
        assert _state(_table(SimulatedDisk(replay.synced()))) in allowed, f"after a power cut at {number}"
        assert _state(_table(SimulatedDisk(replay.cached()))) in allowed, f"after a kill at {number}"
