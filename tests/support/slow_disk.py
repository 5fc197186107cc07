"""A disk that takes its time by a test's clock."""

from __future__ import annotations

from pathlib import Path

from flintmq.testing.clock import ManualClock
from flintmq.tests.support.faulty_disk import FaultyDisk, Operation


class SlowDisk(FaultyDisk):
    """Lets time pass in the next operation of a kind on the commit log."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.slow: Operation | None = None
        self.takes_ms = 0

    def check(self, operation: Operation, path: Path) -> None:
        super().check(operation, path)
        if operation == self.slow and path.parent.name == "commitlog":
            self.clock.advance_ms(self.takes_ms)
            self.slow = None
