"""The part of a broker's server that features and request processors use.

It implements :class:`~flintmq.core.kernel.ports.server.ServerPort`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.core.kernel.ports import Authenticator
    from flintmq.core.kernel.ports.server import RequestLatency
    from flintmq.remoting.server.pool import Pool
    from flintmq.remoting.server.server import RemotingServer


class BrokerServer:
    """The interface that features and request processors use to reach a broker's server. Used only on the event loop's thread.

    Args:
        server: the sockets and the request table.
        pool: returns the pool that has the given name.
        authenticators: the broker's authenticators, in the order in which they are called.
    """

    __slots__ = (
        "_server",
        "answers_as_bytes",
        "at_turn_end",
        "authenticators",
        "flush_soon",
        "latency",
        "must_wait",
        "pool",
        "postpone",
    )

    def __init__(
        self, server: RemotingServer, pool: Callable[[str], Pool], authenticators: tuple[Authenticator, ...]
    ) -> None:
        self._server = server
        self.pool = pool
        self.authenticators = authenticators
        # The server's methods are bound once, because they are called for every request.
        self.at_turn_end = server.postponed.at_turn_end
        self.flush_soon = server.flush_soon
        self.must_wait = server.postponed.must_wait
        self.postpone = server.postponed.put
        self.latency: RequestLatency | None = None
        """Counters of the latency of requests; None if latency is not recorded."""
        self.answers_as_bytes = True
        """Whether a processor may write encoded answers to a channel, which is the case if no plugin's hook reads answers. The
        broker sets this attribute after it has collected the hooks, before it listens."""

    def measure(self, latency: RequestLatency | None) -> None:
        """Make the server and its processors record the latency of requests in `latency`; None stops the recording."""
        self.latency = self._server.latency = latency
