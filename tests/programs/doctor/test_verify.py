"""Every planted damage is found, with where it lies; sound stores give no finding at all."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from flintmq.core.io.paths import ends_path
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.record import record as rec
from flintmq.core.record.queue_unit import UNIT, UNIT_BYTES
from flintmq.core.record.topic_lives import deletion
from flintmq.programs.doctor.explain import explain_start
from flintmq.programs.doctor.report import Level
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, opened

from .conftest import FILE_BYTES, START_MS, Small


def test_verify_reports_no_finding_for_a_sound_store(small: Small) -> None:
    """A check that cries wolf is not read."""
    report = small.verify()
    assert report.findings == []
    assert (report.records, report.units, report.index_entries, report.queues) == (66, 66, 132, 4)


# records


PLACES = {
    "size": (0, 3),
    "size, high": (1, 3),
    "magic": (6, 2),
    "crc": (10, 5),
    "queue offset": (27, 0),
    "queue offset, high": (22, 6),
    "physical offset": (34, 1),
    "ipv6 bit of sysFlag": (39, 4),
    "born host's bit, prepared": (39, 2),
    "body length": (87, 3),
    "body": (90, 6),
}


@pytest.mark.parametrize("number", [0, 17, 65])
@pytest.mark.parametrize("place", PLACES)
def test_verify_finds_a_flipped_bit_of_a_record(small: Small, place: str, number: int) -> None:
    """Any kind of field, in the first record of the log, in the middle, and near its end."""
    at, bit = PLACES[place]
    wanted = [piece for piece in small.records if piece.record is not None and piece.record.body][number * 52 // 66]
    small.flip_log(wanted.start + at, bit)
    report = small.verify()
    assert not report.is_sound
    if "queue offset" not in place and "prepared" not in place:
        assert [found.where for found in report.findings if "damage" in found.what] == [
            f"commit log {wanted.start}..{wanted.end}"
        ]
        assert report.records == 65, "only the damaged record is lost"


@pytest.mark.parametrize("what", ["topic length", "topic", "topic, illegal", "properties length", "a key", "a tag"])
def test_verify_finds_a_flipped_bit_in_the_topic_or_properties_of_a_record(small: Small, what: str) -> None:
    """Topic and properties have no checksum: queues and index tell what they were."""
    piece = next(
        p
        for p in small.records
        if p.record is not None and p.record.topic == "Orders" and "TAGS" in p.record.properties
    )
    record = piece.record
    assert record is not None
    at_topic = piece.start + 88 + len(record.body)
    at_properties = at_topic + 1 + len(record.topic) + 2
    raw = record.properties_bytes
    at, bit = {
        "topic length": (at_topic, 1),
        "topic": (at_topic + 1, 0),
        "topic, illegal": (at_topic + 1, 7),
        "properties length": (at_properties - 1, 0),
        "a key": (at_properties + raw.index(b"key") + 1, 0),
        "a tag": (at_properties + raw.index(b"TAGS\x01") + 6, 0),
    }[what]
    small.flip_log(at, bit)
    assert not small.verify().is_sound


@pytest.mark.parametrize(("at", "is_error"), [(3, True), (5, True), (0, True)])
def test_verify_finds_a_flipped_bit_of_the_blank_record_that_ends_a_log_file(
    small: Small, at: int, is_error: bool
) -> None:
    """Size and magic; with the magic a start would not find the next file."""
    small.flip_log(small.blanks[0].start + at)
    assert not small.verify().is_sound


def test_verify_ignores_the_unused_bytes_at_the_end_of_a_log_file(small: Small) -> None:
    """RocketMQ leaves anything there."""
    blank = small.blanks[0]
    small.edit_log(blank.start + 8, b"x" * (blank.end - blank.start - 8))
    assert small.verify().findings == []


def test_verify_reports_a_log_file_of_zeros_as_damage(small: Small) -> None:
    """A lost sector, or a whole lost file: what follows is still found, and each queue's gap is explained by it."""
    small.edit("commitlog/00000000000000004096", 0, bytes(FILE_BYTES))
    report = small.verify()
    assert [found.where for found in report.findings if found.level is Level.ERROR] == ["commit log 4096..8192"]
    assert report.damaged_bytes == FILE_BYTES
    assert any("was next" in found.what and found.level is Level.WARNING for found in report.findings)


def test_verify_reports_a_torn_last_record_of_the_log_only_as_a_warning(small: Small) -> None:
    """The ordinary end of a crash: nothing whole lies behind it."""
    last = small.records[-1]
    (small.root / "abort").touch()
    small.flip_log(last.start + 6)
    report = small.verify()
    assert report.is_sound
    assert any("bytes behind the last whole record: magic" in found.what for found in report.findings)


