"""A list of alarms is part of an answer and of a screen: it is bounded, in order, and no name breaks it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flintmq.config.sections.models import StoreSection
from flintmq.core.broker.alarms import ALARMS_MAX, client_id_shared, conflict, disk_used, disks, gathered
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.core.retention.retention import DiskUsage, RetentionPolicy


def test_critical_alarms_come_first_and_each_once() -> None:
    """Two services may know the same fact; what is measured last counts."""
    slow, full = Alarm("a.slow", WARNING, "g", "slow", 1), Alarm("a.full", CRITICAL, "", "full")
    again = Alarm("a.slow", WARNING, "g", "slower", 2)
    assert gathered([slow, full, again]) == [full, again]


def test_there_are_only_so_many_and_the_last_one_says_so() -> None:
    """A broker with fifty thousand groups that lag still answers."""
    many = [Alarm("a.slow", WARNING, f"g{number}", "slow") for number in range(ALARMS_MAX + 50)]
    found = gathered([*many, Alarm("a.full", CRITICAL, "", "full")])
    assert len(found) == ALARMS_MAX
    assert found[0].id == "a.full"
    assert (found[-1].id, found[-1].level, found[-1].value) == ("alarms.more", WARNING, ALARMS_MAX + 51)
    assert "52 more" in found[-1].message
    assert len(gathered(many[:ALARMS_MAX])) == ALARMS_MAX


def test_names_of_clients_break_no_line_and_fill_no_answer() -> None:
    """A group's name comes from a stranger."""
    (found,) = gathered([Alarm("a.slow", WARNING, "g\n\x1b[2J\ud800" + "x" * 9_999, "slow:\r\n" + "y" * 9_999)])
    assert found.subject.startswith("g\\n\\x1b[2J\\ud800xxx")
    assert found.message.startswith("slow:\\r\\nyyy")
    assert len(found.subject) + len(found.message) < 2_000
    assert msgspec.json.decode(msgspec.json.encode(found), type=Alarm) == found


def test_a_level_is_one_of_two() -> None:
    """What a plugin misspells would be neither shown in its place nor counted by an exit code."""
    with pytest.raises(ValueError, match="level"):
        Alarm("a.slow", "grave", "", "slow")  # type: ignore[arg-type]


# disks

GIB = 1 << 30
POLICY = RetentionPolicy.of(StoreSection())


def usage(used_ratio: float, folder: str = "/a", total_bytes: int = 20 * GIB) -> DiskUsage:
    used = int(total_bytes * used_ratio)
    return DiskUsage(Path(folder), total_bytes, used, total_bytes - used)


@pytest.mark.parametrize(
    ("disk", "found"),
    [
        (usage(0.80), None),
        (usage(0.86), ("disk.nearly_full", WARNING, "ratio", "store.disk_forcible_ratio")),
        (usage(0.91), ("disk.full", CRITICAL, "ratio", "store.disk_full_ratio")),
        (usage(0.95, total_bytes=1_000 * GIB), None),  # 50 GiB are free: others fill the disk
        (usage(0.50, total_bytes=64 << 20), ("disk.full", CRITICAL, "bytes", "store.disk_min_free_bytes")),
    ],
)
def test_a_disk_is_judged_as_retention_judges_it(disk: DiskUsage, found: tuple[str, str, str, str] | None) -> None:
    """The alarm comes when sends are refused, or messages go before their time, and not by limits of its own."""
    alarms = disks([disk], msgspec.structs.replace(disk, folder=Path("/a/queues")), POLICY)
    assert [(one.id, one.level, one.unit, one.key) for one in alarms] == ([found] if found else [])
    assert all(one.subject == "/a" and "/a" in one.message for one in alarms)


def test_a_full_disk_beside_one_with_room_is_a_warning() -> None:
    """New files of the log are made on the other one, so nobody is refused."""
    full, roomy = usage(0.95), usage(0.10, "/b")
    assert [(one.id, one.subject) for one in disks([full, roomy], roomy, POLICY)] == [("disk.nearly_full", "/a")]
    both = disks([full, usage(0.97, "/b")], None, POLICY)
    assert [(one.id, one.subject) for one in both] == [("disk.full", "/a"), ("disk.full", "/b")]


def test_a_ratio_alone_is_enough() -> None:
    """A RocketMQ broker tells nothing else."""
    limits = {"nearly_full_ratio": 0.85, "full_ratio": 0.9}
    found = [disk_used("/a", ratio, **limits) for ratio in (0.85, 0.86, 0.91)]
    assert [one.id if one else None for one in found] == [None, "disk.nearly_full", "disk.full"]


# conflicts


def test_a_conflict_says_how_and_what_to_do() -> None:
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


def test_a_shared_client_id_names_a_bounded_number_of_addresses() -> None:
    """A program that starts a hundred processes with one id gets one line that can be read."""
    found = client_id_shared("G", "id", [f"10.0.0.{n}:1" for n in range(100)])
    assert (found.id, found.level, found.subject, found.value) == ("client.id_shared", WARNING, "id", 100)
    assert "10.0.0.9:1. Give each process" in found.message
    assert "10.0.0.10:1" not in found.message
