"""Postpones requests to a later iteration of the loop, so that one peer's requests do not keep the loop from others.

The requests of one read are answered at once; but sixty connections that each pull a megabyte sixty times cause gigabytes of
answers in one iteration. Therefore the time is limited. Requests whose answers may be long (pulls, and all that are not handled
in batches) are postponed when the turn has used its slice of time, or when the peer does not read its answers; whole reads are
postponed, undecoded, when the turn is late. Postponed requests are answered in slices of time, one in each iteration of the
loop: one request of each connection after the other. Connections with a single request come first, then those none of whose
requests was answered from here yet, because a peer that asks for little must not wait for peers that ask for much.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from flintmq.core.kernel.ports.processor import Request, RequestChannel
    from flintmq.remoting.server.channel import ServerChannel
    from flintmq.remoting.server.socket_turns import SocketTurns

SLICE_S: Final = 0.002
"""How long a turn answers requests whose answers may be long, and how long a slice of postponed requests takes."""
LATE_S: Final = 0.005
"""How long a turn decodes what it reads."""
_LEAST_S: Final = 0.001
"""How long postponed requests are answered in each iteration at least, also when the sockets took more than the slice."""
_FRAMES_AT_ONCE: Final = 16

Queues = dict["ServerChannel", "deque[Request | deque[bytes]]"]


class RequestScheduler:
    """The postponed requests of one server. Loop thread.

    Args:
        answer: answers one; raises nothing.
        now_s: the stopwatch of a clock (:func:`flintmq.core.io.clock.stopwatch_of`), that of the turns.
    """

    def __init__(self, answer: Callable[[Request], None], now_s: Callable[[], float]) -> None:
        self._answer = answer
        self._now_s = now_s
        self.turns: SocketTurns | None = None
        """The turns of the server's sockets; each begins a slice."""
        self._single: Queues = {}
        """Peers with one postponed request, none of whose requests was answered from here yet."""
        self._new: Queues = {}
        """Peers with several postponed requests, none of which was answered from here yet."""
        self._waiting: Queues = {}
        self._stalled: Queues = {}
        """Peers that do not read their answers."""
        self._is_due = False
        self._began_s = 0.0
        """When the slice began, outside a turn: encrypted connections are read by the loop itself."""
        self._is_marked = False
        """Whether the slice began in this iteration of the loop."""
        self._started_s = -1.0
        """When the turn began in which the last coroutine was started."""
        self._is_started = False

    def __len__(self) -> int:
        """Return how many connections have postponed requests."""
        return len(self._single) + len(self._new) + len(self._waiting) + len(self._stalled)

    def _turn_began_s(self, now_s: float) -> float:
        turns = self.turns
        if turns is not None and turns.is_turn:
            return turns.began_s
        if now_s >= self._began_s + SLICE_S and not self._is_marked:
            self._is_marked = True
            self._began_s = now_s
            asyncio.get_running_loop().call_soon(self._unmark)
        return self._began_s

    def _unmark(self) -> None:
        self._is_marked = False

    def is_late(self) -> bool:
        """Return whether the turn has taken so long that nothing more is decoded in it."""
        now_s = self._now_s()
        return now_s >= self._turn_began_s(now_s) + LATE_S

    def must_wait(self, peer: RequestChannel) -> bool:
        """Return whether a request that may be long has to wait: the slice is over, its peer does not read, or others
        of it wait."""
        if peer.is_stalled or peer in self._waiting or peer in self._new or peer in self._single:
            return True
        now_s = self._now_s()
        began_s = self._turn_began_s(now_s)
        return now_s >= began_s + SLICE_S or self._started_s == began_s

    def started(self) -> None:
        """Note that a request is answered by a coroutine, whose first part is done with the loop's next turn and may be as
        long as a slice: no other begins in this one."""
        self._is_started = True
        self._started_s = self._turn_began_s(self._now_s())

    def put(self, requests: Sequence[Request]) -> None:
        """Keep requests of one connection for later, among those that are not answered yet."""
        peer = cast("ServerChannel", requests[0].channel)
        peer.took(len(requests))
        self._keep(peer, requests)

    def put_frames(self, peer: ServerChannel, frames: list[bytes]) -> None:
        """Keep what a connection brought, undecoded; nothing more is read from it meanwhile."""
        peer.hold_reading()
        self._keep(peer, (deque(frames),))

    def resumed(self, peer: ServerChannel) -> None:
        """Go on with what waited for a peer that reads again."""
        queue = self._stalled.pop(peer, None)
        if queue is not None:
            self._waiting[peer] = queue
            self._be_due()

    def forget(self, peer: ServerChannel) -> None:
        """Drop what waits of a connection that has ended."""
        for queues in (self._single, self._new, self._waiting, self._stalled):
            queues.pop(peer, None)

    def _keep(self, peer: ServerChannel, kept: Iterable[Request | deque[bytes]]) -> None:
        """Queue what a connection brought, behind what waits of it already."""
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
        """Serve one slice of what waits."""
        self._is_due = False
        now_s = self._now_s()
        began_s = self.turns.began_s if self.turns is not None else 0.0
        took_s = self.turns.took_s if self.turns is not None else 0.0
        if now_s > began_s + took_s + _LEAST_S:
            took_s = 0.0  # that was another turn of the loop
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
            self._waiting[peer] = queue  # behind the others
        if isinstance(first, deque):
            peer.take(frames)
            if not first:
                peer.release_reading()
        else:
            self._answer(first)
            peer.gave(1)
        peer.flush()
