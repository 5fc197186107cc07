"""The event loop of a thread, where it has one."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in the caller's thread; None where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
