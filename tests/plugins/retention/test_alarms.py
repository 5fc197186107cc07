"""The alarm of a disk comes by the limits that retention has, and at the same time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flintmq.config.sections.models import StoreSection
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING
from flintmq.core.retention.retention import DiskUsage, RetentionPolicy
from flintmq.plugins.retention.alarms import disks

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
def test_disk_alarms_use_the_disk_limits_of_the_retention_settings(
    disk: DiskUsage, found: tuple[str, str, str, str] | None
) -> None:
    """The alarm comes when sends are refused, or messages go before their time, and not by limits of its own."""
    alarms = disks([disk], msgspec.structs.replace(disk, folder=Path("/a/queues")), POLICY)
    assert [(one.id, one.level, one.unit, one.key) for one in alarms] == ([found] if found else [])
    assert all(one.subject == "/a" and "/a" in one.message for one in alarms)


def test_a_full_log_disk_is_only_a_warning_if_a_second_log_disk_has_free_space() -> None:
    """New files of the log are made on the other one, so nobody is refused."""
    full, roomy = usage(0.95), usage(0.10, "/b")
    assert [(one.id, one.subject) for one in disks([full, roomy], roomy, POLICY)] == [("disk.nearly_full", "/a")]
    both = disks([full, usage(0.97, "/b")], None, POLICY)
    assert [(one.id, one.subject) for one in both] == [("disk.full", "/a"), ("disk.full", "/b")]
