"""Returns the random numbers and bytes for queues, ids and nonces from one source, which a simulation can replace."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Numbers(Protocol):
    """A source of random numbers: the module :mod:`random`, or a ``random.Random``."""

    def randrange(self, start: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


_decisions = threading.local()
"""In a thread that runs a simulation, the attribute ``source`` is the simulation's source of random numbers."""


def _numbers() -> Numbers:
    return getattr(_decisions, "source", random)


def below(count: int) -> int:
    """Return a random number from 0 to ``count`` - 1. Can be called from any thread."""
    return _numbers().randrange(count)


def bits(count: int) -> int:
    """Return a number of ``count`` random bits. It is not suitable for secrets, because it can be predicted. Can be called from
    any thread."""
    return _numbers().getrandbits(count)


def secret_bytes(length_bytes: int) -> bytes:
    """Return random bytes that are suitable for secrets, as ``secrets.token_bytes`` does, but without loading OpenSSL. Any
    thread."""
    source: random.Random | None = getattr(_decisions, "source", None)
    return os.urandom(length_bytes) if source is None else source.randbytes(length_bytes)


@contextmanager
def decided_by(source: random.Random) -> Iterator[None]:
    """Use a source for all random numbers and bytes of this thread, including secret bytes, within a ``with`` statement.

    Only simulations, which run in one thread, may use this function. The source is not used by other threads, so they cannot
    change the random numbers of a simulation.
    """
    before: random.Random | None = getattr(_decisions, "source", None)
    _decisions.source = source
    try:
        yield
    finally:
        if before is None:
            del _decisions.source
        else:
            _decisions.source = before
