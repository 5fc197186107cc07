"""``java.lang.String.hashCode``, which determines tags codes and index slots; :mod:`.bulk_texts` hashes many texts at once.

The hash is the polynomial ``sum(c[i] * 31**(n-1-i))`` over UTF-16 code units, truncated to 32 bits. If a string has only
characters from ``0`` to ``N``, as every UNIQ_KEY does, their codes minus the code of ``0`` are digits in base 31. The hash of
such a string is therefore computed from ``int(text, 31)``, which is fast because it is implemented in C. The hash of a joined
string follows from the hashes of its parts, so a topic's part is computed once.

See docs/internals/store-format.md, Consume queue and Index file.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from flintmq.core.io import lazy_numpy
from flintmq.core.io.lazy_numpy import numpy

_MASK: Final = 0xFFFFFFFF
_ZERO: Final = ord("0")
# The table maps chr(48 + n) to the digit of value n in base 31, and all other characters to "!", which int(text, 31) rejects.
_TO_BASE_31: Final = ("!" * _ZERO + "0123456789abcdefghijklmnopqrstu").ljust(256, "!").encode()
_SHORT: Final = 14
"""Length of a text up to which a loop computes the text's Java hash faster than ``int(text, 31)``, except for texts of digits
only."""
_LONG: Final = 256
"""Length of a text from which numpy computes the text's Java hash, if numpy is available. Without numpy the longest texts take
a millisecond."""
_POWERS: Final = [pow(31, n, 1 << 32) for n in range(512)]
_ONES: Final = [total & _MASK for total in accumulate(_POWERS[:-1], initial=0)]
_CACHED_TAGS_LENGTH: Final = 64


def _unsigned(text: str) -> int:
    """Return the Java hash of a text as an unsigned 32-bit number."""
    length = len(text)
    if text.isascii():
        raw = text.encode("ascii")
        if _SHORT < length < _LONG or (raw.isdigit() and length < _LONG):
            try:
                return (int(raw.translate(_TO_BASE_31), 31) + _ZERO * _ONES[length]) & _MASK
            except ValueError:  # lower case, punctuation
                pass
        units: bytes | memoryview = raw
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    if len(units) >= _LONG and lazy_numpy.ready():
        return int(numpy.dot(numpy.asarray(memoryview(units)), powers(len(units))[::-1]))
    value = 0
    for unit in units:
        value = (value * 31 + unit) & _MASK
    return value


@lru_cache(maxsize=16)
def powers(count: int) -> Any:
    """Return the first ``count`` powers of 31, truncated to 32 bits, as a numpy array."""
    factors = numpy.full(count, 31, numpy.uint32)
    factors[:1] = 1
    return factors.cumprod(dtype=numpy.uint32)


def java_hash(text: str) -> int:
    """Return the Java hash of a string, ``String.hashCode``, as a signed 32-bit number."""
    value = _unsigned(text)
    return value - (1 << 32) if value & 0x80000000 else value


def tags_hash(tags: str) -> int:
    """Return the Java hash of a message's property TAGS; 0 if the property is empty. Hashes of short tags are cached."""
    return _remembered(tags) if len(tags) <= _CACHED_TAGS_LENGTH else java_hash(tags)


_remembered: Final = lru_cache(maxsize=65_536)(java_hash)


@lru_cache(maxsize=16_384)
def topic_head_hash(topic: str) -> int:
    """Return the unsigned hash of ``topic#``, the part that all index keys of a topic share."""
    return _unsigned(topic + "#")


def index_key_hash(topic: str, key: str) -> int:
    """Return the index's hash of ``topic#key``: the absolute value of the Java hash, and 0 for -2**31.

    See docs/internals/store-format.md, Index file.
    """
    if len(key) < len(_POWERS) and key.isascii():
        value = (topic_head_hash(topic) * _POWERS[len(key)] + _unsigned(key)) & _MASK
    else:
        value = _unsigned(f"{topic}#{key}")
    if value & 0x80000000:
        value = (1 << 32) - value
        if value == 0x80000000:
            return 0
    return value
