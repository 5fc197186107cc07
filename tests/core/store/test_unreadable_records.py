"""A store may hold records that nobody else can read: an earlier FlintMQ stored lengths without a sign. RocketMQ ends its log
at the first of them; here they are taken out, kept, and told of, and nothing behind them is lost."""

from __future__ import annotations

import logging
from pathlib import Path

import attrs
import pytest

from flintmq.core.errors import ReplicationError
from flintmq.core.io import lazy_numpy
from flintmq.core.record import bulk_scan
from flintmq.core.record.queue_unit import UNIT
from flintmq.core.record.record import encode_blank
from flintmq.core.store.message_reader import GetMessageStatus
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.plugins.replication.slave_link import RecordChecker
from flintmq.programs.doctor.explain import explain_position, explain_start
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import fitting, has_damage, rebuild
from flintmq.programs.doctor.report import Level
from flintmq.programs.doctor.salvage import salvage
from flintmq.programs.doctor.verify import verify
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, store_spec
from flintmq.tests.support.records import HOST_V4, HOST_V6, RecordFields
from flintmq.tests.support.strict_reader import strict_log, strict_records

FILE_BYTES = 128 * 1024
BEHIND = 200
FIRST_MS = 1_700_000_000_000
LYING = {
    "properties": RecordFields(topic=b"T", properties=b"KEY\x01" + b"v" * 32_800, body=b"lies"),
    "topic": RecordFields(topic=b"%RETRY%" + b"g" * 200, body=b"lies"),
}


def record(queue_offset: int) -> RecordFields:
    return RecordFields(
        topic=b"T",
        body=b"body %d" % queue_offset,
        queue_offset=queue_offset,
        properties=b"UNIQ_KEY\x01U%d" % queue_offset,
        store_timestamp_ms=FIRST_MS + queue_offset,
    )


def stored_by_an_earlier_one(root: Path, lying: RecordFields, *, clean: bool) -> tuple[int, int]:
    """A store of one file with an unreadable record among others; returns where that lies and ends."""
    log, units = bytearray(), bytearray()
    start = end = 0
    for queue_offset in range(2 + BEHIND):
        if queue_offset != 1:
            made = record(queue_offset).encode(len(log))
        else:
            start = len(log)
            made = attrs.evolve(lying, queue_offset=1, store_timestamp_ms=FIRST_MS + 1).encode(start)
            end = start + len(made)
        units += UNIT.pack(len(log), len(made), 0)
        log += made
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(log).ljust(FILE_BYTES, b"\0"))
    queue = root / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(units).ljust(20_000, b"\0"))
    if not clean:
        (root / "abort").touch()
    return start, end


