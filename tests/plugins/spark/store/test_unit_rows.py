"""Rows made of consume queues alone equal those made of the log: where units and log agree, and wherever they do not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest
from reading import Row, batch, planned, read_parts, transport

from flintmq.core.record.queue_unit import UNIT, UNIT_BYTES
from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.ports import Bounds, Range
from flintmq.plugins.spark.store import queue_units, unit_rows
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store

NAMES = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeSize")
UNITS_ALONE = {"columns": ",".join(NAMES)}
FROM_LOG = {"columns": f"{UNITS_ALONE['columns']},flag"}
"""Asks for one more, which no unit has."""
TOPICS = ("orders", "payments", "%RETRY%group", "SCHEDULE_TOPIC_XXXX")
FILE_BYTES = 16384


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several steps for each piece."""
    monkeypatch.setattr(queue_units, "STEP_UNITS", 64)
    monkeypatch.setattr(queue_units, "_LEAST_STEP_UNITS", 4)


def fill(root: Path, *, hidden: bool) -> Path:
    """A stopped store of several log files and several files in a queue, one queue with much, some with little."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(
        root, clock=clock, commit_log_file_bytes=FILE_BYTES, consume_queue_file_bytes=1200, max_index_num=4000
    )
    for number in range(300):
        clock.advance_ms(10)
        topic = TOPICS[number % 7 % 4] if number % 5 else "orders"
        queue_id = number % 3 if number % 2 else 0
        flag = 4 if hidden and number % 50 == 49 else 0
        store.put([message(topic, queue_id, b"x" * (number * 37 % 300), tags="ab"[number % 2], sys_flag=flag)])
        store.dispatch()
    store.close()
    return root


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("units") / "store", hidden=True)


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(filled, tmp_path / "store")
    return tmp_path / "store"


def both(root: Path, **options: str) -> tuple[list[Row], list[Row]]:
    """Rows by units, and the same columns of the rows that the log gives."""
    from_log = [{name: row[name] for name in NAMES} for row in batch(root, **FROM_LOG, **options)]
    return batch(root, **UNITS_ALONE, **options), from_log


CHOICES: list[dict[str, str]] = [
    {},
    {"includeSystemTopics": "true"},
    {"subscribe": "orders"},
    {"subscribe": "payments,%RETRY%group", "brokerName": "broker-a"},
    {"subscribePattern": "pay.*|SCHED.*", "includeSystemTopics": "true"},
    {"queues": '{"orders": [0, 2]}'},
    {"subscribe": "orders", "tags": "a"},
    {"startingTimestamp": "1700000001000"},
    {"startingOffsets": '{"orders": {"b": {"0": 5, "1": -1}}}', "endingOffsets": '{"orders": {"b": {"0": 60}}}'},
    {"subscribe": "orders", "startingOffsets": '{"orders": {"b": {"0": 17}}}'},
    {"batchRows": "7"},
    {"verifyCrc": "true"},
    {"subscribePattern": "none"},
]


@pytest.mark.parametrize("partition_bytes", ["2000", "64m"])
@pytest.mark.parametrize("options", CHOICES)
def test_rows_read_from_queue_units_equal_rows_read_from_the_log(
    filled: Path, options: dict[str, str], partition_bytes: str
) -> None:
    """The order of the rows is the same as well, for all options and sizes of parts."""
    units, log = both(filled, maxPartitionBytes=partition_bytes, **options)
    assert units == log
    assert bool(units) == (options != {"subscribePattern": "none"})


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(topics=frozenset({"orders"})),
        Bounds(queue_id=Range(1, 1), queue_offset=Range(5, 9)),
        Bounds(physical_offset=Range(20_001, 60_001)),
        Bounds(tags=frozenset({"a"})),
        Bounds(store_timestamp_ms=Range(1_700_000_001_000, 1_700_000_002_000)),
    ],
)
def test_a_query_with_a_filter_returns_equal_rows_from_consume_queues_and_the_commit_log(
    filled: Path, bounds: Bounds
) -> None:
    """A query must have the same result, whichever files its columns are read from."""

    def rows(**options: str) -> list[Row]:
        reader = transport(filled, **options)
        return read_parts(
            reader.narrowed(bounds), reader.narrowed(bounds).plan(reader.initial("earliest"), reader.final())
        )

    found = rows(**UNITS_ALONE)
    assert found == [{name: row[name] for name in NAMES} for row in rows(**FROM_LOG)]
    assert found


@pytest.fixture
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding records fails."""

    def fail(*_words: Any, **_more: Any) -> NoReturn:
        raise AssertionError("the log was read")

    monkeypatch.setattr(Decoder, "batches", fail)


@pytest.mark.parametrize("options", [{"subscribe": "orders"}, {"batchRows": "3"}])
def test_the_commit_log_is_not_read_if_queue_units_contain_all_requested_columns(
    tmp_path: Path, options: dict[str, str], no_log: None
) -> None:
    """Units are read for speed; a column that only records hold needs the log."""
    root = fill(tmp_path / "store", hidden=False)
    rows = batch(root, **UNITS_ALONE, **options)
    assert len(rows) > 100
    assert [row["physicalOffset"] for row in rows] == sorted({row["physicalOffset"] for row in rows})
    with pytest.raises(AssertionError, match="the log was read"):
        batch(root, **FROM_LOG, **options)


