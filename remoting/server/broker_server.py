"""The server of a broker as features and request processors see it: :class:`~flintmq.core.kernel.ports.server.ServerPort`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.core.kernel.ports import Authenticator
    from flintmq.core.kernel.ports.server import RequestLatency
    from flintmq.remoting.server.pool import Pool
    from flintmq.remoting.server.server import RemotingServer


class BrokerServer:
    """One server, with the pools of its requests. Loop thread.

    Args:
        server: the sockets and the request table.
        pool: returns the pool of a name.
        authenticators: in force, in the order in which they are asked.
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
        # Bound once: the hot path calls them.
        self.at_turn_end = server.at_turn_end
        self.flush_soon = server.flush_soon
        self.must_wait = server.postponed.must_wait
        self.postpone = server.postponed.put
        self.latency: RequestLatency | None = None
        """What counts how long requests take; None if nothing measures."""
        self.answers_as_bytes = True
        """Whether a processor may write encoded answers to a channel: no plugin's hook reads them. The broker sets it when
        the hooks are made, before it listens."""

    def measure(self, latency: RequestLatency | None) -> None:
        """Have the server and its processors count how long requests take; None ends that."""
        self.latency = self._server.latency = latency
