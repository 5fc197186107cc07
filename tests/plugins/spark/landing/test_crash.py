"""A landing zone after a crash at any step: no message missing, none twice, and nothing a reader has seen goes away."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from landing_log import LittleLog
from zone_files import in_image, offsets, on_disk, visible

from flintmq.core.errors import StoreError
from flintmq.plugins.spark.landing.lander import Lander
from flintmq.plugins.spark.landing.task import LandingTask
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import Image
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.tests.support.crash_states import KINDS, states

pytestmark = pytest.mark.timeout(900)

ZONE = Path("/zone")
STEPS = (9, 21, 34)


def land(disk: SimulatedDisk, task: LandingTask, ends: list[int]) -> None:
    """One lander's life: opens the zone and lands up to each boundary."""
    lander = Lander(task, 0, disk, ManualClock())
    for end in ends:
        while lander._at < end:
            lander.land(end, 1 << 20)
    lander.close()


def check_after(image: Image, little_log: LittleLog, task: LandingTask, ends: list[int]) -> None:
    """What a crash left is read by somebody, then a new lander goes on."""
    seen = visible(in_image(image, ZONE))
    disk = SimulatedDisk(image, journal=False)
    land(disk, task, ends)
    after = in_image(disk.image(), ZONE)
    kept = visible(after)
    for path, rows in seen.items():
        assert kept.get(path) == rows, f"{path} was there and is gone or changed"
    assert offsets(after) == sorted(offset for offset in little_log.landing if offset < ends[-1])
    assert not [path for path in after if path.rpartition("/")[2].startswith(".")], "nothing unfinished stays"


def journal(little_log: LittleLog, task: LandingTask) -> SimulatedDisk:
    disk = SimulatedDisk()
    land(disk, task, [little_log.ends[step] for step in STEPS])
    return disk


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_a_landing_zone_has_each_row_once_after_a_kill_at_any_disk_operation(little_log: LittleLog, every: int) -> None:
    """Before and after each write, sync, renaming and manifest: a process that is killed there."""
    task = little_log.task(ZONE)
    disk = journal(little_log, task)
    ends = [little_log.ends[step] for step in STEPS] + [little_log.ends[40]]
    checked = 0
    for _number, _kind, image in states(disk, range(0, len(disk.journal) + 1, every), seed=1, kinds=()):
        check_after(image, little_log, task, ends)
        checked += 1
    assert checked > 100 // every


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_landing_zone_has_each_row_once_after_a_power_cut_at_any_disk_operation(
    little_log: LittleLog, kind: str
) -> None:
    """Unsynced data may be missing, incomplete, or stored under a name that was not synced."""
    task = little_log.task(ZONE)
    disk = journal(little_log, task)
    ends = [little_log.ends[step] for step in STEPS] + [little_log.ends[40]]
    first = KINDS.index(kind) % 3  # together the kinds come by every operation, most of them more than once
    for _number, found, image in states(disk, range(first, len(disk.journal) + 1, 3), seed=2, kinds=(kind,)):
        if found == kind:
            check_after(image, little_log, task, ends)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 11])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_landing_zone_has_each_row_once_after_a_failed_disk_operation(
    little_log: LittleLog, error: int, every: int
) -> None:
    """A full or failing disk at each operation in turn: the same lander tries again and nothing is doubled or lost."""
    task = little_log.task(ZONE)
    count = journal(little_log, task).count
    failed = 0
    for number in range(0, count, every):
        disk = SimulatedDisk(journal=False)
        disk.fail(number, error)
        lander = None
        while lander is None:
            try:
                lander = Lander(task, 0, disk, ManualClock())
            except (StoreError, OSError):
                failed += 1
        for step in STEPS:
            while lander._at < little_log.ends[step]:
                try:
                    lander.land(little_log.ends[step], 1 << 20)
                except (StoreError, OSError):
                    failed += 1
        lander.close()
        assert offsets(in_image(disk.image(), ZONE)) == sorted(
            offset for offset in little_log.landing if offset < little_log.ends[STEPS[-1]]
        )
    assert failed > count // every // 2


KILLED_PROGRAM = """
import os, signal, sys
from pathlib import Path
from flintmq.core.io.os_disk import OsDisk
from flintmq.plugins.spark.landing import zones
from flintmq.plugins.spark.landing.lander import Lander
from flintmq.plugins.spark.landing.task import LandingTask

class Deadly(OsDisk):
    left = int(sys.argv[3])
    def replace(self, source, target):
        super().replace(source, target)
        Deadly.left -= 1
        if not Deadly.left:
            os.kill(os.getpid(), signal.SIGKILL)

lander = Lander(LandingTask.from_json(sys.argv[1]), 0, Deadly())
for end in map(int, sys.argv[2].split(",")):
    while lander._at < end:
        lander.land(end, 1 << 20)
print("landed")
"""


@pytest.mark.parametrize("renamings", [1, 2, 3, 6])
def test_a_landing_zone_has_each_message_once_after_a_sigkill_between_file_renames(
    tmp_path: Path, little_log: LittleLog, renamings: int
) -> None:
    """The real thing: SIGKILL right after the manifest, or after some of the files got their names, on a real disk."""
    zone = tmp_path / "zone"
    task = little_log.task(zone)
    ends = [little_log.ends[step] for step in STEPS]
    program = [sys.executable, "-c", KILLED_PROGRAM, task.to_json(), ",".join(map(str, ends)), str(renamings)]
    killed = subprocess.run(program, capture_output=True, check=False, env=os.environ)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    seen = visible(on_disk(zone))
    lander = Lander(task, 0)
    for end in ends:
        while lander._at < end:
            lander.land(end, 1 << 20)
    lander.close()
    after = on_disk(zone)
    assert {path: rows for path, rows in visible(after).items() if path in seen} == seen
    assert offsets(after) == sorted(offset for offset in little_log.landing if offset < ends[-1])
