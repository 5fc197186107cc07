"""A broker that runs out of maps refuses sends: somebody has to be told before."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import pytest

from flintmq.plugins.alarms import process_alarms as module
from flintmq.plugins.alarms.process_alarms import PROC, ProcessAlarms, ProcessUse, measure, process_alarms
from flintmq.testing.embedded import EmbeddedBroker


@pytest.mark.parametrize(
    ("used", "level"),
    [(0, None), (799, None), (800, "warning"), (949, "warning"), (950, "critical"), (1_000, "critical")],
)
def test_a_process_resource_that_is_nearly_used_up_raises_an_alarm(used: int, level: str | None) -> None:
    """At four fifths there is time left to do something."""
    for use, name in (
        (ProcessUse(maps=used, maps_max=1_000), "process.maps"),
        (ProcessUse(descriptors=used, descriptors_max=1_000), "process.descriptors"),
    ):
        found = [(alarm.id, alarm.level, alarm.value, alarm.limit) for alarm in process_alarms(use)]
        assert found == ([(name, level, used, 1_000)] if level else [])


def test_process_resources_that_cannot_be_measured_raise_no_alarm(tmp_path: Path) -> None:
    """Other systems have no /proc."""
    use = measure(tmp_path)
    assert (use.maps, use.maps_max, use.descriptors) == (0, 0, 0)
    assert list(process_alarms(use)) == []


def test_memory_maps_and_file_descriptors_are_counted_from_proc_files(tmp_path: Path) -> None:
    """Maps by their lines, descriptors by their names."""
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "sys" / "vm").mkdir(parents=True)
    (tmp_path / "self" / "maps").write_text("a map\n" * 50_000)
    (tmp_path / "sys" / "vm" / "max_map_count").write_text("65530\n")
    for number in range(7):
        (tmp_path / "self" / "fd" / str(number)).touch()
    use = measure(tmp_path)
    assert (use.maps, use.maps_max, use.descriptors) == (50_000, 65_530, 7)
    if (PROC / "self" / "maps").exists():
        real = measure()
        assert 10 < real.maps < real.maps_max
        assert 2 < real.descriptors < real.descriptors_max


def open_all(kept: contextlib.ExitStack) -> None:
    """Open descriptors until the kernel refuses one."""
    while True:
        kept.callback(os.close, os.dup(1))


@pytest.mark.skipif(not (PROC / "self" / "fd").exists(), reason="the kernel does not list a process's descriptors")
def test_a_process_without_a_free_descriptor_raises_a_critical_alarm_about_descriptors() -> None:
    """Descriptors cannot be counted then, because a listing of /proc/self/fd needs one, and the alarm must not end."""
    before = ProcessUse(maps=60_000, maps_max=65_530, descriptors=5, descriptors_max=6)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(path.name) for path in (PROC / "self" / "fd").iterdir()) + 4
    with contextlib.ExitStack() as kept:
        kept.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        with pytest.raises(OSError, match="Too many open files"):
            open_all(kept)
        use = measure(before=before)
    assert use == ProcessUse(60_000, 65_530, limit, limit)
    assert [(alarm.id, alarm.level) for alarm in process_alarms(use)] == [
        ("process.maps", "warning"),
        ("process.descriptors", "critical"),
    ]


def test_the_alarm_list_of_a_broker_includes_alarms_about_process_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm is among all others, wherever they are shown."""
    monkeypatch.setattr(module, "measure", lambda before: ProcessUse(maps=60_000, maps_max=65_530))
    with EmbeddedBroker() as broker:

        async def told() -> list[str]:
            service = broker.broker.state.service(ProcessAlarms)
            service._look()
            assert service._measuring is not None
            await service._measuring
            return [alarm.id for alarm in broker.broker.state.alarms.current()]

        assert "process.maps" in broker.broker.call(told)
