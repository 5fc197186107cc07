"""Bit maps are written to disk: another hash or another order of bits, and a Java broker filters wrongly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.io.typed_json import read_as
from flintmq.core.record.bloom import BloomFilter, BloomFilterData, StoredBloom, murmur3_low_64


@pytest.mark.parametrize(
    ("data", "low"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_the_hash_of_the_bloom_filter_is_murmur3(data: bytes, low: int) -> None:
    """Published vectors: shorter than a block, and two blocks with a tail."""
    assert murmur3_low_64(data) == low


def test_the_bloom_filter_bit_positions_of_a_group_equal_those_of_a_java_broker() -> None:
    """From the consumerFilter.json of a real 4.9.7 with its defaults."""
    bloom = BloomFilter(20, 32)
    assert (bloom.bit_num, bloom.hash_functions, bloom.bit_map_bytes) == (112, 3, 14)
    expected = {"0": (21, 92, 49), "1": (38, 70, 41), "2": (37, 82, 16), "3": (59, 56, 83)}
    assert {n: bloom.positions(f"golden_pg_sql{n}#GoldenFilter").bit_pos for n in expected} == expected


def test_the_filter_bit_map_of_a_message_equals_the_bit_map_that_a_java_broker_wrote() -> None:
    """The bit map of a message that the filters of groups 0 and 3 fit, as the real broker wrote it."""
    bloom = BloomFilter(20, 32)
    groups = [bloom.positions(f"golden_pg_sql{n}#GoldenFilter") for n in (0, 3)]
    made = bloom.bit_map(groups)
    assert made.hex() == "0000200000000209000008100000"
    assert [bloom.positions(f"golden_pg_sql{n}#GoldenFilter").is_hit(made) for n in range(4)] == [
        True,
        False,
        False,
        True,
    ]


@given(st.integers(1, 99), st.integers(1, 500), st.lists(st.text(), min_size=1, max_size=20))
def test_a_bloom_filter_always_finds_its_members(error_percent: int, expected: int, names: list[str]) -> None:
    """A bloom filter may say yes too often, but a no that is wrong loses a message."""
    bloom = BloomFilter(error_percent, expected)
    members = [bloom.positions(name) for name in names]
    made = bloom.bit_map(members)
    assert len(made) == bloom.bit_map_bytes
    assert all(member.is_hit(made) and bloom.is_valid(member) for member in members)


def test_filter_sizes_follow_rocketmqs_formula() -> None:
    """Sizes decide whether a bit map found in a store can be used."""
    assert [
        (BloomFilter(f, n).hash_functions, BloomFilter(f, n).bit_num) for f, n in ((10, 128), (1, 32), (50, 1))
    ] == [
        (4, 616),
        (7, 312),
        (1, 8),
    ]
    for wrong in ((0, 1), (100, 1), (20, 0)):
        with pytest.raises(ValueError, match="not"):
            BloomFilter(*wrong)


def test_a_bloom_filter_rejects_bit_positions_computed_for_a_filter_of_a_different_size() -> None:
    """After a change of the configuration the stored positions mean something else."""
    small, large = BloomFilter(20, 32), BloomFilter(20, 64)
    assert not large.is_valid(small.positions("g"))
    assert not small.is_valid(None)
    data = small.positions("g")
    assert BloomFilterData.of(read_as(data.to_wire(), StoredBloom)) == data
    with pytest.raises(ValueError, match="are outside of"):
        BloomFilterData.of(StoredBloom(bit_num=8, bit_pos=[8]))
