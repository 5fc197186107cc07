"""``java.lang.String.hashCode``, which decides tag codes and index slots (reference: store-format 3 and 5).

The hash is the polynomial ``sum(c[i] * 31**(n-1-i))`` over UTF-16 code units, cut to 32 bits. Two ways make it cheap: a
string of digits and capitals up to ``N`` (every UNIQ_KEY is one) is a number of base 31 after subtracting ``'0'``, so
``int(text, 31)`` does the work in C, and any other ASCII string is the sum of a few such numbers; and hashes of heads and
tails combine, so a topic's part is computed once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
_ZERO: Final = ord("0")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstu"
# chr(48 + n) -> the digit of value n in int(text, 31); everything else becomes a character int() refuses.
_TO_BASE_31: Final = bytes(ord(_DIGITS[c - _ZERO]) if 0 <= c - _ZERO < 31 else ord("!") for c in range(256))
_POWERS: Final = [pow(31, n, 1 << 32) for n in range(512)]
_ONES: Final = [sum(_POWERS[:n]) & _MASK for n in range(len(_POWERS))]


# chr(c) -> the digits whose sum is c, one table for each of them.
_SUMMANDS: Final = [bytes(ord(_DIGITS[min(30, max(0, c - 30 * n))]) for c in range(256)) for n in range(5)]
_SHORT: Final = 14
"""Up to here a loop is faster than five numbers."""


def _unsigned(text: str) -> int:
    """The hash of a text as an unsigned 32-bit number."""
    length = len(text)
    if not text.isascii():
        utf16 = text.encode("utf-16-be", "surrogatepass")
        return _by_loop([high << 8 | low for high, low in zip(utf16[::2], utf16[1::2], strict=True)])
    raw = text.encode("ascii")
    if length >= 256:
        return _by_loop(raw)
    if length <= _SHORT and not raw.isdigit():
        return _by_loop(raw)
    try:
        return (int(raw.translate(_TO_BASE_31), 31) + _ZERO * _ONES[length]) & _MASK
    except ValueError:  # lower case, punctuation
        return sum([int(raw.translate(digits), 31) for digits in _SUMMANDS]) & _MASK


def _by_loop(units: bytes | list[int]) -> int:
    value = 0
    for unit in units:
        value = (value * 31 + unit) & _MASK
    return value


def java_hash(text: str) -> int:
    """The signed 32-bit hash of a string."""
    value = _unsigned(text)
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=65_536)
def tags_hash(tags: str) -> int:
    """The hash of a message's TAGS, remembered: few tags, many messages."""
    return java_hash(tags)


@lru_cache(maxsize=16_384)
def topic_head_hash(topic: str) -> int:
    """The unsigned hash of ``topic#``, the part that all index keys of a topic share."""
    return _unsigned(topic + "#")


def index_key_hash(topic: str, key: str) -> int:
    """The index's hash of ``topic#key``: the absolute value, and 0 for the one number that has none (store-format 5)."""
    length = len(key)
    if length < 512 and key.isascii():
        value = (topic_head_hash(topic) * _POWERS[length] + _unsigned(key)) & _MASK
    else:
        value = _unsigned(f"{topic}#{key}")
    if value & 0x80000000:
        value = (1 << 32) - value
        if value == 0x80000000:
            return 0
    return value
