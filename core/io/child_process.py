"""Processes that this one starts and that say when they serve, by a line ``READY name=word …`` on their standard output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio import StreamReader
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable

_followed: set[asyncio.Task[None]] = set()


async def read_ready_words(process: Process, printed: Callable[[str], None]) -> dict[str, str]:
    """Wait until a process says that it serves, or ends. Its output is read to the end: a full pipe would stop it.

    Args:
        process: its standard output is a pipe of which nothing was read yet.
        printed: called with each other line, before and after READY; of a line beyond 64 KiB with its end only.

    Returns:
        The words of its READY line, by name; empty where it ended without one.
    """
    assert process.stdout is not None
    lines = _lines(process.stdout)
    async for line in lines:
        if line.startswith("READY "):
            rest = asyncio.create_task(_follow(lines, printed), name=f"output of process {process.pid}")
            _followed.add(rest)  # the loop itself keeps no task alive
            rest.add_done_callback(_followed.discard)
            return dict(word.partition("=")[::2] for word in line.split()[1:])
        printed(line)
    return {}


async def _lines(stream: StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the stream's limit; what was read of it is gone
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\n")


async def _follow(lines: AsyncIterator[str], printed: Callable[[str], None]) -> None:
    async for line in lines:
        printed(line)


async def end_process(process: Process, timeout_s: float) -> bool:
    """End a process in good order by SIGTERM, and by force where that takes longer; its standard input is a pipe.

    Returns:
        False where it had to be killed.
    """
    in_good_order = True
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        in_good_order = False
        _signal(process, signal.SIGKILL)
        await process.wait()
    assert process.stdin is not None
    process.stdin.close()
    return in_good_order


def _signal(process: Process, number: int) -> None:
    # Process.terminate() and kill() would first look whether it ended, and asyncio could not learn how any more.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
