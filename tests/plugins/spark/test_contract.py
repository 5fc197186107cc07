"""The contract of a stream: what holds over the wire holds by files, and the other way round. Each rule is in docs/spark.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark_cluster import FIRST, Cluster, Query

from flintmq.plugins.spark.errors import DataLossError, OptionError, OutOfRangeError, UnknownTopicError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.source import BatchReader, transport_of

TOPIC = "orders"
Start = Callable[..., Query]


def bodies(count: int, name: str = "m") -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One broker, whose files say what consumers see."""
    with Cluster(tmp_path, "dispatchers=consume_queue,index") as one:
        yield one


@pytest.fixture(params=["files", "wire"])
def address(request: pytest.FixtureRequest, cluster: Cluster) -> dict[str, str]:
    """The options that say where a query reads."""
    if request.param == "files":
        return {"path": str(cluster.store()), "visibility": "dispatched", "brokerName": FIRST}
    return {"nameServer": cluster.namesrv}


@pytest.fixture
def query(address: dict[str, str]) -> Iterator[Start]:
    """Makes queries of :data:`TOPIC` from its beginning, and stops them."""
    made: list[Query] = []

    def make(**options: str) -> Query:
        chosen = {} if "subscribePattern" in options else {"subscribe": TOPIC}
        one = Query(**address, **{**chosen, "startingOffsets": "earliest", **options})
        made.append(one)
        return one.start()

    yield make
    for one in made:
        one.stop()


def batch(address: dict[str, str], **options: str) -> list[bytes]:
    """The bodies of a batch read."""
    parsed = ReadOptions.parse({**address, "subscribe": TOPIC, **options})
    reader = BatchReader(transport_of(parsed))
    return [body for part in reader.partitions() for one in reader.read(part) for body in one.to_pydict()["body"]]


def queue_ids(cluster: Cluster, count: int = 4, each: int = 100) -> list[bytes]:
    """A topic with so many queues, and so many messages in each."""
    cluster.make_topic(TOPIC, count)
    return [body for number in range(count) for body in cluster.put(TOPIC, bodies(each, f"q{number}-"), number)]


def reads(query: Query, *expected: list[bytes]) -> bool:
    """Whether a query reads just these messages, each once."""
    return same(query.read(), [body for some in expected for body in some])


def same(found: list[bytes], expected: list[bytes]) -> bool:
    """Whether each message came once, in whatever order."""
    return Counter(found) == Counter(expected)


# --- queues and topics that come and go ---


def test_a_restarted_query_reads_a_recreated_topic_from_its_first_message(cluster: Cluster, query: Start) -> None:
    """Fewer messages than were read of the one before, as many, or more: all of them come."""
    for count in (30, 50, 80):
        cluster.make_topic(TOPIC, 1)
        old = cluster.put(TOPIC, bodies(50, f"old{count}-"))
        one = query()
        assert same(one.read(), old)
        cluster.delete_topic(TOPIC)
        cluster.make_topic(TOPIC, 1)
        new = cluster.put(TOPIC, bodies(count, f"new{count}-"))
        assert same(one.start().read(), new), count
        assert one.start().read() == []
        cluster.delete_topic(TOPIC)


def test_a_running_query_reads_a_recreated_topic_from_its_first_message(cluster: Cluster, query: Start) -> None:
    """Nobody restarts the query: the next batch has what the topic has now."""
    cluster.make_topic(TOPIC, 1)
    expected = cluster.put(TOPIC, bodies(50, "old"))
    one = query()
    found = one.read()
    for count in (80, 20):
        cluster.delete_topic(TOPIC)
        found += one.read()
        cluster.make_topic(TOPIC, 1)
        expected += cluster.put(TOPIC, bodies(count, f"new{count}-"))
        found += one.read()
    assert same(found, expected)


def test_starting_offsets_do_not_apply_to_a_recreated_topic(cluster: Cluster, query: Start) -> None:
    """startingOffsets at 100, 50 read, the topic made again: its messages are not those before 100."""
    cluster.make_topic(TOPIC, 1)
    old = cluster.put(TOPIC, bodies(150, "old"))
    one = query(startingOffsets=json.dumps({TOPIC: {FIRST: {"0": 100}}}))
    assert same(one.read(), old[100:])
    cluster.delete_topic(TOPIC)
    cluster.make_topic(TOPIC, 1)
    assert reads(one.start(), cluster.put(TOPIC, bodies(80, "new")))


