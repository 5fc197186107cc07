"""A broker that has little to do must not pay for numpy, and one that has much must not wait for it."""

from __future__ import annotations

import subprocess
import sys


def said_by(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_broker_does_not_import_numpy() -> None:
    """13 MiB and a tenth of a second of every start."""
    assert said_by("import sys, flintmq.programs.broker.broker; print('numpy' in sys.modules)") == "False"


def test_numpy_is_imported_only_once_and_in_a_background_thread() -> None:
    program = """
import threading
from flintmq.core.io import lazy_numpy
first = lazy_numpy.ready()
loader = [thread for thread in threading.enumerate() if thread.name == "flintmq-numpy"]
lazy_numpy.ready()
for thread in loader:
    thread.join(100)
print(first, len(loader), lazy_numpy.ready(), lazy_numpy.numpy.int64(3) + 4)
"""
    assert said_by(program) == "False 1 True 7"


def test_the_function_that_loads_numpy_returns_only_after_the_import_is_complete() -> None:
    assert said_by("from flintmq.core.io.lazy_numpy import load, numpy, ready; load(); print(ready(), numpy.pi)") == (
        "True 3.141592653589793"
    )
