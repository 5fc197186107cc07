"""What the remoting tests share: the golden frames, and a peer that answers by script."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.remoting.wire.command import RemotingCommand, decode_command, encode_command, response
from flintmq.remoting.wire.frame import FrameDecoder


def _golden_folder() -> Path:
    shared = os.environ.get("FLINTMQ_SHARED")
    return (Path(shared) if shared else Path(str(flintmq.__file__)).parent.parent / "shared") / "golden"


@pytest.fixture(scope="session")
def golden_frames() -> list[dict[str, Any]]:
    """Requests and answers of RocketMQ as they were on the wire; see the golden data's README."""
    path = _golden_folder() / "frames" / "frames.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the golden frames are not at {path} (set FLINTMQ_SHARED)")
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


Answer = Callable[[RemotingCommand], RemotingCommand | None]


class FakePeer(asyncio.Protocol):
    """A server that answers by script, one object for all its connections. Use ``async with``.

    ``answers`` maps request codes to functions; None as an answer means silence; a code without one is answered 0.
    """

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.requests: list[RemotingCommand] = []
        self.responses: list[RemotingCommand] = []
        self.transports: list[asyncio.Transport] = []
        self.connections_made = 0
        self.address = ""

    async def __aenter__(self) -> FakePeer:
        self._server = await asyncio.get_running_loop().create_server(lambda: _PeerConnection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        for transport in self.transports:
            transport.abort()
        self._server.close()
        await self._server.wait_closed()

    def received(self, transport: asyncio.Transport, command: RemotingCommand) -> None:
        if command.is_response:
            self.responses.append(command)
        else:
            self.requests.append(command)
            answer = self.answers.get(command.code, lambda request: response(request, 0))(command)
            if answer is not None and not command.is_oneway:
                transport.write(encode_command(answer))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Lets the loop turn until something is so."""
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - any state of client or peer may be waited for
                await asyncio.sleep(0.001)

    def push(self, command: RemotingCommand) -> None:
        """Sends a command over every connection."""
        for transport in self.transports:
            transport.write(encode_command(command))

    def of_code(self, code: int) -> list[RemotingCommand]:
        return [request for request in self.requests if request.code == code]


class _PeerConnection(asyncio.Protocol):
    def __init__(self, peer: FakePeer) -> None:
        self.peer = peer
        self.decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer.transports.append(transport)
        self.peer.connections_made += 1

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            self.peer.received(self.transport, decode_command(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.transports.remove(self.transport)


@pytest.fixture
def fake_peer() -> type[FakePeer]:
    """The class: make it inside the running loop."""
    return FakePeer
