"""The answer to a client whose message cannot be stored because disk space or file descriptors are used up."""

from __future__ import annotations

import resource

from flintmq.core.errors import RefusedError, StoreExhaustedError, StoreFullError
from flintmq.core.response_code import ResponseCode


def no_room(error: StoreFullError) -> RefusedError:
    """Return the error that refuses a client's message (SERVICE_NOT_AVAILABLE) because the disk is full, or because the process
    has no file descriptors or memory maps left."""
    if isinstance(error, StoreExhaustedError):
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now: the broker's process has no descriptors or maps left",
            reason="store.exhausted",
            measured=f"{error}; ulimit -n is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}",
            key="ulimit -n (the process's limit of descriptors), vm.max_map_count",
        )
    return RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now: the broker's disk is full",
        reason="store.disk_full",
        measured=str(error),
        key="store.path (free some room there)",
    )
