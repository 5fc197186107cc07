"""Bounded queues of requests: how many of some codes may be under way at once."""

from __future__ import annotations

from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.server.handler_threads import HandlerThreads


class Pool:
    """A bounded queue of requests that are under way. Loop thread.

    Args:
        name: ``admission.<name>_queue`` of the configuration sets its capacity.
        capacity: in requests.
        key: the configuration key of the capacity, where it is another.
        threads: what runs its plain handlers; None for the loop.
    """

    __slots__ = ("capacity", "key", "name", "refused", "threads", "waiting")

    def __init__(self, name: str, capacity: int, *, key: str = "", threads: HandlerThreads | None = None) -> None:
        self.name = name
        self.capacity = capacity
        self.key = key or f"admission.{name}_queue"
        self.threads = threads
        self.waiting = 0
        """Requests taken and not answered yet."""
        self.refused = 0
        """Requests turned away because the queue was full."""

    def overload(self) -> RefusedError:
        """Count a request that the full queue does not take, and return its refusal."""
        self.refused += 1
        return RefusedError(
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]system busy, start flow control for a while",
            reason="queue.full",
            measured=f"{self.waiting} requests in queue {self.name}",
            key=self.key,
        )
