"""``--dry-run`` finds what lies outside of the file: folders, addresses, topics; each with the line that names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.load import load_pipeline_text
from flintmq.plugins.spark.pipeline.planning import _few_partitions
from flintmq.plugins.spark.pipeline.preflight import check_places


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with a topic, which makes no topics by itself."""
    with Served(tmp_path_factory.mktemp("served"), "topics.auto_create=false") as one:
        one.create_topic("orders")
        one.send("orders", [b"x"])
        yield one


def check(served: Served, source: str, sinks: str, stream: str = "") -> None:
    text = f"source: {{{source}}}\n{stream}sinks: [{sinks}]\n"
    text = text.replace("NAMES", served.namesrv).replace("STORE", str(served.folder / "store"))
    check_places(load_pipeline_text(text, name="p.yaml"))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("path: /nowhere, subscribe: orders", r"source\.path.*there is no such folder"),
        ("path: STORE/commitlog, subscribe: orders", r"source\.path.*no store lies there.*one lies in .*store;"),
        ("path: STORE/.., subscribe: orders", r"no store lies there.*one lies in .*store;"),
        ("path: STORE, subscribe: ordres", r"source\.subscribe.*'ordres'.*did you mean 'orders'"),
        ("nameServer: 'NAMES', subscribe: ordres", r"source\.subscribe.*there is no topic ordres"),
        ("nameServer: '127.0.0.1:1', subscribe: orders", r"source\.nameServer.*127\.0\.0\.1:1"),
    ],
)
def test_the_error_about_an_unusable_pipeline_source_names_the_wrong_path_or_topic_or_name_server(
    served: Served, source: str, says: str
) -> None:
    """A wrong path must not be reported as a missing topic."""
    with pytest.raises(ConfigError, match=says) as raised:
        check(served, source, "{format: console}")
    assert raised.value.file == "p.yaml"


def test_unusable_paths_and_topics_of_sinks_are_refused(served: Served, tmp_path: Path) -> None:
    """A pipeline must not run for an hour before it finds that its result cannot be written."""
    source = "path: STORE, subscribe: orders"
    file = tmp_path / "file"
    file.write_bytes(b"")
    (tmp_path / "taken").mkdir()
    for sink, says in (
        (f"{{format: parquet, path: {file}/out}}", r"sinks\[0\]\.path.*is a file"),
        (f"{{format: parquet, path: {tmp_path}/taken}}", r"sinks\[0\]\.path.*exists already.*'mode: append'"),
        ("{format: flintmq, nameServer: 'NAMES', topic: out}", r"sinks\[0\]\.topic.*there is no topic out"),
        ("{format: flintmq, nameServer: '127.0.0.1:1', topic: out}", r"sinks\[0\]\.nameServer"),
    ):
        with pytest.raises(ConfigError, match=says):
            check(served, source, sink)
    with pytest.raises(ConfigError, match=r"stream\.checkpoint.*is a file"):
        check(served, source, "{format: console}", f"stream: {{checkpoint: {file}}}\n")


def test_the_check_before_a_pipeline_run_accepts_a_correct_pipeline(served: Served, tmp_path: Path) -> None:
    """The check must accept both transports and every kind of usable sink."""
    sinks = f"{{format: parquet, path: {tmp_path}/new}}, {{format: parquet, path: {tmp_path}, mode: append}}, "
    sinks += "{format: parquet, path: 's3a://bucket/x'}, {format: flintmq, nameServer: 'NAMES', topic: orders}"
    for source in ("path: STORE, subscribe: orders", "nameServer: 'NAMES', subscribe: orders"):
        check(served, source, sinks.replace("{format: parquet, path: 's3a", "{name: far, format: parquet, path: 's3a"))


def test_local_spark_sessions_have_one_shuffle_partition_per_thread() -> None:
    """Spark's default of 200 shuffle tasks is meant for clusters, and stays the default there."""
    assert _few_partitions("local[3]") == _few_partitions("local[3,4]") == {"spark.sql.shuffle.partitions": "3"}
    assert _few_partitions("local") == {"spark.sql.shuffle.partitions": "1"}
    assert int(_few_partitions("local[*]")["spark.sql.shuffle.partitions"]) >= 1
    assert _few_partitions("spark://h:7077") == _few_partitions("yarn") == {}
