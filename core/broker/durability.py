"""Waiting for a flush in a coroutine."""

from __future__ import annotations

import asyncio

from flintmq.core.ports import FlushStatus, FlushWaiter


async def until_flushed(waiter: FlushWaiter) -> FlushStatus:
    """Waits on the running loop until a flush waiter is done; its callback comes from the flush service's thread."""
    status = waiter.status
    if status is not None:
        return status
    loop = asyncio.get_running_loop()
    future: asyncio.Future[FlushStatus] = loop.create_future()

    def finish(final: FlushStatus) -> None:
        if not future.done():
            future.set_result(final)

    def done(final: FlushStatus) -> None:
        loop.call_soon_threadsafe(finish, final)

    waiter.add_done_callback(done)
    return await future
