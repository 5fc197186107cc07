"""Runs many brokers, one after the other, and prints what their process has more of: ``many_lives.py LIFE COUNT FOLDER``."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import attrs
import pytest
from bare_wire import Wire, settings

import flintmq
from flintmq.core.store.message_store import MessageStore

WARM_UP = 5
"""The first lives import, and fill what Python keeps for good."""


@attrs.frozen
class Left:
    """What a process has that a broker could leave behind."""

    threads: int
    descriptors: int
    sockets: int
    handlers: int
    """Number of handlers of all loggers."""
    filters_max: int
    """The most that one logger has: a module may bring one with its import."""
    signal_handlers: list[str]
    brokers: int
    """Brokers and stores that something still refers to."""


def left() -> Left:
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
        signal_handlers=[repr(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)],
        brokers=sum(isinstance(one, (flintmq.Broker, flintmq.NameServer, MessageStore)) for one in gc.get_objects()),
    )


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def in_own_thread(folder: Path) -> None:
    """One life by ``with``, with a client over the wire that is cut off at the end."""
    with flintmq.Broker(settings(folder)) as broker:
        wire = Wire(broker.address)
        assert wire.send("T", b"x").code == 0
        broker.put([flintmq.Message("T", b"y")])
    wire.close()


def in_the_callers_loop(folder: Path) -> None:
    """One life by ``async with``, of a name server as well."""

    async def live() -> None:
        async with flintmq.NameServer(settings(folder)) as names:
            config = settings(folder, f"namesrv.addresses={names.address}")
            async with flintmq.Broker(config) as broker:
                await broker.put([flintmq.Message("T", b"x")])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(live())


def refused_a_port(folder: Path) -> None:
    """One start that fails, because the port is in use: a program may try again until it is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = settings(folder, f"listen.port={taken.getsockname()[1]}")
        with pytest.raises(flintmq.FlintError, match="in use"), flintmq.Broker(config):
            raise AssertionError("the broker took a port that is in use")


LIVES = {life.__name__: life for life in (in_own_thread, in_the_callers_loop, refused_a_port)}


def main(life: str, lives: str, folder: str) -> None:
    for number in range(WARM_UP):
        LIVES[life](Path(folder) / f"warm-{number}")
    before, objects, memory_kib = left(), len(gc.get_objects()), resident_kib()
    for number in range(int(lives)):
        LIVES[life](Path(folder) / str(number))
    after = left()
    found = {"before": attrs.asdict(before), "after": attrs.asdict(after)}
    growth = {"objects": len(gc.get_objects()) - objects, "resident_kib": resident_kib() - memory_kib}
    print(json.dumps({**found, **growth}))


if __name__ == "__main__":
    main(*sys.argv[1:])
