"""What files tell of a store without asking its broker: its broker's name, and how far a read is behind."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from reading import batch, transport
from served import Served

from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.store.topic_table import broker_name_of, topic_table

TOPIC = "orders"
PLAIN = ReadOptions.parse({"path": "/s"})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A stopped store with three messages, and one of another topic before them."""
    with Served(tmp_path, "broker.name=broker-x", "dispatchers=consume_queue,index,spark_feed") as served:
        served.create_topic(TOPIC)
        served.create_topic("other")
        served.send("other", [b"o"])
        served.send(TOPIC, [b"a", b"b", b"c"])
    return tmp_path / "store"


def test_rows_contain_the_broker_name_found_in_the_store_unless_an_option_overrides_the_name(store: Path) -> None:
    """Rows of two stores must be distinguishable without an option, as over the wire and in a landing zone."""
    assert {row["brokerName"] for row in batch(store)} == {"broker-x"}
    assert {row["brokerName"] for row in batch(store, brokerName="named")} == {"named"}


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"TBW102": (7, 8), "DefaultCluster": (7, 16), "b": (7, 1), "T": (6, 1)}, "b"),
        ({"TBW102": (7, 1), "DefaultCluster": (1, 16), "b": (1, 1)}, "b"),
        ({"DefaultCluster": (7, 16), "b": (7, 1), "renamed": (7, 1)}, None),
        ({"T": (6, 1)}, None),
    ],
)
def test_the_broker_name_is_read_from_the_system_topic_that_is_named_after_the_broker(
    tmp_path: Path, table: dict[str, tuple[int, int]], name: str | None
) -> None:
    """The Java broker's table has the same entries; what is not certain is not said."""
    configs = {topic: {"topicName": topic, "perm": perm, "readQueueNums": n} for topic, (perm, n) in table.items()}
    file = tmp_path / "config" / "topics.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"topicConfigTable": configs}))
    assert broker_name_of(tmp_path, PLAIN) == name


def test_a_store_without_configuration_has_no_broker_name(tmp_path: Path) -> None:
    """A copy of a log alone is read all the same."""
    assert (topic_table(tmp_path), broker_name_of(tmp_path, PLAIN)) == ({}, None)


def test_the_lag_of_a_stream_counts_only_the_chosen_topics(store: Path) -> None:
    """Messages of the topics that are read, bytes of the log, and how long the oldest has waited."""
    one = transport(store, subscribe=TOPIC)
    start, end = one.initial("earliest"), one.settled()
    told = one.reported(start, end)
    assert told["lag"]["messages"] == 3
    assert told["lag"]["bytes"] == end["phys"] - start["phys"]
    assert 0 <= told["lag"]["ms"] < 600_000
    assert told["brokers"] == {"broker-x": {"contactAgeMs": None}}  # it has stopped
    assert one.reported(end, end)["lag"] == {"messages": 0, "bytes": 0, "ms": 0}


def test_the_progress_of_a_stream_shows_how_long_ago_the_broker_wrote_its_feed_file(tmp_path: Path) -> None:
    """A broker that hangs is seen in the progress of the queries that read its files."""
    with Served(tmp_path, "dispatchers=consume_queue,index,spark_feed") as served:
        served.create_topic(TOPIC)
        served.send(TOPIC, [b"a"])
        one = transport(tmp_path / "store", subscribe=TOPIC)
        before = time.monotonic()
        age_ms = one.reported(one.latest(), one.latest())["brokers"]["broker-a"]["contactAgeMs"]
        assert 0 <= age_ms <= 2_000 + (time.monotonic() - before) * 1000
