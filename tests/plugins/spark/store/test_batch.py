"""A batch read of a store's files: every message once, in the order of the log, however it is cut and whatever is left out."""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from reading import batch, places, planned, read_parts, transport

from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.spark.errors import DataLossError, OptionError, UnknownTopicError
from flintmq.plugins.spark.ports import Bounds, Range
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store

TOPICS = ("orders", "payments", "%RETRY%group", "SCHEDULE_TOPIC_XXXX")
TAGS = ("Aa", "BB", "")  # the first two have the same hash


def fill(store: MessageStore, clock: ManualClock, count: int) -> None:
    """Messages of several topics, queues and tags, 10 ms after one another, with a hidden one among them now and then."""
    for number in range(count):
        clock.advance_ms(10)
        topic = TOPICS[number % 7 % 4]
        store.put(
            [
                message(
                    topic,
                    number % 3,
                    b"x" * (number * 37 % 300),
                    tags=TAGS[number % 3],
                    keys=f"k{number}",
                    sys_flag=4 if number % 50 == 49 else 0,
                )
            ]
        )
        store.dispatch()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store of some ten log files, and several files in a queue."""
    root = tmp_path_factory.mktemp("batch") / "store"
    clock = ManualClock(1_700_000_000_000)
    store = open_store(
        root, clock=clock, commit_log_file_bytes=16384, consume_queue_file_bytes=1200, max_index_num=4000
    )
    fill(store, clock, 600)
    store.close()
    return root


@functools.cache
def all_rows(root: Path) -> list[dict[str, Any]]:
    return batch(root, includeSystemTopics="true")


def test_every_message_in_a_consume_queue_is_read_once_in_commit_log_order(filled: Path) -> None:
    """Prepared messages are not there; the store's own queues say what must be."""
    rows = all_rows(filled)
    assert len(rows) == 600 - 12
    assert [row["physicalOffset"] for row in rows] == sorted({row["physicalOffset"] for row in rows})
    store = open_store(filled, commit_log_file_bytes=16384, consume_queue_file_bytes=1200, max_index_num=4000)
    try:
        wanted = {
            (t, q, n) for (t, q), queue in store.consume_queues.queues.items() for n in range(queue.max_queue_offset)
        }
    finally:
        store.close()
    assert set(places(rows)) == wanted


@pytest.mark.parametrize("partition_bytes", ["500", "5000", "20000", "64m"])
@pytest.mark.parametrize("chosen", [{}, {"subscribe": "orders,payments,%RETRY%group,SCHEDULE_TOPIC_XXXX"}])
def test_input_partitions_of_a_read_cover_the_log_without_overlap(
    filled: Path, partition_bytes: str, chosen: dict[str, str]
) -> None:
    """However small they are asked to be, whether all of the log is read or what the queues name."""
    reader, parts = planned(filled, includeSystemTopics="true", maxPartitionBytes=partition_bytes, **chosen)
    pieces = [piece for part in parts for piece in part.pieces]
    for before, after in pairwise(pieces):
        assert before.end == after.start
    assert read_parts(reader, parts) == all_rows(filled)
    if partition_bytes == "64m":
        assert len(parts) == 1  # ten small files are no reason for ten tasks
    if partition_bytes == "5000":
        assert len(parts) > 5


def test_the_option_min_partitions_increases_the_number_of_input_partitions(filled: Path) -> None:
    """A cluster may have more cores than the machine of the driver."""
    reader, parts = planned(filled, includeSystemTopics="true", minPartitions="20")
    assert len(parts) >= 20
    assert read_parts(reader, parts) == all_rows(filled)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, lambda row: row["topic"] in ("orders", "payments")),
        ({"includeSystemTopics": "true"}, lambda row: True),
        ({"subscribe": "orders"}, lambda row: row["topic"] == "orders"),
        ({"subscribe": "%RETRY%group"}, lambda row: row["topic"] == "%RETRY%group"),
        ({"subscribePattern": "pay.*|SCHED.*"}, lambda row: row["topic"] == "payments"),
        (
            {"subscribePattern": "pay.*|SCHED.*", "includeSystemTopics": "true"},
            lambda row: row["topic"] in ("payments", "SCHEDULE_TOPIC_XXXX"),
        ),
        ({"queues": '{"orders": [0, 2]}'}, lambda row: row["topic"] == "orders" and row["queueId"] != 1),
        ({"tags": "Aa", "includeSystemTopics": "true"}, lambda row: row["tags"] == "Aa"),
        ({"tags": "Aa || BB", "subscribe": "orders"}, lambda row: row["topic"] == "orders" and row["tags"]),
        ({"tags": "none"}, lambda row: False),
        ({"subscribePattern": "none"}, lambda row: False),
    ],
)
def test_source_options_select_the_same_rows_as_a_spark_filter(
    filled: Path, options: dict[str, str], wanted: Any
) -> None:
    """Pruning through the queues equals filtering all rows; a tag with the same hash is another tag."""
    assert batch(filled, **options) == [row for row in all_rows(filled) if wanted(row)]
    small = batch(filled, **options, maxPartitionBytes="9000", batchRows="30")
    assert small == batch(filled, **options)


