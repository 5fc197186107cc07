"""Work that may be long, done in slices: the loop has other clients to serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.004
"""How long one request may keep the loop at a stretch."""


class Turns:
    """Made where the work begins. ::

    turns = Turns()
    for queue_id in range(65_536):
        ...
        if turns.is_due:
            await turns.give()
    """

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s = time.perf_counter() + SLICE_S

    @property
    def is_due(self) -> bool:
        """Whether the slice is over."""
        return time.perf_counter() >= self._until_s

    async def give(self) -> None:
        """Lets the loop do what else there is; a new slice begins then."""
        await asyncio.sleep(0)
        self._until_s = time.perf_counter() + SLICE_S


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Runs work that is made in steps to its end, with turns for others."""
    turns = Turns()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        if turns.is_due:
            await turns.give()
