"""Clients put, pull and wait for messages with lines of text, over a socket. The broker finds the plugin by its entry point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from flintmq_line_listener.listener import LINE_MAX_BYTES

import flintmq


class Lines:
    """A client that sends lines of text to the listener, over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *lines: str) -> None:
        self.writer.write("".join(f"{line}\n" for line in lines).encode())

    async def answer(self) -> str:
        """Return the next line that the listener has sent; an empty text at the end of the connection."""
        return (await asyncio.wait_for(self.reader.readline(), 20)).decode().strip()

    async def ask(self, line: str) -> str:
        self.send(line)
        return await self.answer()


async def until(holds: Callable[[], bool]) -> None:
    """Run the event loop, which is also the broker's, until a condition holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


Live = Callable[[flintmq.Broker, Callable[[], Awaitable[Lines]]], Awaitable[None]]


def run(folder: Path, live: Live) -> None:
    """Run a broker that listens only for lines of text, on a free port."""
    text = "listen: {enable: false}\nline_listener: {port: 0}\ntopics: {default_queue_nums: 2}\n"
    (folder / "broker.yaml").write_text(text + f"store: {{path: {folder / 'store'}}}\n", encoding="utf-8")
    loaded = flintmq.load_config(folder / "broker.yaml", [], {})

    async def body() -> None:
        async with flintmq.Broker(loaded) as broker:
            host, _, port = broker.ready_words["lines"].rpartition(":")
            clients: list[Lines] = []

            async def connect() -> Lines:
                clients.append(Lines(*await asyncio.open_connection(host, int(port))))
                return clients[-1]

            try:
                await live(broker, connect)
            finally:
                for client in clients:
                    client.writer.close()

    asyncio.run(body())


def test_messages_are_put_and_pulled_with_lines_of_text(tmp_path: Path) -> None:
    """The broker chooses the queue of a message. A pull returns the body unchanged, even if it contains zeros and line ends."""

    async def live(_broker: flintmq.Broker, connect: Callable[[], Awaitable[Lines]]) -> None:
        client = await connect()
        stored, queue_id, queue_offset = (await client.ask("PUT Orders one%00%FF%0A")).split()
        assert (stored, queue_offset) == ("STORED", "0")
        assert await client.ask(f"PULL G Orders {queue_id} 0") == f"MESSAGE {queue_id} 0 one%00%FF%0A"
        assert await client.answer() == "END 1"
        assert await client.ask(f"PULL G Orders {queue_id} 1") == "END 1"

    run(tmp_path, live)


def test_a_hold_is_answered_when_a_message_arrives(tmp_path: Path) -> None:
    """Later requests of a connection wait for a held request: answers come in the order of the requests."""

    async def live(broker: flintmq.Broker, connect: Callable[[], Awaitable[Lines]]) -> None:
        holds, puts = await connect(), await connect()
        queue_id = (await puts.ask("PUT Orders first")).split()[1]
        holds.send(f"HOLD G Orders {queue_id} 1 20000", f"PULL G Orders {queue_id} 0")
        await until(lambda: len(broker.api.outlet.held) == 1)
        while (await puts.ask("PUT Orders second")).split()[1] != queue_id:
            assert len(broker.api.outlet.held) == 1, "a message of another queue is not waited for"
        assert [await holds.answer() for _ in range(2)] == [f"MESSAGE {queue_id} 1 second", "END 2"]
        assert await holds.answer() == f"MESSAGE {queue_id} 0 first"

    run(tmp_path, live)


def test_a_hold_ends_at_its_timeout_or_with_its_connection(tmp_path: Path) -> None:
    """If a client disconnects while a request waits for a message, the wait is cancelled."""

    async def live(broker: flintmq.Broker, connect: Callable[[], Awaitable[Lines]]) -> None:
        client, leaves = await connect(), await connect()
        queue_id = (await client.ask("PUT Orders first")).split()[1]
        assert await client.ask(f"HOLD G Orders {queue_id} 1 1") == "END 1"
        leaves.send(f"HOLD G Orders {queue_id} 1 20000")
        await until(lambda: len(broker.api.outlet.held) == 1)
        leaves.writer.close()
        await until(lambda: len(broker.api.outlet.held) == 0)

    run(tmp_path, live)


def test_a_wait_watches_every_queue_and_commits_no_offset(tmp_path: Path) -> None:
    """The request WAIT does not belong to a consumer group: no offset is committed, and no group is created."""

    async def live(broker: flintmq.Broker, connect: Callable[[], Awaitable[Lines]]) -> None:
        waits, puts = await connect(), await connect()
        first = int((await puts.ask("PUT Orders first")).split()[1])
        groups = len(broker.api.groups)
        ends = [1 if queue_id == first else 0 for queue_id in range(2)]
        for number in range(4):
            waits.send(f"WAIT Orders 20000 {ends[0]} {ends[1]}")
            await until(lambda: len(broker.api.outlet.held) == 1)
            queue_id = int((await puts.ask(f"PUT Orders {number}")).split()[1])
            assert await waits.answer() == f"MESSAGE {queue_id} {ends[queue_id]} {number}"
            ends[queue_id] += 1
            assert await waits.answer() == f"END {ends[0]} {ends[1]}"
        assert await waits.ask(f"WAIT Orders 1 {ends[0]} {ends[1]}") == f"END {ends[0]} {ends[1]}"
        assert not broker.api.offsets
        assert len(broker.api.groups) == groups

    run(tmp_path, live)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("PULL G Missing 0 0", "REFUSED topic.missing "),
        ("PUT a/b body", "REFUSED topic."),
        ("PULL G Orders none 0", "MALFORMED invalid literal"),
        ("HELLO", "MALFORMED no request"),
    ],
)
def test_an_invalid_line_is_answered_with_a_reason(tmp_path: Path, line: str, answer: str) -> None:
    """The answer to a refused request contains the id of the refusal's reason, as listed in docs/refusals.md. The connection
    stays open, so that the next request succeeds."""

    async def live(_broker: flintmq.Broker, connect: Callable[[], Awaitable[Lines]]) -> None:
        client = await connect()
        assert (await client.ask(line)).startswith(answer)
        assert (await client.ask("PUT Orders body")).startswith("STORED ")

    run(tmp_path, live)


def test_a_too_long_line_closes_the_connection(tmp_path: Path) -> None:
    """The length of a line is limited, so that a client cannot make the broker buffer a line without end."""

    async def live(_broker: flintmq.Broker, connect: Callable[[], Awaitable[Lines]]) -> None:
        client = await connect()
        client.writer.write(b"x" * (LINE_MAX_BYTES + 1))
        assert await client.answer() == "MALFORMED too long"
        assert await client.answer() == ""

    run(tmp_path, live)
