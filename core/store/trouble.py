"""What is wrong with a store, so that nothing may be written to it, as the answer that a client gets."""

from __future__ import annotations

from flintmq.core.errors import RefusedError, StoreError, StoreFormatError, StoreFullError
from flintmq.core.log.no_room import no_room
from flintmq.core.response_code import ResponseCode
from flintmq.core.retention.retention import DiskFull


def trouble_of(
    fence_reason: str | None, disk_full: DiskFull | None, dispatch_error: StoreError | None
) -> RefusedError | None:
    """Return the gravest thing that is wrong with a store; None when all is well.

    Args:
        fence_reason: why the store is fenced.
        disk_full: why writes are refused for want of space.
        dispatch_error: why dispatch stands still.
    """
    if fence_reason is not None:
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now: a sync failed and the store is fenced",
            reason="store.fenced",
            measured=fence_reason,
        )
    if disk_full is not None:
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now: the broker's disk is full",
            reason="store.disk_full",
            measured=disk_full.measured,
            key=disk_full.key,
        )
    return None if dispatch_error is None else _standing_still(dispatch_error)


def slave_refusal() -> RefusedError:
    """Return what a client gets that sends to a slave."""
    return RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now: the broker is a slave; send to its master",
        reason="store.slave",
        key="broker.role (brokerRole)",
    )


def _standing_still(error: StoreError) -> RefusedError:
    if isinstance(error, StoreFullError):
        return no_room(error)
    if isinstance(error, StoreFormatError):
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now: a record of the log cannot be read, and dispatch stands still; restart the broker",
            reason="store.damaged",
            measured=str(error),
        )
    return RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now: dispatch stands still",
        reason="store.dispatch",
        measured=str(error),
        key="dispatchers",
    )
