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
def test_nothing_comes_twice_after_a_restart_without_a_broker(
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


def test_what_waited_at_a_broker_that_was_away_is_read_when_it_is_back(cluster: Cluster, query: Query) -> None:
    """It is not lost, so it is no error; and nothing of it is left out."""
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


def test_a_broker_that_goes_away_under_a_running_query_changes_nothing(cluster: Cluster, query: Query) -> None:
    """It comes back with more."""
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
def test_a_planned_batch_waits_for_the_broker_that_has_it(
    cluster: Cluster, query: Query, fail_on_data_loss: str
) -> None:
    """What is planned is not passed over: with its broker away for too long, the batch fails; it is complete later on."""
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


def test_a_topic_deleted_at_one_broker_and_made_again(cluster: Cluster, query: Query) -> None:
    """Queue by queue: those of the other broker go on, and what waited at the first is told."""
    put_to_both(cluster, 40, "first")
    query.start(maxOffsetsPerTrigger="20")
    assert query.plan()
    query.commit()
    cluster.delete_topic(TOPIC)
    cluster.make_topic(TOPIC, 2)
    new = put_to_both(cluster, 70, "new")
    with pytest.raises(DataLossError, match=r"created again, and messages 10 to 39 of before were not read"):
        query.start().read()
    assert Counter(query.start(failOnDataLoss="false").read()) == Counter(new)
    assert query.start(failOnDataLoss="true").read() == []


def test_a_batch_planned_before_its_topic_was_made_again(cluster: Cluster, query: Query) -> None:
    """The driver died after planning; other messages have the same queue offsets now."""
    put_to_both(cluster, 20, "first")
    assert query.plan()
    query.stop()
    cluster.delete_topic(TOPIC)
    cluster.make_topic(TOPIC, 2)
    new = put_to_both(cluster, 50, "new")
    with pytest.raises(DataLossError, match="gone since the batch was planned"):
        query.start().read()
    assert Counter(query.start(failOnDataLoss="false").read()) == Counter(new)


def test_a_checkpoint_of_an_earlier_release_is_read(cluster: Cluster, query: Query) -> None:
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
def test_a_checkpoint_that_was_edited_is_refused(query: Query, change: dict[str, object]) -> None:
    """It is told, and not taken for an empty one."""
    assert not query.plan()
    query.planned[-1] = json.dumps({**json.loads(query.planned[-1]), **change})
    with pytest.raises(CheckpointError, match="checkpoint"):
        query.start().read()
