"""The transport pairs answers with requests, outlives lost connections, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError, RemotingTimeoutError
from flintmq.remoting.client.connection import WRITE_BYTES, ClientConnection
from flintmq.remoting.client.transport import RemotingClient, parse_address
from flintmq.remoting.wire.command import ROCKETMQ, RemotingCommand, request, response
from flintmq.tests.support.blocking_client import blocking_client

Peer = Any


def with_peer(fake_peer: type[Peer], test: Callable[[Peer, RemotingClient], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with fake_peer() as peer, RemotingClient(**options) as client:
            await test(peer, client)

    asyncio.run(run())


def test_answers_that_arrive_out_of_order_are_matched_to_their_requests(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        held: list[RemotingCommand] = []
        peer.answers[1] = held.append  # append returns None: no answer yet
        asking = [asyncio.ensure_future(client.invoke(peer.address, request(1, body=b"%d" % n), 5_000)) for n in (1, 2)]
        await peer.until(lambda: len(held) == 2)
        for asked in reversed(held):
            peer.push(response(asked, 0, body=b"answer to " + asked.body))
        assert [answer.body for answer in await asyncio.gather(*asking)] == [b"answer to 1", b"answer to 2"]
        assert peer.connections_made == 1

    with_peer(fake_peer, test)


def test_a_late_answer_is_ignored_after_its_request_timed_out(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        held: list[RemotingCommand] = []
        peer.answers[1] = held.append
        with pytest.raises(RemotingTimeoutError, match="request 1 within 20 ms"):
            await client.invoke(peer.address, request(1), 20)
        peer.push(response(held[0], 0, "late"))
        assert (await client.invoke(peer.address, request(2), 5_000)).remark is None

    with_peer(fake_peer, test)


def test_requests_to_an_unreachable_address_fail(fake_peer: type[Peer]) -> None:
    """A port that is held and does not listen refuses connections, whatever else runs on the machine."""
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))
    port = unused.getsockname()[1]

    async def test(peer: Peer, client: RemotingClient) -> None:
        outcomes = await asyncio.gather(
            *(client.invoke(f"127.0.0.1:{port}", request(1), 5_000) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [RemotingConnectError] * 3
        with pytest.raises(RemotingConnectError, match="host:port"):
            await client.invoke("nowhere", request(1), 5_000)

    with unused:
        with_peer(fake_peer, test)


def test_no_unhandled_error_is_reported_if_a_connection_fails_after_a_request_was_canceled(
    fake_peer: type[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio.shield() reports it since Python 3.14, and a program that gave up a call would log an error."""

    async def test(peer: Peer, client: RemotingClient) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        is_connecting, may_fail = asyncio.Event(), asyncio.Event()

        async def open_and_fail(_address: str, _connection: ClientConnection) -> None:
            is_connecting.set()
            await may_fail.wait()
            raise OSError("refused")

        monkeypatch.setattr(client, "_open", open_and_fail)
        canceled, other = (asyncio.create_task(client.invoke(peer.address, request(1), 5_000)) for _ in range(2))
        await is_connecting.wait()
        canceled.cancel()
        await asyncio.wait([canceled])
        may_fail.set()
        with pytest.raises(RemotingConnectError, match="refused"):
            await other
        assert canceled.cancelled()
        assert not reported

    with_peer(fake_peer, test)


def test_the_next_request_after_a_lost_connection_opens_a_new_connection(
    fake_peer: type[Peer],
) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: peer.transports[0].abort()
        with pytest.raises(RemotingError, match="is lost"):
            await client.invoke(peer.address, request(1), 5_000)
        assert (await client.invoke(peer.address, request(2), 5_000)).code == 0
        assert peer.connections_made == 2

    with_peer(fake_peer, test)


