"""Finds requests that come twice within a window of time; needs clients that date what they sign."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from flintmq.remoting.wire.header_codec import SIGNATURE, SIGNED_AT


class ReplayWindow:
    """Remembers the signatures of a window of time. Loop thread.

    Args:
        window_ms: how far a request's time may be off, either way.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._seen: set[str] = set()
        self._order: deque[tuple[int, str]] = deque()

    def problem(self, ext_fields: Mapping[str, str], now_ms: int) -> str | None:
        """Return why a correctly signed request is refused; or remember it and return None when it is new."""
        written, _, _nonce = ext_fields.get(SIGNED_AT, "").partition("-")
        if not written.isdecimal() or len(written) > 15:
            return f"the request is not dated ({SIGNED_AT})"
        off_ms = abs(now_ms - int(written))
        if off_ms > self._window_ms:
            return f"the request is {off_ms} ms off"
        while self._order and self._order[0][0] < now_ms:
            self._seen.discard(self._order.popleft()[1])
        signature = ext_fields[SIGNATURE]
        if signature in self._seen:
            return "the request was made before"
        self._seen.add(signature)
        self._order.append((now_ms + 2 * self._window_ms, signature))
        return None
