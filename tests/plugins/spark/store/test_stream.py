"""Micro-batches of a store's files: limits, what a checkpoint may be used for, and what a restart reads."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import attrs
import pytest
from reading import Row, batch, places, read_parts, stream, transport

from flintmq.core.log.epochs import RECOVERED, Epochs, epochs_path
from flintmq.core.record.queue_unit import UNIT
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.spark.errors import CheckpointError, DataLossError
from flintmq.plugins.spark.ports import Limit, Offset
from flintmq.plugins.spark.store import pieces
from flintmq.plugins.spark.store.places import StoreOffset
from flintmq.testing.store import message, open_store


def joined(batches: list[list[Row]]) -> list[Row]:
    return [row for one in batches for row in one]


def put(store: MessageStore, count: int, topic: str = "orders") -> None:
    for number in range(count):
        store.put([message(topic, number % 2, b"x" * (number * 53 % 200))])
    store.dispatch()


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    store = open_store(tmp_path / "store")
    put(store, 60)
    put(store, 20, "payments")
    put(store, 20)
    store.close()
    return tmp_path / "store"


@pytest.mark.parametrize("options", [{}, {"subscribe": "orders"}, {"subscribe": "payments"}])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_every_batch_except_the_last_has_the_maximum_number_of_messages(
    stopped: Path, options: dict[str, str], rows: int
) -> None:
    """maxOffsetsPerTrigger: every batch but the last is full, and together they are all messages once."""
    reader = transport(stopped, **options)
    batches, end = stream(reader, reader.initial("earliest"), Limit(max_rows=rows))
    assert [len(one) for one in batches[:-1]] == [rows] * (len(batches) - 1)
    assert joined(batches) == batch(stopped, **options)
    assert end == reader.latest()


@pytest.mark.parametrize("size", [1, 500, 3000, 10**9])
def test_max_bytes_per_trigger_limits_every_batch_that_has_more_than_one_message(stopped: Path, size: int) -> None:
    """maxBytesPerTrigger; a message larger than it must not stop the query."""
    reader = transport(stopped)
    batches, _end = stream(reader, reader.initial("earliest"), Limit(max_bytes=size))
    assert joined(batches) == batch(stopped)
    for one in batches:
        assert len(one) == 1 or sum(row["storeSize"] for row in one) <= size
    if size == 3000:
        assert len(batches) < 12


@pytest.fixture(params=["no queues", "queues lost their ends", "crashed"])
def half_told(request: pytest.FixtureRequest, stopped: Path) -> Path:
    """A store whose consume queues do not name every message."""
    if request.param == "no queues":
        shutil.rmtree(stopped / "consumequeue")
        return stopped
    end = batch(stopped)[70]["physicalOffset"]
    for path in (stopped / "consumequeue").glob("*/*/*"):
        raw = path.read_bytes()
        kept = [unit for unit in UNIT.iter_unpack(raw) if unit[1] and unit[0] < end]
        path.write_bytes(b"".join(UNIT.pack(*unit) for unit in kept).ljust(len(raw), b"\0"))
    if request.param == "crashed":
        (stopped / "abort").touch()
    return stopped


@pytest.mark.parametrize(("options", "step_bytes"), [({}, 200), ({"subscribePattern": "pay.*"}, 1 << 20)])
@pytest.mark.parametrize("limit", [Limit(max_rows=7), Limit(max_bytes=1500), Limit(9, 600)])
def test_stream_batches_respect_row_and_byte_limits_if_consume_queues_are_incomplete(
    half_told: Path, limit: Limit, options: dict[str, str], step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a log without its queues, or what a crash has left of them: what they do not name is found by walking."""
    monkeypatch.setattr(pieces, "_STEP_BYTES", step_bytes)
    reader = transport(half_told, **options)
    batches, end = stream(reader, reader.initial("earliest"), limit)
    assert joined(batches) == batch(half_told, **options)
    assert len(joined(batches)) == (20 if options else 100)
    assert end == reader.latest()
    for one in batches:
        assert limit.max_rows is None or len(one) <= limit.max_rows
        assert limit.max_bytes is None or len(one) == 1 or sum(row["storeSize"] for row in one) <= limit.max_bytes
    if limit.max_bytes is None:
        assert [len(one) for one in batches[:-1]] == [7] * (len(batches) - 1)
    assert reader.rows_between(reader.initial("earliest"), end, 1000) == len(joined(batches))
    assert 5 <= reader.rows_between(reader.initial("earliest"), end, 5) <= len(joined(batches))


