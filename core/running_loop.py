"""The running event loop of the caller's thread, or None."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in the caller's thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