def test_verify_reports_stale_records_after_the_end_of_the_log_as_a_note(small: Small) -> None:
    """RocketMQ leaves what it cut in the file, whole records and all; they are older than what it stored since."""
    last = small.records[-1]
    assert last.record is not None
    older = bytearray(small.files.log[-1].view[last.start % FILE_BYTES : last.end % FILE_BYTES])
    at = last.end + 40
    older[28:36] = struct.pack(">q", at)
    older[56:64] = struct.pack(">q", last.record.store_timestamp_ms - 1)
    small.edit_log(last.end, b"\x77" * 40 + older)
    found = small.verify().findings
    assert [(one.level, one.what) for one in found] == [
        (Level.NOTE, "behind the last record: older records, which an earlier recovery cut off")
    ]


def test_verify_does_not_report_a_record_with_an_old_timestamp_as_stale_if_newer_records_follow(small: Small) -> None:
    """Records behind damage that are older than those before it are only stale when nothing younger follows."""
    records = small.records
    bad, older = records[20], records[21]
    assert bad.record is not None
    small.flip_log(bad.start + 6)
    small.edit_log(older.start + 56, struct.pack(">q", START_MS - 60_000))
    report = small.verify()
    assert report.records == 65
    assert [found.where for found in report.findings if "damage" in found.what] == [
        f"commit log {bad.start}..{bad.end}"
    ]


# files


def test_verify_reports_an_error_for_each_file_that_prevents_a_broker_from_starting(small: Small) -> None:
    """Foreign names, a gap, another size, in log and queues."""
    (small.root / "commitlog" / "notes.txt").write_text("x")
    (small.root / "consumequeue" / "Orders" / "0" / "x").write_text("x")
    (small.root / "consumequeue" / "Orders" / "1" / "00000000000000000000").unlink()
    with (small.root / "consumequeue" / "Bills" / "0" / "00000000000000000200").open("ab") as file:
        file.write(bytes(3))
    (small.root / "commitlog" / "00000000000000004096").unlink()
    text = "\n".join(what for level, what in small.findings if level is Level.ERROR)
    for part in (
        "commitlog/notes.txt",
        "Orders/0/x",
        "00000000000000008192: the file before it ends at 4096",
        "Bills/0/0",
    ):
        assert part in text, part


def test_verify_accepts_an_empty_last_log_file(small: Small) -> None:
    """A crash while it was made leaves one: a start makes it anew."""
    (small.root / "commitlog" / f"{len(small.files.log) * FILE_BYTES:020d}").touch()
    assert small.verify().is_sound


# other sound stores


def test_a_store_whose_old_files_were_deleted_by_retention_is_sound(tmp_path: Path) -> None:
    """After retention the first log file, its units and its keys are gone; fillers and units of deleted messages remain."""
    clock = ManualClock(START_MS)
    arguments = {"clock": clock, "commit_log_file_bytes": 4096, "max_hash_slot_num": 4, "max_index_num": 16}
    with opened(tmp_path, **arguments) as store:
        for number in range(60):
            store.put([message("Orders", number % 2, body=b"x" * 100, keys=f"k{number}", uniq_key=f"u{number}")])
            store.put([message("Early", 0, keys="k")] if number < 5 else [])
            store.dispatch()
            clock.advance_ms(400)
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    one = Small(tmp_path)
    assert [found.what for found in one.verify().findings] == ["the log begins at 8192, and began at 0"]
    ends_path(tmp_path).unlink()  # as where retention has deleted them
    (tmp_path / "flint" / "epochs").unlink()
    assert one.verify().findings == []
    for path in sorted((tmp_path / "index").iterdir())[:2]:
        path.unlink()
    assert one.verify().findings == []
    with opened(tmp_path, **arguments):
        pass
    assert one.verify().findings == []


def test_verify_accepts_a_store_in_which_a_deleted_topic_was_created_again(tmp_path: Path) -> None:
    """Its queue begins at 0 again; the log still has what it held before."""
    clock = ManualClock(START_MS)
    with opened(tmp_path, clock=clock) as store:
        for again in (False, True):
            for number in range(7):
                store.put([message("Orders", 0, keys=f"k{number}")])
            store.dispatch()
            if not again:
                store.delete_topic("Orders")
    found = Small(tmp_path).findings
    assert [level for level, _what in found] == [Level.NOTE]
    assert "begin at 0 again" in found[0][1]


