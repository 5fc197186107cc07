"""How fast a backup is made, and what stays a hole."""

from __future__ import annotations

from pathlib import Path

from flintmq.programs.backup.writing import Pace, Writer


class Clock:
    """Turned by who sleeps."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now_s += seconds


def test_the_byte_rate_of_a_backup_stays_below_its_limit() -> None:
    """Each piece waits for the ones before it; time that a slow disk took is not made up for in a rush."""
    clock = Clock()
    pace = Pace(1_000, lambda: clock.now_s, clock.sleep)
    for _ in range(4):
        pace.take(500)
    assert clock.slept == [0.5, 0.5, 0.5]
    clock.now_s += 100
    pace.take(500)
    pace.take(500)
    assert clock.slept == [0.5, 0.5, 0.5, 0.5]


def test_a_backup_without_a_byte_rate_limit_does_not_wait() -> None:
    """Nor is the clock asked for anything but the start."""
    clock = Clock()
    pace = Pace(0, lambda: clock.now_s, clock.sleep)
    for _ in range(100):
        pace.take(1 << 30)
    assert clock.slept == []


def test_blocks_of_zeros_are_written_as_holes_of_a_sparse_file(tmp_path: Path) -> None:
    """A file may be mostly empty; what was behind the part before is forgotten."""
    path = tmp_path / "deep" / "file"
    path.parent.mkdir()
    path.write_bytes(b"old" * 1_000_000)
    chunk = 256 * 1024
    Writer().extend(path, 3, [b"a" * chunk, bytes(chunk), bytes(chunk), b"b" * chunk], 40 * chunk)
    assert path.stat().st_size == 40 * chunk
    assert path.read_bytes()[: 3 + 4 * chunk] == b"old" + b"a" * chunk + bytes(2 * chunk) + b"b" * chunk
    assert path.stat().st_blocks * 512 < 4 * chunk
