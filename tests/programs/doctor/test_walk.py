"""Where the walk goes on behind damage: never within a body, never slowly, whatever the bytes are."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.core.errors import StoreError
from flintmq.core.record import record as rec
from flintmq.core.record.log_walk import Kind
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor.files import FileView, StoreFiles, map_read_only
from flintmq.programs.doctor.rebuild import fitting, rebuild
from flintmq.programs.doctor.salvage import salvage
from flintmq.programs.doctor.verify import verify
from flintmq.programs.doctor.walk import Piece, stretches, walk
from flintmq.testing.store import message, store_spec

from .conftest import Small

MIB = 1024 * 1024


def record(position: int, body: bytes = b"", queue_offset: int = 0, *, stored_ms: int = 1_700_000_000_000) -> bytes:
    made = message("Orders", 0, body=body)
    return b"".join(rec.encode_record(made, rec.record_size(made), queue_offset, position, stored_ms))


def log_of(root: Path, *parts: bytes, size: int) -> StoreFiles:
    """A store of one log file."""
    (root / "commitlog").mkdir(parents=True)
    raw = b"".join(parts)
    (root / "commitlog" / f"{0:020d}").write_bytes(raw + bytes(size - len(raw)))
    return StoreFiles(root)


def kinds(files: StoreFiles) -> list[tuple[Kind, int, int]]:
    return [(piece.kind, piece.start, piece.end) for piece in walk(files)]


def with_forged(count: int) -> tuple[bytes, bytes, bytes]:
    """A record, one whose body holds records made for the very places they lie at, and one behind."""
    first = record(0, b"a")
    at = len(first) + 88
    forged = b""
    for number in range(count):
        forged += record(at + len(forged), b"forged", 1 + number)
    second = record(len(first), forged + b"end", 1)
    return first, second, record(len(first) + len(second), b"z", 2)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("at", [0, 4, 5, 8, 28, -1, -2, 90])
def test_a_forged_record_inside_the_body_of_a_damaged_record_is_not_read_as_a_record(
    tmp_path: Path, count: int, at: int
) -> None:
    """A sender chooses its body; a damaged bit of its record must not make it a message of another topic."""
    first, second, third = with_forged(count)
    damaged = bytearray(second)
    damaged[at] ^= 1
    files = log_of(tmp_path, first, damaged, third, size=8192)
    end = len(first) + len(second)
    assert kinds(files)[:3] == [
        (Kind.RECORD, 0, len(first)),
        (Kind.DAMAGE, len(first), end),
        (Kind.RECORD, end, end + len(third)),
    ]


def test_a_record_with_an_impossible_queue_offset_in_a_damaged_region_is_reported_as_damage(tmp_path: Path) -> None:
    """Nothing whole follows it within the body, and its queue offset is none that could be next."""
    first, _second, _third = with_forged(1)
    at = len(first) + 200
    forged = record(at, b"forged", 5_000)
    damaged = b"\xff" * 200 + forged + b"\xff" * 50
    third = record(len(first) + len(damaged), b"z", 2)
    files = log_of(tmp_path, first, damaged, third, size=8192)
    assert kinds(files)[1] == (Kind.DAMAGE, len(first), len(first) + len(damaged))


def test_a_record_between_two_damaged_regions_is_recognized_if_its_queue_offset_is_plausible(tmp_path: Path) -> None:
    """Nothing whole follows it, but it is the next of its queue but one."""
    parts = [record(0, b"a"), b"\xff" * 100]
    at = sum(map(len, parts))
    parts += [record(at, b"between", 2), b"\xff" * 100]
    end = sum(map(len, parts))
    parts += [record(end, b"z", 4)]
    found = kinds(log_of(tmp_path, *parts, size=8192))
    assert [kind for kind, _start, _end in found][:5] == [
        Kind.RECORD,
        Kind.DAMAGE,
        Kind.RECORD,
        Kind.DAMAGE,
        Kind.RECORD,
    ]


def test_scanning_a_damaged_log_yields_adjacent_ranges_that_cover_every_byte_exactly_once(small: Small) -> None:
    """Every byte belongs to one piece, also with damage."""
    for position in (0, 700, 4095, 4096, 6000):
        small.flip_log(position, 4)
        at = 0
        for piece in small.pieces:
            assert piece.start == at
            at = piece.end
        assert at == small.files.log_end


@pytest.mark.parametrize("what", ["magics", "heads"])
def test_a_large_damaged_region_is_searched_for_records_in_linear_time(tmp_path: Path, what: str) -> None:
    """64 MiB whose bytes hold a magic everywhere, and heads that claim large bodies: looked at once, not once for each."""
    size = 64 * MIB
    unit = rec.MAGIC_V1.to_bytes(4, "big")
    if what == "heads":
        unit = struct.pack(">II", 4 * MIB, rec.MAGIC_V1) + bytes(80) + struct.pack(">i", 4 * MIB - 91) + b"body"
    filling = unit * (16 * MIB // len(unit)) if what == "heads" else (unit + b"x" * 60) * (size // 64 - 100)
    first = record(0, b"a")
    at = size - 4096
    last = record(at, b"z", 3)
    (tmp_path / "commitlog").mkdir()
    with (tmp_path / "commitlog" / f"{0:020d}").open("wb") as file:
        file.write(first + filling[: size - 8192])
        file.seek(at)
        file.write(last)
        file.truncate(size)
    begin_s = time.process_time()
    found = kinds(StoreFiles(tmp_path))
    assert time.process_time() - begin_s < 8
    assert found[1:3] == [(Kind.DAMAGE, len(first), at), (Kind.RECORD, at, at + len(last))]


def test_a_log_with_many_damaged_regions_and_decreasing_timestamps_is_scanned_in_linear_time(
    tmp_path: Path,
) -> None:
    """Behind each of them records are older than the last good one, and it must be known whether younger ones follow."""
    parts: list[bytes] = []
    at = 0
    for number in range(6_000):
        made = record(at, b"x" * 20, number, stored_ms=1_700_000_000_000 - number)
        if number % 3 == 2:
            made = b"\xff" * len(made)
        parts.append(made)
        at += len(made)
    parts.append(record(at, b"z", 6_000, stored_ms=1_800_000_000_000))
    files = log_of(tmp_path, *parts, size=2 * MIB)
    begin_s = time.process_time()
    found = [piece.kind for piece in walk(files)]
    assert time.process_time() - begin_s < 5
    assert found.count(Kind.DAMAGE) == 2_000
    assert found.count(Kind.RECORD) == 4_001


def test_a_log_scan_reports_the_size_of_the_log_as_its_final_progress(small: Small) -> None:
    """A bar that stops at 97 % looks like a failure."""
    told: list[int] = []
    files = small.files
    list(walk(files, told.append))
    assert told[-1] == files.log_bytes


def test_verify_and_salvage_find_the_same_number_of_intact_records_in_a_randomly_damaged_store(
    copy_small: Callable[[Path], Small], tmp_path: Path
) -> None:
    """Flips, zeros and garbage anywhere in a store: verify and salvage end, and what is saved is sound."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    first = copy_small(tmp_path / "first").root
    names = [
        str(path.relative_to(first)) for path in sorted(first.rglob("*")) if path.is_file() and path.name != "lock"
    ]
    for turn in range(40):
        one = copy_small(tmp_path / f"turn{turn}")
        for _ in range(chance.choice((1, 3, 20))):
            name = chance.choice(names)
            raw = bytearray((one.root / name).read_bytes())
            if raw:
                at = chance.randrange(len(raw))
                length = chance.choice((1, 1, 4, 20, 200))
                raw[at : at + length] = chance.choice((bytes(length), chance.randbytes(length), b"\xff" * length))
                (one.root / name).write_bytes(raw[: chance.choice((len(raw), len(raw), len(raw), at + 1))])
        try:
            _use(one, tmp_path / f"saved{turn}")
        except Exception as error:
            raise AssertionError(f"seed {seed}, turn {turn}") from error


