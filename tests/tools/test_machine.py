"""A rule that finds nothing may be one that looks at nothing: it is shown each way to ask the machine, and what is none."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture
def machine() -> ModuleType:
    """Return the tool, imported as it is run."""
    return importlib.import_module("machine")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\nnow = time.monotonic()", "time.monotonic"),
        ("import time\nnow = time.monotonic", "time.monotonic"),
        ("import time as t\nnow = t.time_ns()", "time.time_ns"),
        ("import time\nspent_s = time.thread_time()", "time.thread_time"),
        ("from time import perf_counter\nnow = perf_counter()", "time.perf_counter"),
        ("def f():\n    from time import perf_counter as p\n    return p()", "time.perf_counter"),
        ("import random\nqueue = random.randrange(4)", "random.randrange"),
        ("import secrets\nid = secrets.token_hex(8)", "secrets.token_hex"),
        ("import os\nid = os.urandom(8)", "os.urandom"),
        ("import uuid\nid = uuid.uuid4()", "uuid.uuid4"),
        ("import threading\nthreading.Thread(target=f).start()", "threading.Thread"),
        ("from threading import Thread\nThread(target=f).start()", "threading.Thread"),
        (
            "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1)",
            "concurrent.futures.ThreadPoolExecutor",
        ),
        ("import asyncio\nasync def f():\n    await asyncio.to_thread(g)", "asyncio.to_thread"),
        ("async def f(self):\n    await self.loop.run_in_executor(None, g)", "run_in_executor"),
        ("async def f():\n    await get_running_loop().run_in_executor(None, g)", "run_in_executor"),
    ],
)
def test_the_lint_check_finds_code_that_uses_the_real_clock_or_real_randomness_or_real_threads(
    machine: ModuleType, source: str, found: str
) -> None:
    for path in ("core/a.py", "remoting/client/a.py", "programs/broker/a.py"):
        assert machine.machine_reads(machine.Sources({path: source})) == {f"{path}:{found}"}


@pytest.mark.parametrize(
    "source",
    [
        "import time\nday = time.localtime(0)",
        "import threading\nthread: threading.Thread | None = None",
        "import uuid\nid = uuid.UUID(int=0)",
        "import os\nname = os.getpid()",
        "def f(clock):\n    return clock.monotonic()",
    ],
)
def test_the_lint_check_accepts_code_without_calls_of_the_real_clock(machine: ModuleType, source: str) -> None:
    assert machine.machine_reads(machine.Sources({"core/a.py": source})) == set()


def test_clock_modules_and_command_line_programs_may_read_the_real_clock(
    machine: ModuleType,
) -> None:
    source = "import time\nnow = time.time()"
    paths = ("core/io/clock.py", "plugins/spark/a.py", "programs/cli/a.py", "testing/a.py")
    assert machine.machine_reads(machine.Sources(dict.fromkeys(paths, source))) == set()
