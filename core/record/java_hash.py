"""``java.lang.String.hashCode``, which decides tag codes and index slots.

The hash is the polynomial ``sum(c[i] * 31**(n-1-i))`` over UTF-16 code units, cut to 32 bits. Two ways make it cheap: a
string of digits and capitals up to ``N`` (every UNIQ_KEY is one) is a number of base 31 after subtracting ``'0'``, so
``int(text, 31)`` does the work in C, and any other ASCII string is the sum of a few such numbers; and hashes of heads and
tails combine, so a topic's part is computed once.

See docs/internals/store-format.md, Consume queue and Index file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Any, Final

from flintmq.core.io import lazy_numpy
from flintmq.core.io.lazy_numpy import numpy

_MASK: Final = 0xFFFFFFFF
_ZERO: Final = ord("0")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstu"
# chr(48 + n) -> the digit of value n in int(text, 31); everything else becomes a character int() refuses.
_TO_BASE_31: Final = ("!" * _ZERO + _DIGITS).ljust(256, "!").encode()
_POWERS: Final = [pow(31, n, 1 << 32) for n in range(512)]
_ONES: Final = [total & _MASK for total in accumulate(_POWERS[:-1], initial=0)]


# chr(c) -> the digits whose sum is c, one table for each of them.
_SUMMANDS: Final = [("0" * (30 * n) + _DIGITS).ljust(256, _DIGITS[-1]).encode() for n in range(5)]
_SHORT: Final = 14
"""Up to here a loop is faster than five numbers."""
_UNIQ_KEY_CHARACTERS: Final = 32
_LONG: Final = 256
"""Longer tags and keys are not made by sensible clients: a loop takes a millisecond for the longest."""
_CACHED_TAGS_LENGTH: Final = 64


def _unsigned(text: str) -> int:
    """Return the hash of a text as an unsigned 32-bit number."""
    length = len(text)
    if not text.isascii():
        utf16 = text.encode("utf-16-be", "surrogatepass")
        if length >= _LONG:
            return _of_long(utf16, ">u2")
        return _by_loop([high << 8 | low for high, low in zip(utf16[::2], utf16[1::2], strict=True)])
    raw = text.encode("ascii")
    if length >= _LONG:
        return _of_long(raw, "u1")
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


def _of_long(raw: bytes, unit: str) -> int:
    """Return the hash of a long text, at a lower cost than by the loop.

    Args:
        raw: the UTF-16 units of the text, or its ASCII characters.
        unit: their type, as numpy names it.
    """
    if lazy_numpy.ready():
        units = numpy.frombuffer(raw, unit)
        return int(numpy.dot(units, descending_powers(len(units))))
    codes = raw if unit == "u1" else [high << 8 | low for high, low in zip(raw[::2], raw[1::2], strict=True)]
    value = 0
    for at in range(0, len(codes), _LONG):
        part = codes[at : at + _LONG]
        value = (value * _POWERS[len(part)] + sum(map(mul, part, _POWERS[len(part) - 1 :: -1]))) & _MASK
    return value


def java_hashes(texts: Sequence[str]) -> list[int]:
    """Return :func:`java_hash` of many texts: those of the Basic Multilingual Plane together, once numpy is loaded."""
    return [value - (1 << 32) if value & 0x80000000 else value for value in unsigned_hashes(texts)]


def unsigned_hashes(texts: Sequence[str]) -> list[int]:
    """Return the hashes as unsigned 32-bit numbers."""
    joined = "".join(texts)
    raw, unit = (
        (joined.encode("ascii"), "u1") if joined.isascii() else (joined.encode("utf-16-be", "surrogatepass"), ">u2")
    )
    if (
        not joined
        or len(joined) > _LONG * len(texts)  # each is worth a call
        or len(raw) != len(joined) * (1 if unit == "u1" else 2)
        or not lazy_numpy.ready()
    ):
        return list(map(_unsigned, texts))
    lengths = numpy.fromiter(map(len, texts), numpy.int64, len(texts))
    ends = lengths.cumsum()
    powers = ascending_powers(int(lengths.max()))
    rest = numpy.repeat(ends, lengths) - numpy.arange(1, len(joined) + 1)
    sums = (numpy.frombuffer(raw, unit) * powers[rest]).cumsum(dtype=numpy.uint32)
    sums = numpy.concatenate((numpy.zeros(1, numpy.uint32), sums))
    hashes: list[int] = (sums[ends] - sums[ends - lengths]).tolist()
    return hashes


@lru_cache(maxsize=16)
def ascending_powers(count: int) -> Any:
    """Return the first powers of 31, cut to 32 bits, as an array."""
    factors = numpy.full(count, 31, numpy.uint32)
    factors[:1] = 1
    return factors.cumprod(dtype=numpy.uint32)


@lru_cache(maxsize=16)
def descending_powers(count: int) -> Any:
    """Return the first powers of 31, cut to 32 bits, the last one first."""
    return ascending_powers(count)[::-1].copy()


def java_hash(text: str) -> int:
    """Return the signed 32-bit hash of a string."""
    value = _unsigned(text)
    return value - (1 << 32) if value & 0x80000000 else value


def tags_hash(tags: str) -> int:
    """Return the hash of a message's TAGS, 0 without any; short ones are remembered, for there are few of them."""
    return _remembered(tags) if len(tags) <= _CACHED_TAGS_LENGTH else java_hash(tags)


