"""The open connections of one server: limits of their number and of their buffers, and the closing of idle connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from flintmq.core.limits import FIRST_FRAME_TIMEOUT_S, FRAME_TIMEOUT_S
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.request_gate import ServerHooks


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits that apply to all connections of one server together."""

    connections: int
    """Maximum number of connections. Further connections are closed at once (``listen.max_connections``)."""
    connections_per_address: int
    """Maximum number of connections from one address. Further connections are closed at once
    (``listen.max_connections_per_address``)."""
    buffered_bytes: int
    """Maximum total size of the incomplete frames and unsent answers of all connections (``listen.max_buffered_bytes``)."""


class Connections:
    """The open connections of one server. Used only on the event loop's thread.

    Args:
        limits: limits of all connections together.
        idle_timeout_ms: time after which a connection is closed if no byte is received or sent. The time may change while the
            server runs.
        on_closed: called with each connection that has ended.
    """

    def __init__(
        self, limits: ConnectionLimits, idle_timeout_ms: int, on_closed: Callable[[ServerChannel], None]
    ) -> None:
        self.idle_timeout_ms = idle_timeout_ms
        self.channels: set[ServerChannel] = set()
        self.of_address: Counter[str] = Counter()
        """Number of open connections, keyed by the host of the peer."""
        self.buffered_bytes = 0
        """Sum of the buffered bytes that connections have reported with :meth:`holds`. Connections with few buffered bytes do
        not report."""
        self._limits = limits
        self._on_closed = on_closed
        self._buffered: dict[ServerChannel, int] = {}
        self._hooks = ServerHooks()
        self._announced: set[ServerChannel] = set()
        """Connections for which the plugins' hooks ``connected`` were called. The hooks ``idle``, ``failed`` and ``closed`` are
        called only for these connections. The set is empty if no plugin has hooks for connections."""
        self._all_closed: asyncio.Future[None] | None = None

    def hook(self, hooks: ServerHooks) -> None:
        """Set the hooks of plugins that are called when connections open, close, fail or are idle."""
        self._hooks = hooks

    def opened(self, channel: ServerChannel) -> str:
        """Add a new connection of a client.

        Return the reason why the connection exceeds a limit and must be closed; empty if no limit is exceeded.
        """
        self.channels.add(channel)
        self.of_address[channel.remote_host] += 1
        if len(self.channels) > self._limits.connections:
            return "too many connections (listen.max_connections)"
        if self.of_address[channel.remote_host] > self._limits.connections_per_address:
            return "too many connections of its address (listen.max_connections_per_address)"
        if self._hooks.are_of_connections:
            self._announced.add(channel)
            for connected in self._hooks.connected:
                connected(channel)
        return ""

    def has_room(self, silent: int) -> bool:
        """Return whether one more connection may be accepted.

        Args:
            silent: number of connections that are accepted, have sent nothing yet, and are not added with :meth:`opened`.
        """
        return len(self.channels) + silent < self._limits.connections

    def holds(self, channel: ServerChannel, size_bytes: int) -> None:
        """Record the buffered bytes of a connection. If the total exceeds its limit, close the connection with the most
        buffered bytes."""
        self.buffered_bytes += size_bytes - self._buffered.pop(channel, 0)
        if size_bytes:
            self._buffered[channel] = size_bytes
        if self.buffered_bytes > self._limits.buffered_bytes:
            largest = max(self._buffered, key=self._buffered.__getitem__)
            held = self._buffered.pop(largest)
            self.buffered_bytes -= held
            largest.close(f"it holds {held} bytes, the most of all connections (listen.max_buffered_bytes)")

    def failed(self, channel: ServerChannel, error: Exception) -> None:
        """Call the plugins' hooks for a connection that ends because of an error."""
        if channel in self._announced:
            for failed in self._hooks.failed:
                failed(channel, error)

    def closed(self, channel: ServerChannel, error: Exception | None) -> None:
        """Remove a connection that has ended, and call the plugins' hooks for ended connections.

        Args:
            channel: the connection.
            error: the error of the network that ended the connection; None if the connection ended without an error.
        """
        if channel in self._announced:
            if error is not None:
                self.failed(channel, error)
            self._announced.discard(channel)
            for closed in self._hooks.closed:
                closed(channel)
        self.channels.discard(channel)
        self.buffered_bytes -= self._buffered.pop(channel, 0)
        self.of_address[channel.remote_host] -= 1
        if not self.of_address[channel.remote_host]:
            del self.of_address[channel.remote_host]
        if not self.channels and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)
        self._on_closed(channel)

    def sweep(self, now_s: float) -> None:
        """Close connections that are idle, and connections with an incomplete frame that is overdue.

        A new connection may be silent as long as any other connection, because clients open pools of connections.

        Args:
            now_s: time of the monotonic clock in seconds.
        """
        for channel in list(self.channels):
            if now_s - channel.active_s > self.idle_timeout_ms / 1000:
                if channel in self._announced:
                    for idle in self._hooks.idle:
                        idle(channel)
                channel.close(f"idle for {now_s - channel.active_s:.0f} s")
            elif channel.partial_since_s is not None:
                limit_s = FRAME_TIMEOUT_S if channel.has_spoken else FIRST_FRAME_TIMEOUT_S
                if now_s - channel.partial_since_s > limit_s:
                    channel.close("the rest of a frame did not arrive in time")

    async def close(self, linger_s: float) -> None:
        """Close every connection of the server.

        After `linger_s` seconds, drop the answers that are not sent yet, and close the connections that are still open.
        """
        for channel in list(self.channels):
            channel.close()
        try:
            async with asyncio.timeout(linger_s):
                await self._wait_for_none()
        except TimeoutError:
            for channel in list(self.channels):
                channel.abort()
            await self._wait_for_none()

    async def _wait_for_none(self) -> None:
        while self.channels:
            self._all_closed = asyncio.get_running_loop().create_future()
            await self._all_closed
