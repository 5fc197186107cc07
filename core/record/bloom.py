"""The bloom filter whose bits say which consumer groups may want a message.

Each group has a few positions in a bit map. When a message is stored, the positions of every group whose filter matches it are
set. A group whose positions are not all set can skip the message. Bit n is bit ``n % 8`` of byte ``n // 8``, so a bit map is a
little-endian integer, and setting and testing are one operation each. See docs/internals/store-format.md, Bloom filter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from flintmq.core.io.typed_json import Int

_MASK_64: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class StoredBloom(msgspec.Struct, rename="camel"):
    """The positions of a consumer group in a bloom filter, in the JSON format of RocketMQ's files (``BloomFilterData``)."""

    bit_num: Int = 0
    bit_pos: list[Int] = msgspec.field(default_factory=list)


class BloomFilterData(msgspec.Struct, frozen=True):
    """The positions of a consumer group in the bloom filter's bit maps of one topic."""

    bit_num: int
    """Length of a bit map of the topic, in bits."""
    bit_pos: tuple[int, ...]
    """Positions of the consumer group's bits in a bit map, in the order of the hash functions that compute the positions."""
    mask: int = 0
    """Integer in which the bits at all positions of the group are set; computed from :attr:`bit_pos`."""

    def __post_init__(self) -> None:
        mask = 0
        for position in self.bit_pos:
            mask |= 1 << position
        msgspec.structs.force_setattr(self, "mask", mask)

    def is_hit(self, bit_map: bytes | memoryview) -> bool:
        """Return whether all of the group's positions are set in a message's bit map. False: the message does not match the
        group's filter; True: the message may match."""
        return int.from_bytes(bit_map, "little") & self.mask == self.mask

    def to_wire(self) -> dict[str, Any]:
        return {"bitNum": self.bit_num, "bitPos": list(self.bit_pos)}

    @classmethod
    def of(cls, stored: StoredBloom) -> BloomFilterData:
        """Return the positions of a consumer group's bits in the bit maps of a topic's messages, as read from the JSON of
        ``consumerFilter.json``. A message's bit map is a bloom filter that shows which groups' filters the message may match.
        Raises ValueError if a position is negative, or not less than the number of bits in a bit map."""
        positions = tuple(stored.bit_pos)
        if any(not 0 <= position < stored.bit_num for position in positions):
            raise ValueError(f"positions {positions} are outside of the {stored.bit_num} bits of the map")
        return cls(stored.bit_num, positions)


class BloomFilter:
    """A bloom filter, which computes the positions of consumer groups in a bit map, and bit maps from positions.

    Args:
        error_percent: the acceptable percentage of false positives, 1 to 99: messages that do not match but seem to.
        expected: the expected number of groups that share a bit map; more groups cause more false positives.
    """

    def __init__(self, error_percent: int, expected: int) -> None:
        if not 1 <= error_percent <= 99:
            raise ValueError(f"the error rate is 1 to 99 percent, not {error_percent}")
        if expected < 1:
            raise ValueError(f"at least one group is expected, not {expected}")
        self.expected = expected
        rate = error_percent / 100
        self.hash_functions = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.bit_num = 8 * math.ceil(bits / 8)

    @property
    def bit_map_bytes(self) -> int:
        return self.bit_num // 8

    def positions(self, name: str) -> BloomFilterData:
        """Return the bit positions that stand for a consumer group and a topic in the bit map of a message. The positions are
        computed from hashes of ``name``, the text ``group#topic``."""
        low = murmur3_low_64(name.encode("utf-8", "replace"))
        first, second = low & 0xFFFFFFFF, low >> 32
        positions = []
        for number in range(1, self.hash_functions + 1):
            combined = (first + number * second) & 0xFFFFFFFF
            positions.append((combined ^ 0xFFFFFFFF if combined >= 2**31 else combined) % self.bit_num)
        return BloomFilterData(self.bit_num, tuple(positions))

    def all_of(self, members: Iterable[BloomFilterData]) -> BloomFilterData:
        """Return the union of the positions of several consumer groups in the bloom filter."""
        return BloomFilterData(self.bit_num, tuple(sorted({at for member in members for at in member.bit_pos})))

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Return whether positions fit this bloom filter: their bit map length and their number of hash functions are those of
        the filter."""
        return data is not None and data.bit_num == self.bit_num and len(data.bit_pos) == self.hash_functions

    def bit_map(self, members: Iterable[BloomFilterData]) -> bytes:
        """Return the bit map in which the positions of the given consumer groups are set."""
        bits = 0
        for member in members:
            bits |= member.mask
        return bits.to_bytes(self.bit_map_bytes, "little")


def murmur3_low_64(data: bytes, seed: int = 0) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 (public domain, Austin Appleby), as Guava's ``asLong`` does."""
    h1 = h2 = seed
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _mixed_1(k1)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK_64
        h2 ^= _mixed_2(k2)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK_64
    tail = data[whole:]
    h1 ^= _mixed_1(int.from_bytes(tail[:8], "little"))
    h2 ^= _mixed_2(int.from_bytes(tail[8:], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK_64
    h2 = (h2 + h1) & _MASK_64
    return (_finished(h1) + _finished(h2)) & _MASK_64


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK_64


def _mixed_1(k1: int) -> int:
    return _rotated(k1 * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mixed_2(k2: int) -> int:
    return _rotated(k2 * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33
