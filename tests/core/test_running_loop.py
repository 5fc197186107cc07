"""Whether a call may wait depends on what runs in its own thread, not in another one."""

from __future__ import annotations

import asyncio

from flintmq.core.running_loop import running_loop


def test_running_loop_returns_the_loop_of_the_calling_thread() -> None:
    """A thread beside a running loop has none."""

    async def inside() -> None:
        assert running_loop() is asyncio.get_running_loop()
        assert await asyncio.to_thread(running_loop) is None

    assert running_loop() is None
    asyncio.run(inside())