def test_a_topic_recreated_before_the_first_batch_is_read_completely(cluster: Cluster, query: Start) -> None:
    """The query stood at 50 of a topic of which nothing was read yet."""
    cluster.make_topic(TOPIC, 1)
    cluster.put(TOPIC, bodies(50, "old"))
    one = query(startingOffsets=json.dumps({TOPIC: {FIRST: {"0": -1}}}))
    assert one.read() == []
    cluster.delete_topic(TOPIC)
    cluster.make_topic(TOPIC, 1)
    assert reads(one.start(), cluster.put(TOPIC, bodies(60, "new")))


def test_each_message_of_a_topic_that_loses_and_regains_queues_is_read_exactly_once(
    cluster: Cluster, query: Start
) -> None:
    """8 queues, 2, and 8 again: what was in the other six was read, and is not read anew."""
    expected = queue_ids(cluster, 8, 50)
    one = query()
    assert same(one.read(), expected)
    cluster.make_topic(TOPIC, 2)
    more = cluster.put(TOPIC, bodies(20, "two"), 1)
    assert same(one.start().read(), more)
    cluster.make_topic(TOPIC, 8)
    grown = [body for number in range(8) for body in cluster.put(TOPIC, bodies(10, f"grown{number}-"), number)]
    assert same(one.start().read(), grown)
    assert same(one.bodies, expected + more + grown)


def test_a_query_continues_after_one_of_two_topics_is_deleted(cluster: Cluster, query: Start) -> None:
    """It was read to its end: no error, and the other one is read on; also when the option still names it."""
    cluster.make_topic(TOPIC, 1)
    cluster.make_topic("other", 1)
    expected = cluster.put(TOPIC, bodies(20)) + cluster.put("other", bodies(20, "o"))
    one = query(subscribe=f"{TOPIC},other")
    assert same(one.read(), expected)
    cluster.delete_topic("other")
    more = cluster.put(TOPIC, bodies(20, "more"))
    assert same(one.start().read(), more)
    assert one.start().read() == []


@pytest.mark.parametrize("kind", ["deleted", "shrunk"])
def test_a_planned_batch_of_a_deleted_topic_is_skipped_if_data_loss_is_allowed(
    cluster: Cluster, query: Start, kind: str, request: pytest.FixtureRequest
) -> None:
    """The driver died between planning and writing, and the topic is gone: with failOnDataLoss=false the query goes on.

    By files a queue that a topic has no more is read all the same: the log has it.
    """
    cluster.make_topic(TOPIC, 2)
    cluster.make_topic("other", 2)
    kept, gone = cluster.put(TOPIC, bodies(20)), cluster.put("other", bodies(20, "o"), 1)
    one = query(subscribe=f"{TOPIC},other")
    assert one.plan()
    one.stop()
    if kind == "deleted":
        cluster.delete_topic("other")
    else:
        cluster.make_topic("other", 1)
    over_the_wire = "nameServer" in one.options
    if over_the_wire:
        with pytest.raises(DataLossError, match=r"other.*does not exist any more.*failOnDataLoss"):
            one.start().read()
    one.start(failOnDataLoss="false")
    expected = kept if over_the_wire or kind == "deleted" else kept + gone
    assert same(one.read(), expected)
    assert same(one.start(failOnDataLoss="true").read(), [])


def test_messages_stored_before_a_topic_was_added_to_a_query_are_read(cluster: Cluster, query: Start) -> None:
    """Messages sent before the query knew the topic come once, in batches of the usual size."""
    for topic in (TOPIC, "other", "third"):
        cluster.make_topic(topic, 2)
    first = cluster.put(TOPIC, bodies(30))
    history = cluster.put("other", bodies(30, "other"), 1)
    one = query(maxOffsetsPerTrigger="8")
    assert same(one.read(), first)
    more = cluster.put(TOPIC, bodies(5, "more"))
    assert same(one.start(subscribe=f"{TOPIC},other").read(), history + more)
    assert max(len(rows) for rows in one.sink.values()) <= 8
    assert one.start().read() == []
    latest = cluster.put("other", bodies(5, "late")) + cluster.put("third", bodies(5, "third"))
    assert same(one.start(subscribe=None, subscribePattern=".*").read(), latest)
    assert one.start().read() == []