@pytest.mark.parametrize("options", [{}, {"subscribe": "orders", "tags": "Aa"}, {"subscribePattern": "pay.*"}])
def test_small_reads_scan_the_commit_log_without_opening_the_consume_queues(
    filled: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches of a stream are faster from the log, and must have the same rows."""
    rows = batch(filled, **options)
    monkeypatch.undo()
    _reader, parts = planned(filled, **options)
    assert not any(piece.by_units for part in parts for piece in part.pieces)
    assert batch(filled, **options) == rows


def test_arrow_batches_are_bounded_in_rows_and_bytes(filled: Path) -> None:
    """A batch of ten thousand messages of 4 MiB would need 40 GB of memory."""
    reader, parts = planned(filled, batchRows="7")
    assert all(one.num_rows <= 7 for part in parts for one in reader.read(part))
    assert all(
        one.num_rows <= 7 for part in parts for one in transport(filled, batchRows="7", columns="topic").read(part)
    )
    reader, parts = planned(filled, batchBytes="1000", columns="storeSize,body")
    sizes = [one.column(0).to_pylist() for part in parts for one in reader.read(part)]
    assert max(map(len, sizes)) > 1
    assert all(sum(size[:-1]) < 1_000 for size in sizes)


def test_a_read_returns_only_the_chosen_columns(filled: Path) -> None:
    """Spark expects the columns in the order of the option."""
    reader, parts = planned(filled, columns="queueOffset,topic")
    (one, *_) = reader.read(parts[0])
    assert one.schema.names == ["queueOffset", "topic"]


@pytest.mark.parametrize("start", [0, 250, 599, 10_000])
@pytest.mark.parametrize("end", [None, 333, 10_000])
def test_a_read_by_time_includes_the_starting_store_time_and_excludes_the_ending_store_time(
    filled: Path, start: int, end: int | None
) -> None:
    """The start is inclusive and the end exclusive, to the millisecond."""
    first_ms, end_ms = 1_700_000_000_005 + start * 10, 1_700_000_000_005 + (end or 0) * 10
    options = {"startingTimestamp": str(first_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if end is not None:
        options["endingTimestamp"] = str(end_ms)

    def fits(row: dict[str, Any]) -> bool:
        stored_ms = round(row["storeTimestamp"].timestamp() * 1000)
        return first_ms <= stored_ms and (end is None or stored_ms < end_ms)

    assert batch(filled, includeSystemTopics="true", **options) == [row for row in all_rows(filled) if fits(row)]


def test_a_starting_time_after_the_last_message_is_an_error_by_default(filled: Path) -> None:
    """Kafka's rule for startingTimestamp, and its option."""
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy=latest"):
        batch(filled, startingTimestamp="1900000000000")


def test_each_queue_is_read_between_the_offsets_given_for_this_queue(filled: Path) -> None:
    """rocketmq-spark's JSON; queues that are not named are read in full."""
    start = '{"orders": {"broker-a": {"0": 5, "1": -1, "2": -2}}}'
    end = '{"orders": {"broker-a": {"0": 20, "2": 7}}, "payments": {"broker-a": {"0": -2}}}'

    def fits(row: dict[str, Any]) -> bool:
        if row["topic"] == "orders":
            low, high = {0: (5, 20), 1: (10**9, 0), 2: (0, 7)}[row["queueId"]]
            return bool(low <= row["queueOffset"] < high)
        return row["topic"] == "payments" and row["queueId"] != 0

    assert batch(filled, startingOffsets=start, endingOffsets=end) == [row for row in all_rows(filled) if fits(row)]


def test_a_queue_with_equal_start_and_end_offsets_has_no_row(filled: Path) -> None:
    """The same JSON for both: nothing of that queue, and not all of it."""
    place = '{"orders": {"broker-a": {"0": 5}}}'
    rows = batch(filled, startingOffsets=place, endingOffsets=place, subscribe="orders")
    assert rows == [row for row in all_rows(filled) if row["topic"] == "orders" and row["queueId"] != 0]


def test_a_read_between_two_physical_offsets_returns_only_the_rows_in_this_range(filled: Path) -> None:
    """The offset must be the begin of a record, and the end is exclusive."""
    rows = batch(filled)
    low, high = rows[10]["physicalOffset"], rows[200]["physicalOffset"]

    def place(position: int) -> str:
        return f'{{"broker-a": {{"phys": {position}}}}}'

    assert batch(filled, startingOffsets=place(low), endingOffsets=place(high)) == rows[10:200]
    for wrong in (low + 1, 10**9):
        with pytest.raises(OptionError, match="startingOffsets names physical offset"):
            batch(filled, startingOffsets=place(wrong))
    assert batch(filled, startingOffsets="latest") == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"subscribe": "order"}, UnknownTopicError, "subscribe names the topic 'order'.*did you mean 'orders'"),
        ({"queues": '{"nope": [0]}'}, UnknownTopicError, "queues names the topic 'nope'"),
        ({"startingOffsets": '{"orders": {"b": {"0": 999}}}'}, DataLossError, "has 0 to .*failOnDataLoss=false"),
        (
            {"startingOffsets": '{"orders": {"b": {"9": 1}}}'},
            OptionError,
            "queue 9 of 'orders', which the store does not",
        ),
        ({"endingOffsets": '{"%RETRY%group": {"b": {"0": 1}}}'}, OptionError, "not subscribed to"),
        ({"brokerName": "a", "startingOffsets": '{"orders": {"b": {"0": 1}}}'}, OptionError, "names the broker 'b'"),
        ({"commitLogPath": "/nonexistent", "path": "/"}, OptionError, "no store lies there"),
        ({"path": "/nonexistent/store"}, OptionError, "there is no such folder"),
    ],
)
def test_invalid_source_options_are_refused_on_the_driver(
    filled: Path, options: dict[str, str], error: type[Exception], message: str
) -> None:
    """The error must come before any task runs, and must name the option to change."""
    given = {"path": str(filled), **options}
    with pytest.raises(error, match=message):
        planned(Path(given.pop("path")), **given)


