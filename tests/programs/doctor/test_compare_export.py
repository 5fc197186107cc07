"""Two stores are the same, or it is said where they part; messages come out as they were stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.programs.doctor.compare import compare
from flintmq.programs.doctor.export import Wanted, messages, to_parquet
from flintmq.testing.store import message, open_store

from .conftest import START_MS, Small
from .test_mend import config_of


@pytest.fixture
def other(copy_small: Callable[[Path], Small], tmp_path: Path) -> Small:
    return copy_small(tmp_path / "other")


def test_a_copied_store_compares_as_equal(small: Small, other: Small) -> None:
    """A backup is what it should be."""
    found = compare(small.files, other.files)
    assert found["same"]
    assert found["common_records"] == 66
    assert found["first_difference"] is None


def test_a_store_with_fewer_messages_is_reported_as_a_prefix_of_the_longer_store(small: Small, other: Small) -> None:
    """Its first difference is where it ends."""
    last = small.records[-1]
    store = open_store(other.root, config=config_of(other.root))
    store.put([message("More")])
    store.dispatch()
    store.close()
    found = compare(small.files, other.files)
    assert not found["same"]
    assert found["common_records"] == 66
    assert found["first_difference"]["left"] is None
    assert found["first_difference"]["right"]["position"] == last.end
    assert (found["records_only_left"], found["records_only_right"], found["differing_records"]) == (0, 1, 0)


def test_comparing_two_stores_reports_the_position_of_the_first_differing_record(small: Small, other: Small) -> None:
    """One bit of a field without a checksum is enough."""
    piece = other.records[10]
    other.flip_log(piece.start + 19)
    found = compare(small.files, other.files)
    assert (found["common_records"], found["differing_records"]) == (65, 1)
    assert found["first_difference"]["left"]["position"] == piece.start


def test_a_record_damaged_in_one_store_does_not_prevent_the_comparison_of_later_records(
    small: Small, other: Small
) -> None:
    """Damage in a copy: all others are still the same."""
    other.flip_log(other.records[10].start + 6)
    found = compare(small.files, other.files)
    assert (found["common_records"], found["records_only_left"], found["records_only_right"]) == (65, 1, 0)


def test_stores_are_compared_from_their_first_common_log_offset(small: Small, other: Small) -> None:
    """The one deleted earlier than the other."""
    (other.root / "commitlog" / "00000000000000000000").unlink()
    found = compare(small.files, other.files)
    assert found["same"]
    assert found["compared_from"] == 4096


def test_comparing_two_stores_lists_the_differences_between_their_configuration_files(
    small: Small, other: Small
) -> None:
    """Also a file that cannot be read."""
    (other.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@billing":{"0":6}}}')
    (other.root / "config" / "topics.json").write_text("{")
    found = compare(small.files, other.files)
    assert found["config"]["consumerOffset.json"] == [
        "offsetTable/Orders@billing/0: 5 | 6",
        "offsetTable/Orders@billing/1: 7 | absent",
    ]
    assert any("unreadable" in line for line in found["config"]["topics.json"])
    assert not found["same"]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Wanted(), 66),
        (Wanted(topic="Bills"), 22),
        (Wanted(topic="Orders", queue_id=1), 22),
        (Wanted(tag="t1"), 17),
        (Wanted(limit=5), 5),
        (Wanted(topic="Bills", limit=100), 22),
        (Wanted(from_timestamp_ms=START_MS + 700 * 60), 6),
        (Wanted(until_timestamp_ms=START_MS + 700 * 60), 60),
        (Wanted(topic="None"), 0),
    ],
)
def test_an_export_selects_messages_by_topic_or_queue_or_tag_or_time(small: Small, wanted: Wanted, count: int) -> None:
    """By topic, queue, tag and time; no more than asked for."""
    found = list(messages(small.files, wanted))
    assert len(found) == count
    assert [record.commit_log_offset_bytes for record in found] == sorted(
        record.commit_log_offset_bytes for record in found
    )


def test_an_export_stops_reading_the_log_at_its_message_limit(small: Small) -> None:
    """The first message of a terabyte must not cost a terabyte."""
    told: list[int] = []
    assert len(list(messages(small.files, Wanted(limit=1), told.append))) == 1
    assert told == []


def test_exported_parquet_has_all_stored_fields(small: Small, tmp_path: Path) -> None:
    """Every column, read back by another library."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "messages.parquet"
    assert to_parquet(small.files, Wanted(topic="Orders"), path) == 44
    rows = parquet.read_table(path).to_pylist()
    wanted = list(messages(small.files, Wanted(topic="Orders")))
    for row, record in zip(rows, wanted, strict=True):
        assert row["body"] == record.body
        assert dict(row["properties"]) == record.properties
        assert row["commit_log_offset_bytes"] == record.commit_log_offset_bytes
        assert row["store_timestamp"].timestamp() * 1000 == record.store_timestamp_ms
    assert to_parquet(small.files, Wanted(topic="None"), path) == 0
    assert parquet.read_table(path).num_rows == 0