def _use(one: Small, target: Path) -> None:
    whole = sum(piece.kind is Kind.RECORD for piece in one.pieces)
    report = one.verify()
    assert report.records == whole
    if not one.files.log_bytes:
        with pytest.raises(StoreError):
            salvage(one.files, target)
        return
    saved = salvage(one.files, target)
    assert saved.records == whole
    config = fitting(store_spec(target).config, StoreFiles(target))
    rebuild(target, config, DELAY_LEVEL_MS)
    after = verify(StoreFiles(target), DELAY_LEVEL_MS)
    # What stands in a file of config nobody can mend; everything else is made anew.
    assert [found for found in after.findings if "/config/" not in found.where and found.level.value != "note"] == []


def test_the_log_is_scanned_lazily_while_the_caller_iterates(small: Small) -> None:
    """Explaining one place does not read the rest."""
    pieces = walk(small.files)
    first = next(pieces)
    assert isinstance(first, Piece)
    assert first.start == 0


def test_a_scan_of_a_log_file_ignores_data_that_was_written_after_the_file_was_mapped(tmp_path: Path) -> None:
    """A backup keeps the file's size at its end, while the broker writes on."""
    path = tmp_path / "0"
    with path.open("wb") as file:
        file.seek(MIB)
        file.write(b"data")
    part = FileView(path, 0, map_read_only(path)[:4096])
    assert part.next_data(0) <= 4096
    assert [(found.kind, found.start, found.end) for found in stretches([part], 0)] == [(Kind.UNUSED, 0, 4096)]
