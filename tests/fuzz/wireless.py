"""Servers without sockets: a connection is a :class:`ServerChannel` whose transport remembers what was written."""

from __future__ import annotations

import asyncio
from typing import Any

from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.wire.command import RemotingCommand, decode_command
from flintmq.remoting.wire.frame import FrameDecoder


class Transport(asyncio.Transport):
    """Takes what a channel writes. Closes as a socket does: the channel hears of it with the loop's next turn."""

    def __init__(self, channel: ServerChannel, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": ("127.0.0.1", 10911)})
        self._channel = channel
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written += map(bytes, list_of_data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits here."""

    def pause_reading(self) -> None:
        """Whoever feeds the channel does not ask."""

    def resume_reading(self) -> None:
        """Likewise."""

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._channel.connection_lost, None)


class Link:
    """One connection to a server."""

    def __init__(self, server: RemotingServer, port: int = 40_000) -> None:
        self.channel = ServerChannel(server)
        self.transport = Transport(self.channel, ("127.0.0.1", port))
        self.channel.connection_made(self.transport)

    @property
    def is_open(self) -> bool:
        return self.channel.is_open

    @property
    def is_waiting(self) -> bool:
        """Half a frame is there, and whatever comes next is taken for its rest."""
        return self.channel.partial_since_s is not None

    def feed(self, data: bytes) -> None:
        """What a socket would have read."""
        self.channel.data_received(data)

    def written(self) -> list[RemotingCommand]:
        """Everything written since the last call, decoded: what a server writes must be whole and well formed."""
        data, self.transport.written = b"".join(self.transport.written), []
        decoder = FrameDecoder()
        commands = [decode_command(frame) for frame in decoder.feed(data)]
        assert not decoder.pending_bytes, "the server wrote half a frame"
        return commands

    def close(self) -> None:
        self.transport.abort()
