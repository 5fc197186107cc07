"""Framing must not depend on how the network cuts the stream, nor let a peer cost more than it sends."""

from __future__ import annotations

import struct
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.errors import FrameError
from flintmq.remoting.wire.frame import FrameDecoder


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(bodies=st.lists(st.binary(min_size=4, max_size=40), max_size=8), cuts=st.lists(st.integers(0, 400), max_size=10))
def test_a_stream_of_frames_cut_into_random_pieces_is_decoded_to_the_original_frames(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(map(framed, bodies))
    assert FrameDecoder().feed(stream) == bodies
    decoder = FrameDecoder()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert [frame for piece in pieces for frame in decoder.feed(piece)] == bodies
    assert decoder.pending_bytes == 0


def test_a_stream_of_frames_fed_byte_by_byte_is_decoded_to_the_original_frames() -> None:
    bodies = [b"abcd", b"0123456789" * 30, b"wxyz!"]
    decoder = FrameDecoder()
    stream = b"".join(map(framed, bodies))
    assert [frame for byte in stream for frame in decoder.feed(bytes((byte,)))] == bodies


def test_the_decoder_counts_the_buffered_bytes_of_an_incomplete_frame() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(framed(b"abcd") + b"\0\0") == [b"abcd"]
    assert decoder.pending_bytes == 2
    assert decoder.feed(b"\0\x05abc") == []
    assert decoder.pending_bytes == 7
    assert decoder.feed(b"de") == [b"abcde"]
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, 1001, 2**31 - 1])
@pytest.mark.parametrize("piece_bytes", [1, 3, 4])
def test_a_frame_with_an_invalid_length_is_refused_as_soon_as_its_length_field_is_read(
    length: int, piece_bytes: int
) -> None:
    """Nothing may be buffered for a frame that will not be accepted."""
    decoder = FrameDecoder(max_frame_bytes=1000)
    field = struct.pack(">i", length)
    pieces = [field[at : at + piece_bytes] for at in range(0, 4, piece_bytes)]
    assert not any(decoder.feed(piece) for piece in pieces[:-1])
    with pytest.raises(FrameError, match=str(length)):
        decoder.feed(pieces[-1])
    assert decoder.pending_bytes <= 4


def test_a_frame_of_exactly_the_maximum_size_is_accepted() -> None:
    assert FrameDecoder(max_frame_bytes=1000).feed(framed(bytes(1000))) == [bytes(1000)]


def test_decoding_a_long_frame_in_small_pieces_takes_linear_time() -> None:
    """Four times as long may not take sixteen times: compared are 1 MiB and 4 MiB in 4 KiB pieces."""

    def seconds(size: int) -> float:
        stream = framed(bytes(size))
        best = 9.0
        for _ in range(3):
            decoder = FrameDecoder()
            start = time.perf_counter()
            frames = [frame for at in range(0, len(stream), 4096) for frame in decoder.feed(stream[at : at + 4096])]
            best = min(best, time.perf_counter() - start)
            assert len(frames[0]) == size
        return best

    assert seconds(4 << 20) < 12 * seconds(1 << 20) + 0.02
