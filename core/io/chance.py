"""The seam to chance: every queue, id and nonce that is drawn is drawn here, so that a simulation can decide what comes."""

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
    """Return a number from 0 up to ``count``, which it does not reach. Any thread."""
    return _numbers.randrange(count)


def bits(count: int) -> int:
    """Return a number of so many random bits. Others can guess it. Any thread."""
    return _numbers.getrandbits(count)


def secret_bytes(length_bytes: int) -> bytes:
    """Return bytes that nobody can guess: what ``secrets.token_bytes`` does, without the OpenSSL that comes with its module.
    Any thread."""
    return _secret(length_bytes)


@contextmanager
def decided_by(source: random.Random) -> Iterator[None]:
    """Draw everything from one source, secret bytes too, until the end of the ``with`` statement. For simulations, which run
    in one thread."""
    global _numbers, _secret
    before = _numbers, _secret
    _numbers, _secret = source, source.randbytes
    try:
        yield
    finally:
        _numbers, _secret = before
