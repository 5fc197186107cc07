"""A broker is a guest in somebody's process: many that came and went leave it as it was, and a fork of it changes nothing.

What is left of one may be too little to see; what is left of two hundred is not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bare_wire import SMALL
from many_lives import LIVES

import flintmq

ROOT = Path(flintmq.__file__).parent
HERE = Path(__file__).parent


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("lives", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_starting_and_stopping_many_embedded_brokers_leaks_no_resources(tmp_path: Path, life: str, lives: int) -> None:
    """No thread, file, socket, task, handler of a log or a signal, and no memory that grows.

    In a process of their own: among the million objects of pytest's, others come and go.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "many_lives.py"), life, str(lives), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
        check=False,
    )
    assert not done.stderr
    found = json.loads(done.stdout)
    assert found["after"] == found["before"]
    assert found["objects"] < lives, "not even one object each"
    assert found["resident_kib"] < 4 * 1024 + lives * 16


FORK = """
import asyncio, os, sys
import flintmq
from flintmq.config import load_config

broker = flintmq.Broker(load_config(None, sys.argv[2:], {}))

def in_the_child():
    for call in (lambda: broker.put([flintmq.Message("T", b"child")]), lambda: broker.call(asyncio.sleep)):
        try:
            call()
        except flintmq.FlintError as error:
            print("refused:", error, getattr(error, "reason", ""), flush=True)
    os._exit(0)

def forked():
    broker.put([flintmq.Message("T", b"parent")])
    child = os.fork()
    if not child:
        in_the_child()
    assert os.waitpid(child, 0)[1] == 0
    broker.put([flintmq.Message("T", b"parent again")])
    assert broker.put([flintmq.Message("T", b"x")])

async def main():
    async with broker:
        forked()

if sys.argv[1] == "loop":
    asyncio.run(main())
else:
    with broker:
        forked()
print("end")
"""


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_a_forked_child_cannot_use_the_broker_of_its_parent(tmp_path: Path, where: str) -> None:
    """Two processes that append to one log would tear it; and a child has no thread that runs the loop, for which it waits."""
    overrides = [*SMALL, f"store.path={tmp_path / 'store'}"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, where, *overrides],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
        check=False,
    )
    assert done.stdout.count("refused:") == 2, done.stderr
    assert "the parent process" in done.stdout
    assert "broker.forked" in done.stdout
    assert done.stdout.endswith("end\n")
