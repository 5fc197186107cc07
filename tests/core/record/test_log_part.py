"""Where a file holds anything, and where records may begin in it, is found alike in files with holes and without."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.record import log_part
from flintmq.core.record import record as rec
from flintmq.core.record.log_part import data_in, is_zero, magics, used_chunks

KIB = 1024
MAGICS = [magic.to_bytes(4, "big") for magic in (rec.MAGIC_V1, rec.MAGIC_V2, rec.MAGIC_BLANK)]
CHUNK = log_part._CHUNK_BYTES
EDGES = [64 * KIB, 2 * 64 * KIB, CHUNK, CHUNK + 64 * KIB, 2 * CHUNK]


@attrs.define
class Part:
    """A file in memory, whose holes are as wide as a file system makes them, or which has none."""

    content: bytes
    hole_bytes: int = 0
    start: int = 0
    asked: int = 0

    @property
    def view(self) -> memoryview:
        return memoryview(self.content)

    def next_data(self, position: int) -> int:
        self.asked += 1
        while self.hole_bytes and position < len(self.content):
            behind = position - position % self.hole_bytes + self.hole_bytes
            if self.content.count(0, position, behind) < min(behind, len(self.content)) - position:
                return position
            position = behind
        return min(position, len(self.content))


pieces = st.lists(
    st.tuples(st.sampled_from(EDGES), st.integers(-6, 6), st.sampled_from([*MAGICS, b"x", b"\0\1"])), max_size=6
)


@given(pieces, st.sampled_from([0, 4096]), st.integers(0, 5), st.integers(0, 9))
def test_a_search_for_records_finds_each_magic_number_despite_file_holes_and_chunk_borders(
    written: list[tuple[int, int, bytes]], hole_bytes: int, begin: int, spare: int
) -> None:
    """Magics lie across the ends of chunks, zeros may be holes: each place is found, once, in order."""
    content = bytearray(2 * CHUNK + 64 * KIB + spare)
    for edge, shift, data in written:
        content[edge + shift : edge + shift + len(data)] = data
    part = Part(bytes(content), hole_bytes)

    found = list(magics(part, begin))

    places = {edge + shift + more for edge, shift, _data in written for more in range(-4, 5)}
    assert found == sorted(at - 4 for at in places if at >= begin + 4 and content[at : at + 4] in MAGICS)
    kept = bytearray(len(content))
    kept[:begin] = content[:begin]
    for at, data in data_in(part, begin, len(content)):
        kept[at : at + len(data)] = data
    assert kept == content
    assert is_zero(part, begin, len(content)) == (content[begin:].count(0) == len(content) - begin)
    assert all(at + len(chunk) <= behind for (at, chunk), (behind, _) in pairwise(used_chunks(part, 0, len(content))))


@pytest.mark.parametrize("hole_bytes", [0, 4096])
def test_at_most_12_seek_calls_are_made_to_check_that_64_mib_contain_only_zeros(hole_bytes: int) -> None:
    part = Part(bytes(64 * 1024 * KIB), hole_bytes)

    assert is_zero(part, 0, len(part.content))
    assert part.asked <= 12


def test_searching_a_zero_filled_buffer_takes_at_most_6_times_as_long_as_comparing_it_with_zeros() -> None:
    """Zeros are compared and not searched: a search for magics, or for the last other byte, costs 30 times as much."""
    size = 32 * 1024 * KIB
    part = Part(bytes(size))
    zeros = bytes(size)

    def cpu_s(work: Callable[[], bool]) -> float:
        began_s = time.process_time()
        assert work()
        return time.process_time() - began_s

    compared_s = min(cpu_s(lambda: bytes(part.view) == zeros) for _ in range(5))
    searched_s = min(cpu_s(lambda: not list(magics(part, 0)) and is_zero(part, 0, size)) for _ in range(5))
    assert searched_s < 6 * compared_s + 0.002
