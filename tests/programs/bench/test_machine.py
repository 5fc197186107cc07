"""What a benchmark reads of processes: of a supervisor, the brokers that it started count."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flintmq.programs.bench.machine import process_cpu_s, processes_of

FAMILY = """
import subprocess, sys, time
while time.process_time() < 0.04:  # several ticks of the kernel's clock
    pass
inner = subprocess.Popen([sys.executable, "-c", "sum(range(3_000_000)); print('done', flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
inner.stdout.readline()
print(inner.pid, flush=True)
input()
inner.communicate("")
"""


def test_the_processor_time_of_a_process_includes_its_children() -> None:
    """The supervisor of several brokers does nothing itself: its own time alone would make them free."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FAMILY], text=True, **pipes) as outer:  # type: ignore[call-overload]
        inner = int(outer.stdout.readline())
        assert processes_of(outer.pid) == [outer.pid, inner]
        assert process_cpu_s(outer.pid) > process_cpu_s(inner) > 0
        outer.communicate("\n")


def test_reading_the_processor_time_of_an_ended_process_raises_an_error() -> None:
    """A figure of a broker that died would be read as a cheap broker."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    with pytest.raises(OSError, match=str(ended.pid)):
        process_cpu_s(ended.pid)
    assert process_cpu_s(os.getpid()) > 0
