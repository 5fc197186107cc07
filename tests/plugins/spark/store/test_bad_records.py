"""Damage inside the log is an error, is left out, or becomes a row that says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import Row, batch, places, planned, read_parts, stream, transport

from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.ports import Limit
from flintmq.plugins.spark.schema import ALL_NAMES
from flintmq.plugins.spark.store import piece_reader
from flintmq.testing.store import message, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stopped store with ten messages of ``orders`` and ten of ``payments``, in turn."""
    store = open_store(tmp_path / "store")
    for number in range(10):
        store.put([message("orders", number % 2, b"order %d" % number, tags="a")])
        store.put([message("payments", 0, b"payment %d" % number, tags="b")])
    store.dispatch()
    store.close()
    return tmp_path / "store"


@pytest.fixture(params=["queues first", "log alone"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of finding the records of a piece: with consume queues, and by walking from record to record."""
    if request.param == "log alone":
        monkeypatch.setattr(piece_reader, "ASKED_FROM_BYTES", 1 << 40)


def damage(root: Path, *rows: Row) -> None:
    """Change a byte of the magic number of each row's record."""
    file = sorted((root / "commitlog").iterdir())[0]
    raw = bytearray(file.read_bytes())
    for row in rows:
        raw[row["physicalOffset"] + 4] ^= 0xFF
    file.write_bytes(raw)


@pytest.mark.usefixtures("walk")
def test_an_intact_record_after_adjacent_damaged_records_is_not_skipped(root: Path) -> None:
    """The second damaged record is named by a queue too, and must not end the search for the next valid one."""
    rows = batch(root)
    damage(root, *rows[4:9])
    with pytest.raises(BadRecordError, match=rf"no record at {rows[4]['physicalOffset']}"):
        batch(root)
    assert places(batch(root, badRecords="skip")) == places(rows[:4] + rows[9:])


@pytest.mark.usefixtures("walk")
def test_a_message_of_a_small_queue_is_read_even_if_a_damaged_record_precedes_the_message(tmp_path: Path) -> None:
    """The largest queues alone divide a log into tasks, but any queue may name the record that follows the damage."""
    store = open_store(tmp_path / "store")
    for number in range(40):
        store.put([message("large", number % 20, b"x")])
        if number == 20:
            store.put([message("small", 0, b"y")])
    for number in range(20):
        store.put([message("large", number, b"x")])
    store.dispatch()
    store.close()
    rows = batch(tmp_path / "store")
    at = next(number for number, row in enumerate(rows) if row["topic"] == "small")
    damage(tmp_path / "store", rows[at - 1])
    assert places(batch(tmp_path / "store", badRecords="skip")) == places(rows[: at - 1] + rows[at:])


KEEP = {"badRecords": "keep"}


def stretch(first: Row, last: Row) -> Row:
    """Return the row of a damaged stretch, without its reason."""
    size = last["physicalOffset"] + last["storeSize"] - first["physicalOffset"]
    return {**dict.fromkeys(ALL_NAMES), "physicalOffset": first["physicalOffset"], "storeSize": size}


def without_reason(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "badRecord"} for row in rows]


@pytest.mark.usefixtures("walk")
@pytest.mark.parametrize("options", [{}, {"subscribe": "orders,payments"}, {"minPartitions": "5"}])
def test_a_damaged_region_of_the_log_becomes_one_row_at_its_position_among_the_message_rows(
    root: Path, options: dict[str, str]
) -> None:
    """The row has the physical offset and the size of the damage, for all choices of topics and tasks."""
    rows = batch(root)
    damage(root, *rows[4:7], rows[12])
    found = batch(root, **KEEP, **options)
    expected = [*rows[:4], stretch(rows[4], rows[6]), *rows[7:12], stretch(rows[12], rows[12]), *rows[13:]]
    assert without_reason(found) == expected
    reasons = {row["physicalOffset"]: row["badRecord"] for row in found if row["badRecord"] is not None}
    assert sorted(reasons) == [rows[4]["physicalOffset"], rows[12]["physicalOffset"]]
    assert all("magic" in reason for reason in reasons.values())


def test_damaged_records_are_reported_even_in_a_read_of_a_single_topic(root: Path) -> None:
    """A damaged record may belong to any topic."""
    rows = batch(root)
    damage(root, rows[4], rows[5])
    found = batch(root, subscribe="orders", **KEEP)
    orders = [row for row in rows if row["topic"] == "orders"]
    assert without_reason(found) == [*orders[:2], stretch(rows[4], rows[5]), *orders[3:]]


def test_a_read_with_damaged_records_has_the_same_row_count_for_any_chosen_columns(root: Path) -> None:
    """Consume queues alone, from which queue columns are otherwise read, do not show damage."""
    rows = batch(root)
    damage(root, rows[4])
    assert "badRecord" not in batch(root, columns="queueOffset", **KEEP)[4]
    assert batch(root, columns="queueOffset", **KEEP)[4] == {"queueOffset": None}
    assert len(batch(root, columns="queueOffset", **KEEP)) == 20
    assert batch(root, columns="badRecord", badRecords="skip") == [{"badRecord": None}] * 19


def test_the_reader_finds_the_next_record_after_a_record_with_damaged_length_fields(root: Path) -> None:
    """Its size and magic number are right, so the next record is found without a queue."""
    rows = batch(root)
    file = sorted((root / "commitlog").iterdir())[0]
    raw = bytearray(file.read_bytes())
    at = rows[4]["physicalOffset"] + 84
    raw[at : at + 4] = b"\x00\x00\x00\x04"
    file.write_bytes(raw)
    assert without_reason(batch(root, **KEEP)) == [*rows[:4], stretch(rows[4], rows[4]), *rows[5:]]


def test_damaged_records_at_the_end_of_a_read_become_one_row_that_covers_all_of_them(root: Path) -> None:
    """A stretch that no record follows ends at the last position that is read."""
    rows = batch(root)
    reader, parts = planned(root, **KEEP)
    damage(root, *rows[17:])
    assert without_reason(read_parts(reader, parts)) == [*rows[:17], stretch(rows[17], rows[19])]


def test_a_stream_reports_each_damaged_region_of_the_log_once(root: Path) -> None:
    """A repeated batch gives the same rows. The history of a topic that is added later does not report its damage again."""
    rows = batch(root)
    damage(root, rows[4], rows[5], rows[11])
    reader = transport(root, subscribe="orders", **KEEP)
    start = reader.initial("earliest")
    batches, end = stream(reader, start, Limit(max_rows=3))
    assert len(batches) > 2
    found = [row for rows_of_batch in batches for row in rows_of_batch]
    assert [row["physicalOffset"] for row in found if row["badRecord"]] == [
        rows[4]["physicalOffset"],
        rows[11]["physicalOffset"],
    ]
    assert read_parts(reader, reader.plan(start, end)) == found
    both = transport(root, subscribe="orders,payments", **KEEP)
    later, _end = stream(both, end, Limit())
    history = [row for rows_of_batch in later for row in rows_of_batch]
    assert {row["topic"] for row in history} == {"payments"}
    assert len(history) == 8
