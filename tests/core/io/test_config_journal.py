"""Topics that clients create by the thousand are noted, one line each: a line that a crash cut must not cost the others."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flintmq.core.errors import StoreError, StoreFullError
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.testing.simulated_disk import SimulatedDisk

PATH = Path("/store/flint/new-topics")
ADDITIONS = [{"table": {"a": 1}}, {"table": {"ü": "ß"}}, {"table": {}}]


def test_additions_come_back_in_order_also_to_another_process() -> None:
    """The folder is made with the first; nothing is there before it, and nothing after :meth:`clear`."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    assert list(journal.additions()) == []
    for addition in ADDITIONS[:2]:
        journal.append(addition)
    again = ConfigJournal(PATH, disk)
    again.append(ADDITIONS[2])
    assert list(again.additions()) == ADDITIONS
    again.clear()
    assert list(ConfigJournal(PATH, disk).additions()) == []
    again.append(ADDITIONS[0])
    assert list(again.additions()) == ADDITIONS[:1]


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_line_that_was_cut_short_is_left_out_and_ends_with_the_next_one(cut: int) -> None:
    """Whatever part of it had reached the file when the broker died."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    whole = disk.read(PATH)
    journal.append(ADDITIONS[1])
    torn = disk.read(PATH)[: len(whole) + cut]
    disk.write_file(PATH, torn)
    again = ConfigJournal(PATH, disk)
    assert list(again.additions())[:1] == ADDITIONS[:1]
    again.append(ADDITIONS[2])
    assert [one for one in again.additions() if one != ADDITIONS[1]] == [ADDITIONS[0], ADDITIONS[2]]


def test_a_disk_that_refuses_is_named_and_the_next_addition_is_whole() -> None:
    """A full disk refuses one topic; when there is room again no line may be mixed up."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.ENOSPC, operation="resize")
    with pytest.raises(StoreFullError, match="new-topics: cannot be written"):
        journal.append(ADDITIONS[1])
    journal.append(ADDITIONS[2])
    assert list(journal.additions()) == [ADDITIONS[0], ADDITIONS[2]]


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_one() -> None:
    """A start that went on would write the table without what was noted."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.EIO, operation="read")
    with pytest.raises(StoreError, match="Input/output error"):
        list(journal.additions())
