"""Connections of browsers, with timeouts and with limits on the numbers of connections and requests.

* A connection is closed if a request has not arrived completely 20 s after its first byte or after the connection began.
* A connection is closed if the browser reads nothing of an answer for 30 s.
* If 512 connections are open and a browser opens another one, the connection that has been silent for longest is closed.
* If 128 requests are in progress and another request arrives, a connection is closed whose browser has neither sent nor read
  for some time. If all browsers send or read, the new request is answered with 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 512
REQUESTS_MAX: Final = 128
"""Maximum number of requests in progress at the same time. Further requests are answered with status 503."""
READ_TIMEOUT_S: Final = 20.0
"""Maximum number of seconds until a request has arrived whole, counted from its first byte or from the beginning of the
connection."""
WRITE_TIMEOUT_S: Final = 30.0
"""Maximum number of seconds that a browser may take to receive a part of an answer."""


class Connection(H11Protocol):
    """uvicorn's protocol for one connection of a browser, with timeouts. For the loop thread only."""

    _deadline: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    waits_since_s: float | None = None
    """Time since which the console has waited for the browser to send or receive; None while the console does not wait."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the timeout for the first request of a new connection.

        If more than 512 connections are now open, close the older connection whose browser has neither sent nor read data for
        the longest time.
        """
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            _cut_slowest(one for one in self.connections if one is not self)
        self._note_turn()

    def data_received(self, data: bytes) -> None:
        """Process bytes that the browser has sent, or answer 503 if too many requests are in progress."""
        is_full = len(self.tasks) >= REQUESTS_MAX
        # If the maximum number of requests is reached, a new request is accepted by closing the slowest request's connection.
        # The new request is accepted at once, although the task of the slowest request ends a moment after its connection.
        if is_full:
            is_full = not _cut_slowest(one for one in self.connections if one is not self and one.has_request)
        self.limit_concurrency = 0 if is_full else None
        super().data_received(data)
        self._note_turn()

    def on_response_complete(self) -> None:
        """Continue with the browser's next request, if that request has already arrived."""
        super().on_response_complete()
        self._note_turn()

    def pause_writing(self) -> None:
        """Start the timeout for a browser that does not read its answer."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_TIMEOUT_S, self.cut)
            self.waits_since_s = self.loop.time()

    def resume_writing(self) -> None:
        """End the timeout of :meth:`pause_writing`, because the browser has read a part of its answer."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
            self.waits_since_s = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts of a closed connection."""
        super().connection_lost(exc)
        for timer in (self._deadline, self._writing):
            if timer is not None:
                timer.cancel()

    @property
    def has_request(self) -> bool:
        """Whether a request of the browser has begun and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def cut(self) -> None:
        """Close the connection with the browser at once."""
        self.waits_since_s = None
        self.transport.abort()

    def _note_turn(self) -> None:
        """Start or cancel the timeout within which a browser must send a whole request."""
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
        # The timeout for a request is cancelled when the whole request has arrived.
        # After a whole request has arrived, only uvicorn's own timeout applies until the connection's next request.
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _cut_slowest(connections: Iterable[Connection]) -> bool:
    """Close the connection that has been silent for longest. Return whether a connection was closed."""
    silent = [one for one in connections if one.waits_since_s is not None]
    if not silent:
        return False
    min(silent, key=lambda one: one.waits_since_s or 0.0).cut()
    return True
