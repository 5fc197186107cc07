"""Connections of our own making must behave as asyncio's do, and read all before anything put off is done: peers that vanish,
do not read, or send much are every server's everyday life."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from flintmq.core.io.clock import SYSTEM_CLOCK, stopwatch_of
from flintmq.remoting.server import socket_turns
from flintmq.remoting.server.descriptors import bind
from flintmq.remoting.server.request_scheduler import RequestScheduler
from flintmq.remoting.server.socket_turns import SocketListener, SocketTransport, SocketTurns


class Peer(asyncio.Protocol):
    """Writes down what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.received = b""
        self.error: Exception | None = None
        self.keeps_open = False
        self.on_data: Callable[[bytes], None] = lambda data: None
        self._changed = asyncio.Event()

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self._changed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tell("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._tell("data")
        self.on_data(data)

    def eof_received(self) -> bool:
        self._tell("eof")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._tell("lost")

    def pause_writing(self) -> None:
        self._tell("pause")

    def resume_writing(self) -> None:
        self._tell("resume")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def lost(self) -> None:
        await self.until(lambda: "lost" in self.told)


def in_turns(test: Callable[[SocketTurns], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Runs a test on a loop of its own, and sees that it leaves no socket behind."""

    async def run() -> None:
        schedule = RequestScheduler(lambda request: None, stopwatch_of(SYSTEM_CLOCK))
        turns = SocketTurns(asyncio.get_running_loop(), schedule)
        await test(turns)
        assert not len(turns), "a socket is still watched"
        turns.close()

    def on_loop() -> None:
        asyncio.run(run())

    on_loop.__doc__ = test.__doc__
    return on_loop


def on_both(test: Callable[[SocketTurns | None], Coroutine[None, None, None]]) -> Callable[[bool], None]:
    """Runs a test with the transports of turns, and with those of the loop, which take their place on a loop without epoll."""

    async def on_transports() -> None:
        await test(None)

    @pytest.mark.parametrize("has_turns", [True, False], ids=["turns", "transports"])
    def on_loop(has_turns: bool) -> None:
        if has_turns:
            in_turns(test)()
        else:
            asyncio.run(on_transports())

    on_loop.__doc__ = test.__doc__
    return on_loop


async def join(turns: SocketTurns | None) -> tuple[asyncio.Transport, Peer, socket.socket]:
    """What :func:`connect` makes, on a transport of turns or of the loop."""
    if turns is not None:
        return connect(turns)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    transport, peer = await asyncio.get_running_loop().connect_accepted_socket(Peer, ours)
    assert isinstance(transport, asyncio.Transport)
    return transport, peer, theirs


async def listen(turns: SocketTurns | None, peer: Peer) -> SocketListener | asyncio.Server:
    """A listener whose connection is the peer's."""
    sock = bind("127.0.0.1", 0)
    if turns is not None:
        return SocketListener(turns, sock, lambda: peer, 8)
    return await asyncio.get_running_loop().create_server(lambda: peer, sock=sock, backlog=8)


async def end(transport: asyncio.Transport, peer: Peer, theirs: socket.socket) -> None:
    """Closes both ends of what :func:`connect` made."""
    transport.close()
    await peer.lost()
    theirs.close()


def listen_for_errors() -> list[object]:
    """What the running loop is told went wrong, from now on."""
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(context["exception"]))
    return heard


def connect(turns: SocketTurns) -> tuple[SocketTransport, Peer, socket.socket]:
    """A transport, its protocol, and the other end, which blocks for some seconds at most."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    peer = Peer()
    return SocketTransport(turns, ours, peer), peer, theirs


@in_turns
async def test_work_postponed_by_a_protocol_runs_after_all_readable_connections_are_read(turns: SocketTurns) -> None:
    ends = [connect(turns) for _ in range(5)]
    read_then: list[int] = []
    for _transport, peer, _theirs in ends:
        peer.on_data = lambda _data: turns.schedule.at_turn_end(
            lambda: read_then.append(sum(bool(one.received) for _, one, _ in ends))
        )
    for _transport, _peer, theirs in ends:
        theirs.sendall(b"x")
    for _transport, peer, _theirs in ends:
        await peer.until(lambda peer=peer: bool(peer.received))  # type: ignore[misc]
    assert read_then == [5] * 5
    for transport, peer, theirs in ends:
        await end(transport, peer, theirs)


@in_turns
async def test_postponed_work_runs_in_the_next_event_loop_iteration_if_no_socket_is_readable(
    turns: SocketTurns,
) -> None:
    done = asyncio.Event()
    turns.schedule.at_turn_end(done.set)
    assert not done.is_set()
    async with asyncio.timeout(10):
        await done.wait()


@in_turns
async def test_an_error_in_postponed_work_does_not_stop_later_postponed_work(turns: SocketTurns) -> None:
    heard = listen_for_errors()
    transport, peer, theirs = connect(turns)
    failure = ValueError("on purpose")
    done = asyncio.Event()

    def fail() -> None:
        raise failure

    def put_off(_data: bytes) -> None:
        turns.schedule.at_turn_end(fail)
        turns.schedule.at_turn_end(done.set)

    peer.on_data = put_off
    theirs.sendall(b"x")
    async with asyncio.timeout(10):
        await done.wait()
    assert heard == [failure]
    await end(transport, peer, theirs)


@on_both
async def test_a_protocol_gets_data_then_eof_then_connection_lost_if_its_peer_closes_the_connection(
    turns: SocketTurns | None,
) -> None:
    transport, peer, theirs = await join(turns)
    theirs.sendall(b"last words")
    theirs.close()
    await peer.lost()
    assert peer.told == ["made", "data", "eof", "lost"]
    assert peer.received == b"last words"
    assert peer.error is None
    assert transport.is_closing()


@on_both
async def test_a_protocol_can_write_to_a_peer_that_shut_down_only_its_sending_direction(
    turns: SocketTurns | None,
) -> None:
    transport, peer, theirs = await join(turns)
    peer.keeps_open = True
    theirs.shutdown(socket.SHUT_WR)
    await peer.until(lambda: "eof" in peer.told)
    transport.write(b"answer")
    assert theirs.recv(100) == b"answer"
    assert peer.told.count("eof") == 1
    await end(transport, peer, theirs)


@on_both
async def test_a_protocol_gets_connection_reset_error_if_its_peer_resets_the_connection(
    turns: SocketTurns | None,
) -> None:
    """Over TCP, because a pair of sockets knows no reset."""
    peer = Peer()
    listener = await listen(turns, peer)
    address = listener.sockets[0].getsockname()
    client = socket.create_connection(address, timeout=10)
    client.sendall(b"x")
    await peer.until(lambda: peer.received == b"x")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await peer.lost()
    assert isinstance(peer.error, ConnectionResetError)
    listener.close()
    listener.close()
    await listener.wait_closed()


@on_both
async def test_a_protocol_is_asked_to_pause_writing_if_too_many_unsent_bytes_are_buffered(
    turns: SocketTurns | None,
) -> None:
    transport, peer, theirs = await join(turns)
    transport.set_write_buffer_limits(high=100_000)
    assert transport.get_write_buffer_limits() == (25_000, 100_000)
    piece = bytes(range(256)) * 1_000
    transport.writelines([piece, memoryview(piece), piece])
    transport.write(b"the end")
    assert transport.get_write_buffer_size() > 100_000
    assert peer.told == ["made", "pause"]
    taken = b""
    wanted = 3 * piece + b"the end"
    while len(taken) < len(wanted):
        taken += await asyncio.to_thread(theirs.recv, 65_536)
    assert taken == wanted
    await peer.until(lambda: "resume" in peer.told)
    assert transport.get_write_buffer_size() == 0
    await end(transport, peer, theirs)


@on_both
async def test_a_socket_write_sends_all_buffers_even_if_more_than_one_system_call_is_needed(
    turns: SocketTurns | None,
) -> None:
    transport, peer, theirs = await join(turns)
    pieces = [bytes([n % 256]) * 100 for n in range(2_500)]
    reading = asyncio.ensure_future(asyncio.to_thread(_read, theirs, 250_000))
    transport.writelines(pieces)
    assert await reading == b"".join(pieces)
    await end(transport, peer, theirs)


def _read(sock: socket.socket, size_bytes: int) -> bytes:
    taken = b""
    while len(taken) < size_bytes:
        taken += sock.recv(size_bytes - len(taken))
    return taken


@on_both
async def test_closing_a_transport_sends_buffered_bytes_and_aborting_discards_them(turns: SocketTurns | None) -> None:
    much = b"." * 2_000_000
    transport, peer, theirs = await join(turns)
    transport.write(much)
    transport.close()
    if turns is not None:  # asyncio's transports send it still, and a channel asks is_closing() before it writes
        transport.write(b"too late")
    assert transport.is_closing()
    assert len(await asyncio.to_thread(_read, theirs, len(much))) == len(much)
    await peer.lost()
    assert theirs.recv(1) == b""
    theirs.close()
    transport, peer, theirs = await join(turns)
    transport.write(much)
    transport.abort()
    await peer.lost()
    assert transport.get_write_buffer_size() == 0
    theirs.close()


@on_both
async def test_aborting_a_lost_connection_does_not_call_connection_lost_a_second_time(
    turns: SocketTurns | None,
) -> None:
    transport, peer, theirs = await join(turns)
    transport.write(b"." * 2_000_000)
    transport.pause_reading()
    theirs.close()
    await peer.lost()
    transport.abort()
    transport.close()
    await asyncio.sleep(0)
    assert peer.told.count("lost") == 1
    assert isinstance(peer.error, OSError)


@on_both
async def test_a_connection_with_paused_reading_causes_no_event_loop_iterations(turns: SocketTurns | None) -> None:
    """Its peer may have gone: epoll would say so for ever."""
    transport, peer, theirs = await join(turns)
    transport.pause_reading()
    assert not transport.is_reading()
    theirs.sendall(b"waiting")
    theirs.close()
    other, other_peer, other_theirs = await join(turns)
    other_theirs.sendall(b"x")
    await other_peer.until(lambda: other_peer.received == b"x")
    assert peer.told == ["made"]
    transport.resume_reading()
    await peer.lost()
    assert peer.received == b"waiting"
    other.close()
    await other_peer.lost()
    other_theirs.close()


@on_both
async def test_a_failing_protocol_closes_only_its_connection(turns: SocketTurns | None) -> None:
    heard = listen_for_errors()
    failure = ValueError("on purpose")

    def fail(_data: bytes) -> None:
        raise failure

    _transport, bad, bad_theirs = await join(turns)
    bad.on_data = fail
    transport, good, theirs = await join(turns)
    bad_theirs.sendall(b"x")
    theirs.sendall(b"y")
    await bad.lost()
    await good.until(lambda: good.received == b"y")
    assert heard == [failure]
    assert bad.error is failure
    transport.close()
    await good.lost()
    bad_theirs.close()
    theirs.close()


@on_both
async def test_a_readable_connection_is_not_read_if_the_server_aborts_it_first(
    turns: SocketTurns | None,
) -> None:
    ends = [await join(turns) for _ in range(2)]
    read = asyncio.Event()

    def close_other(other: asyncio.Transport, _data: bytes) -> None:
        other.abort()
        read.set()

    for at, (_transport, peer, _theirs) in enumerate(ends):
        peer.on_data = partial(close_other, ends[1 - at][0])
    for _transport, _peer, theirs in ends:
        theirs.sendall(b"x")
    async with asyncio.timeout(10):
        await read.wait()
    assert sorted(peer.received for _, peer, _ in ends) == [b"", b"x"]
    for transport, peer, theirs in ends:
        await end(transport, peer, theirs)


@on_both
async def test_all_bytes_are_received_when_heavy_traffic_is_followed_by_light_traffic(
    turns: SocketTurns | None,
) -> None:
    transport, peer, theirs = await join(turns)
    much = bytes(range(256)) * 8_000
    await asyncio.to_thread(theirs.sendall, much)
    await peer.until(lambda: len(peer.received) == len(much))
    assert peer.received == much
    for _ in range(6):
        before = len(peer.received)
        theirs.sendall(b"few")
        await peer.until(lambda before=before: len(peer.received) == before + 3)  # type: ignore[misc]
    await end(transport, peer, theirs)


def test_a_listening_socket_accepts_connections_again_after_file_descriptors_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel tells of a waiting connection with every turn; to try at once again would take the whole processor."""
    monkeypatch.setattr(socket_turns, "_ACCEPT_RETRY_S", 0.01)
    in_turns(_without_descriptors)()


async def _without_descriptors(turns: SocketTurns) -> None:
    accepts = 0
    peer = Peer()

    class Scarce(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            nonlocal accepts
            accepts += 1
            if accepts == 1:
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    bound = bind("127.0.0.1", 0)
    listener = SocketListener(turns, Scarce(fileno=bound.detach()), lambda: peer, 8)
    client = socket.create_connection(listener.sockets[0].getsockname(), timeout=10)
    await peer.until(lambda: "made" in peer.told)
    client.close()
    await peer.lost()
    assert accepts <= 4
    listener.close()