def test_a_query_that_subscribes_to_a_topic_again_continues_where_it_stopped_reading_the_topic(
    cluster: Cluster, query: Start
) -> None:
    """No message before that offset comes again, and none that was sent meanwhile is lost."""
    for topic in (TOPIC, "other"):
        cluster.make_topic(topic, 1)
    expected = cluster.put(TOPIC, bodies(10)) + cluster.put("other", bodies(10, "o"))
    one = query(subscribe=f"{TOPIC},other")
    one.read()
    expected += cluster.put(TOPIC, bodies(10, "later")) + cluster.put("other", bodies(10, "o-later"))
    one.start(subscribe=TOPIC).read()
    expected += cluster.put("other", bodies(10, "o-last"))
    one.start(subscribe=f"{TOPIC},other").read()
    assert same(one.bodies, expected)


def test_messages_stored_before_a_queue_was_added_to_a_query_are_read(cluster: Cluster, query: Start) -> None:
    """The option queues names one of two, then both."""
    cluster.make_topic(TOPIC, 2)
    expected = cluster.put(TOPIC, bodies(20, "zero"), 0) + cluster.put(TOPIC, bodies(20, "one"), 1)
    one = query(queues=json.dumps({TOPIC: [0]}))
    assert same(one.read(), expected[:20])
    assert same(one.start(queues=json.dumps({TOPIC: [0, 1]})).read(), expected[20:])
    assert reads(one.start(queues=None), cluster.put(TOPIC, bodies(5), 1))


def test_a_read_of_an_unknown_topic_is_an_error(cluster: Cluster, query: Start) -> None:
    """A misspelled name must be found at the start of a query, and when it is added to a checkpoint."""
    cluster.make_topic(TOPIC, 1)
    cluster.put(TOPIC, bodies(1))  # the files know of a topic once its broker has written its table
    with pytest.raises(UnknownTopicError, match="odrers"):
        query(subscribe="odrers").read()
    one = query()
    one.read()
    with pytest.raises(UnknownTopicError, match="odrers"):
        one.start(subscribe=f"{TOPIC},odrers").read()


def test_a_stream_reads_a_later_created_topic_that_matches_its_pattern(cluster: Cluster, query: Start) -> None:
    """The topic that comes is read from its first message, whatever startingOffsets said."""
    cluster.make_topic("another", 1)
    cluster.put("another", bodies(3))
    for start in ("latest", "earliest"):
        topic = f"new-{start}"
        one = query(subscribePattern=f"{topic}.*", startingOffsets=start)
        assert one.read() == []
        cluster.make_topic(topic, 2)
        assert reads(one, cluster.put(topic, bodies(10), 1))


def test_a_batch_read_has_no_rows_if_no_topic_matches_its_pattern(cluster: Cluster, address: dict[str, str]) -> None:
    """A missing match must not be an error, because the topic may be created later."""
    cluster.make_topic(TOPIC, 1)
    cluster.put(TOPIC, bodies(3))
    reader = BatchReader(transport_of(ReadOptions.parse({**address, "subscribePattern": "nothing.*"})))
    assert [one for part in reader.partitions() for one in reader.read(part)] == []


# --- where reading begins and ends ---


@pytest.mark.parametrize(("default", "count"), [("latest", 100), ("earliest", 400)])
def test_queues_without_a_starting_offset_are_read_from_the_default_offset(
    cluster: Cluster, address: dict[str, str], default: str, count: int
) -> None:
    """startingOffsets names one queue of four: the others begin at the latest in a stream, at the earliest in a batch."""
    sent = queue_ids(cluster)
    start = json.dumps({TOPIC: {FIRST: {"0": 0}}})
    if default == "earliest":
        assert same(batch(address, startingOffsets=start), sent)
        return
    one = Query(**address, subscribe=TOPIC, startingOffsets=start).start()
    assert same(one.read(), sent[:count])
    assert reads(one, cluster.put(TOPIC, bodies(7, "later"), 3))
    one.stop()


