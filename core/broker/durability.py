"""What an acknowledgement waits for, and what is answered where the promise of durability was not kept."""

from __future__ import annotations

import asyncio

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import FlushStatus, FlushWaiter
from flintmq.core.response_code import ResponseCode


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


def not_durable(status: FlushStatus) -> RefusedError | None:
    """Return the answer to a client whose message was stored, but not kept as promised; None where it was.

    The only table from a flush status to an answer: sends, send-backs, replies, ended transactions and in-process puts use it
    (RocketMQ: ``SendMessageProcessor.handlePutMessageResult``).
    """
    match status:
        case FlushStatus.FLUSHED:
            return None
        case FlushStatus.SLAVE_TIMEOUT:
            return RefusedError(
                ResponseCode.FLUSH_SLAVE_TIMEOUT,
                "no slave held the message in time",
                reason="ha.timeout",
                key="ha.slave_timeout_ms (slaveTimeout)",
            )
        case FlushStatus.SLAVE_NOT_AVAILABLE:
            return RefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "no slave follows, or all are too far behind",
                reason="ha.no_slave",
                key="ha.slave_fallbehind_max_bytes (haSlaveFallbehindMax)",
            )
        case FlushStatus.TIMEOUT:
            return RefusedError(
                ResponseCode.FLUSH_DISK_TIMEOUT,
                "the flush did not end in time",
                reason="flush.timeout",
                key="flush.group_commit.sync_flush_timeout_ms (syncFlushTimeout)",
            )
        case FlushStatus.FENCED:
            return RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now: a sync failed, so the message may not be on disk",
                reason="store.fenced",
                key="store.path (see to the disk, then restart the broker)",
            )


async def acknowledge(waiter: FlushWaiter, *, strict: bool) -> None:
    """Wait until what was appended for a request is as durable as the flush strategy and replication promise.

    Args:
        waiter: of the append.
        strict: with ``store.compat: strict`` a late flush and a missing slave are no reason to answer anything but success,
            as in RocketMQ's answers to 36 and 37.

    Raises:
        RefusedError: it is stored, but the promise was not kept.
    """
    status = await until_flushed(waiter)
    if strict and status is not FlushStatus.FENCED:
        return
    refusal = not_durable(status)
    if refusal is not None:
        raise refusal