def test_an_invalid_frame_fails_the_waiting_request(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: peer.transports[0].write(b"HTTP/1.1 200 OK\r\n\r\n")
        with pytest.raises(RemotingError, match="bad frame"):
            await client.invoke(peer.address, request(1), 5_000)

    with_peer(fake_peer, test)


def test_an_idle_connection_is_closed(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: None
        with pytest.raises(RemotingError, match=r"idle for 0\.02 s"):
            await client.invoke(peer.address, request(1), 5_000)

    with_peer(fake_peer, test, idle_timeout_s=0.02)


def test_a_oneway_request_returns_without_waiting_for_an_answer(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        await client.invoke_oneway(peer.address, request(15))
        await peer.until(lambda: bool(peer.requests))
        assert peer.requests[0].is_oneway

    with_peer(fake_peer, test)


def refuse(command: RemotingCommand, address: str) -> RemotingCommand:
    raise RefusedError(206, "not online", reason="client.not_online")


def break_down(command: RemotingCommand, address: str) -> RemotingCommand:
    raise ZeroDivisionError("oops")


async def answer_later(command: RemotingCommand, address: str) -> RemotingCommand:
    return response(command, 0, address)


def test_a_client_answers_each_request_from_a_server_unless_its_processor_returns_none(fake_peer: type[Peer]) -> None:
    """Plain and async handlers, refusals, faults and unknown codes: each gets its own answer, in the request's codec."""

    async def test(peer: Peer, client: RemotingClient) -> None:
        client.register_processor(221, answer_later)
        client.register_processor(307, refuse)
        client.register_processor(309, break_down)
        client.register_processor(40, lambda command, address: None)
        await client.invoke(peer.address, request(34), 5_000)
        for code in (221, 307, 309, 40, 999):
            peer.push(request(code, opaque=code, codec=ROCKETMQ))
        await peer.until(lambda: len(peer.responses) == 4)
        by_opaque = {answer.opaque: (answer.code, answer.remark, answer.codec) for answer in peer.responses}
        assert by_opaque == {
            221: (0, peer.address, ROCKETMQ),
            307: (206, "not online [client.not_online]", ROCKETMQ),
            309: (1, "ZeroDivisionError: oops", ROCKETMQ),
            999: (3, " request type 999 not supported", ROCKETMQ),
        }

    with_peer(fake_peer, test)


def test_client_hooks_run_before_each_request_and_after_each_answer(fake_peer: type[Peer]) -> None:
    class Signer:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def before_request(self, address: str, command: RemotingCommand) -> None:
            command.ext_fields = {**(command.ext_fields or {}), "Signature": "s"}

        def after_response(self, address: str, command: RemotingCommand, answer: RemotingCommand) -> None:
            self.seen.append(answer.code)

    async def test(peer: Peer, client: RemotingClient) -> None:
        signer = Signer()
        client.add_hook(signer)
        await client.invoke(peer.address, request(1, {"a": "b"}), 5_000)
        assert peer.requests[0].ext_fields == {"a": "b", "Signature": "s"}
        assert signer.seen == [0]

    with_peer(fake_peer, test)


def test_a_request_waits_while_the_number_of_unanswered_requests_is_at_its_limit(
    fake_peer: type[Peer],
) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        held: list[RemotingCommand] = []
        peer.answers[1] = held.append
        asking = [asyncio.ensure_future(client.invoke(peer.address, request(1), 5_000)) for _ in range(3)]
        await peer.until(lambda: len(held) == 2)
        with pytest.raises(RemotingTimeoutError):
            await client.invoke(peer.address, request(2), 20)
        assert len(held) == 2
        peer.push(response(held[0], 0))
        await peer.until(lambda: len(held) == 3)
        for asked in held[1:]:
            peer.push(response(asked, 0))
        await asyncio.gather(*asking)

    with_peer(fake_peer, test, max_in_flight=2)


def test_closing_a_client_fails_its_waiting_requests(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: None
        asking = asyncio.ensure_future(client.invoke(peer.address, request(1), 5_000))
        await peer.until(lambda: bool(peer.requests))
        await client.close()
        with pytest.raises(RemotingError, match="is lost"):
            await asking
        with pytest.raises(RemotingConnectError, match="closed"):
            await client.invoke(peer.address, request(1), 5_000)

    with_peer(fake_peer, test)


def test_large_bodies_are_transferred_completely(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        body = bytes(range(256)) * 8192
        peer.answers[1] = lambda asked: response(asked, 0, body=asked.body)
        answers = await asyncio.gather(*(client.invoke(peer.address, request(1, body=body), 5_000) for _ in range(4)))
        assert all(answer.body == body for answer in answers)

    with_peer(fake_peer, test)


def test_parse_address_accepts_ipv6_and_refuses_invalid_addresses() -> None:
    assert parse_address("127.0.0.1:9876") == ("127.0.0.1", 9876)
    assert parse_address("[::1]:9876") == ("::1", 9876)
    assert parse_address("fe80::1:9876") == ("fe80::1", 9876)
    for wrong in ("", "host", ":1", "host:x", "host:-1"):
        with pytest.raises(RemotingConnectError):
            parse_address(wrong)


def test_a_thread_without_an_event_loop_can_send_requests_through_a_loop_thread(fake_peer: type[Peer]) -> None:
    """The peer runs in a loop of its own; the client's calls block a worker thread, as a script would."""

    async def run() -> None:
        async with fake_peer() as peer:

            def ask() -> int:
                with blocking_client() as client:
                    return client.invoke(peer.address, request(1), 5_000).code

            assert await asyncio.to_thread(ask) == 0
            assert [asked.code for asked in peer.requests] == [1]

    asyncio.run(run())


def test_small_requests_of_the_same_event_loop_iteration_are_sent_in_one_write(
    fake_peer: type[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system call costs more than all else that a small send does; large frames are written as they come."""
    written: list[int] = []

    async def test(peer: Peer, client: RemotingClient) -> None:
        await client.invoke(peer.address, request(1), 5_000)
        connection = client._connections[peer.address]
        write = connection._transport.write  # type: ignore[union-attr]
        monkeypatch.setattr(connection._transport, "write", lambda data: (written.append(len(data)), write(data))[1])
        await asyncio.gather(*(client.invoke(peer.address, request(1), 5_000) for _ in range(100)))
        assert len(written) == 1
        body = bytes(WRITE_BYTES)
        await asyncio.gather(*(client.invoke(peer.address, request(1, body=body), 5_000) for _ in range(3)))
        assert len(written) == 4

    with_peer(fake_peer, test)


def test_oneway_requests_time_out_instead_of_filling_memory_if_the_peer_does_not_read(fake_peer: type[Peer]) -> None:
    """One-way sends in a loop never yield to the event loop, so they would fill the memory."""

    async def test(peer: Peer, client: RemotingClient) -> None:
        await client.invoke(peer.address, request(1), 5_000)
        peer.transports[0].pause_reading()

        async def send_on() -> None:
            while True:
                await client.invoke_oneway(peer.address, request(15, body=bytes(10_000)), 20)

        with pytest.raises(RemotingTimeoutError):
            await send_on()
        connection = client._connections[peer.address]
        assert connection._outgoing_bytes == 0
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 1024 * 1024
        peer.transports[0].resume_reading()
        assert (await client.invoke(peer.address, request(1), 5_000)).code == 0

    with_peer(fake_peer, test)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_each_request_has_a_separate_deadline(fake_peer: type[Peer], timeouts_ms: list[int]) -> None:
    """One timer serves all: a short deadline that comes after a long one must ring first, and none may ring early."""

    async def test(peer: Peer, client: RemotingClient) -> None:
        await client.invoke(peer.address, request(1), 5_000)
        peer.answers[2] = lambda _: None
        loop = asyncio.get_running_loop()

        async def late_ms(timeout_ms: int) -> float:
            began_s = loop.time()
            with pytest.raises(RemotingTimeoutError, match=f"within {timeout_ms} ms"):
                await client.invoke(peer.address, request(2), timeout_ms)
            return (loop.time() - began_s) * 1000 - timeout_ms

        found = await asyncio.gather(*map(late_ms, timeouts_ms))
        assert min(found) > -2, "the loop's clock ticks in milliseconds"
        assert client._connections[peer.address].waiting == {}

    with_peer(fake_peer, test)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30))
def test_a_request_succeeds_after_earlier_requests_to_its_address_are_canceled_at_random_moments(
    fake_peer: type[Peer], cancelled: list[tuple[int, bool]]
) -> None:
    """Whenever a caller gives up, before the connection is made or after the answer has come, the next request works."""

    async def test(peer: Peer, client: RemotingClient) -> None:
        held: list[RemotingCommand] = []
        peer.answers[2] = held.append

        async def give_up(turns: int, is_answered: bool) -> None:
            asking = asyncio.ensure_future(client.invoke(peer.address, request(1 if is_answered else 2), 5_000))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

        await asyncio.gather(*(give_up(*one) for one in cancelled))
        assert (await client.invoke(peer.address, request(1), 5_000)).code == 0
        assert client._connections[peer.address].waiting == {}
        assert client._in_flight == 0

    with_peer(fake_peer, test)


def test_a_connection_on_which_no_request_is_answered_is_replaced(fake_peer: type[Peer], monkeypatch: Any) -> None:
    """A path that is cut without a word: heartbeats would keep the dead connection, and every request would time out on it."""
    monkeypatch.setattr("flintmq.remoting.client.connection.SILENCE_S", 0.05)

    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: None
        await client.invoke(peer.address, request(2), 5_000)
        for _ in range(2):  # the first one is too short to say so
            with pytest.raises(RemotingTimeoutError):
                await client.invoke(peer.address, request(1), 30)
        assert (await client.invoke(peer.address, request(2), 5_000)).code == 0
        assert peer.connections_made == 2

    with_peer(fake_peer, test)


def test_a_slow_answer_does_not_close_a_connection_on_which_other_requests_are_answered(
    fake_peer: type[Peer], monkeypatch: Any
) -> None:
    """Others' answers come on it, as those of heartbeats do beside a pull that is held."""
    monkeypatch.setattr("flintmq.remoting.client.connection.SILENCE_S", 0.05)

    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: None
        asking = asyncio.ensure_future(client.invoke(peer.address, request(1), 60))
        await asyncio.sleep(0.02)
        assert (await client.invoke(peer.address, request(2), 5_000)).code == 0
        with pytest.raises(RemotingTimeoutError):
            await asking
        assert (await client.invoke(peer.address, request(2), 5_000)).code == 0
        assert peer.connections_made == 1

    with_peer(fake_peer, test)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "closing"])
def test_a_connection_lost_immediately_after_it_opens_does_not_block_the_event_loop(
    fake_peer: type[Peer], monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """A request that begins in that turn of the loop must not wait for the attempt that is over, again and again, for good."""

    async def test(peer: Peer, client: RemotingClient) -> None:
        is_over = asyncio.Event()
        open_connection = client._open

        async def open_and_lose(address: str, connection: ClientConnection) -> None:
            if is_over.is_set():
                await open_connection(address, connection)
                return
            transport = Mock(asyncio.Transport)
            transport.is_closing.return_value = not is_lost
            connection.connection_made(transport)
            if is_lost:
                connection.connection_lost(ConnectionResetError())
            is_over.set()  # who waits for it goes on before the client notes that the attempt is over

        async def ask_at_that_moment() -> int:
            await is_over.wait()
            return (await client.invoke(peer.address, request(2), 5_000)).code

        monkeypatch.setattr(client, "_open", open_and_lose)
        asking = asyncio.create_task(ask_at_that_moment())
        await asyncio.sleep(0)
        assert (await client.invoke(peer.address, request(1), 5_000)).code == 0
        assert await asking == 0
        assert peer.connections_made == 1
        assert client._connecting == {}

    with_peer(fake_peer, test)


def test_a_client_without_tls_raises_an_error_that_mentions_tls_if_the_server_requires_tls(
    fake_peer: type[Peer],
) -> None:
    """A plain frame gets an alert of TLS, which is no frame."""

    async def run() -> None:
        async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(alert, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, RemotingClient() as client:
            with pytest.raises(RemotingError, match=r"may want TLS \(ssl_context"):
                await client.invoke(f"{host}:{port}", request(1), 5_000)

    asyncio.run(run())
