"""What is read many at a time must be what is read one by one: either may decide where a log ends, and what queues hold."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.errors import StoreError
from flintmq.core.io import lazy_numpy
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.mapped_file_queue import MappedFileQueue
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.log.watermarks import Watermarks
from flintmq.core.record import bulk_scan, log_walk
from flintmq.core.record import record as rec
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.core.recovery.start_walk import Recovered, walk_log
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS, DelayTagsCodes, DelayTimes
from flintmq.dispatchers.index import index_bulk
from flintmq.testing.clock import ManualClock
from flintmq.testing.journaled_files import Image
from flintmq.testing.simulated_disk import SimulatedDisk
from flintmq.testing.store import BY_HAND, start_store, store_spec
from flintmq.tests.support.crash_run import stepped
from flintmq.tests.support.effort import examples

FILE_BYTES = 4096
ROOT = Path("/store")
FIRST_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bulk reading for logs of a few records too, in turns of a few rows."""
    monkeypatch.setattr(bulk_scan, "BYTES_MIN", 0)
    monkeypatch.setattr(bulk_scan, "ROWS_MIN", 1)
    monkeypatch.setattr(bulk_scan, "ROWS_MAX", 16)
    monkeypatch.setattr(log_walk, "_ROWS_FIRST", 3)
    monkeypatch.setattr(index_bulk, "LEAST", 1)


# places


def _cell(size_bytes: int, magic: int, body: bytes) -> bytes:
    return (struct.pack(">iI", size_bytes, magic & 0xFFFFFFFF) + body).ljust(size_bytes, b"\xda")


_LURE = struct.pack(">iI", rec.RECORD_MIN_BYTES, rec.MAGIC_V1 & 0xFFFFFFFF)
"""What a record begins with, in the body of another one."""
_CELLS = st.lists(
    st.builds(
        _cell,
        st.sampled_from([rec.RECORD_MIN_BYTES, rec.RECORD_MIN_BYTES + 1, 131, 160, 260, rec.RECORD_MIN_BYTES - 1]),
        st.sampled_from([rec.MAGIC_V1] * 6 + [rec.MAGIC_V2] * 2 + [rec.MAGIC_BLANK]),
        st.sampled_from([b"", b"", bytes(5) + _LURE, _LURE, _LURE * 4, b"\xda\xa3\x20\xa7" * 3]),
    ),
    max_size=40,
)


@given(_CELLS, st.integers(1, 50), st.integers(0, 30))
@example([_cell(size, rec.MAGIC_V1, b"") for size in (131, 131, 131, rec.RECORD_MIN_BYTES - 1, 131)], 9, 0)
@example([_cell(131, rec.MAGIC_V1, body) for body in (b"", b"", b"", _LURE, b"")], 9, 0)
@example([_cell(131, rec.MAGIC_V1, b"")] * 5, 9, 1)
@settings(max_examples=examples(300))
def test_searching_records_in_bulk_finds_the_same_offsets_as_searching_one_record_at_a_time(
    cells: list[bytes], rows: int, cut_bytes: int
) -> None:
    """Looking for the magic must not take a body for a record, nor pass over one, wherever the bytes end."""
    data = memoryview(b"".join(cells))
    end_at = max(0, len(data) - cut_bytes)
    expected: list[int] = []
    at = 0
    while len(expected) < rows and at + rec.RECORD_MIN_BYTES <= end_at:
        size_bytes, magic = rec.SIZE_AND_MAGIC.unpack_from(data, at)
        is_record = magic in (rec.MAGIC_V1, rec.MAGIC_V2) and size_bytes >= rec.RECORD_MIN_BYTES
        if not is_record or at + size_bytes > end_at:
            break
        expected.append(at)
        at += size_bytes
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bulk_scan, "_ROWS_TRIED", 2)
        assert bulk_scan.chain(data, 0, end_at, rows) == expected


# logs


@attrs.frozen
class Spec:
    """A record as anybody might have written it."""

    topic: bytes
    queue_id: int
    queue_offset_step: int
    """1 for the next one of its queue."""
    body: bytes
    properties: bytes
    sys_flag: int
    wide: bool
    """Whether its magic is that of version 2."""
    later_ms: int
    spoils: str


