"""Other processes, which tests wait for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true. Raises TimeoutError after 20 s."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, and whoever started it has asked how."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
