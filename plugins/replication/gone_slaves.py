"""Records which slaves have disconnected from a master, and since when, for alarms."""

from __future__ import annotations

from flintmq.core.io.clock import Clock


class GoneSlaves:
    """The connected and the disconnected slaves of a master, by name. Used only on the event loop's thread.

    Args:
        clock: gives the monotonic time.
        slaves_max: limit of disconnected slaves that are kept. Beyond the limit, the slave that disconnected first is removed.
    """

    def __init__(self, clock: Clock, slaves_max: int) -> None:
        self._clock = clock
        self._slaves_max = slaves_max
        self._left_s: dict[str, float] = {}
        self._alone_since_s = clock.monotonic_s()
        self._following: dict[str, int] = {}

    def follows(self, slave: str) -> None:
        """Record that a slave has opened a connection."""
        self._following[slave] = self._following.get(slave, 0) + 1
        self._left_s.pop(slave, None)

    def left(self, slave: str) -> None:
        """Record the end of a slave's connection. The slave counts as disconnected if it has no other connection."""
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
        """Return the time in ms since each disconnected slave left, keyed by the slave's name. The longest time comes first."""
        now_s = self._clock.monotonic_s()
        return {slave: round((now_s - left_s) * 1000) for slave, left_s in self._left_s.items()}

    def alone_ms(self) -> int:
        """Return the time in ms for which no slave has been connected; 0 if a slave is connected."""
        return 0 if self._following else round((self._clock.monotonic_s() - self._alone_since_s) * 1000)
