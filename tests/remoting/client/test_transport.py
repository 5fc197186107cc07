"""The transport pairs answers with requests, outlives lost connections, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError, RemotingTimeoutError
from flintmq.remoting.client.transport import RemotingClient, parse_address
from flintmq.remoting.wire.command import ROCKETMQ, RemotingCommand, request, response
from flintmq.tests.support.blocking_client import blocking_client

Peer = Any


def with_peer(fake_peer: type[Peer], test: Callable[[Peer, RemotingClient], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with fake_peer() as peer, RemotingClient(**options) as client:
            await test(peer, client)

    asyncio.run(run())


def test_answers_are_paired_with_requests_whatever_their_order(fake_peer: type[Peer]) -> None:
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


def test_no_answer_in_time_is_a_timeout_and_a_late_answer_is_nobody_s(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        held: list[RemotingCommand] = []
        peer.answers[1] = held.append
        with pytest.raises(RemotingTimeoutError, match="request 1 within 20 ms"):
            await client.invoke(peer.address, request(1), 20)
        peer.push(response(held[0], 0, "late"))
        assert (await client.invoke(peer.address, request(2), 5_000)).remark is None

    with_peer(fake_peer, test)


def test_nobody_there(fake_peer: type[Peer]) -> None:
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


def test_a_lost_connection_fails_its_requests_and_the_next_one_connects_anew(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        peer.answers[1] = lambda _: peer.transports[0].abort()
        with pytest.raises(RemotingError, match="is lost"):
            await client.invoke(peer.address, request(1), 5_000)
        assert (await client.invoke(peer.address, request(2), 5_000)).code == 0
        assert peer.connections_made == 2

    with_peer(fake_peer, test)


def test_a_bad_frame_ends_the_connection(fake_peer: type[Peer]) -> None:
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


def test_oneway_requests_are_written_and_not_waited_for(fake_peer: type[Peer]) -> None:
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


def test_pushed_requests_are_answered(fake_peer: type[Peer]) -> None:
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


def test_hooks_see_requests_before_and_answers_after(fake_peer: type[Peer]) -> None:
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


def test_requests_beyond_the_bound_wait_for_a_place(fake_peer: type[Peer]) -> None:
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


def test_closing_ends_whoever_waits(fake_peer: type[Peer]) -> None:
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


def test_large_bodies_cross_whole(fake_peer: type[Peer]) -> None:
    async def test(peer: Peer, client: RemotingClient) -> None:
        body = bytes(range(256)) * 8192
        peer.answers[1] = lambda asked: response(asked, 0, body=asked.body)
        answers = await asyncio.gather(*(client.invoke(peer.address, request(1, body=body), 5_000) for _ in range(4)))
        assert all(answer.body == body for answer in answers)

    with_peer(fake_peer, test)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9876") == ("127.0.0.1", 9876)
    assert parse_address("[::1]:9876") == ("::1", 9876)
    assert parse_address("fe80::1:9876") == ("fe80::1", 9876)
    for wrong in ("", "host", ":1", "host:x", "host:-1"):
        with pytest.raises(RemotingConnectError):
            parse_address(wrong)


def test_a_plain_thread_asks_by_way_of_a_loop_thread(fake_peer: type[Peer]) -> None:
    """The peer runs in a loop of its own; the client's calls block a worker thread, as a script would."""

    async def run() -> None:
        async with fake_peer() as peer:

            def ask() -> int:
                with blocking_client() as client:
                    return client.invoke(peer.address, request(1), 5_000).code

            assert await asyncio.to_thread(ask) == 0
            assert [asked.code for asked in peer.requests] == [1]

    asyncio.run(run())
