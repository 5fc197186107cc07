"""Clients must notice at once that a server is gone: Java's wait for half a minute for the answers to their pulls otherwise."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from flintmq.remoting.server import server
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.tests.integration.bare_wire import Wire


@pytest.fixture(params=["turns", "transports"])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker with sockets of its own, and one that leaves them to its loop, as where the loop has no epoll."""
    if request.param == "transports":
        monkeypatch.setattr(server, "watches_descriptors", lambda loop: False)
    with EmbeddedBroker() as running:
        yield running


def lingering(broker: EmbeddedBroker) -> list[tuple[int, int]]:
    """SO_LINGER of every connection that a broker has."""

    async def ask() -> list[tuple[int, int]]:
        found = []
        for channel in broker.broker.server.connections.channels:
            assert channel._transport is not None
            sock = channel._transport.get_extra_info("socket")
            found.append(struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))
        return found

    return broker.broker.call(ask)


def test_a_stopping_server_closes_connections_without_a_tcp_reset(broker: EmbeddedBroker) -> None:
    """A reset would take the last answers along."""
    wires = [Wire(broker.address) for _ in range(2)]
    for wire in wires:
        wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert (1, 0) in lingering(broker)
    # One ends its side first; the answer to what it asked before is still whole.
    opaque = wires[0].post(RequestCode.GET_ALL_TOPIC_CONFIG)
    wires[0].socket.shutdown(socket.SHUT_WR)
    assert wires[0].answer(opaque).code == 0
    assert wires[0].socket.recv(1) == b""
    broker.stop()
    assert wires[1].socket.recv(1) == b""
    for wire in wires:
        wire.close()
