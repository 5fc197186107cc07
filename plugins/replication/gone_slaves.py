"""Remembers which slaves followed, and since when they do no longer."""

from __future__ import annotations

from flintmq.core.io.clock import Clock


class GoneSlaves:
    """The slaves of one master that are gone. Loop thread.

    Args:
        clock: time.
        slaves_max: so many are remembered; the one that left first is forgotten for another one.
    """

    def __init__(self, clock: Clock, slaves_max: int) -> None:
        self._clock = clock
        self._slaves_max = slaves_max
        self._left_s: dict[str, float] = {}
        self._alone_since_s = clock.monotonic_s()
        self._following: dict[str, int] = {}

    def follows(self, slave: str) -> None:
        """Take note that a slave follows, by one connection more."""
        self._following[slave] = self._following.get(slave, 0) + 1
        self._left_s.pop(slave, None)

    def left(self, slave: str) -> None:
        """Take note that a connection ended by which a slave followed. It may have made another one before."""
        self._following[slave] -= 1
        if self._following[slave]:
            return
        del self._following[slave]
        now_s = self._clock.monotonic_s()
        if not self._following:
            self._alone_since_s = now_s
        if len(self._left_s) >= self._slaves_max:
            del self._left_s[next(iter(self._left_s))]
        self._left_s[slave] = now_s

    def gone_ms(self) -> dict[str, int]:
        """Return the slaves that are gone, with for how long, the one that left first at the beginning."""
        now_s = self._clock.monotonic_s()
        return {slave: round((now_s - left_s) * 1000) for slave, left_s in self._left_s.items()}

    def alone_ms(self) -> int:
        """Return for how long no slave has followed; 0 while one does."""
        return 0 if self._following else round((self._clock.monotonic_s() - self._alone_since_s) * 1000)
