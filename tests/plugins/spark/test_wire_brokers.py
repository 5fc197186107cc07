"""Streams over the wire from two brokers, one of which goes away and comes back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark_cluster import FIRST, Cluster, Query

from flintmq.plugins.spark.errors import CheckpointError, DataLossError, SparkPluginError

TOPIC = "orders"
SECOND = "broker-b"


def bodies(count: int, name: str) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, names=(FIRST, SECOND)) as one:
        one.make_topic(TOPIC, 2)
        yield one


@pytest.fixture
def query(cluster: Cluster) -> Iterator[Query]:
    one = Query(nameServer=cluster.namesrv, subscribe=TOPIC, startingOffsets="earliest").start()
    yield one
    one.stop()


def put_to_both(cluster: Cluster, count: int, name: str) -> list[bytes]:
    """So many messages to a queue of each broker."""
    return [
        body for broker in (FIRST, SECOND) for body in cluster.put(TOPIC, bodies(count, name + broker), name=broker)
    ]


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_restarting_a_spark_query_while_a_broker_is_down_repeats_no_message(
    cluster: Cluster, query: Query, fail_on_data_loss: str
) -> None:
    """Its queues are in no route while it is away; they keep their places, and go on there when it is back."""
    expected = put_to_both(cluster, 100, "first")
    assert Counter(query.read()) == Counter(expected)
    query.stop()
    cluster.away(SECOND)
    expected += cluster.put(TOPIC, bodies(50, "alone"))
    assert len(query.start(failOnDataLoss=fail_on_data_loss).read()) == 50
    assert query.start().read() == []
    cluster.back(SECOND)
    expected += put_to_both(cluster, 10, "back")
    query.start().read()
    assert Counter(query.bodies) == Counter(expected)


def test_a_spark_query_reads_the_unread_messages_of_a_broker_after_the_broker_is_up_again(
    cluster: Cluster, query: Query
) -> None:
    """They were not lost while it was down, so there is no error and none is left out."""
    expected = put_to_both(cluster, 100, "first")
    query.start(maxOffsetsPerTrigger="60")
    assert query.plan()
    query.commit()
    cluster.away(SECOND)
    query.start().read()
    assert len(query.bodies) == 130
    cluster.back(SECOND)
    query.start().read()
    assert Counter(query.bodies) == Counter(expected)


def test_a_running_query_survives_a_restart_of_a_broker(cluster: Cluster, query: Query) -> None:
    """The broker comes back with more messages, and each of them must be read once."""
    expected = put_to_both(cluster, 20, "first")
    query.read()
    for number in range(3):
        cluster.away(SECOND)
        expected += cluster.put(TOPIC, bodies(5, f"alone{number}-"))
        query.read()
        cluster.back(SECOND)
        expected += put_to_both(cluster, 5, f"both{number}-")
        query.read()
    assert Counter(query.bodies) == Counter(expected)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_planned_batch_fails_while_its_broker_is_down_and_is_complete_when_repeated_later(
    cluster: Cluster, query: Query, fail_on_data_loss: str
) -> None:
    """If the broker is down for too long, the batch fails, and it is complete when it is repeated later."""
    expected = put_to_both(cluster, 20, "first")
    assert query.start(failOnDataLoss=fail_on_data_loss).plan()
    query.stop()
    cluster.away(SECOND)
    query.start(maxBrokerAway="0s")
    with pytest.raises(SparkPluginError, match=SECOND) as failure:
        query.read()
    assert not isinstance(failure.value, DataLossError)
    cluster.back(SECOND)
    query.start().read()
    assert Counter(query.bodies) == Counter(expected)


def test_unread_messages_of_a_topic_recreated_at_one_broker_are_reported_as_data_loss(
    cluster: Cluster, query: Query
) -> None:
    """The queues at the other broker are read on as before."""
    put_to_both(cluster, 40, "first")
    query.start(maxOffsetsPerTrigger="20")
    assert query.plan()
    query.commit()
    cluster.delete_topic(TOPIC)
    cluster.make_topic(TOPIC, 2)
    new = put_to_both(cluster, 70, "new")
    with pytest.raises(DataLossError, match=r"created again, and its earlier messages 10 to 39 were not read"):
        query.start().read()
    assert Counter(query.start(failOnDataLoss="false").read()) == Counter(new)
    assert query.start(failOnDataLoss="true").read() == []


def test_a_query_fails_with_a_data_loss_error_if_its_topic_was_deleted_and_created_again(
    cluster: Cluster, query: Query
) -> None:
    """The new messages have the same queue offsets as those that were planned."""
    put_to_both(cluster, 20, "first")
    assert query.plan()
    query.stop()
    cluster.delete_topic(TOPIC)
    cluster.make_topic(TOPIC, 2)
    new = put_to_both(cluster, 50, "new")
    with pytest.raises(DataLossError, match="gone since the batch was planned"):
        query.start().read()
    assert Counter(query.start(failOnDataLoss="false").read()) == Counter(new)


def test_a_spark_query_continues_from_a_checkpoint_that_an_earlier_flintmq_release_wrote(
    cluster: Cluster, query: Query
) -> None:
    """It has places alone: they are kept, and what cannot be known is an error as it was."""
    first = put_to_both(cluster, 30, "first")
    assert Counter(query.read()) == Counter(first)
    old = json.loads(query.planned[-1])
    old = {name: old[name] for name in ("v", "transport", "queues")}
    query.planned[-1] = json.dumps(old)
    more = put_to_both(cluster, 5, "more")
    assert Counter(query.start().read()) == Counter(more)
    old["queues"][TOPIC][FIRST]["7"] = 3
    query.planned[-1] = json.dumps(old)
    with pytest.raises(CheckpointError, match=r"queue 7 .* does not exist any more"):
        query.start().read()


@pytest.mark.parametrize(
    "change",
    [{"queues": 5}, {"seen": [1]}, {"seen": {"orders": {FIRST: "x"}}}, {"waiting": {"orders": {FIRST: {"x": 1}}}}],
)
def test_a_checkpoint_with_malformed_fields_is_refused(query: Query, change: dict[str, object]) -> None:
    """It must not be taken for an empty checkpoint."""
    assert not query.plan()
    query.planned[-1] = json.dumps({**json.loads(query.planned[-1]), **change})
    with pytest.raises(CheckpointError, match="checkpoint"):
        query.start().read()
