"""Who asks for much waits in turns, who asks for little does not wait behind it, and nothing that waits is lost or kept."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest

from flintmq.core.io.clock import SYSTEM_CLOCK, stopwatch_of
from flintmq.remoting.server import request_scheduler
from flintmq.remoting.server.request_scheduler import RequestScheduler


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in a loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@attrs.define(eq=False)
class Peer:
    """As much of a connection as is looked at."""

    name: str
    is_stalled: bool = False
    due: int = 0
    held: int = 0
    taken: list[list[bytes]] = attrs.field(factory=list)

    def took(self, count: int) -> None:
        self.due += count

    def gave(self, count: int) -> None:
        self.due -= count

    def hold_reading(self) -> None:
        self.held += 1

    def release_reading(self) -> None:
        self.held -= 1

    def take(self, frames: list[bytes]) -> None:
        self.taken.append(frames)

    def flush(self) -> None:
        """Nothing is gathered here."""


@attrs.frozen
class Asked:
    """A request."""

    channel: Any
    number: int


def asked(peer: Peer, count: int) -> list[Any]:
    return [Asked(peer, number) for number in range(count)]


async def until_empty(work: RequestScheduler) -> None:
    for _ in range(10_000):
        if not len(work):
            return
        await asyncio.sleep(0)
    raise AssertionError("it never ends")


@pytest.fixture
def answered() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def work(answered: list[tuple[str, int]]) -> RequestScheduler:
    return RequestScheduler(
        lambda request: answered.append((request.channel.name, request.number)), stopwatch_of(SYSTEM_CLOCK)
    )


@in_loop
async def test_the_scheduler_answers_one_request_of_each_connection_in_turn(
    work: RequestScheduler, answered: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request of each; whoever comes while others have had theirs is the next."""
    monkeypatch.setattr(request_scheduler, "_LEAST_S", 10.0)
    greedy, other, late = Peer("greedy"), Peer("other"), Peer("late")
    work.put(asked(greedy, 3))
    work.put(asked(other, 2))
    await until_empty(work)
    assert answered == [("greedy", 0), ("other", 0), ("greedy", 1), ("other", 1), ("greedy", 2)]
    answered.clear()
    work._waiting[greedy] = deque(asked(greedy, 2))  # type: ignore[index]
    work.put(asked(late, 1))
    await until_empty(work)
    assert answered == [("late", 0), ("greedy", 0), ("greedy", 1)]
    assert (greedy.due, other.due, late.due) == (-2, 0, 0), "the two that were put there by hand were never counted"


@in_loop
async def test_a_connection_with_one_request_is_served_before_connections_with_many_requests(
    work: RequestScheduler, answered: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy client's one request must not wait for the first request of each of sixty peers that ask sixty times."""
    monkeypatch.setattr(request_scheduler, "_LEAST_S", 10.0)
    greedy, modest, growing, framed = Peer("greedy"), Peer("modest"), Peer("growing"), Peer("framed")
    work.put(asked(greedy, 2))
    work.put(asked(growing, 1))
    work.put(asked(modest, 1))
    work.put([Asked(growing, 1)])  # type: ignore[list-item]
    work.put_frames(framed, [b"one"])  # type: ignore[arg-type]
    await until_empty(work)
    assert answered == [("modest", 0), ("greedy", 0), ("growing", 0), ("greedy", 1), ("growing", 1)]
    assert framed.taken == [[b"one"]]
    assert framed.held == 0
    work.put(asked(modest, 1))
    work.forget(modest)  # type: ignore[arg-type]
    assert len(work) == 0


@in_loop
async def test_requests_of_a_client_are_not_processed_while_the_client_reads_no_responses(
    work: RequestScheduler, answered: list[Any]
) -> None:
    """They must take no time of the loop while they wait."""
    peer = Peer("deaf", is_stalled=True)
    assert work.must_wait(peer)  # type: ignore[arg-type]
    work.put(asked(peer, 2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert answered == []
    assert not work._is_due
    work.put(asked(peer, 1))
    peer.is_stalled = False
    work.resumed(peer)  # type: ignore[arg-type]
    await until_empty(work)
    assert answered == [("deaf", 0), ("deaf", 1), ("deaf", 0)]
    assert peer.due == 0


@in_loop
async def test_requests_of_a_closed_connection_are_dropped(work: RequestScheduler, answered: list[Any]) -> None:
    """Wherever it waited."""
    gone, deaf = Peer("gone"), Peer("deaf", is_stalled=True)
    work.put(asked(gone, 2))
    work.put(asked(deaf, 2))
    work.forget(gone)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    work.forget(deaf)  # type: ignore[arg-type]
    assert len(work) == 0
    await asyncio.sleep(0)
    assert answered == []


@in_loop
async def test_reading_from_a_connection_is_paused_until_all_of_its_waiting_frames_are_processed(
    work: RequestScheduler,
) -> None:
    """In their order."""
    peer = Peer("busy")
    frames = [b"%d" % number for number in range(40)]
    work.put_frames(peer, list(frames))  # type: ignore[arg-type]
    assert peer.held == 1
    await until_empty(work)
    assert peer.held == 0
    assert [one for piece in peer.taken for one in piece] == frames
    assert max(map(len, peer.taken)) < 40


@in_loop
async def test_requests_wait_for_the_next_event_loop_iteration_if_the_time_slice_is_used_up() -> None:
    """Outside a turn of the sockets, too: what comes after it waits, and the next turn of the loop has a slice of its own."""
    now_s = 100.0
    work = RequestScheduler(lambda request: None, lambda: now_s)
    peer: Any = Peer("one")
    assert not work.must_wait(peer)
    now_s += request_scheduler.SLICE_S
    assert work.must_wait(peer)
    assert not work.is_late()
    now_s += request_scheduler.LATE_S
    assert work.is_late()
    await asyncio.sleep(0)
    assert not work.must_wait(peer)
    assert not work.is_late()
    work.started()
    assert work.must_wait(peer), "what was started takes the slice"
