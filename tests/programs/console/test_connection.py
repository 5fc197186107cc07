"""Peers that are silent, or slow, cost the console's other visitors nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("uvicorn", reason="the extra 'console' is not installed")
pytest.importorskip("jinja2", reason="the extra 'console' is not installed")

from flintmq.config.sections.console import ConsoleSection
from flintmq.programs.console import connection
from flintmq.programs.console.server import ConsoleServer

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
SLOW_FORM = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken="


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, int]]:
    async with ConsoleServer("127.0.0.1:9", ConsoleSection(port=0)) as server, asyncio.timeout(60):
        host, _, port = server.address.rpartition(":")
        yield host, int(port)


async def opened(address: tuple[str, int], stack: contextlib.AsyncExitStack, data: bytes = b"") -> Pair:
    reader, writer = await asyncio.open_connection(*address)
    stack.callback(writer.close)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def status(address: tuple[str, int]) -> bytes:
    async with contextlib.AsyncExitStack() as stack:
        reader, _ = await opened(address, stack, GET)
        return (await reader.readline()).split()[1]


async def end_of(pair: Pair) -> None:
    with contextlib.suppress(ConnectionError):
        while await pair[0].read(65_536):
            pass


@pytest.mark.parametrize("sent", [b"", b"GET / HT", SLOW_FORM], ids=["nothing", "half a head", "half a form"])
def test_silent_connections_do_not_delay_other_requests(sent: bytes) -> None:
    """More of them than requests may be under way: the next visitor is answered all the same."""

    async def run() -> None:
        async with serving() as address, contextlib.AsyncExitStack() as stack:
            for _ in range(connection.REQUESTS_MAX + 20):
                await opened(address, stack, sent)
            for _ in range(5):
                assert await status(address) == b"200"

    asyncio.run(run())


def test_the_connection_with_the_longest_silence_is_closed_if_the_connection_limit_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 10)

    async def run() -> None:
        async with serving() as address, contextlib.AsyncExitStack() as stack:
            first = await opened(address, stack)
            assert await status(address) == b"200"  # so the first one is known to the server
            for _ in range(10):
                await opened(address, stack)
            await end_of(first)
            assert await status(address) == b"200"

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"G", SLOW_FORM, GET[:-2]], ids=["nothing", "a byte", "form", "head"])
def test_a_connection_is_closed_if_its_request_is_not_complete_within_the_read_timeout(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts for the whole request: a byte now and then does not make it longer."""
    monkeypatch.setattr(connection, "READ_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with serving() as address, contextlib.AsyncExitStack() as stack:
            await end_of(await opened(address, stack, sent))

    asyncio.run(run())


def test_the_first_byte_of_a_second_request_on_a_connection_starts_the_read_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends the time that a connection may be kept between requests, and so must begin another."""
    monkeypatch.setattr(connection, "READ_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with serving() as address, contextlib.AsyncExitStack() as stack:
            reader, writer = await opened(address, stack, GET.replace(b"Connection: close\r\n", b""))
            assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
            writer.write(b"G")
            await end_of((reader, writer))

    asyncio.run(run())


def test_a_connection_is_closed_if_the_peer_does_not_read_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would keep a request under way, and what it was answered, for as long as it likes."""
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 0.2)
    requests = b"GET /static/console.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000

    cut = connection.Connection.cut

    async def run() -> None:
        is_cut = asyncio.Event()

        def noted(one: connection.Connection) -> None:
            cut(one)
            is_cut.set()

        monkeypatch.setattr(connection.Connection, "cut", noted)
        async with serving() as address:
            with socket.socket() as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.connect(address)
                await asyncio.to_thread(peer.sendall, requests)
                await is_cut.wait()
            assert await status(address) == b"200"

    asyncio.run(run())
