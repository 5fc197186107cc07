"""One browser's connection: the console waits a bounded time for its peer, and cuts the longest silent one to make room.

=======================================  ==============================================================================
no request, half a head, half a form     20 s from the first byte that is missing, then the connection is cut
an answer that is not taken              30 s without room for more of it, then the same
512 connections                          the one that has been silent for longest is cut for the next one
128 requests under way                   one that does not send its form or take its answer is cut; if there is none: 503
=======================================  ==============================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 512
REQUESTS_MAX: Final = 128
"""Under way at once; more are answered 503."""
READ_TIMEOUT_S: Final = 20.0
"""For a whole request, from its first byte or from the begin of the connection."""
WRITE_TIMEOUT_S: Final = 30.0
"""For a part of an answer."""


class Connection(H11Protocol):
    """What uvicorn calls when bytes come and go. Loop thread only."""

    _deadline: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    waits_since_s: float | None = None
    """Since when the peer has been silent while it was its turn; None while it is ours."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            _cut_slowest(one for one in self.connections if one is not self)
        self._note_turn()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        is_full = len(self.tasks) >= REQUESTS_MAX
        if is_full:  # a request that is cut ends its task within the next iterations of the loop
            is_full = not _cut_slowest(one for one in self.connections if one is not self and one.has_request)
        self.limit_concurrency = 0 if is_full else None
        super().data_received(data)
        self._note_turn()

    def on_response_complete(self) -> None:
        """Go on with the next request, where the peer has sent one already."""
        super().on_response_complete()
        self._note_turn()

    def pause_writing(self) -> None:
        """Note that the peer does not take its answer."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_TIMEOUT_S, self.cut)
            self.waits_since_s = self.loop.time()

    def resume_writing(self) -> None:
        """Note that the peer took some of it."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
            self.waits_since_s = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        for timer in (self._deadline, self._writing):
            if timer is not None:
                timer.cancel()

    @property
    def has_request(self) -> bool:
        """Return whether a request has begun and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def cut(self) -> None:
        """End the connection at once."""
        self.waits_since_s = None
        self.transport.abort()

    def _note_turn(self) -> None:
        """Set or end the time by which a whole request must be there."""
        state = self.conn.their_state
        is_begin = self.cycle is None or bool(self.conn.trailing_data[0])
        is_peers_turn = state in (h11.IDLE, h11.SEND_BODY)
        if not is_peers_turn:
            self.waits_since_s = None if self._writing is None else self.waits_since_s
        elif self.waits_since_s is None:
            self.waits_since_s = self.loop.time()
        if is_peers_turn and (state is h11.SEND_BODY or is_begin):
            if self._deadline is None:
                self._deadline = self.loop.call_later(READ_TIMEOUT_S, self.cut)
        elif self._deadline is not None:  # between two requests uvicorn's own timeout counts
            self._deadline.cancel()
            self._deadline = None


def _cut_slowest(connections: Iterable[Connection]) -> bool:
    """Cut the connection whose peer has been silent for longest. Return whether there is one."""
    silent = [one for one in connections if one.waits_since_s is not None]
    if not silent:
        return False
    min(silent, key=lambda one: one.waits_since_s or 0.0).cut()
    return True
