"""The seam to time: everything that waits or stamps asks a :class:`Clock`, so that tests need no sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time as FlintMQ sees it. Thread-safe."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970 (what the store stamps)."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds of a clock that never moves back, for deadlines and intervals."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()