def test_store_verification_reports_queue_units_that_point_to_messages_of_a_deleted_topic(tmp_path: Path) -> None:
    """So slaves and repairs left them once: new messages behind those that were deleted."""
    with opened(tmp_path, clock=ManualClock(START_MS)) as store:
        store.put([message("Orders", 0) for _ in range(3)])
        store.dispatch()
        store.delete_topic("Orders")
        store.put([*(message("Orders", 0) for _ in range(2)), message("Bills", 0)])
        store.dispatch()
        first = next(store.commit_log.requests(0, store.watermarks.wrote))
    path = tmp_path / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    size = first.message_size_bytes
    old = b"".join(UNIT.pack(number * size, size, 0) for number in range(3))
    raw = path.read_bytes()
    new = raw[: 2 * UNIT_BYTES]
    path.write_bytes((old + new).ljust(len(raw), bytes(1)))
    assert not Small(tmp_path).verify().is_sound
    path.write_bytes(old.ljust(len(raw), bytes(1)))
    assert not Small(tmp_path).verify().is_sound
    path.write_bytes(raw)
    assert Small(tmp_path).verify().is_sound


def test_verify_warns_if_a_topic_deletion_record_in_the_log_is_not_yet_dispatched(tmp_path: Path) -> None:
    """The broker was killed in between: its start drops the queue."""
    with opened(tmp_path / "store", strategy=BY_HAND, clock=ManualClock(START_MS)) as store:
        store.put([message("Orders", 0) for _ in range(3)])
        store.dispatch()
        store.put([deletion("Orders", START_MS)])
        shutil.copytree(store.root, tmp_path / "killed")
        assert store.consume_queues.find("Orders", 0) is not None
    killed = Small(tmp_path / "killed")
    assert killed.verify().is_sound
    assert [level for level, what in killed.findings if "a start" in what or "was deleted at" in what] == [
        Level.WARNING
    ]
    with opened(killed.root, strategy=BY_HAND, clock=ManualClock(START_MS)) as store:
        assert store.consume_queues.find("Orders", 0) is None
    assert killed.findings == []


def test_verify_reports_a_deleted_topic_as_a_note(small: Small) -> None:
    """Its messages stay in the log until their files expire."""
    (small.root / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders":{}}}')
    for path in sorted((small.root / "consumequeue" / "Bills").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    found = small.findings
    assert [level for level, what in found if "the topic was deleted" in what] == [Level.NOTE, Level.NOTE]
    assert small.verify().is_sound


def test_verify_reads_log_records_of_format_version_2(small: Small) -> None:
    """A 5.x broker writes them for topics of more than 127 bytes; its topic length has two bytes."""
    end = small.records[-1].end
    last = small.records[-1].record
    assert last is not None
    topic = b"T" * 120
    size = rec.RECORD_MIN_BYTES + 1 + len(topic)
    head = struct.pack(
        ">IIIiiqqiq8sq8siqi",
        size,
        rec.MAGIC_V2,
        0,
        0,
        0,
        0,
        end,
        0,
        1,
        bytes(8),
        last.store_timestamp_ms,
        bytes(8),
        0,
        0,
        0,
    )
    small.edit_log(end, head + struct.pack(">H", len(topic)) + topic + bytes(2))
    report = small.verify()
    assert report.records == 67
    assert report.log_end_bytes == end + size
    assert report.is_sound


def test_verify_reports_no_finding_for_a_store_without_messages(tmp_path: Path) -> None:
    """A broker that was started and stopped, and one of which only the configuration is left."""
    with opened(tmp_path / "a"):
        pass
    assert Small(tmp_path / "a").verify().findings == []
    (tmp_path / "b" / "config").mkdir(parents=True)
    assert Small(tmp_path / "b").verify().findings == []


def test_verify_reports_the_abort_file_of_a_killed_broker_only_as_a_warning(tmp_path: Path) -> None:
    """An abort file is a warning: a start recovers."""
    with opened(tmp_path) as store:
        store.put([message("Orders")])
        store.dispatch()
    (tmp_path / "abort").touch()
    assert [level for level, _what in Small(tmp_path).findings] == [Level.WARNING]


def test_a_store_of_a_running_broker_is_not_reported_as_crashed(small: Small) -> None:
    """A broker that runs has an abort file too; what it says is that the lock is held."""
    (small.root / "abort").touch()
    assert [found.what for found in small.verify().findings] == ["the last broker did not stop in order"]
    lock = StoreLock(small.root)
    try:
        (found,) = small.verify().findings
        assert explain_start(small.files)["last_stop"].startswith("none yet: a broker runs")
    finally:
        lock.release()
    assert found.level is Level.NOTE
    assert "a broker runs on the store and holds its lock" in found.what
    assert found.where.endswith("/lock")
