"""A store of many topics of which one is read: the cost of a read follows what is read, and the rows are the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from reading import batch, planned, read_parts, stream, transport

from flintmq.core.log.store_lock import is_locked
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.spark.errors import UnsettledStoreError
from flintmq.plugins.spark.ports import Limit
from flintmq.plugins.spark.store import piece_reader, queue_units
from flintmq.plugins.spark.store import visible_end as ends
from flintmq.testing.store import message, open_store

TOPICS = 40
EACH = 12


def put(store: MessageStore) -> None:
    for number in range(TOPICS * EACH):
        store.put([message(f"topic{number % TOPICS}", number // TOPICS % 2, b"%d" % number)])
    store.dispatch()


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stopped store of several log files and of more topics than are all asked."""
    monkeypatch.setattr(ends, "TOPICS_ASKED_MAX", TOPICS - 1)
    monkeypatch.setattr(piece_reader, "_ASKED_MAX", TOPICS - 1)
    root = tmp_path / "store"
    store = open_store(root, commit_log_file_bytes=16384, consume_queue_file_bytes=2000)
    put(store)
    store.close()
    return root


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the queues that are opened from now on."""
    found: list[str] = []
    list_files = queue_units.list_files

    def noted(folder: Path) -> list[queue_units.LogFile]:
        found.append(f"{folder.parent.name}/{folder.name}")
        return list_files(folder)

    monkeypatch.setattr(queue_units, "list_files", noted)
    return found


def crash(root: Path) -> None:
    (root / "abort").touch()


@pytest.mark.parametrize("state", [lambda root: None, crash], ids=["stopped", "crashed"])
def test_a_read_opens_files_of_an_unsubscribed_queue_only_if_the_last_log_record_is_in_that_queue(
    many: Path, opened: list[str], state: Callable[[Path], None]
) -> None:
    """Reads of a store with many topics would otherwise take seconds;

    only queues of the log's last records are opened as well.
    """
    state(many)
    rows = batch(many, subscribe="topic7", startingTimestamp="2001-01-01T00:00:00Z")
    assert sorted(int(row["body"]) for row in rows) == [
        number for number in range(TOPICS * EACH) if number % TOPICS == 7
    ]
    last = TOPICS * EACH - 1
    assert set(opened) <= {"topic7/0", "topic7/1", f"topic{last % TOPICS}/{last // TOPICS % 2}", *deletions(opened)}
    opened.clear()
    reader = transport(many, subscribe="topic7")
    batches, _end = stream(reader, reader.initial("earliest"), Limit(max_rows=5))
    assert [len(one) for one in batches] == [5, 5, 2]
    assert {name.split("/")[0] for name in opened} <= {
        "topic7",
        f"topic{last % TOPICS}",
        *map(first_part, deletions(opened)),
    }


def deletions(names: list[str]) -> list[str]:
    """Queues of the broker's own topics: where topics were deleted is looked up in one of them."""
    return [name for name in names if not name.startswith("topic")]


def first_part(name: str) -> str:
    return name.split("/", maxsplit=1)[0]


def test_spark_reads_the_store_of_a_running_broker_up_to_the_last_dispatched_message(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is the last message of the log that its own queue names; what is not dispatched is not read."""
    monkeypatch.setattr(ends, "TOPICS_ASKED_MAX", 3)
    monkeypatch.setattr(piece_reader, "_ASKED_MAX", 3)
    monkeypatch.setattr(ends, "IN_FLIGHT", 20)
    store = open_store(tmp_path, commit_log_file_bytes=16384, consume_queue_file_bytes=2000)
    try:
        put(store)
        store.put([message("topic7", 0, b"not dispatched")])
        assert is_locked(tmp_path)
        by_log = transport(tmp_path)._view().end
        rows = batch(tmp_path, subscribe="topic7", visibility="dispatched")
        assert len(rows) == EACH
        assert len({name for name in opened if name.startswith("topic")}) <= 4
        monkeypatch.setattr(ends, "TOPICS_ASKED_MAX", 1000)
        by_queues = transport(tmp_path)._view().end
        assert by_log.end == by_queues.end
        assert by_log.state == by_queues.state == "written"
        assert 0 < by_log.units_complete_to <= by_queues.units_complete_to
    finally:
        store.close()


@pytest.mark.parametrize("damage", ["a body", "half a record", "the middle", "no queues"])
@pytest.mark.parametrize("state", [lambda root: None, crash], ids=["stopped", "crashed"])
def test_damage_is_reported_in_the_same_way_for_a_store_with_many_topics_and_a_store_with_few(
    many: Path, monkeypatch: pytest.MonkeyPatch, damage: str, state: Callable[[Path], None]
) -> None:
    """Rows, and errors, are those of a read that asks every queue."""
    rows = batch(many)
    at = rows[len(rows) - 3 if damage == "the middle" else -1]
    file = [path for path in sorted((many / "commitlog").iterdir()) if int(path.name) <= at["physicalOffset"]][-1]
    raw = bytearray(file.read_bytes())
    start = at["physicalOffset"] - int(file.name)
    if damage == "a body":
        raw[start + 90] ^= 0xFF
    elif damage == "half a record":
        raw[start + 60 : start + at["storeSize"]] = bytes(at["storeSize"] - 60)
    elif damage == "the middle":
        raw[start + 4] ^= 0xFF
    else:
        shutil.rmtree(many / "consumequeue" / "topic39")
    file.write_bytes(raw)
    state(many)

    def outcome(topics_asked_max: int, **options: str) -> object:
        monkeypatch.setattr(ends, "TOPICS_ASKED_MAX", topics_asked_max)
        try:
            return batch(many, subscribe="topic39,topic38", **options)
        except Exception as error:
            return type(error), str(error)

    for options in ({}, {"badRecords": "skip"}):
        assert outcome(3, **options) == outcome(1000, **options)
    if damage == "half a record" and (many / "abort").exists():
        assert outcome(3)[0] is UnsettledStoreError  # type: ignore[index]


@pytest.mark.parametrize(("least", "expected"), [(1, 1), (4, 4), (9, 9), (EACH, EACH), (50, EACH)])
def test_the_option_min_partitions_divides_the_messages_of_subscribed_topics_evenly(
    many: Path, least: int, expected: int
) -> None:
    """Tasks share the messages of the topic, wherever in the log they lie; none has nothing to do."""
    reader, parts = planned(many, subscribe="topic7", minPartitions=str(least))
    counts = [len(read_parts(reader, [part])) for part in parts]
    assert len(parts) == expected
    assert sum(counts) == EACH
    assert max(counts) - min(counts) <= 1


def test_the_option_min_partitions_splits_even_a_small_topic_in_a_large_log_into_equal_partitions(
    tmp_path: Path,
) -> None:
    """Its messages, of a hundredth of the log, are shared all the same."""
    store = open_store(tmp_path, commit_log_file_bytes=65536, consume_queue_file_bytes=20000)
    for number in range(1000):
        store.put([message("narrow" if 500 <= number < 510 else "wide", 0, b"%d" % number)])
    store.dispatch()
    store.close()
    reader, parts = planned(tmp_path, subscribe="narrow", minPartitions="5")
    assert [len(read_parts(reader, [part])) for part in parts] == [2] * 5
    reader, parts = planned(tmp_path, minPartitions="7")
    assert len(parts) == 7
    assert len(read_parts(reader, parts)) == 1000