@pytest.fixture(params=["bulk", "one by one"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to walk a log."""
    is_bulk = request.param == "bulk"
    monkeypatch.setattr(bulk_scan, "BYTES_MIN", 0)
    monkeypatch.setattr(bulk_scan, "ROWS_MIN", 1)
    if is_bulk:
        lazy_numpy.load()
    else:
        monkeypatch.setattr(lazy_numpy, "loaded", lambda: False)
        monkeypatch.setattr(bulk_scan, "BYTES_WORTH_NUMPY", 1 << 62)
    return str(request.param)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("what", LYING)
def test_a_start_keeps_all_messages_after_an_unreadable_record(
    tmp_path: Path, what: str, clean: bool, reading: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The 200 messages behind it were acknowledged."""
    start, end = stored_by_an_earlier_one(tmp_path, LYING[what], clean=clean)
    said = explain_start(StoreFiles(tmp_path))
    with caplog.at_level(logging.ERROR, "flintmq.store"):
        store = open_store(
            tmp_path,
            clock=ManualClock(FIRST_MS + 10_000),
            commit_log_file_bytes=FILE_BYTES,
            consume_queue_file_bytes=20_000,
        )
    try:
        at, read = 1, list[bytes]()
        while (found := store.reader.get_message("T", 0, at, 500, None)).status is GetMessageStatus.FOUND:
            read += [one.body for piece in found.slices for one in strict_records(bytes(piece))]
            at = found.next_begin_offset
        assert read == [b"body %d" % number for number in range(2, 2 + BEHIND)]
        store.put([message("T", body=b"new")])
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 2 + BEHIND + 1
    finally:
        store.close()
    assert [(hole["from"], hole["to"]) for hole in said["damage"]] == [(start, end)]
    assert [line for line in caplog.messages if f"damaged from {start} to {end}" in line and "negative" in line]
    (kept,) = (tmp_path / "flint" / "quarantine").glob("*.lost")
    assert b"lies" in kept.read_bytes()
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert len(strict_log(log)) == 2 + BEHIND + 1
    assert verify(StoreFiles(tmp_path), DELAY_LEVEL_MS).is_sound


@pytest.mark.parametrize("what", LYING)
def test_verify_reports_an_unreadable_record_and_its_position(tmp_path: Path, what: str) -> None:
    """It called such stores sound."""
    start, end = stored_by_an_earlier_one(tmp_path, LYING[what], clean=True)
    report = verify(StoreFiles(tmp_path), DELAY_LEVEL_MS)
    assert not report.is_sound
    (found,) = (one for one in report.findings if one.level is Level.ERROR and "damage" in one.what)
    assert found.where == f"commit log {start}..{end}"
    assert "negative" in found.what
    said = explain_position(StoreFiles(tmp_path), start + 10)
    assert (said["is"], said["begins_at"], said["ends_at"]) == ("damage", start, end)


@pytest.mark.parametrize("is_v6", [False, True])
@pytest.mark.parametrize("which", ["born_host", "store_host"])
def test_verify_reports_an_invalid_port_number_in_a_record_and_salvage_repairs_the_record(
    tmp_path: Path, which: str, is_v6: bool
) -> None:
    """Nothing but a port that no client in Java takes: the message is whole, and is kept."""
    store = open_store(tmp_path / "store", clock=ManualClock(FIRST_MS))
    host = (HOST_V6 if is_v6 else HOST_V4)[:-4]
    good = message("T", body=b"body", **{which: host + HOST_V4[-4:]})
    store.put([message("T", body=b"first"), good])
    store.dispatch()
    store.close()
    (log,) = (tmp_path / "store" / "commitlog").iterdir()
    raw = bytearray(log.read_bytes())
    start = int.from_bytes(raw[:4], "big")
    at = raw.index(host + HOST_V4[-4:], start + (48 if which == "born_host" else 64)) + len(host)
    raw[at : at + 4] = b"\x00\x01\x00\x00"
    log.write_bytes(raw)
    report = verify(StoreFiles(tmp_path / "store"), DELAY_LEVEL_MS)
    (found,) = (one for one in report.findings if one.level is Level.ERROR)
    assert found.where.startswith(f"commit log {start}..")
    assert which.partition("_")[0] in found.what
    assert "65536" in found.what
    assert salvage(StoreFiles(tmp_path / "store"), tmp_path / "saved").records == 2
    (saved,) = (tmp_path / "saved" / "commitlog").iterdir()
    assert [one.body for one in strict_log(saved.read_bytes())] == [b"first", b"body"]


@pytest.mark.parametrize("what", LYING)
def test_a_slave_refuses_an_unreadable_record(what: str) -> None:
    """A record that no consumer can read must not be copied, and the log names the remedy at the master."""
    checker = RecordChecker(0, FILE_BYTES)
    whole = record(0).encode(0)
    assert checker.receive(0, whole)
    with pytest.raises(ReplicationError, match=rf"position {len(whole)} is damaged: .*negative.*store repair"):
        checker.receive(len(whole), LYING[what].encode(len(whole)))


def test_repair_removes_unreadable_records_from_old_log_files_that_a_start_does_not_scan(tmp_path: Path) -> None:
    """After a clean stop only the last three files are walked; what lies before them verify finds, and repair mends."""
    start, end = stored_by_an_earlier_one(tmp_path, LYING["properties"], clean=True)
    first = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(first.read_bytes())
    used = len(bytes(raw).rstrip(b"\0"))
    raw[used : used + 8] = encode_blank(FILE_BYTES - used)
    first.write_bytes(raw)
    units = bytearray()
    for number in range(1, 5):
        made = record(1 + BEHIND + number).encode(number * FILE_BYTES)
        whole = made if number == 4 else made + encode_blank(FILE_BYTES - len(made))
        (tmp_path / "commitlog" / f"{number * FILE_BYTES:020d}").write_bytes(whole.ljust(FILE_BYTES, b"\0"))
        units += UNIT.pack(number * FILE_BYTES, len(made), 0)
    queue = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    queue.write_bytes((queue.read_bytes()[: 20 * (2 + BEHIND)] + units).ljust(20_000, b"\0"))
    sizes = {"commit_log_file_bytes": FILE_BYTES, "consume_queue_file_bytes": 20_000}
    open_store(tmp_path, clock=ManualClock(FIRST_MS + 10_000), **sizes).close()
    (found,) = (one for one in verify(StoreFiles(tmp_path), DELAY_LEVEL_MS).findings if "damage" in one.what)
    assert found.where == f"commit log {start}..{end}"
    config = fitting(store_spec(tmp_path, **sizes).config, StoreFiles(tmp_path))
    rebuild(tmp_path, config, DELAY_LEVEL_MS, damaged=has_damage(StoreFiles(tmp_path), config))
    report = verify(StoreFiles(tmp_path), DELAY_LEVEL_MS)
    assert (report.is_sound, report.records) == (True, 2 + BEHIND + 4)
    assert len(strict_log(first.read_bytes())) == 2 + BEHIND
