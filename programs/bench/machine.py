"""Collects the facts about the machine on which the results of a benchmark depend: its processor, kernel, disk and file system,
and the versions of packages."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from flintmq.core.errors import RemotingError

PACKAGES: Final = ("flintmq", "msgspec", "attrs", "pluggy", "uvloop", "numpy", "orjson")
MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")
_LOOK_S: Final = 0.25
_TICK: Final = os.sysconf("SC_CLK_TCK")


def machine_facts() -> dict[str, Any]:
    """Return facts about the machine: its processor, its number of cores, its system and the Python version."""
    models = [
        line.partition(":")[2].strip() for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def disk_facts(folder: Path) -> dict[str, Any]:
    """Return the file system of a folder and, if it is known, its device."""
    found: dict[str, Any] = {"folder": str(folder), "filesystem": "unknown", "device": "unknown", "options": ""}
    best = ""
    real = str(folder.resolve())
    for line in _text("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        mount = fields[4].replace("\\040", " ")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best) and len(tail) >= 2:
            best = mount
            found |= {"filesystem": tail[0], "device": tail[1], "options": fields[5]}
            found |= _block_facts(fields[2])
    return found


def _block_facts(numbers: str) -> dict[str, Any]:
    """Return facts about the block device with a major and minor number. For a partition, the facts are those of the disk,
    whose folder in ``/sys`` contains the partition's folder."""
    base = Path("/sys/dev/block") / numbers
    if not base.exists():
        return {"rotational": None, "write_cache": "", "scheduler": ""}
    queue = base / "queue" if (base / "queue").is_dir() else base.resolve().parent / "queue"
    return {
        "rotational": {"0": False, "1": True}.get(_text(queue / "rotational").strip()),
        "write_cache": _text(queue / "write_cache").strip(),
        "scheduler": _text(queue / "scheduler").strip(),
    }


def environment(folder: Path) -> dict[str, Any]:
    """Return the facts about the machine for a report."""
    memory = {line.partition(":")[0]: line.split()[1] for line in _text("/proc/meminfo").splitlines() if ":" in line}
    return {
        **machine_facts(),
        "host": platform.node(),
        "architecture": platform.machine(),
        "memory_mib": int(memory.get("MemTotal", "0")) // 1024,
        "disk": disk_facts(folder),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _text(path: Path | str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def written_bytes() -> int:
    """Return the bytes that this process has caused to be written to disks, as counted by the kernel; 0 if unknown.

    Mapped pages count when they become dirty. A page that is written back and dirtied again counts twice.
    """
    for line in _text("/proc/self/io").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def wait_until_quiet(timeout_s: float, share: float) -> bool:
    """Wait until other processes use less than a share of the machine's processors. Return False if the machine was still busy
    at the timeout.

    Args:
        timeout_s: the longest wait; 0 to skip the check.
        share: the share of all processors, from 0 to 1.
    """
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        begin_s, busy_s = time.monotonic(), machine_busy_s()
        time.sleep(_LOOK_S)
        if (machine_busy_s() - busy_s) / (time.monotonic() - begin_s) / (os.cpu_count() or 1) < share:
            return True
    return timeout_s == 0


def machine_busy_s() -> float:
    """Return the processor time that the whole machine has used since its start, in seconds; 0 if unknown."""
    fields = _text("/proc/stat").partition("\n")[0].split()[1:9]
    if len(fields) < 8:
        return 0.0
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICK


def process_cpu_s(pid: int) -> float:
    """Return the processor time of a process and its living descendants, in seconds.

    Raises:
        OSError: the process does not exist.
    """
    return sum(map(_own_cpu_s, processes_of(pid)))


def processes_of(pid: int) -> list[int]:
    """Return the ids of a process and its living descendants, such as a supervisor's brokers.

    Raises:
        OSError: the process does not exist.
    """
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text("ascii").split()
            found += [process for child in children for process in processes_of(int(child))]
        except (FileNotFoundError, ProcessLookupError):
            continue  # The thread or child process was listed, but has since ended.
    return found


def _own_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class CpuUse:
    """The processor time of this process and of a broker since this object was created.

    Args:
        pid: the broker's process; None if it is unknown.

    Raises:
        RemotingError: the broker's process has ended.
    """

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._begin_s = self._used_s()

    def per_message_us(self, messages: int) -> tuple[float, float | None]:
        """Return the processor time per message of this process and of the broker (None if its process is unknown)."""
        used = [
            None if now_s is None or begin_s is None else round((now_s - begin_s) / max(1, messages) * 1e6, 3)
            for now_s, begin_s in zip(self._used_s(), self._begin_s, strict=True)
        ]
        return used[0] or 0.0, used[1]

    def _used_s(self) -> tuple[float, float | None]:
        try:
            return time.process_time(), None if self._pid is None else process_cpu_s(self._pid)
        except OSError as error:
            raise RemotingError(f"the broker's process {self._pid} cannot be looked at: {error.strerror}") from error