def test_a_stream_reads_each_message_of_a_growing_log_once(tmp_path: Path) -> None:
    """Each message once, in order, while a broker writes."""
    store = open_store(tmp_path)
    try:
        reader = transport(tmp_path)
        at = reader.initial("latest")
        seen = []
        for count in (5, 0, 30, 1):
            put(store, count)
            batches, at = stream(reader, at, Limit(max_rows=8))
            seen += joined(batches)
        assert seen == batch(tmp_path)
        assert len(seen) == 36
    finally:
        store.close()


def test_a_repeated_batch_reads_the_same_rows(stopped: Path) -> None:
    """Spark repeats the last batch after a crash, by the offsets it wrote down; more may lie behind it by then."""
    reader = transport(stopped)
    start = reader.initial("earliest")
    end = reader.limited(start, reader.latest(), Limit(max_rows=10))
    first = read_parts(reader, reader.plan(start, end))
    again = transport(stopped, maxPartitionBytes="700")
    kept_start, kept_end = json.loads(json.dumps([start, end]))
    assert again.checked(kept_start) == kept_start
    assert read_parts(again, again.plan(kept_start, kept_end)) == first


def test_the_row_count_between_two_stream_offsets_includes_only_subscribed_topics(stopped: Path) -> None:
    """minOffsetsPerTrigger counts those that are read."""
    reader = transport(stopped, subscribe="payments")
    start, end = reader.initial("earliest"), reader.latest()
    assert reader.rows_between(start, end, 10**9) == 20
    assert reader.rows_between(start, end, 5) >= 5
    assert reader.rows_between(end, end, 5) == 0


def test_a_restarted_query_still_uses_the_starting_offsets_resolved_at_its_first_start(tmp_path: Path) -> None:
    """ "latest" of a queue is what it was when the query began, not when it was restarted."""
    store = open_store(tmp_path)
    try:
        put(store, 20)
        options = {"startingOffsets": '{"orders": {"b": {"0": -1, "1": 3}}}'}
        reader = transport(tmp_path, **options)
        start = reader.initial("latest")
        put(store, 10)
        batches, at = stream(reader, start, Limit(max_rows=4))
        put(store, 10)
        later, _end = stream(transport(tmp_path, **options), json.loads(json.dumps(at)), Limit())
        seen = places(joined(batches + later))
        assert seen == [place for place in places(batch(tmp_path)) if place[2] >= {0: 10, 1: 3}[place[1]]]
    finally:
        store.close()


def test_a_checkpoint_with_queue_offsets_is_refused_by_a_stream_that_reads_store_files(stopped: Path) -> None:
    """The numbers in a checkpoint of the transport ``broker`` are queue offsets, not positions in the log."""
    reader = transport(stopped)
    wire = {"v": 1, "transport": "broker", "queues": {"orders": {"broker-a": {"0": 3}}}}
    for use in (reader.checked, lambda offset: reader.plan(offset, offset)):
        with pytest.raises(CheckpointError, match=r"transport 'broker'.*checkpointLocation"):
            use(wire)


@pytest.mark.parametrize("offset", [{"v": 2}, {"phys": "7"}, {"phys": -1}, {"phys": True}])
def test_a_malformed_checkpoint_offset_is_refused(stopped: Path, offset: dict[str, object]) -> None:
    """A later version's, or a file that somebody edited."""
    with pytest.raises(CheckpointError, match="checkpoint"):
        transport(stopped).checked({"v": 1, "transport": "store", "phys": 0, **offset})


def epochs_of(root: Path) -> Epochs:
    return Epochs.from_bytes(epochs_path(root).read_bytes())


def test_a_checkpoint_of_another_store_or_of_a_truncated_part_of_the_log_is_refused(stopped: Path) -> None:
    """Another id; a log that was cut below the checkpoint and written anew; an epoch that was cut off altogether."""
    reader = transport(stopped)
    latest = reader.latest()
    epochs = epochs_of(stopped)
    assert latest["store"] == epochs.store_id
    assert reader.checked(latest) == latest
    with pytest.raises(CheckpointError, match="belongs to the store with id 00"):
        reader.checked({**latest, "store": "00" * 16})
    epochs_path(stopped).write_bytes(epochs.begun(latest["phys"] - 500, RECOVERED).to_bytes())
    for use in (reader.checked, lambda offset: reader.limited(offset, offset, Limit())):
        with pytest.raises(CheckpointError, match="a crash cut the log at"):
            use(latest)
    before = {**latest, "phys": latest["phys"] - 500}
    assert reader.checked(before) == before
    with pytest.raises(CheckpointError, match="in an epoch that the log no longer has"):
        reader.checked({**latest, "epoch": "00" * 8})