def test_an_offset_out_of_range_is_clamped_if_data_loss_is_allowed(filled: Path) -> None:
    """With ``failOnDataLoss=false`` a read begins at the nearest offset that exists."""
    start = '{"orders": {"b": {"0": 999, "1": 999, "2": 999}}, "payments": {"b": {"0": 999, "1": 999}}}'
    rows = batch(filled, startingOffsets=start, failOnDataLoss="false")
    assert rows == [row for row in batch(filled) if (row["topic"], row["queueId"]) == ("payments", 2)]


BOUNDS = [
    Bounds(topics=frozenset({"orders", "none"})),
    Bounds(tags=frozenset({"Aa"})),
    Bounds(queue_id=Range(1, 1)),
    Bounds(queue_offset=Range(5, 9)),
    Bounds(physical_offset=Range(20_001, 60_001)),
    Bounds(store_timestamp_ms=Range(1_700_000_001_000, 1_700_000_002_000)),
    Bounds(topics=frozenset()),
    Bounds(physical_offset=Range(low=10**12)),
    Bounds(store_timestamp_ms=Range(high=0)),
]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("chosen", [{}, {"subscribe": "orders,payments", "tags": "Aa||BB"}])
def test_a_read_with_pushed_down_filters_returns_every_matching_row(
    filled: Path, bounds: Bounds, chosen: dict[str, str]
) -> None:
    """Spark filters again, so more may come, but never less."""
    reader = transport(filled, **chosen)
    narrowed = reader.narrowed(bounds)
    rows = read_parts(narrowed, narrowed.plan(reader.initial("earliest"), reader.final()))

    def inside(row: dict[str, Any]) -> bool:
        stored_ms = round(row["storeTimestamp"].timestamp() * 1000)
        numbers = [
            (bounds.queue_id, row["queueId"]),
            (bounds.queue_offset, row["queueOffset"]),
            (bounds.physical_offset, row["physicalOffset"]),
            (bounds.store_timestamp_ms, stored_ms),
        ]
        return (
            (bounds.topics is None or row["topic"] in bounds.topics)
            and (bounds.tags is None or row["tags"] in bounds.tags)
            and all(allowed.low <= number <= allowed.high for allowed, number in numbers)
        )

    assert rows == [row for row in batch(filled, **chosen) if inside(row)]


def test_log_files_deleted_before_planning_or_reading_are_reported_as_data_loss(tmp_path: Path) -> None:
    """Retention runs beside a read: an error that names the option, or on with what is there."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(tmp_path, clock=clock, commit_log_file_bytes=4096, max_index_num=4000)
    fill(store, clock, 200)
    store.close()
    rows = batch(tmp_path)
    reader, parts = planned(tmp_path, maxPartitionBytes="4096")
    start, end = reader.initial("earliest"), reader.final()
    for number in (0, 1):
        (tmp_path / "commitlog" / f"{number * 4096:020d}").unlink()
    left = [row for row in rows if row["physicalOffset"] >= 8192]
    with pytest.raises(DataLossError, match=r"was deleted before.*failOnDataLoss=false"):
        read_parts(reader, parts)
    with pytest.raises(DataLossError, match=r"no file for 0 to 8192.*failOnDataLoss=false"):
        reader.plan(start, end)
    lenient = transport(tmp_path, failOnDataLoss="false")
    assert read_parts(lenient, parts) == left
    assert read_parts(lenient, lenient.plan(start, end)) == left
    assert batch(tmp_path) == left  # earliest is what is there
    assert batch(tmp_path, subscribe="orders") == [row for row in left if row["topic"] == "orders"]


def test_a_read_of_an_empty_store_has_no_input_partition(tmp_path: Path) -> None:
    """Spark then runs one task with nothing to do."""
    open_store(tmp_path).close()
    reader, parts = planned(tmp_path)
    assert parts == []
    pytest.importorskip("pyspark", reason="needs PySpark")
    from pyspark.sql.datasource import InputPartition

    from flintmq.plugins.spark.source import BatchReader

    assert list(BatchReader(reader).read(InputPartition(None))) == []
