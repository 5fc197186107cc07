"""Processes that this one starts and that say when they serve, by a line ``READY name=word …`` on their standard output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process


async def read_ready_words(process: Process) -> dict[str, str]:
    """Wait until a process says that it serves, or ends.

    Args:
        process: its standard output is a pipe of which nothing was read yet.

    Returns:
        The words of its READY line, by name; empty where it ended, or said something else first.
    """
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode("utf-8", "replace")
    return dict(word.partition("=")[::2] for word in line.split()[1:]) if line.startswith("READY ") else {}


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