_remembered: Final = lru_cache(maxsize=65_536)(java_hash)


def tags_hashes(tags: Iterable[str]) -> Iterable[int]:
    """Return the hashes of many messages' TAGS; together where they are unusually long."""
    if isinstance(tags, list) and len("".join(tags)) > _CACHED_TAGS_LENGTH * len(tags):
        return java_hashes(tags)
    return map(tags_hash, tags)


@lru_cache(maxsize=16_384)
def topic_head_hash(topic: str) -> int:
    """Return the unsigned hash of ``topic#``, the part that all index keys of a topic share."""
    return _unsigned(topic + "#")


def index_key_hash(topic: str, key: str) -> int:
    """Return the index's hash of ``topic#key``: the absolute value, and 0 for the one number that has none.

    See docs/internals/store-format.md, Index file.
    """
    length = len(key)
    if length < 512 and key.isascii():
        value = (topic_head_hash(topic) * _POWERS[length] + _unsigned(key)) & _MASK
    elif length < _LONG:
        units = len(key.encode("utf-16-be", "surrogatepass")) // 2
        value = (topic_head_hash(topic) * _POWERS[units] + _unsigned(key)) & _MASK
    else:
        value = _unsigned(f"{topic}#{key}")
    if value & 0x80000000:
        value = (1 << 32) - value
        if value == 0x80000000:
            return 0
    return value


def index_key_hashes(topics: Sequence[str], keys: Sequence[str]) -> list[int]:
    """Return :func:`index_key_hash` of many (topic, key) with numpy.

    Keys of 32 ASCII characters, which every IPv4 sender's UNIQ_KEY has, have the shortest way.
    """
    joined = "".join(keys)
    if len(joined) == _UNIQ_KEY_CHARACTERS * len(keys) and joined.isascii() and len(set(map(len, keys))) == 1:
        characters = numpy.frombuffer(joined.encode("ascii"), numpy.uint8).reshape(len(keys), _UNIQ_KEY_CHARACTERS)
        powers = numpy.array(
            [pow(31, _UNIQ_KEY_CHARACTERS - 1 - n, 1 << 32) for n in range(_UNIQ_KEY_CHARACTERS)], numpy.uint32
        )
        hashes = (characters * powers).sum(axis=1, dtype=numpy.uint32)
        power = pow(31, _UNIQ_KEY_CHARACTERS, 1 << 32)
        moved = {topic: topic_head_hash(topic) * power & 0xFFFFFFFF for topic in set(topics)}
        if len(moved) == 1:
            hashes += numpy.uint32(next(iter(moved.values())))
        else:
            hashes += numpy.array([moved[topic] for topic in topics], numpy.uint32)
    elif joined.isascii():
        powers = ascending_powers(max(map(len, keys), default=0) + 1)[
            numpy.fromiter(map(len, keys), numpy.int64, len(keys))
        ]
        heads_of = {topic: topic_head_hash(topic) for topic in set(topics)}
        heads = numpy.fromiter(map(heads_of.__getitem__, topics), numpy.uint32, len(topics))
        hashes = numpy.array(unsigned_hashes(keys), numpy.uint32) + heads * powers
    else:
        return list(map(index_key_hash, topics, keys))
    hashed: list[int] = absolute_hashes(hashes).tolist()
    return hashed


def absolute_hashes(hashes: Any) -> Any:
    """Return what the index keeps of unsigned hashes: the absolute value, and 0 for the one number that has none."""
    absolute = numpy.abs(hashes.view(numpy.int32).astype(numpy.int64))
    absolute[absolute == 1 << 31] = 0
    return absolute
