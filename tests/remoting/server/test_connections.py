"""One peer cannot take the memory or the places of all others, and every connection is accounted until it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from flintmq.core.limits import FIRST_FRAME_TIMEOUT_S, FRAME_TIMEOUT_S
from flintmq.remoting.server.connections import ConnectionLimits, Connections
from flintmq.remoting.server.request_gate import ServerHooks

IDLE_MS = 120_000


@attrs.define(eq=False, slots=False)
class Peer:
    """As much of a connection as is looked at."""

    remote_host: str = "10.0.0.1"
    active_s: float = 0.0
    has_spoken: bool = True
    partial_since_s: float | None = None
    closed_for: str | None = None

    def close(self, reason: str = "") -> None:
        self.closed_for = reason


class Table(Connections):
    """Connections that remember who ended."""

    def __init__(self, **limits: int) -> None:
        given = {"connections": 10, "connections_per_address": 5, "buffered_bytes": 100} | limits
        self.ended: list[Any] = []
        super().__init__(ConnectionLimits(**given), IDLE_MS, self.ended.append)

    def add(self, **facts: Any) -> Any:
        """A peer that connects; returns it with why it was turned away."""
        peer: Any = Peer(**facts)
        return peer, self.opened(peer)


def test_connections_above_a_connection_limit_are_refused() -> None:
    """The limits hold for all peers together and for each address; an ended connection no longer counts."""
    table = Table(connections=3, connections_per_address=2)
    first, _ = table.add()
    assert table.add()[1] == ""
    assert "connections_per_address" in table.add()[1]
    assert "max_connections)" in table.add(remote_host="10.0.0.2")[1]
    assert table.of_address == {"10.0.0.1": 3, "10.0.0.2": 1}
    for peer in list(table.channels):
        table.closed(peer, None)
    assert not table.of_address
    assert first in table.ended
    assert table.add()[1] == ""


def test_the_connection_with_the_most_buffered_bytes_is_closed_if_the_total_exceeds_the_limit() -> None:
    """Not the one that happens to be accounted last."""
    table = Table(buffered_bytes=100)
    large, small = table.add()[0], table.add()[0]
    table.holds(large, 70)
    table.holds(small, 20)
    table.holds(small, 25)
    assert (large.closed_for, table.buffered_bytes) == (None, 95)
    table.holds(small, 31)
    assert "70 bytes" in large.closed_for
    assert (small.closed_for, table.buffered_bytes) == (None, 31)
    table.closed(small, None)
    assert table.buffered_bytes == 0


@pytest.mark.parametrize(
    ("facts", "at_s", "reason"),
    [
        ({}, IDLE_MS / 1000, None),
        ({}, IDLE_MS / 1000 + 1, "idle"),
        ({"has_spoken": False}, IDLE_MS / 1000, None),
        ({"has_spoken": False}, IDLE_MS / 1000 + 1, "idle"),
        ({"has_spoken": False, "partial_since_s": 5.0}, FIRST_FRAME_TIMEOUT_S + 5, None),
        ({"has_spoken": False, "partial_since_s": 5.0}, FIRST_FRAME_TIMEOUT_S + 6, "the rest of a frame"),
        ({"partial_since_s": 5.0}, FRAME_TIMEOUT_S + 5, None),
        ({"partial_since_s": 5.0}, FRAME_TIMEOUT_S + 6, "the rest of a frame"),
    ],
)
def test_a_connection_that_sends_no_complete_frame_within_its_time_limit_is_closed(
    facts: dict[str, Any], at_s: float, reason: str | None
) -> None:
    """At the limit it stays, beyond it is closed: a descriptor is held for nothing."""
    table = Table()
    peer, _ = table.add(**facts)
    table.sweep(at_s)
    assert (peer.closed_for is None) if reason is None else (reason in peer.closed_for)


def test_connection_hooks_are_called_once_for_each_connection_event() -> None:
    """They learn neither the begin nor the end of a refused connection."""
    heard: list[tuple[str, Any]] = []

    def note(event: str) -> Any:
        return (lambda channel, *_error: heard.append((event, channel)),)

    table = Table(connections=1)
    table.hook(ServerHooks(connected=note("open"), closed=note("close"), failed=note("fail"), idle=note("idle")))
    peer, _ = table.add()
    other, refused = table.add()
    assert refused
    table.closed(other, ConnectionResetError())
    table.sweep(IDLE_MS / 1000 + 1)
    table.closed(peer, ConnectionResetError())
    assert heard == [("open", peer), ("idle", peer), ("fail", peer), ("close", peer)]


def test_closing_a_server_waits_for_connections_to_close_and_aborts_those_that_take_too_long() -> None:
    """A peer that never reads its answers must not keep a broker from stopping."""

    async def close() -> list[str]:
        table = Table()
        done: list[str] = []
        quick, slow = table.add()[0], table.add()[0]
        loop = asyncio.get_running_loop()
        slow.abort = lambda: (done.append("cut"), loop.call_soon(table.closed, slow, None))
        quick.close = lambda: (done.append("closed"), loop.call_soon(table.closed, quick, None))
        await table.close(0.01)
        assert not table.channels
        return done

    assert asyncio.run(close()) == ["closed", "cut"]
