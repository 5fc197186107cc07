"""What a peer sends after bytes that are not a frame, in which it may name the request that waits for an answer."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.core.errors import FrameError
from flintmq.remoting.wire.lenient_header import LOOKED_AT_BYTES, Known, what_is_known


class LastWords:
    """The beginning of the bytes that end a connection. Loop thread.

    Args:
        error: what was wrong with them; its ``rest`` is what is known of them so far.
        refuse: answers the sender, once it is known which request the bytes began.
    """

    def __init__(self, error: FrameError, refuse: Callable[[FrameError, Known], None]) -> None:
        self._error: FrameError | None = error if error.refusal is not None else None
        self._refuse = refuse

    def add(self, data: bytes) -> None:
        """Look at more bytes; refuse the request as soon as they say which it is."""
        error = self._error
        if error is None:
            return
        error.rest += data[: max(0, LOOKED_AT_BYTES - len(error.rest))]
        known = what_is_known(error.rest)
        if known is not None:
            self._error = None
            self._refuse(error, known)
