"""Give tests a clock that moves only when they move it."""

from __future__ import annotations


class ManualClock:
    """A :class:`flintmq.core.io.clock.Clock` for tests, moved by hand. Not thread-safe."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock alone, as an administrator or NTP does; the monotonic clock does not notice."""
        self._now_ms = now_ms