def raw_record(spec: Spec, physical: int, queue_offset: int, stored_ms: int) -> bytes:
    """The bytes of a record, right in everything but what ``spoils`` names."""
    born_host = bytes(20 if spec.sys_flag & BORN_HOST_V6 else 8)
    store_host = bytes(20 if spec.sys_flag & STORE_HOST_V6 else 8)
    crc = zlib.crc32(spec.body) & 0x7FFFFFFF ^ (spec.spoils == "crc")
    head = struct.pack(">iiqqiq", spec.queue_id, 7, queue_offset, physical + (spec.spoils == "place"), spec.sys_flag, 5)
    topic = struct.pack(">H" if spec.wide else ">B", len(spec.topic)) + spec.topic
    properties_length = len(spec.properties) + (spec.spoils == "properties")
    body_length = len(spec.body) + {"body": 1, "negative": -1_000_000}.get(spec.spoils, 0)
    rest = b"".join(
        (
            head,
            born_host,
            struct.pack(">q", stored_ms),
            store_host,
            struct.pack(">iqi", 3, 99, body_length),
            spec.body,
            topic,
            struct.pack(">H", properties_length),
            spec.properties,
        )
    )
    magic = rec.MAGIC_V2 if spec.wide else rec.MAGIC_V1
    return struct.pack(">III", len(rest) + 12 + (spec.spoils == "size"), magic, crc) + rest


