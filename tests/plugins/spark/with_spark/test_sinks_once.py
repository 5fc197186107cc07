"""A driver that dies between a batch's write and its commit, on a real Spark: each sink has every message, and none twice.

The checkpoint is as such a driver leaves it: the batch is in the log of offsets and in the sink, not in the log of commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_cluster import FIRST, Cluster

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as one:
        one.make_topic(TOPIC, 2)
        one.make_topic("copies", 2)
        yield one


def source(spark: Any, cluster: Cluster, kind: str) -> Any:
    """A stream of the topic from its beginning, by files or over the wire, some messages a batch."""
    reader = spark.readStream.format("flintmq").option("subscribe", TOPIC).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", "40")
    if kind == "files":
        return reader.option("visibility", "dispatched").load(str(cluster.store()))
    return reader.option("nameServer", cluster.namesrv).load()


def run(frame: Any, sink: str, out: Path, checkpoint: Path, cluster: Cluster) -> None:
    """Read all that is there."""
    writer = frame.select("body").writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if sink == "flintmq":
        writer = writer.format("flintmq").option("nameServer", cluster.namesrv).option("topic", "copies")
        query = writer.start()
    elif sink == "delta":
        from flintmq.plugins.spark.pipeline.delta_source import FORMAT, DeltaSource

        frame.sparkSession.dataSource.register(DeltaSource)
        query = writer.format(FORMAT).start(str(out))
    else:
        query = writer.format("parquet").start(str(out))
    query.awaitTermination()


def bodies(spark: Any, sink: str, out: Path, cluster: Cluster) -> list[bytes]:
    """What the sink has."""
    if sink == "flintmq":
        return [message.body for message in cluster.messages("copies", 2)]
    if sink == "delta":
        from deltalake import DeltaTable

        return [bytes(body) for body in DeltaTable(str(out)).to_pyarrow_table().column("body").to_pylist()]
    return [bytes(row.body) for row in spark.read.parquet(str(out)).collect()]


@pytest.mark.parametrize(
    ("kind", "sink"), [("files", "parquet"), ("wire", "parquet"), ("wire", "delta"), ("wire", "flintmq")]
)
def test_no_row_is_lost_if_spark_writes_the_last_batch_again_after_a_restart(
    spark: Any, cluster: Cluster, tmp_path: Path, kind: str, sink: str
) -> None:
    """It is planned as it was, and sinks that know it leave it out. Messages may be sent again, none is lost."""
    if sink == "delta":
        pytest.importorskip("deltalake")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    sent = [
        body for number in (0, 1) for body in cluster.put(TOPIC, [b"%d-%d" % (number, n) for n in range(50)], number)
    ]
    run(source(spark, cluster, kind), sink, out, checkpoint, cluster)
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    sent += cluster.put(TOPIC, [b"later-%d" % number for number in range(30)], name=FIRST)
    run(source(spark, cluster, kind), sink, out, checkpoint, cluster)
    counts = Counter(bodies(spark, sink, out, cluster))
    assert set(counts) == set(sent)
    if sink != "flintmq":
        assert set(counts.values()) == {1}
    else:
        assert sum(counts.values()) <= len(sent) + 40
