"""A list of alarms is part of an answer and of a screen: it is bounded, in order, and no name breaks it."""

from __future__ import annotations

import msgspec
import pytest

from flintmq.core.broker.alarms import ALARMS_MAX, conflict, disk_used, gathered
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm


def test_critical_alarms_come_first_and_duplicates_are_merged() -> None:
    """Two services may know the same fact; what is measured last counts."""
    slow, full = Alarm("a.slow", WARNING, "g", "slow", 1), Alarm("a.full", CRITICAL, "", "full")
    again = Alarm("a.slow", WARNING, "g", "slower", 2)
    assert gathered([slow, full, again]) == [full, again]


def test_the_list_of_alarms_is_bounded_and_its_last_entry_counts_the_omitted_alarms() -> None:
    """A broker with fifty thousand groups that lag still answers."""
    many = [Alarm("a.slow", WARNING, f"g{number}", "slow") for number in range(ALARMS_MAX + 50)]
    found = gathered([*many, Alarm("a.full", CRITICAL, "", "full")])
    assert len(found) == ALARMS_MAX
    assert found[0].id == "a.full"
    assert (found[-1].id, found[-1].level, found[-1].value) == ("alarms.more", WARNING, ALARMS_MAX + 51)
    assert "52 more" in found[-1].message
    assert len(gathered(many[:ALARMS_MAX])) == ALARMS_MAX


def test_names_from_clients_are_escaped_and_shortened_in_alarms() -> None:
    """A group's name comes from a stranger."""
    (found,) = gathered([Alarm("a.slow", WARNING, "g\n\x1b[2J\ud800" + "x" * 9_999, "slow:\r\n" + "y" * 9_999)])
    assert found.subject.startswith("g\\n\\x1b[2J\\ud800xxx")
    assert found.message.startswith("slow:\\r\\nyyy")
    assert len(found.subject) + len(found.message) < 2_000
    assert msgspec.json.decode(msgspec.json.encode(found), type=Alarm) == found


def test_an_unknown_alarm_level_is_refused() -> None:
    """An alarm with a misspelled level would be neither shown in its place nor counted in an exit code."""
    with pytest.raises(ValueError, match="level"):
        Alarm("a.slow", "grave", "", "slow")  # type: ignore[arg-type]


def test_the_level_of_a_disk_alarm_depends_only_on_the_used_fraction_of_the_disk() -> None:
    """A RocketMQ broker tells nothing else."""
    limits = {"nearly_full_ratio": 0.85, "full_ratio": 0.9}
    found = [disk_used("/a", ratio, **limits) for ratio in (0.85, 0.86, 0.91)]
    assert [one.id if one else None for one in found] == [None, "disk.nearly_full", "disk.full"]


def test_an_alarm_about_conflicting_group_members_names_the_difference_and_the_remedy() -> None:
    """The value is how many members differ; by a look from outside that is not known."""
    found = conflict("G", "message model: CLUSTERING of most, but BROADCASTING of c3", 1)
    assert (found.id, found.level, found.subject, found.value, found.unit) == (
        "group.conflict",
        WARNING,
        "G",
        1,
        "members",
    )
    assert "but BROADCASTING of c3. Give all members" in found.message
    assert (conflict("G", "x").value, conflict("G", "x").unit) == (0, "")
