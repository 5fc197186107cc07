"""Returns the random numbers and bytes for queues, ids and nonces from one source, which a simulation can replace."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Numbers(Protocol):
    """A source of random numbers: the module :mod:`random`, or a ``random.Random``."""

    def randrange(self, start: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


_numbers: Numbers = random
_secret: Callable[[int], bytes] = os.urandom


def below(count: int) -> int:
    """Return a random number from 0 to ``count`` - 1. Any thread."""
    return _numbers.randrange(count)


def bits(count: int) -> int:
    """Return a number of ``count`` random bits. It is not suitable for secrets, because it can be predicted. Any thread."""
    return _numbers.getrandbits(count)


def secret_bytes(length_bytes: int) -> bytes:
    """Return random bytes that are suitable for secrets, as ``secrets.token_bytes`` does, but without loading OpenSSL. Any
    thread."""
    return _secret(length_bytes)


@contextmanager
def decided_by(source: random.Random) -> Iterator[None]:
    """Use a source for all random numbers and bytes, including secret bytes, within a ``with`` statement.

    Only simulations, which run in one thread, may use it.
    """
    global _numbers, _secret
    before = _numbers, _secret
    _numbers, _secret = source, source.randbytes
    try:
        yield
    finally:
        _numbers, _secret = before
