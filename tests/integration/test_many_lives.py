"""A broker is a guest in somebody's process: many that came and went leave it as it was, and a fork of it changes nothing.

What is left of one may be too little to see; what is left of two hundred is not.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from bare_wire import SMALL, Wire

import flintmq
from flintmq.core.store.message_store import MessageStore

WARM_UP = 5
"""The first lives import, and fill what Python keeps for good."""
ROOT = Path(flintmq.__file__).parent


@attrs.frozen
class Left:
    """What a process has that a broker could leave behind."""

    threads: int
    descriptors: int
    sockets: int
    handlers: int
    """Of all loggers."""
    filters_max: int
    """The most that one logger has: a module may bring one with its import."""
    signal_handlers: tuple[Any, ...]
    brokers: int
    """Brokers and stores that something still refers to."""


def left() -> Left:
    import signal

    gc.collect()
    targets = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        except FileNotFoundError:
            continue  # the listing's own
    loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return Left(
        threads=threading.active_count(),
        descriptors=len(targets),
        sockets=sum(target.startswith("socket:") for target in targets),
        handlers=sum(len(one.handlers) for one in (*loggers, logging.root)),
        filters_max=max(len(one.filters) for one in (*loggers, logging.root)),
        signal_handlers=tuple(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)),
        brokers=sum(isinstance(one, (flintmq.Broker, flintmq.NameServer, MessageStore)) for one in gc.get_objects()),
    )


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def in_own_thread(configure: Callable[..., Any], number: int) -> None:
    """One life by ``with``, with a client over the wire that is cut off at the end."""
    with flintmq.Broker(configure(store=f"own-{number}")) as broker:
        wire = Wire(broker.address)
        assert wire.send("T", b"x").code == 0
        broker.put([flintmq.Message("T", b"y")])
    wire.close()


def in_the_callers_loop(configure: Callable[..., Any], number: int) -> None:
    """One life by ``async with``, of a name server as well."""

    async def live() -> None:
        async with flintmq.NameServer(configure()) as names:
            config = configure(f"namesrv.addresses={names.address}", store=f"loop-{number}")
            async with flintmq.Broker(config) as broker:
                await broker.put([flintmq.Message("T", b"x")])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(live())


@pytest.mark.parametrize("life", [in_own_thread, in_the_callers_loop], ids=lambda life: life.__name__)
@pytest.mark.parametrize("lives", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_many_brokers_leave_nothing(
    configure: Callable[..., Any], life: Callable[..., None], lives: int, unexpected: list[str]
) -> None:
    """No thread, file, socket, task, handler of a log or a signal, and no memory that grows."""
    for number in range(WARM_UP):
        life(configure, number)
    before, objects, memory_kib = left(), len(gc.get_objects()), resident_kib()
    for number in range(lives):
        life(configure, WARM_UP + number)
    assert left() == before
    assert len(gc.get_objects()) - objects < lives, "not even one object each"
    assert resident_kib() - memory_kib < 4 * 1024 + lives * 16


def test_a_start_that_fails_leaves_nothing_either(configure: Callable[..., Any]) -> None:
    """However often it is tried: a program may try again until a port is free."""
    with flintmq.Broker(configure()) as broker:
        before = left()
        for number in range(10):
            taken = configure(f"listen.port={broker.port}", store=f"taken-{number}")
            with pytest.raises(flintmq.FlintError, match="in use"):
                flintmq.Broker(taken).__enter__()
        assert left() == before


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
def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path, where: str) -> None:
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
    assert "another process" in done.stdout
    assert "broker.forked" in done.stdout
    assert done.stdout.endswith("end\n")