def test_a_batch_of_rows_read_from_queue_units_is_neither_empty_nor_larger_than_the_row_limit(filled: Path) -> None:
    """A batch is never empty, because Spark would pass it through the query for nothing."""
    reader, parts = planned(filled, **UNITS_ALONE, batchRows="7")
    assert {one.num_rows for part in parts for one in reader.read(part)} <= set(range(1, 8))


def queue_files(root: Path, topic: str, queue_id: int) -> list[Path]:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())


def changed(path: Path, change: Callable[[bytearray], None]) -> None:
    raw = bytearray(path.read_bytes())
    change(raw)
    path.write_bytes(raw)


def lose_a_topic(root: Path) -> None:
    """A deleted topic: its messages stay in the log."""
    shutil.rmtree(root / "consumequeue" / "payments")


def lose_the_end_of_a_queue(root: Path) -> None:
    """What a crash may leave, or a broker that has not got so far."""
    (path,) = queue_files(root, "orders", 0)[-1:]
    changed(path, lambda raw: raw.__setitem__(slice(0, len(raw)), bytes(len(raw))))


def lose_the_oldest_of_a_queue(root: Path) -> None:
    """Queues are cleaned by themselves."""
    queue_files(root, "orders", 0)[0].unlink()


def lose_the_oldest_of_the_log(root: Path) -> None:
    """Units below the queue's minimum lead nowhere."""
    for number in (0, 1):
        (root / "commitlog" / f"{number * FILE_BYTES:020d}").unlink()


def crash(root: Path) -> None:
    """Nothing vouches for the queues then."""
    (root / "abort").touch()


def swap_two_topics(root: Path) -> None:
    """Units of another topic: they fit the log, but their messages are others'."""
    folder = root / "consumequeue"
    (folder / "orders").rename(folder / "swap")
    (folder / "payments").rename(folder / "orders")
    (folder / "swap").rename(folder / "payments")


def name_messages_by_two_queues(root: Path) -> None:
    """Light queues: units that lead to messages of another topic."""
    shutil.copytree(root / "consumequeue" / "payments", root / "consumequeue" / "%LMQ%x")


def name_messages_twice(root: Path) -> None:
    """The same without a name that tells."""
    shutil.copytree(root / "consumequeue" / "payments", root / "consumequeue" / "copied")


def shift_a_queue(root: Path) -> None:
    """A unit too many: all behind it have other queue offsets than their messages say."""
    paths = queue_files(root, "orders", 0)
    raw = b"".join(path.read_bytes() for path in paths)
    size = len(paths[0].read_bytes())
    raw = (raw[: 7 * UNIT_BYTES] + raw[6 * UNIT_BYTES :])[: len(raw)]
    for number, path in enumerate(paths):
        path.write_bytes(raw[number * size : (number + 1) * size])


def change_sizes(root: Path) -> None:
    """Of two messages, so that nothing lies end to end."""

    def change(raw: bytearray) -> None:
        for number in (3, 9):
            position, size, tags = UNIT.unpack_from(raw, number * UNIT_BYTES)
            UNIT.pack_into(raw, number * UNIT_BYTES, position, size + 20 * number, tags)

    changed(queue_files(root, "orders", 0)[0], change)


DAMAGES = [
    lose_a_topic,
    lose_the_end_of_a_queue,
    lose_the_oldest_of_a_queue,
    lose_the_oldest_of_the_log,
    crash,
    swap_two_topics,
    name_messages_by_two_queues,
    name_messages_twice,
    shift_a_queue,
    change_sizes,
]


@pytest.mark.parametrize("gaps_max", [1, 1000])
@pytest.mark.parametrize("damage", DAMAGES)
def test_spark_reads_rows_from_the_commit_log_if_the_consume_queues_are_damaged(
    store: Path, damage: Callable[[Path], None], gaps_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message once, in order, and by its own words."""
    monkeypatch.setattr(unit_rows, "_GAPS_MAX", gaps_max)
    damage(store)
    for options in ({"includeSystemTopics": "true"}, {}, {"includeSystemTopics": "true", "maxPartitionBytes": "3000"}):
        units, log = both(store, **options)
        assert units == log
        assert len(units) > 100
        assert all(before["physicalOffset"] < after["physicalOffset"] for before, after in pairwise(units))


@pytest.mark.parametrize("damage", [swap_two_topics, name_messages_by_two_queues, name_messages_twice, shift_a_queue])
@pytest.mark.parametrize("topics", ["orders", "payments,orders"])
def test_damaged_consume_queues_do_not_change_the_rows_of_selected_topics(
    store: Path, damage: Callable[[Path], None], topics: str
) -> None:
    """Without the other queues nobody sees gaps, but records tell whose they are."""
    damage(store)
    units, log = both(store, subscribe=topics)
    assert units == log


def test_a_read_of_a_light_message_queue_returns_no_rows(store: Path) -> None:
    """Its units name messages of other topics, which would otherwise be read twice."""
    name_messages_by_two_queues(store)
    assert both(store, subscribe="%LMQ%x") == ([], [])


def steps(root: Path) -> Iterator[int]:
    from flintmq.plugins.spark.store.queue_units import list_queues

    for step in unit_rows.merged(list(list_queues(root)), 0, 10**9):
        yield len(step)


def test_queue_units_are_read_in_few_chunks_of_bounded_size(filled: Path) -> None:
    """Memory does not grow with the log, nor does a queue of its own pace make a step of each unit."""
    sizes = list(steps(filled))
    assert sum(sizes) == 294
    assert max(sizes) <= 64 + 12 * 4
    assert len(sizes) <= 294 // 4
