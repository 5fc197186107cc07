"""The simulated network behaves as TCP does: order, loss, refusal, silence, and a writer that is slowed down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SeededLoop
from flintmq.testing.simulated_network import SimulatedNetwork

HOST, PORT = "broker", 10_911


class Peer(asyncio.Protocol):
    """Notes what happens to one end."""

    def __init__(self) -> None:
        self.data = b""
        self.events: list[str] = []
        self.transport: Any = None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.events.append("data")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else f"lost: {type(exc).__name__}")
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.events.append("paused")

    def resume_writing(self) -> None:
        self.events.append("resumed")


def run(seed: int, main: Callable[[SimulatedNetwork, list[Peer]], Awaitable[None]]) -> None:
    loop = SeededLoop(Choices(seed))
    network = SimulatedNetwork(loop, piece_percent=50)
    served: list[Peer] = []

    async def begin() -> None:
        def accept() -> Peer:
            served.append(Peer())
            return served[-1]

        await loop.create_server(accept, HOST, PORT)
        await main(network, served)

    loop.run(begin())
    assert not loop.errors


async def connect() -> Peer:
    _, protocol = await asyncio.get_running_loop().create_connection(Peer, HOST, PORT)
    return protocol


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_in_order_before_the_end_of_the_connection(seed: int) -> None:
    async def main(_network: SimulatedNetwork, served: list[Peer]) -> None:
        client = await connect()
        sent = b"".join(b"%d," % number for number in range(300))
        for at in range(0, len(sent), 17):
            client.transport.write(sent[at : at + 17])
        client.transport.close()
        await served[0].lost
        assert served[0].data == sent
        assert (served[0].events[0], served[0].events[-1]) == ("made", "lost")
        assert await client.lost is None

    run(seed, main)


def test_connections_to_a_refusing_or_closed_address_are_refused() -> None:
    async def main(network: SimulatedNetwork, _served: list[Peer]) -> None:
        network.refusing.add((HOST, PORT))
        with pytest.raises(ConnectionRefusedError):
            await connect()
        with pytest.raises(ConnectionRefusedError):
            await network.loop.create_connection(Peer, HOST, PORT + 1)

    run(1, main)


def test_a_cut_network_connection_fails_at_both_ends() -> None:
    async def main(network: SimulatedNetwork, served: list[Peer]) -> None:
        client = await connect()
        client.transport.write(b"on its way")
        network.cut((HOST, PORT))
        assert isinstance(await client.lost, ConnectionResetError)
        assert isinstance(await served[0].lost, ConnectionResetError)
        assert served[0].data == b""
        assert not network.connections

    run(1, main)


def test_an_unresponsive_host_receives_no_bytes_and_accepts_no_connections() -> None:
    async def main(network: SimulatedNetwork, served: list[Peer]) -> None:
        client = await connect()
        network.silent.add((HOST, PORT))
        client.transport.write(b"late")
        await asyncio.sleep(60)
        assert served[0].data == b""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await connect()
        network.silent.clear()
        await asyncio.sleep(1)
        assert served[0].data == b"late"

    run(1, main)


def test_a_writer_is_paused_while_the_other_end_does_not_read() -> None:
    async def main(_network: SimulatedNetwork, served: list[Peer]) -> None:
        client = await connect()
        await asyncio.sleep(1)
        served[0].transport.pause_reading()
        client.transport.write(bytes(100_000))
        await asyncio.sleep(1)
        assert (client.events, served[0].data) == (["made", "paused"], b"")
        served[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["made", "paused", "resumed"]
        assert len(served[0].data) == 100_000

    run(1, main)


def test_a_closed_server_accepts_nothing_and_frees_its_address() -> None:
    async def main(network: SimulatedNetwork, _served: list[Peer]) -> None:
        network.servers[HOST, PORT].close()
        with pytest.raises(ConnectionRefusedError):
            await connect()
        await network.loop.create_server(Peer, HOST, PORT)
        with pytest.raises(OSError, match="in use"):
            await network.loop.create_server(Peer, HOST, PORT)

    run(1, main)


def test_a_bound_socket_reserves_its_address_before_it_listens() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        sock = loop.bind(HOST, PORT)
        assert sock.getsockname() == (HOST, PORT)
        with pytest.raises(OSError, match="in use"):
            loop.bind(HOST, PORT)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Peer, HOST, PORT)
        server = await loop.create_server(Peer, sock=sock)
        await loop.create_connection(Peer, HOST, PORT)
        sock.close()
        assert server.is_serving()
        server.close()
        loop.bind(HOST, PORT).close()
        loop.bind(HOST, PORT)
        assert loop.bind(HOST, 0).getsockname() != loop.bind(HOST, 0).getsockname()

    loop = SeededLoop(Choices(0))
    SimulatedNetwork(loop)
    loop.run(main())
