"""Work that may be long, done in slices of time: the loop has other clients to serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.004
"""How long one request may keep the loop at a stretch."""


class TimeSlice:
    """The time that a piece of work may take before other clients are served. Made where the work begins. ::

    time_slice = TimeSlice()
    for queue_id in range(65_536):
        ...
        if time_slice.is_over:
            await time_slice.renew()
    """

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s = time.perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Return whether the time is used up."""
        return time.perf_counter() >= self._until_s

    async def renew(self) -> None:
        """Let the loop do what else is due, then begin another slice."""
        await asyncio.sleep(0)
        self._until_s = time.perf_counter() + SLICE_S


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Do work that is made in steps to its end, and serve other clients in between."""
    time_slice = TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        if time_slice.is_over:
            await time_slice.renew()
