"""A unit that points to the wrong place gives a consumer the wrong message: what verify finds in queues."""

from __future__ import annotations

import pytest

from flintmq.core.record.queue_unit import UNIT
from flintmq.programs.doctor.report import Level

from .conftest import Small

QUEUE = "consumequeue/Orders/0/00000000000000000000"


@pytest.mark.parametrize("at", [7, 0, 10, 19])
def test_verify_reports_a_flipped_bit_in_a_queue_unit(small: Small, at: int) -> None:
    """Position, its sign, size, tags code."""
    small.flip(QUEUE, 3 * 20 + at, 7)
    assert not small.verify().is_sound


def test_verify_reports_queue_units_that_point_beyond_the_log_or_repeat_a_message(small: Small) -> None:
    """One that points behind the log, one that repeats a message; after a crash the first is only a warning."""
    path = max((small.root / "consumequeue" / "Orders" / "0").iterdir())
    used = -(-len(path.read_bytes().rstrip(b"\0")) // 20)
    end = small.records[-1].end
    small.edit(str(path.relative_to(small.root)), used * 20, UNIT.pack(end, 100, 0))
    assert [what for level, what in small.findings if level is Level.ERROR and "behind the log" in what]
    (small.root / "abort").touch()
    assert small.verify().is_sound
    small.edit(str(path.relative_to(small.root)), used * 20, UNIT.pack(0, 100, 0))
    assert not small.verify().is_sound


def test_verify_reports_missing_queue_units(small: Small) -> None:
    """A start adds what lies behind the newest message any queue knows; what is missing before it stays missing."""
    path = max((small.root / "consumequeue" / "Bills" / "0").iterdir())
    used = -(-len(path.read_bytes().rstrip(b"\0")) // 20)
    small.edit(str(path.relative_to(small.root)), (used - 1) * 20, bytes(40))
    found = small.findings
    assert [level for level, what in found if "the last" in what] == [Level.ERROR]
    (small.root / "abort").touch()
    assert small.verify().is_sound


def test_verify_reports_a_missing_consume_queue(small: Small) -> None:
    """And its committed offsets are named."""
    for path in (small.root / "consumequeue" / "Orders" / "1").iterdir():
        path.unlink()
    (small.root / "consumequeue" / "Orders" / "1").rmdir()
    found = small.findings
    assert [level for level, what in found if "Orders/1: 22 messages have no queue" in what] == [Level.ERROR]
    assert [level for level, what in found if "group billing is at 7 in Orders/1, which has no queue" in what] == [
        Level.NOTE
    ]


def test_verify_reports_a_missing_file_between_the_files_of_a_consume_queue(small: Small) -> None:
    """A start refuses, and units behind the hole are not taken for others."""
    (small.root / "consumequeue" / "Orders" / "0" / "00000000000000000200").unlink()
    found = [what for level, what in small.findings if level is Level.ERROR]
    assert any("the file before it ends at 200" in what or "not in the queue" in what for what in found)