@pytest.mark.parametrize("place", ['{"orders": {"broker-a": {"0": 999}}}', '{"orders": {"broker-a": {"1": 5}}}'])
def test_a_starting_offset_out_of_range_is_an_error_unless_data_loss_is_allowed(
    cluster: Cluster, query: Start, place: str
) -> None:
    """An error that names the option; with failOnDataLoss=false the nearest place there is."""
    cluster.make_topic(TOPIC, 2)
    cluster.put(TOPIC, bodies(50))
    with pytest.raises(OutOfRangeError, match=r"startingOffsets.*queue [01].*failOnDataLoss"):
        query(startingOffsets=place).read()
    one = query(startingOffsets=place, failOnDataLoss="false")
    assert one.read() == []
    assert reads(one, cluster.put(TOPIC, bodies(3, "new"), 0), cluster.put(TOPIC, bodies(3, "one"), 1))


@pytest.mark.parametrize("place", ['{"orders": {"broker-a": {"0": 999}}}'])
def test_an_ending_offset_out_of_range_is_an_error_unless_data_loss_is_allowed(
    cluster: Cluster, address: dict[str, str], place: str
) -> None:
    """The error names the option; with ``failOnDataLoss=false`` the batch ends at the nearest offset."""
    cluster.make_topic(TOPIC, 1)
    sent = cluster.put(TOPIC, bodies(50))
    with pytest.raises(OutOfRangeError, match=r"endingOffsets.*queue 0.*failOnDataLoss"):
        batch(address, endingOffsets=place)
    assert same(batch(address, endingOffsets=place, failOnDataLoss="false"), sent)


@pytest.mark.parametrize("option", [{"endingOffsets": "latest"}, {"endingTimestamp": "1700000000000"}])
def test_a_streaming_query_with_an_end_offset_or_an_end_timestamp_is_refused(
    query: Start, option: dict[str, str]
) -> None:
    """An ending that is ignored, or that drops rows for ever, is refused before anything is read."""
    with pytest.raises(OptionError, match=f"option {next(iter(option))} .*batch"):
        query(**option)


# --- batches ---


def test_new_messages_of_a_topic_outside_the_query_cause_no_empty_batches(cluster: Cluster, query: Start) -> None:
    """Empty queues, new topics and other queues of the topic must make no empty batch either."""
    cluster.make_topic(TOPIC, 2)
    cluster.make_topic("busy", 1)
    first = cluster.put(TOPIC, bodies(2, "first"))
    one = query()
    assert same(one.read(), first)
    for number in range(10):
        cluster.put("busy", bodies(20, f"b{number}-"))
        assert not one.plan()
    cluster.make_topic(TOPIC, 4)
    assert not one.plan()
    assert reads(one, cluster.put(TOPIC, bodies(3), 3))
    one.start()
    cluster.put("busy", bodies(20, "last"))
    assert not one.plan()
    assert all(one.sink.values())


def test_a_query_with_trigger_available_now_reads_only_messages_stored_before_its_start(
    cluster: Cluster, query: Start
) -> None:
    """Later messages are left for the next run, and the batches keep their limit."""
    first = queue_ids(cluster, 2, 30)
    one = query(maxOffsetsPerTrigger="7").start(available_now=True)
    assert one.plan()
    later = cluster.put(TOPIC, bodies(10, "later"))
    assert same(one.read(), first)
    assert same(one.start(available_now=True).read(), later)
    assert max(map(len, one.sink.values())) <= 7


def test_a_planned_batch_keeps_its_rows_after_options_changed(cluster: Cluster, query: Start) -> None:
    """The rows that the new options add come in later batches."""
    for topic in (TOPIC, "other"):
        cluster.make_topic(topic, 1)
    expected = cluster.put(TOPIC, bodies(20)) + cluster.put("other", bodies(20, "o"))
    one = query()
    assert one.plan()
    assert same(one.start(subscribe=f"{TOPIC},other").read(), expected)
    assert same([row["body"] for row in one.sink[0]], expected[:20])


def test_the_option_batch_bytes_limits_the_decompressed_size_of_each_batch(
    cluster: Cluster, address: dict[str, str]
) -> None:
    """Thirty bodies of a megabyte which zlib makes a kilobyte."""
    cluster.make_topic(TOPIC, 1)
    cluster.put(TOPIC, [bytes(1 << 20)] * 30, compress_over_bytes=1024)
    reader = BatchReader(transport_of(ReadOptions.parse({**address, "subscribe": TOPIC, "batchBytes": "4m"})))
    sizes = [one.nbytes for part in reader.partitions() for one in reader.read(part)]
    assert sum(sizes) > 30 << 20
    assert max(sizes) < 5 << 20