FORGED = raw_record(Spec(b"T", 0, 1, b"forged", b"TAGS\x01f", 0, False, 0, ""), 200, 0, FIRST_MS)
ENTRIES = st.sampled_from(
    [
        b"TAGS\x01a",
        b"TAGS\x01",
        b"TAGS\x01TagB\x01c",
        "TAGS\x01märke €😀".encode(),
        b"TAGS\x01\xe4\xb8",
        b"TAGS",
        b"xTAGS\x01b",
        b"KEYS\x01k1 k2  k3 ",
        b"KEYS\x01 ",
        b"KEYS\x01\xff\xc3 x",
        b"KEYS\x01" + b"long" * 30,
        "KEYS\x01ключ 𝔘".encode(),
        b"UNIQ_KEY\x01FD00000000000000000000000000000221994E0E2F2A6C6F3C5A0000",
        b"UNIQ_KEY\x017F000001000018B4AAC20000000000AB",
        b"UNIQ_KEY\x01",
        b"UNIQ_KEY",
        b"UNIQ_KEYS\x01no",
        b"DELAY\x013",
        b"DELAY\x01many",
        b"\x01nameless",
        b"",
        b"WAIT\x01true",
    ]
)
PROPERTIES = st.builds(
    lambda entries, end: b"\x02".join(entries) + end,
    st.lists(ENTRIES, max_size=5),
    st.sampled_from([b"", b"", b"\x02", b"\x02T\x01\0"]),
)
TOPICS = st.sampled_from(
    [b"T"] * 6 + [b"Topic-%_1", SCHEDULE_TOPIC.encode(), "主题".encode(), b"\xff\xfe", b"", b"a/b", b"L" * 127]
)
SPECS = st.builds(
    Spec,
    topic=TOPICS,
    queue_id=st.sampled_from([0, 0, 0, 1, 2, 2**31 - 1, -1]),
    queue_offset_step=st.sampled_from([1] * 12 + [0, 2, -1, 5]),
    body=st.one_of(st.binary(max_size=60), st.just(FORGED), st.just(bytes(20))),
    properties=PROPERTIES,
    sys_flag=st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC, 0x10, 0x20, 0x30, 0x34]),
    wide=st.sampled_from([False, False, False, True]),
    later_ms=st.sampled_from([0, 1, 1, 50, -20, 5_000, -3_000]),
    spoils=st.sampled_from([""] * 60 + ["crc", "place", "properties", "body", "negative", "size"]),
)
LOGS = st.lists(SPECS, max_size=60)
PLAIN = Spec(b"T", 0, 1, b"x" * 40, b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AA", 0, False, 1, "")


def image_of(specs: list[Spec], *, start: int = 0, clean: bool = True) -> Image:
    """A store with nothing but a log."""
    files: dict[Path, bytes] = {}
    here = bytearray()
    queue_offsets: dict[tuple[bytes, int], int] = {}
    stored_ms = FIRST_MS
    log = ROOT / "commitlog"
    for spec in specs:
        stored_ms += spec.later_ms
        queue_offset = queue_offsets.get((spec.topic, spec.queue_id), -1) + spec.queue_offset_step
        queue_offsets[(spec.topic, spec.queue_id)] = queue_offset
        size = len(raw_record(spec, 0, 0, 0))
        if len(here) + size + rec.BLANK_MIN_BYTES > FILE_BYTES:
            here += rec.encode_blank(FILE_BYTES - len(here))
            files[log / f"{start:020d}"] = bytes(here.ljust(FILE_BYTES, b"\0"))
            start, here = start + FILE_BYTES, bytearray()
        here += raw_record(spec, start + len(here), queue_offset, stored_ms)
    files[log / f"{start:020d}"] = bytes(here.ljust(FILE_BYTES, b"\0"))
    if not clean:
        files[ROOT / "abort"] = b""
    return Image(files, frozenset((Path("/"), ROOT, log)))


def log_of(image: Image) -> CommitLog:
    disk = SimulatedDisk(image, journal=False)
    queue = MappedFileQueue(disk, ROOT / "commitlog", FILE_BYTES, step_bytes=FILE_BYTES)
    queue.load()
    checkpoint = StoreCheckpoint(disk, ROOT / "checkpoint")
    rules = {SCHEDULE_TOPIC: DelayTagsCodes(DELAY_LEVEL_MS, DelayTimes(), Path(), OS_DISK)}
    return CommitLog(queue, Watermarks(synchronous=False), checkpoint, ManualClock(), rules)


# columns


def readable_one_by_one(log: CommitLog) -> list[DispatchRequest]:
    """The requests up to where bytes are no record, or one of another place."""
    found: list[DispatchRequest] = []
    at = log.min_offset_bytes
    try:
        for request in log.requests(at, log.queue.files[-1].start + FILE_BYTES):
            if found:
                at = found[-1].commit_log_offset_bytes + found[-1].message_size_bytes
            if request.commit_log_offset_bytes not in (at, log.next_file_start(at)):
                break
            found.append(request)
    except StoreError:
        pass
    return found


def as_requests(columns: RecordColumns) -> Iterator[tuple[object, ...]]:
    for row in range(len(columns)):
        keys = columns.key_hash[columns.key_row == row].tolist()
        yield (
            columns.topics[columns.topic_code[row]],
            int(columns.queue_id[row]),
            int(columns.physical[row]),
            int(columns.size[row]),
            int(columns.tags_code[row]),
            int(columns.store_timestamp_ms[row]),
            int(columns.queue_offset[row]),
            int(columns.sys_flag[row]),
            int(columns.prepared[row]),
            keys,
        )


def as_row(request: DispatchRequest) -> tuple[object, ...]:
    keys = [request.uniq_key, *request.keys.split(" ")]
    return (
        request.topic,
        request.queue_id,
        request.commit_log_offset_bytes,
        request.message_size_bytes,
        request.tags_code,
        request.store_timestamp_ms,
        request.queue_offset,
        request.sys_flag,
        request.prepared_transaction_offset_bytes,
        [index_key_hash(request.topic, key) for key in keys if key],
    )


@given(LOGS)
@example([PLAIN] * 50)
@settings(max_examples=examples(100))
def test_a_bulk_scan_of_the_log_finds_the_same_fields_as_reading_each_record_separately(specs: list[Spec]) -> None:
    """Every field, every key, in order, and up to the same place."""
    log = log_of(image_of(specs))
    columns = list(log.columns(0, log.queue.files[-1].start + FILE_BYTES))
    expected = readable_one_by_one(log)
    assert [row for part in columns for row in as_requests(part)] == list(map(as_row, expected))
    assert [request for part in columns for request in part.requests()] == expected
    assert all(list(part.key_row) == sorted(part.key_row) for part in columns)


def test_a_bulk_read_of_record_fields_excludes_a_record_that_extends_beyond_the_end_offset() -> None:
    """A slave may have acknowledged half a record: it is not read."""
    log = log_of(image_of([PLAIN] * 3))
    second = next(log.requests(0, 1)).message_size_bytes * 2
    for end, rows in ((second, 2), (second - 1, 1), (second + 1, 2)):
        assert sum(map(len, log.columns(0, end))) == rows


def test_a_bulk_read_of_record_fields_can_start_in_the_middle_of_a_log_file() -> None:
    """A start goes on where queues end."""
    log = log_of(image_of([PLAIN] * 60))
    places = [request.commit_log_offset_bytes for request in log.requests(0, 2 * FILE_BYTES)]
    found = [int(at) for part in log.columns(places[7], places[-1]) for at in part.physical]
    assert found == places[7:-1]


def test_record_fields_read_in_bulk_stay_valid_after_their_log_file_is_closed() -> None:
    """A file whose map is still in use cannot be closed."""
    log = log_of(image_of([PLAIN] * 10))
    columns = next(log.columns(0, FILE_BYTES))
    view = log.queue.files[0].view
    log.queue.close()
    view.release()
    assert len(columns) == 10


# the walk of a start


def walked(image: Image, trusted_ms: int | None, *, check_crc: bool, skips_damage: bool) -> Recovered:
    return walk_log(log_of(image), 0, check_crc=check_crc, skips_damage=skips_damage, trusted_ms=trusted_ms)


@given(LOGS, st.sampled_from([None, 0, FIRST_MS + 10, FIRST_MS + 10_000]), st.booleans(), st.booleans())
@example([PLAIN] * 50, FIRST_MS + 10, True, True)
@settings(max_examples=examples(100))
def test_scanning_a_log_in_bulk_finds_the_same_end_as_scanning_one_record_at_a_time(
    specs: list[Spec], trusted_ms: int | None, check_crc: bool, skips_damage: bool
) -> None:
    """End, damage, and what else is decided by: counts, marks, times."""
    image = image_of(specs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flintmq.core.recovery.start_walk.MARK_EVERY", 4)
        in_bulk = walked(image, trusted_ms, check_crc=check_crc, skips_damage=skips_damage)
        patch.setattr(lazy_numpy, "loaded", lambda: False)
        patch.setattr(bulk_scan, "BYTES_WORTH_NUMPY", 1 << 62)
        one_by_one = walked(image, trusted_ms, check_crc=check_crc, skips_damage=skips_damage)
    assert in_bulk == one_by_one


def test_a_log_scan_loads_numpy_and_continues_in_bulk_if_the_log_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not imported yet a walk begins record by record, and goes on in bulk."""
    image = image_of([PLAIN] * 80)
    expected = walked(image, None, check_crc=True, skips_damage=True)
    loaded, taken = [], []
    in_bulk = log_walk.LogWalk._in_bulk
    monkeypatch.setattr(lazy_numpy, "loaded", lambda: False)
    monkeypatch.setattr(lazy_numpy, "load", lambda: loaded.append(1))
    monkeypatch.setattr(log_walk.LogWalk, "_in_bulk", lambda self, *more: taken.append(more[1]) or in_bulk(self, *more))
    monkeypatch.setattr(bulk_scan, "BYTES_WORTH_NUMPY", 1_000)
    assert walked(image, None, check_crc=True, skips_damage=True) == expected
    assert loaded
    assert 1_000 <= taken[0] < 1_500


# whole starts


def started(image: Image, compat: str) -> tuple[dict[Path, bytes], type[BaseException] | None]:
    """What a start leaves on the disk; index files by number, for their names are times."""
    disk = SimulatedDisk(image, journal=False)
    config = store_spec(ROOT, compat=compat, consume_queue_file_bytes=100).config
    spec = stepped(config, BY_HAND, disk=disk, clock=ManualClock())
    failure: type[BaseException] | None = None
    try:
        start_store(spec).close()
    except StoreError as error:
        failure = type(error)
    files = disk.image().files
    index = [path for path in sorted(files) if path.parent.name == "index"]
    named = {path: path.with_name(str(number)) for number, path in enumerate(index)}
    return {named.get(path, path): raw for path, raw in files.items()}, failure


@given(LOGS, st.booleans(), st.sampled_from(["safe", "strict"]), st.sampled_from([0, 3 * FILE_BYTES]))
@example([PLAIN] * 60, True, "safe", 0)
@example([PLAIN] * 60, False, "safe", 0)
@settings(max_examples=examples(60))
def test_bulk_recovery_writes_the_same_files_as_recovery_of_single_records(
    specs: list[Spec], clean: bool, compat: str, start: int
) -> None:
    """Queues, index, checkpoint, quarantine, and the log itself, after a stop and after a crash."""
    image = image_of(specs, start=start, clean=clean)
    with pytest.MonkeyPatch.context() as patch:
        in_bulk = started(image, compat)
        patch.setattr(lazy_numpy, "loaded", lambda: False)
        patch.setattr(bulk_scan, "BYTES_WORTH_NUMPY", 1 << 62)
        patch.setattr(index_bulk, "LEAST", 1 << 62)
        one_by_one = started(image, compat)
    assert in_bulk == one_by_one
