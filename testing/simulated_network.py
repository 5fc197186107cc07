"""The network of a seeded loop, in memory. The network has delays, lost connections, refused connections and silent hosts.

The bytes of one direction arrive in order. The seed decides how they are delayed and split. If a test cuts a connection, the
bytes under way are lost, as in TCP when a machine dies, and both ends of the connection get an error. If a host is *silent*,
none of its bytes arrive, but neither end of its connections gets an error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from flintmq.testing.seeded_loop import SeededLoop

HIGH_WATER_BYTES: Final = 64 * 1024
"""Maximum number of bytes that are under way in one direction of a simulated connection. If more bytes are under way, the
writer is paused."""
CONNECT_TIMEOUT_S: Final = 127.0
"""Seconds after which an attempt to connect to a host that does not answer fails."""


class SimulatedNetwork:
    """The network of one :class:`SeededLoop`: connects the programs that run on it.

    Args:
        loop: runs both ends of each connection.
        latency_ms_max: the longest delay of the data of one write, in ms.
        piece_percent: percentage of writes that arrive in two pieces.
    """

    def __init__(self, loop: SeededLoop, *, latency_ms_max: int = 5, piece_percent: int = 10) -> None:
        self.loop = loop
        self.latency_ms_max = latency_ms_max
        self.piece_percent = piece_percent
        self.servers: dict[tuple[str, int], SimulatedServer] = {}
        self.connections: set[SimulatedTransport] = set()
        """The two ends of each open connection."""
        self.refusing: set[tuple[str, int]] = set()
        """Addresses (host, port) that refuse connections although a server listens there."""
        self.silent: set[tuple[str, int]] = set()
        """Addresses (host, port) of silent hosts. No bytes reach a silent host, and no bytes from a silent host arrive
        anywhere."""
        self._bound: set[tuple[str, int]] = set()
        """Addresses (host, port) that :meth:`bind` has reserved and at which no server listens yet."""
        self._next_port = 40_000
        loop.network = self

    def bind(self, host: str, port: int) -> SimulatedSocket:
        """Return a socket of the simulated network that may listen at an address. Raises ``OSError`` if the address is in
        use."""
        address = (host, port or self._port())
        self._check_free(address)
        self._bound.add(address)
        return SimulatedSocket(address, self)

    def release(self, address: tuple[str, int]) -> None:
        """Release an address that :meth:`bind` reserved. Idempotent."""
        self._bound.discard(address)

    def listen(self, protocol_factory: Callable[[], Any], host: str, port: int) -> SimulatedServer:
        """Return a server that listens at an address of the simulated network. Raises ``OSError`` when the address is in
        use."""
        address = (host, port or self._port())
        self._check_free(address)
        server = SimulatedServer(self, protocol_factory, address)
        self.servers[address] = server
        return server

    def _check_free(self, address: tuple[str, int]) -> None:
        if address in self.servers or address in self._bound:
            raise OSError(98, f"address already in use: {address[0]}:{address[1]}")

    async def connect(
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[SimulatedTransport, Any]:
        """Return the client's end of a new connection, and its protocol.

        Raises:
            ConnectionRefusedError: no server listens at the address, or the address refuses connections.
            TimeoutError: the host is silent.
        """
        address = (host, port)
        await asyncio.sleep(self.delay_s())
        if address in self.silent:
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise TimeoutError(110, f"connection timed out: {host}:{port}")
        server = self.servers.get(address)
        if server is None or address in self.refusing:
            raise ConnectionRefusedError(111, f"connection refused: {host}:{port}")
        own = ("127.0.0.1", self._port())
        client, served = SimulatedTransport(self, own, address), SimulatedTransport(self, address, own)
        client.peer, served.peer = served, client
        self.connections |= {client, served}
        accepted = server.protocol_factory()
        served.set_protocol(accepted)
        served.deliver(served.made)
        protocol = protocol_factory()
        client.set_protocol(protocol)
        client.connecting = made = self.loop.create_future()
        client.deliver(client.made)
        try:
            await made
        except asyncio.CancelledError:
            client.abort()
            raise
        return client, protocol

    def cut(self, address: tuple[str, int]) -> None:
        """Break every connection to or from an address: the bytes under way are lost, and both ends of each connection get an
        error."""
        for end in self._ends(address):
            end.lose(ConnectionResetError(104, "connection reset by peer"))

    def _ends(self, address: tuple[str, int]) -> Iterator[SimulatedTransport]:
        for end in sorted(self.connections, key=lambda end: end.names):
            if address in end.names:
                yield end

    def delay_s(self) -> float:
        """Return the delay, in seconds, after which data arrives at the other end of a simulated connection."""
        return self.loop.choices.below(self.latency_ms_max + 1) / 1000

    def _port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimulatedServer(asyncio.AbstractServer):
    """A server of the simulated network, which accepts connections at one address until it is closed."""

    def __init__(
        self, network: SimulatedNetwork, protocol_factory: Callable[[], Any], address: tuple[str, int]
    ) -> None:
        self.protocol_factory = protocol_factory
        self.address = address
        self._network = network

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        """The server's sockets, as in asyncio: a single object with the server's address."""
        return (SimulatedSocket(self.address, self._network),)

    def close(self) -> None:
        """Accept no more connections at the server's address. Open connections stay. Idempotent."""
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    def is_serving(self) -> bool:
        return self._network.servers.get(self.address) is self

    async def wait_closed(self) -> None:
        """Return at once, because a closed server does not wait for its open connections."""

    async def start_serving(self) -> None:
        """Do nothing: the server accepts connections as soon as it is created."""

    async def serve_forever(self) -> None:
        """Serve until the task that calls this method is cancelled."""
        await self._network.loop.create_future()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop


class SimulatedSocket:
    """An address of the simulated network, with those methods that sockets have for addresses."""

    def __init__(self, address: tuple[str, int], network: SimulatedNetwork) -> None:
        self._address = address
        self._network = network

    def listen(self, protocol_factory: Callable[[], Any]) -> SimulatedServer:
        """Start a server at the address, and return the server. The address is released when the server closes."""
        self._network.release(self._address)
        return self._network.listen(protocol_factory, *self._address)

    def close(self) -> None:
        """Release the address of the simulated network, unless a server uses it. Idempotent."""
        self._network.release(self._address)

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimulatedTransport(asyncio.Transport):
    """One end of a connection of the simulated network.

    The events of an end (made, data, end of data, loss) are delivered in order, by one callback at a time.
    """

    def __init__(self, network: SimulatedNetwork, own: tuple[str, int], other: tuple[str, int]) -> None:
        super().__init__({"sockname": own, "peername": other})
        self.names = (own, other)
        self.peer: SimulatedTransport
        self._network = network
        self._loop = network.loop
        self._protocol: Any = None
        self._deliveries: deque[tuple[float, Callable[[], object]]] = deque()
        """Events to deliver at this end of the connection, in order, each with the earliest time of its delivery."""
        self.connecting: asyncio.Future[None] | None = None
        """Future that is done when the client's connection is made. It is None at the server's end of the connection."""
        self._is_delivering = self._is_made = False
        self._is_closing = self._is_lost = self._is_reading_paused = False
        self._on_its_way_bytes = 0
        """Number of bytes that were written at this end of the connection and not yet delivered to the other end."""
        self._is_writing_paused = False

    # --- events that occur at this end of a connection ---

    def deliver(self, event: Callable[[], object], delay_s: float = 0.0) -> None:
        """Schedule an event at this end of a connection. The event occurs after ``delay_s``, and after all events that were
        scheduled earlier."""
        at_s = self._loop.time() + delay_s
        if self._deliveries:
            at_s = max(at_s, self._deliveries[-1][0])
        self._deliveries.append((at_s, event))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_delivering and self._deliveries and not self._is_reading_paused:
            self._is_delivering = True
            self._loop.call_at(self._deliveries[0][0], self._deliver_next)

    def _deliver_next(self) -> None:
        self._is_delivering = False
        if self._is_reading_paused or not self._deliveries:
            return
        if not self._is_lost and self._network.silent.intersection(self.names):
            self._is_delivering = True
            self._loop.call_later(0.1, self._deliver_next)
            return
        _, event = self._deliveries.popleft()
        try:
            event()
        finally:
            self._schedule()

    def made(self) -> None:
        """Call the protocol's ``connection_made``, and mark the future :attr:`connecting` as done."""
        self._is_made = True
        self._protocol.connection_made(self)
        if self.connecting is not None and not self.connecting.done():
            self.connecting.set_result(None)

    def _received(self, data: bytes) -> None:
        self.peer._arrived(len(data))
        if not self._is_lost and not self._is_closing:
            self._protocol.data_received(data)

    def _ended(self) -> None:
        if not self._is_lost and not self._is_closing and not self._protocol.eof_received():
            self.close()

    def _arrived(self, size_bytes: int) -> None:
        self._on_its_way_bytes -= size_bytes
        if self._is_writing_paused and self._on_its_way_bytes <= HIGH_WATER_BYTES // 4 and not self._is_lost:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def lose(self, error: Exception | None) -> None:
        """Lose the connection at this end. Events that are still to be delivered at this end are dropped. Idempotent."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._deliveries.clear()
        self._is_reading_paused = False
        self._network.connections.discard(self)
        if self._is_made:
            self.deliver(lambda: self._protocol.connection_lost(error))
        # A connection that was never made has no protocol to notify, so the caller that connects gets the error.
        elif self.connecting is not None and not self.connecting.done():
            self.connecting.set_exception(error or ConnectionResetError(104, "connection reset by peer"))

    # --- methods of a transport that a protocol calls ---

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        whole = bytes(data)
        choices = self._loop.choices
        cut = choices.below(len(whole)) if len(whole) > 1 and choices.happens(self._network.piece_percent) else 0
        self._on_its_way_bytes += len(whole)
        for piece in (whole[:cut], whole[cut:]):
            if piece:
                self.peer.deliver(lambda piece=piece: self.peer._received(piece), self._network.delay_s())  # type: ignore[misc]
        if self._on_its_way_bytes > HIGH_WATER_BYTES and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send the bytes that were written to the connection, then end the connection. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        self.peer.deliver(self.peer._ended, self._network.delay_s())
        self._deliveries.clear()
        self._network.connections.discard(self)

        def closed() -> None:
            if not self._is_lost:
                self._is_lost = True
                self._protocol.connection_lost(None)

        self.deliver(closed)

    def abort(self) -> None:
        """End the connection at once; the other end of the connection gets an error."""
        if not self._is_lost:
            self.peer.deliver(lambda: self.peer.lose(ConnectionResetError(104, "connection reset by peer")))
            self.lose(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._schedule()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the limits of the connection's write buffer are fixed."""

    def get_write_buffer_size(self) -> int:
        return self._on_its_way_bytes

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol
