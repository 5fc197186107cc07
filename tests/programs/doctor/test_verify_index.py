"""A key that is not found looks like a lost message: what verify finds in the index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintmq.programs.doctor.report import Level

from .conftest import Small


def test_verify_finds_a_change_in_any_part_of_the_index(
    small: Small, copy_small: Callable[[Path], Small], tmp_path: Path
) -> None:
    """Header counters, positions and times; a slot; hash, position, time and link of an entry."""
    slots_at, entries_at = 40, 40 + 16 * 4
    places = {
        "begin time": (5, 3),
        "end time": (13, 3),
        "begin position": (22, 2),
        "end position": (31, 2),
        "count": (39, 1),
        "count, high": (37, 6),
        "slot": (slots_at + 4 * 5 + 3, 0),
        "slot, high": (slots_at + 4 * 5 + 1, 2),
        "hash": (entries_at + 20 * 9 + 2, 1),
        "hash's sign": (entries_at + 20 * 9, 7),
        "position": (entries_at + 20 * 9 + 10, 1),
        "seconds": (entries_at + 20 * 9 + 15, 0),
        "link": (entries_at + 20 * 9 + 19, 3),
    }
    for number, (name, (at, bit)) in enumerate(places.items()):
        one = copy_small(tmp_path / f"copy{number}")
        one.flip(one.index_name, at, bit)
        assert not one.verify().is_sound, name
    small.flip(small.index_name, 35)
    report = small.verify()
    assert report.is_sound, "searching does not use it"
    assert [found.level for found in report.findings] == [Level.WARNING]


def test_verify_reports_an_index_file_of_an_invalid_size(small: Small) -> None:
    """A start refuses it."""
    (small.root / "index" / "zzz").write_bytes(b"abc")
    assert any("zzz" in what and "the number of slots cannot be derived" in what for _level, what in small.findings)


def test_a_missing_index_is_only_a_warning(small: Small) -> None:
    """It may be off."""
    for path in (small.root / "index").iterdir():
        path.unlink()
    assert [(found.level, found.where) for found in small.verify().findings] == [
        (Level.WARNING, str(small.root / "index"))
    ]
    assert small.verify().is_sound


def test_verify_reports_missing_index_keys_of_the_newest_messages_only_as_a_warning(small: Small) -> None:
    """RocketMQ leaves both when it recovers; queries are poorer, nothing is damaged."""
    names = sorted(path.name for path in (small.root / "index").iterdir())
    (small.root / "index" / names[-1]).unlink()
    report = small.verify()
    assert report.is_sound
    assert any("of the newest messages are not indexed" in found.what for found in report.findings)
