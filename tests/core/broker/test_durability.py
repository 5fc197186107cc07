"""Every flush status has one answer, whichever way a message came in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flintmq.core.broker.durability import acknowledge, not_durable, until_flushed
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.response_code import ResponseCode
from flintmq.core.waiters import CompletedWaiter

CODES = {
    FlushStatus.FLUSHED: None,
    FlushStatus.TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    FlushStatus.SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    FlushStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    FlushStatus.FENCED: ResponseCode.SERVICE_NOT_AVAILABLE,
}


class LateWaiter:
    """A waiter that is done when a test says so."""

    status: FlushStatus | None = None

    def __init__(self) -> None:
        self.callbacks: list[Callable[[FlushStatus], None]] = []

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        self.callbacks.append(callback)


@pytest.mark.parametrize("status", list(FlushStatus))
def test_every_status_has_its_answer(status: FlushStatus) -> None:
    """A new status without a row would be acknowledged as if nothing had happened."""
    refusal = not_durable(status)
    assert (None if refusal is None else refusal.code) == CODES[status]
    assert refusal is None or (refusal.reason and refusal.key)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("status", list(FlushStatus))
def test_strict_acknowledges_what_rocketmq_does(status: FlushStatus, strict: bool) -> None:
    """Answers to 36 and 37 tell in RocketMQ of nothing but a store that takes no more."""
    refused = status is not FlushStatus.FLUSHED and (not strict or status is FlushStatus.FENCED)
    if refused:
        with pytest.raises(RefusedError):
            asyncio.run(acknowledge(CompletedWaiter(status), strict=strict))
    else:
        asyncio.run(acknowledge(CompletedWaiter(status), strict=strict))


def test_a_waiter_is_waited_for() -> None:
    """Its callback comes on the flush service's thread, and may come once more than anybody asked."""

    async def wait() -> FlushStatus:
        waiter = LateWaiter()
        waiting = asyncio.ensure_future(until_flushed(waiter))
        await asyncio.sleep(0)
        await asyncio.to_thread(waiter.callbacks[0], FlushStatus.TIMEOUT)
        await asyncio.to_thread(waiter.callbacks[0], FlushStatus.FLUSHED)
        return await waiting

    assert asyncio.run(wait()) is FlushStatus.TIMEOUT
