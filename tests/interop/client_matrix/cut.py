"""A network between clients and servers that a test can cut: no bytes pass in either direction, and no connection is closed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Literal, Self

from flintmq.tests.support.ports import free_ports

_CHUNK: Final = 65_536
Healing = Literal["resumes", "resets", "stays dead"]
"""The fates of connections that exist during a cut. Bytes sent during the cut arrive late, as TCP sends them again; or the
connections are reset; or no bytes pass on them any more, as behind a firewall that has forgotten them."""


class _Wire:
    """One connection, and the one behind it."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.through = asyncio.Event()
        """Set while bytes that are read on one side are written to the other."""
        self.through.set()

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class Network:
    """Forwards to a name server and to a broker, and has the name server's answers name itself in the broker's place.

    Args:
        name_server: ``host:port``.
        broker: likewise, as routes name it.
    """

    def __init__(self, name_server: str, broker: str) -> None:
        self._broker = broker.encode()
        self._targets = [name_server, broker]
        self._servers: list[asyncio.Server] = []
        self._wires: set[_Wire] = set()
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.name_server = ""
        """``host:port`` that clients are given."""
        self._stand_in = b""

    async def __aenter__(self) -> Self:
        _, _, port = self._broker.decode().rpartition(":")
        near = 0
        while len(str(near)) != len(port):  # so that frames keep their length
            (near,) = free_ports(1)
        self._servers = [
            await asyncio.start_server(lambda *ends: self._connected(self._targets[0], *ends), "127.0.0.1", 0),
            await asyncio.start_server(lambda *ends: self._connected(self._targets[1], *ends), "127.0.0.1", near),
        ]
        self.name_server = f"127.0.0.1:{self._servers[0].sockets[0].getsockname()[1]}"
        self._stand_in = f"127.0.0.1:{near}".encode()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for server in self._servers:
            server.close()
        self._whole.set()
        while self._tasks:  # one that was held connects now, and ends
            for wire in self._wires:
                wire.through.set()
                wire.abort()
            await asyncio.wait(self._tasks, timeout=0.05)

    def cut(self) -> None:
        """Let nothing through from now on; connections are made, and nobody speaks on them."""
        self._whole.clear()
        for wire in self._wires:
            wire.through.clear()

    def heal(self, healing: Healing) -> None:
        """Let new connections through again; connections that existed during the cut have the given fate."""
        self._whole.set()
        for wire in list(self._wires):
            if healing == "resumes":
                wire.through.set()
            elif healing == "resets":
                wire.abort()

    async def _connected(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await self._whole.wait()
        host, _, port = target.rpartition(":")
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            wire = _Wire((writer, far_writer))
            self._wires.add(wire)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._forward(wire, reader, far_writer))
                    both.create_task(self._forward(wire, far_reader, writer))
            except* OSError:
                pass  # either end is gone
            finally:
                self._wires.discard(wire)
                wire.abort()
        writer.transport.abort()

    async def _forward(self, wire: _Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await wire.through.wait()
            writer.write(data.replace(self._broker, self._stand_in))
            await writer.drain()
        wire.abort()