def test_a_checkpoint_beyond_the_end_of_the_log_is_refused(stopped: Path) -> None:
    """A store without ids that is not the one the query read: the Java broker's."""
    epochs_path(stopped).unlink()
    reader = transport(stopped)
    latest = reader.latest()
    assert "store" not in latest
    with pytest.raises(CheckpointError, match="the log ends at"):
        reader.checked({**latest, "phys": latest["phys"] + 1})


def test_messages_deleted_after_a_checkpoint_are_reported_as_data_loss(stopped: Path) -> None:
    """An error by default; else on with the oldest there is."""
    reader = transport(stopped)
    start = reader.initial("earliest")
    (stopped / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(DataLossError, match=r"retention has.*failOnDataLoss=false"):
        reader.checked(start)
    lenient = transport(stopped, failOnDataLoss="false")
    moved = lenient.checked(start)
    assert moved["phys"] == 4096
    batches, _end = stream(lenient, moved, Limit())
    assert joined(batches) == batch(stopped)


# --- what retention deletes while the history of an added topic is read ---

BOTH = "orders,payments"
FIVE = Limit(max_rows=5)


def expire(root: Path) -> None:
    """Retention deletes the oldest file of the log, and leaves the consume queues."""
    (root / "commitlog" / f"{0:020d}").unlink()


def places_of(root: Path) -> list[tuple[str, int, int]]:
    """The messages of the added topic."""
    return places(batch(root, subscribe="orders"))


@pytest.fixture
def caught_up(stopped: Path) -> Offset:
    """Where a query stands that has read one topic to its end; the messages of the other one lie before."""
    reader = transport(stopped, subscribe="payments")
    return stream(reader, reader.initial("earliest"), Limit())[1]


def test_data_loss_is_reported_if_retention_deletes_unread_messages_of_a_newly_subscribed_topic(
    stopped: Path, caught_up: Offset
) -> None:
    """The reader goes on without a restart: an error by default, else on with the oldest there is."""
    reader = transport(stopped, subscribe=BOTH)
    start = reader.limited(caught_up, reader.latest(), FIVE)
    first = places(read_parts(reader, reader.plan(caught_up, start)))
    expire(stopped)
    end = reader.limited(start, reader.latest(), FIVE)
    with pytest.raises(DataLossError, match=r"no file for .* to 4096.*failOnDataLoss=false"):
        reader.plan(start, end)
    batches, _end = stream(transport(stopped, subscribe=BOTH, failOnDataLoss="false"), start, FIVE)
    assert [len(one) for one in batches[:-1]] == [5] * (len(batches) - 1)
    assert len(first) == 5
    assert places(joined(batches)) == places_of(stopped)


def test_data_loss_is_reported_if_retention_deletes_all_messages_of_a_newly_subscribed_topic(tmp_path: Path) -> None:
    """Messages of the added topic lie in the first file alone: no later batch would come across the loss."""
    root = tmp_path / "store"
    with contextlib.closing(open_store(root)) as store:
        put(store, 10)
        put(store, 60, "payments")
    reader = transport(root, subscribe="payments")
    start = stream(reader, reader.initial("earliest"), Limit())[1]
    reader = transport(root, subscribe=BOTH)
    middle = reader.limited(start, reader.latest(), FIVE)
    expire(root)
    with pytest.raises(DataLossError, match="no file for"):
        reader.plan(middle, reader.limited(middle, reader.latest(), FIVE))
    lenient = transport(root, subscribe=BOTH, failOnDataLoss="false")
    batches, end = stream(lenient, middle, FIVE)
    assert joined(batches) == []
    assert transport(root, subscribe=BOTH).checked(end) == end  # it is told once


def test_data_loss_is_reported_if_retention_deletes_messages_of_an_already_planned_batch(
    stopped: Path, caught_up: Offset
) -> None:
    """The driver died before it was read, also when the batch is the history's first."""
    reader = transport(stopped, subscribe=BOTH)
    end = reader.limited(caught_up, reader.latest(), FIVE)
    expire(stopped)
    for options in (BOTH, "payments"):  # what was planned counts, not what the options say now
        with pytest.raises(DataLossError, match="no file for 0 to"):
            transport(stopped, subscribe=options).plan(caught_up, end)
    lenient = transport(stopped, subscribe=BOTH, failOnDataLoss="false")
    assert read_parts(lenient, lenient.plan(caught_up, end)) == []


def test_a_planned_batch_reports_data_loss_of_topics_that_are_no_longer_subscribed(stopped: Path) -> None:
    """A batch of two topics is planned, only one of them is asked for since, and the other's messages are gone."""
    reader = transport(stopped, subscribe=BOTH)
    start = reader.initial("earliest")
    end = reader.limited(start, reader.latest(), FIVE)
    expire(stopped)
    with pytest.raises(DataLossError, match="no file for 0 to"):
        transport(stopped, subscribe="payments").plan(start, end)


def test_a_newly_subscribed_topic_is_read_from_its_oldest_existing_message(stopped: Path, caught_up: Offset) -> None:
    """Messages deleted before the topic was added are no loss to the query."""
    expire(stopped)
    reader = transport(stopped, subscribe=BOTH)
    batches, end = stream(reader, caught_up, FIVE)
    assert places(joined(batches)) == places_of(stopped)
    assert transport(stopped, subscribe=BOTH).checked(end) == end


@pytest.mark.parametrize("is_known", [False, True])
def test_data_loss_is_reported_only_for_topics_that_the_query_read_before(tmp_path: Path, is_known: bool) -> None:
    """A query reads one topic, another one in its place, then the first one again and one that is new to it."""
    root = tmp_path / "store"
    with contextlib.closing(open_store(root)) as store:
        put(store, 5, "payments")
        reader = transport(root, subscribe="payments")
        _batches, start = stream(reader, reader.initial("earliest"), Limit())
        for topic, count in (("payments", 5 if is_known else 0), ("orders", 60), ("refunds", 1)):
            put(store, count, topic)
    reader = transport(root, subscribe="refunds")
    _batches, start = stream(reader, start, Limit())
    expire(root)
    reader = transport(root, subscribe=BOTH)
    if is_known:
        with pytest.raises(DataLossError, match="this query left out"):
            reader.checked(start)
        return
    assert reader.checked(start) == start
    batches, _end = stream(reader, start, FIVE)
    assert places(joined(batches)) == places_of(root)


def test_data_loss_in_an_unsubscribed_topic_is_reported_if_a_query_subscribes_to_the_topic_again(
    tmp_path: Path,
) -> None:
    """A query leaves a topic out, retention deletes unread messages of it, and the query goes on behind them."""
    root = tmp_path / "store"
    with contextlib.closing(open_store(root)) as store:
        put(store, 5)
        put(store, 5, "payments")
        reader = transport(root, subscribe=BOTH)
        _batches, start = stream(reader, reader.initial("earliest"), Limit())
        put(store, 60)
        put(store, 10, "payments")
    expire(root)
    reader = transport(root, subscribe="payments")
    batches, end = stream(reader, reader.checked(start), Limit())
    assert len(joined(batches)) == 10
    with pytest.raises(DataLossError, match="this query left out"):
        transport(root, subscribe=BOTH).checked(end)
    lenient = transport(root, subscribe=BOTH, failOnDataLoss="false")
    batches, end = stream(lenient, lenient.checked(end), FIVE)
    assert places(joined(batches)) == places_of(root)
    assert transport(root, subscribe=BOTH).checked(end) == end  # it is told once


def test_a_stream_can_repeat_a_batch_whose_offsets_were_written_by_an_old_flintmq_version(
    stopped: Path, caught_up: Offset
) -> None:
    """Its batch reads what there is."""
    reader = transport(stopped, subscribe=BOTH)
    end = reader.limited(caught_up, reader.latest(), FIVE)
    expected = read_parts(reader, reader.plan(caught_up, end))
    assert end.pop("historyFrom") == 0
    assert read_parts(reader, reader.plan(caught_up, end)) == expected
    expire(stopped)
    assert read_parts(reader, reader.plan(caught_up, end)) == []


def test_a_stream_offset_survives_conversion_to_json_and_back() -> None:
    """Spark stores offsets as JSON; a field lost on the way would change the next batch."""
    offset = StoreOffset(123, "ab" * 16, "cd" * 8, {"t": {"0": 5}})
    assert StoreOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert offset.moved_to(200, None).queue_starts == {"t": {"0": 5}}
    history = attrs.evolve(offset, history_from=0)
    assert StoreOffset.from_json(json.loads(json.dumps(history.to_json()))) == history
