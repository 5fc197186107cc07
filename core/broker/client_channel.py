"""A client as the broker knows it: its connection and what it said of itself."""

from __future__ import annotations

import msgspec

from flintmq.core.kernel.ports.channel import Channel


class ClientChannelInfo(msgspec.Struct, eq=False):
    """One client of one group. Compared by identity."""

    channel: Channel
    client_id: str
    language: str = "JAVA"
    """A name of the protocol's language list."""
    version: int = 0
    """Ordinal of the client's version."""
    last_update_ms: int = 0
    """Wall-clock time of the last heartbeat, for tools."""
    last_update_s: float = 0.0
    """The same on the monotonic clock, which decides expiry."""
