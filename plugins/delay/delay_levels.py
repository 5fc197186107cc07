"""Delay levels: ``1s 5s 10s …`` (docs/internals/algorithms.md, Delay levels)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from flintmq.core.errors import FlintError

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"(\d{1,9})([smhd])")


class DelayLevels:
    """The delays of level 1, 2, … Level n waits in queue n - 1 of the schedule topic. Read-only.

    Args:
        text: delays separated by blanks, units ``s m h d``.

    Raises:
        FlintError: not of that form.
    """

    def __init__(self, text: str = DEFAULT_LEVELS) -> None:
        delays = []
        for word in text.split():
            match = _LEVEL.fullmatch(word)
            if match is None:
                raise FlintError(f"delay level {word[:20]!r} is not a number with one of the units s, m, h, d")
            delays.append(int(match.group(1)) * _UNITS_MS[match.group(2)])
        if not delays:
            raise FlintError("there is no delay level")
        self._delays_ms = tuple(delays)

    @property
    def max_level(self) -> int:
        return len(self._delays_ms)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, self.max_level + 1))

    def clamp(self, level: int) -> int:
        """The level a message gets that asks for one: at most the highest; 0 and less are no delay."""
        return max(0, min(level, self.max_level))

    def delay_ms(self, level: int) -> int:
        """The delay of a level; 1 s for a level there is not, as RocketMQ has it."""
        return self._delays_ms[level - 1] if 1 <= level <= self.max_level else 1_000


DELAY_LEVEL_MS: Final[Mapping[int, int]] = {level: DelayLevels().delay_ms(level) for level in DelayLevels()}
"""The delay of each of RocketMQ's eighteen levels, in ms."""
