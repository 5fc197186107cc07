"""The feed file is what other processes trust: it must never show half of one state and half of another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.core.errors import StoreFormatError, StoreFullError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.dispatchers.spark_feed.feed_file import (
    FEED_BYTES,
    FeedMarks,
    FeedState,
    FeedWriter,
    decode_feed,
    encode_feed,
    feed_path,
    read_feed,
)
from flintmq.tests.support.faulty_disk import FaultyDisk


def marks(number: int = 1, state: FeedState = FeedState.RUNNING) -> FeedMarks:
    """Marks in which every field tells the same number."""
    return FeedMarks(
        state=state,
        epoch=number % 1_000,
        min_offset_bytes=number,
        dispatched_offset_bytes=number * 5,
        flushed_offset_bytes=number * 3,
        confirmed_offset_bytes=number * 2,
        written_at_ms=number * 7,
    )


def test_log_positions_written_for_spark_readers_are_read_back_from_the_file(tmp_path: Path) -> None:
    """The plain way, and a file that lives through a restart of the writer."""
    path = feed_path(tmp_path)
    assert read_feed(path) is None
    for number in (1, 2):
        writer = FeedWriter(OS_DISK, path)
        writer.write(marks(number))
        assert read_feed(path) == marks(number)
        writer.close(marks(number + 10, FeedState.CLOSED))
        assert read_feed(path) == marks(number + 10, FeedState.CLOSED)
        writer.write(marks(99))  # too late: ignored
        writer.close(marks(99))
        assert read_feed(path) == marks(number + 10, FeedState.CLOSED)
    assert path.stat().st_size == FEED_BYTES


def test_the_file_of_log_positions_for_spark_readers_has_the_documented_layout() -> None:
    """Readers in other languages go by the byte table in the module's docstring."""
    data = encode_feed(marks(9), 0x01020304)
    assert len(data) == FEED_BYTES
    assert data[:8] == b"FEED\0\1\0\1"
    assert data[8:12] == data[60:] == b"\1\2\3\4"
    assert [int.from_bytes(data[at : at + 8], "big") for at in range(16, 56, 8)] == [9, 45, 27, 18, 63]
    assert int.from_bytes(data[12:16], "big") == 9


def test_the_end_position_for_spark_readers_is_at_most_the_dispatched_position() -> None:
    """A reader never goes beyond what has queue units, whatever was flushed."""
    behind = FeedMarks(
        state=FeedState.RUNNING,
        epoch=0,
        min_offset_bytes=0,
        dispatched_offset_bytes=50,
        flushed_offset_bytes=80,
        confirmed_offset_bytes=40,
        written_at_ms=1_000,
    )
    assert behind.end_offset_bytes() == 50
    assert behind.end_offset_bytes("dispatched") == 50
    assert behind.end_offset_bytes("confirmed") == 40
    assert marks(10).end_offset_bytes() == 30
    assert marks(10).end_offset_bytes("dispatched") == 50
    assert behind.age_ms(1_500) == 500
    assert behind.age_ms(900) == 0


@pytest.mark.parametrize("at", [0, 4, 6, 8, 12, 16, 30, 55, 56, 63])
def test_a_file_of_log_positions_with_any_damaged_byte_is_refused(at: int) -> None:
    """Each byte is covered by magic, version, sequence or checksum."""
    data = bytearray(encode_feed(marks(), 7))
    data[at] ^= 0xFF
    with pytest.raises(StoreFormatError, match="feed"):
        decode_feed(bytes(data))


@pytest.mark.parametrize("content", [b"", b"FEED", bytes(FEED_BYTES), b"x" * 4096, b"FEED" + bytes(61)])
def test_a_malformed_file_of_log_positions_is_refused_by_readers_and_replaced_by_a_writer(
    tmp_path: Path, content: bytes
) -> None:
    """A file of another program, or one a crash left empty, stops no broker and misleads no reader."""
    path = feed_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreFormatError, match=str(path)):
        read_feed(path)
    writer = FeedWriter(OS_DISK, path)
    writer.write(marks())
    assert read_feed(path) == marks()
    writer.close()
    assert read_feed(path) == marks()


def test_a_half_overwritten_file_of_log_positions_is_refused(tmp_path: Path) -> None:
    """Half of one write and half of the next: what a kill in the middle of the copy would leave."""
    path = feed_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(encode_feed(marks(1), 1)[:40] + encode_feed(marks(2), 2)[40:])
    with pytest.raises(StoreFormatError, match="wrong checksum"):
        read_feed(path)


def test_opening_the_file_of_log_positions_for_writing_on_a_full_disk_raises_an_error(tmp_path: Path) -> None:
    """Writing through a map on a full disk would end the process: the room is taken first."""
    disk = FaultyDisk()
    disk.fail("map_file", within="feed")
    with pytest.raises(StoreFullError):
        FeedWriter(disk, feed_path(tmp_path))
    path = feed_path(tmp_path)
    FeedWriter(OS_DISK, path).close()
    disk.heal()
    disk.fail("allocate", within="feed")
    with pytest.raises(StoreFullError):
        FeedWriter(disk, path)


WRITER_PROGRAM = """
import sys
from pathlib import Path
from flintmq.core.io.os_disk import OS_DISK
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, FeedWriter

writer = FeedWriter(OS_DISK, Path(sys.argv[1]))
number = 0
while True:
    number += 1
    writer.write(FeedMarks(
        state=FeedState.RUNNING, epoch=number % 1000, min_offset_bytes=number, dispatched_offset_bytes=number * 5,
        flushed_offset_bytes=number * 3, confirmed_offset_bytes=number * 2, written_at_ms=number * 7))
    if number == 1:
        print("writes", flush=True)
"""


def test_reading_log_positions_during_concurrent_writes_gives_complete_values_that_never_decrease(
    tmp_path: Path,
) -> None:
    """The seqlock's promise, against another process that writes without a pause; a kill leaves a whole file behind."""
    path = feed_path(tmp_path)
    with subprocess.Popen([sys.executable, "-c", WRITER_PROGRAM, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writes\n"
            last = 0
            seen = set()
            while len(seen) < 200:
                found = read_feed(path)
                assert found is not None
                number = found.min_offset_bytes
                assert found == marks(number)
                assert number >= last
                last = number
                seen.add(number)
        finally:
            writer.kill()
    left = read_feed(path)
    assert left is not None
    assert left.min_offset_bytes >= last
