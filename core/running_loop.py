"""The event loop that runs in the caller's thread."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in the caller's thread; None if no event loop runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
