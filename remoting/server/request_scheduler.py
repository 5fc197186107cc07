"""Determines the order in which a server works in each iteration of the event loop.

A *turn* is one reading of all ready sockets. :class:`.socket_turns.SocketTurns` reports when a turn begins and ends. In each
iteration, the server first reads the ready sockets. At the end of the turn, it stores together all sends that arrived in the
turn. Then it answers postponed requests.

The requests of one read are normally answered at once. Some requests are postponed to a later iteration, so that one peer's
requests do not delay the requests of other peers. For example, if sixty connections each pull a megabyte sixty times, one
iteration would otherwise produce gigabytes of answers. The time for requests is therefore limited in two ways:

* A request that may have a long answer is postponed if the turn has lasted :data:`SLICE_S`, or if the peer does not read its
  answers. Pulls may have long answers, and all requests that are not handled in batches.
* All frames of a read are postponed without being decoded if the turn has lasted :data:`LATE_S`.

Postponed requests are answered in slices of time, one slice in each iteration of the event loop. A slice answers one request of
a connection, then one request of the next connection. Connections with a single postponed request come first. Connections of
which no postponed request was answered yet come next. A peer with few requests therefore does not wait for peers with many
requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from flintmq.core.kernel.ports.processor import Request, RequestChannel
    from flintmq.remoting.server.channel import ServerChannel

SLICE_S: Final = 0.002
"""Time in seconds for reading the ready sockets and answering postponed requests, together, in each iteration of the event
loop. If the reading alone has taken this time, requests that may have long answers are postponed."""
LATE_S: Final = 0.005
"""Time in seconds for reading the ready sockets, after which further frames are postponed without being decoded."""
_LEAST_S: Final = 0.001
"""Minimum time in seconds for postponed requests in each iteration of the event loop, even if reading the sockets took longer
than :data:`SLICE_S`."""
_FRAMES_AT_ONCE: Final = 16
"""Number of postponed frames of one connection that are decoded at a time."""

Queues = dict["ServerChannel", "deque[Request | deque[bytes]]"]


class RequestScheduler:
    """Orders the reading of one server's ready sockets, the work at the end of the reading, and the postponed requests.

    Used only on the event loop's thread.

    One reading of the ready sockets is called a turn.

    Args:
        answer: a function that answers one request and raises no exception.
        now_s: the stopwatch of a clock (:func:`flintmq.core.io.clock.stopwatch_of`).
    """

    def __init__(self, answer: Callable[[Request], None], now_s: Callable[[], float]) -> None:
        self._answer = answer
        self._now_s = now_s
        self._at_end: list[Callable[[], None]] = []
        self._is_turn = False
        """Whether the ready sockets are being read."""
        self._turn_began_s = 0.0
        """Time of the scheduler's clock, in seconds, at which the last reading of the ready sockets began."""
        self._turn_took_s = 0.0
        """Duration in seconds of the last completed reading of the ready sockets."""
        self._single: Queues = {}
        """Queues with a single postponed request, keyed by peer. These queues are served first."""
        self._new: Queues = {}
        """Queues of connections with several postponed requests, none of which was answered yet, keyed by peer. A request is
        postponed to a later iteration of the event loop if an earlier answer would delay the requests of other peers. These
        queues are served after the queues with a single request."""
        self._waiting: Queues = {}
        """Queues from which a postponed request was already answered, keyed by peer. These queues are served after the queues
        from which no request was answered yet."""
        self._stalled: Queues = {}
        """Queues of postponed requests of peers that do not read their answers, keyed by peer."""
        self._is_due = False
        self._began_s = 0.0
        """Start, in seconds, of the current time slice for encrypted connections, which the event loop reads apart from other
        sockets."""
        self._is_marked = False
        """Whether the current time slice for encrypted connections began in this iteration of the event loop."""
        self._started_s = -1.0
        """Start of a time slice, in seconds of the scheduler's clock: the latest slice in which the server started a coroutine
        to answer a request. No other request with a possibly long answer begins in this slice. The value is -1 before the first
        coroutine."""
        self._is_started = False

    def __len__(self) -> int:
        """Return the number of connections whose requests are postponed."""
        return len(self._single) + len(self._new) + len(self._waiting) + len(self._stalled)

    def begin_turn(self) -> None:
        """Record the beginning of a turn, in which :class:`.socket_turns.SocketTurns` reads the ready sockets."""
        self._is_turn = True
        self._turn_began_s = self._now_s()

    def end_turn(self) -> None:
        """Record that the ready sockets have been read, and call the functions that wait for the end of the reading."""
        self._is_turn = False
        self._turn_took_s = self._now_s() - self._turn_began_s
        callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                context = {"message": "work at the end of a turn failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        """Call a function when every ready socket has been read.

        If no sockets are being read, the function is called in the next iteration of the event loop.
        """
        if self._is_turn:
            self._at_end.append(callback)
        else:
            asyncio.get_running_loop().call_soon(callback)

    def _slice_began_s(self, now_s: float) -> float:
        if self._is_turn:
            return self._turn_began_s
        if now_s >= self._began_s + SLICE_S and not self._is_marked:
            self._is_marked = True
            self._began_s = now_s
            asyncio.get_running_loop().call_soon(self._unmark)
        return self._began_s

    def _unmark(self) -> None:
        self._is_marked = False

    def is_late(self) -> bool:
        """Return whether the reading of the ready sockets began more than :data:`LATE_S` ago.

        In this case, the frames of further reads are postponed without being decoded.
        """
        now_s = self._now_s()
        return now_s >= self._slice_began_s(now_s) + LATE_S

    def must_wait(self, peer: RequestChannel) -> bool:
        """Return whether to postpone a request with a possibly long answer.

        The event loop answers such requests in slices of time of :data:`SLICE_S` seconds. A request is postponed if the current
        slice is over, or if a coroutine was started in it. It is also postponed if the peer does not read its answers, or if
        other requests of the peer wait.
        """
        if peer.is_stalled or peer in self._waiting or peer in self._new or peer in self._single:
            return True
        now_s = self._now_s()
        began_s = self._slice_began_s(now_s)
        return now_s >= began_s + SLICE_S or self._started_s == began_s

    def started(self) -> None:
        """Record that a coroutine answers a request. No other request with a possibly long answer begins in the current slice
        of time (:data:`SLICE_S`).

        The first part of the coroutine runs in the event loop's next iteration, and may take as long as a slice.
        """
        self._is_started = True
        self._started_s = self._slice_began_s(self._now_s())

    def put(self, requests: Sequence[Request]) -> None:
        """Postpone requests of one connection, and count the requests as not answered."""
        peer = cast("ServerChannel", requests[0].channel)
        peer.took(len(requests))
        self._keep(peer, requests)

    def put_frames(self, peer: ServerChannel, frames: list[bytes]) -> None:
        """Postpone frames of a connection without decoding them. The connection is not read until the frames are decoded."""
        peer.hold_reading()
        self._keep(peer, (deque(frames),))

    def resumed(self, peer: ServerChannel) -> None:
        """Resume answering the postponed requests of a peer that reads its answers again."""
        queue = self._stalled.pop(peer, None)
        if queue is not None:
            self._waiting[peer] = queue
            self._be_due()

    def forget(self, peer: ServerChannel) -> None:
        """Drop the postponed requests of a connection that has ended."""
        for queues in (self._single, self._new, self._waiting, self._stalled):
            queues.pop(peer, None)

    def _keep(self, peer: ServerChannel, kept: Iterable[Request | deque[bytes]]) -> None:
        """Add postponed requests or frames to the end of a connection's queue."""
        for queues in (self._waiting, self._stalled, self._new):
            if peer in queues:
                queues[peer].extend(kept)
                break
        else:
            queue = self._single.pop(peer, None) or deque()
            queue.extend(kept)
            is_single = len(queue) == 1 and (not isinstance(queue[0], deque) or len(queue[0]) == 1)
            (self._single if is_single else self._new)[peer] = queue
        self._be_due()

    def _be_due(self) -> None:
        if (self._single or self._new or self._waiting) and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Answer postponed requests of all connections for one slice of time."""
        self._is_due = False
        now_s = self._now_s()
        took_s = self._turn_took_s
        if now_s > self._turn_began_s + took_s + _LEAST_S:
            # A reading of sockets that ended more than _LEAST_S ago belongs to an earlier iteration of the event loop.
            # SLICE_S limits the work of one iteration, so the reading of an earlier iteration is not subtracted from SLICE_S.
            took_s = 0.0
        ends_s = now_s + max(_LEAST_S, SLICE_S - took_s)
        self._is_started = False
        while not self._is_started and self._now_s() < ends_s:
            queues = self._single or self._new or self._waiting
            if not queues:
                break
            peer, queue = next(iter(queues.items()))
            del queues[peer]
            if peer.is_stalled:
                self._stalled[peer] = queue
            else:
                self._serve_one(peer, queue)
        self._be_due()

    def _serve_one(self, peer: ServerChannel, queue: deque[Request | deque[bytes]]) -> None:
        first = queue.popleft()
        if isinstance(first, deque):
            frames = [first.popleft() for _ in range(min(len(first), _FRAMES_AT_ONCE))]
            if first:
                queue.appendleft(first)
        if queue:
            # A dict keeps the order of insertion, so the peer is served again only after all other waiting peers.
            self._waiting[peer] = queue
        if isinstance(first, deque):
            peer.take(frames)
            if not first:
                peer.release_reading()
        else:
            self._answer(first)
            peer.gave(1)
        peer.flush()
