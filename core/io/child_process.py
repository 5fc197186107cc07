"""Functions for child processes, which print a line ``READY name=word …`` to their standard output once they serve."""

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
    """Wait until a process prints its READY line, or ends. The process's later output is read in the background, so that the
    pipe never fills.

    Args:
        process: the process, whose standard output is an unread pipe.
        printed: called with each line before and after the READY line. If a line is longer than 64 KiB, its first part is lost.

    Returns:
        The words of the READY line, keyed by name; empty if the process ended without a READY line.
    """
    assert process.stdout is not None
    lines = _lines(process.stdout)
    async for line in lines:
        if line.startswith("READY "):
            rest = asyncio.create_task(_follow(lines, printed), name=f"output of process {process.pid}")
            # The set ``_followed`` keeps the task alive, because the event loop keeps only weak references to tasks.
            _followed.add(rest)
            rest.add_done_callback(_followed.discard)
            return dict(word.partition("=")[::2] for word in line.split()[1:])
        printed(line)
    return {}


async def _lines(stream: StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            # The child process printed a line longer than the stream's limit. The first part of the line is lost.
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\n")


async def _follow(lines: AsyncIterator[str], printed: Callable[[str], None]) -> None:
    async for line in lines:
        printed(line)


async def end_process(process: Process, timeout_s: float) -> bool:
    """End a process by SIGTERM, and kill it if it has not ended after ``timeout_s``. Its standard input must be a pipe.

    Returns:
        False if the process had to be killed.
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
    # os.kill() is used, because Process.kill() polls the child first, which can take the exit status away from asyncio.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
