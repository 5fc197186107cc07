"""Work in steps: generators that yield regularly, so that an event loop can run other work between two steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def run_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end without waiting between its steps, and return the generator's return value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
