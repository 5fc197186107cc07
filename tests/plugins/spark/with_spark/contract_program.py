"""What FlintMQ promises on Spark, in a process of its own: on any PySpark, and wherever its tasks run.

``python contract_program.py MASTER FOLDER [CHAPTER…]`` prints ``OK CHAPTER`` for each chapter that holds, and fails in the
first that does not. MASTER is ``local[2]``, ``spark://…`` or ``sc://…``, whose workers must see FOLDER. It runs the examples of
docs/spark.md, docs/spark-feed.md, docs/pipelines.md and the README, streams included.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from protobuf_samples import MESSAGE, descriptor_set, new_order
from served import Served

from flintmq.plugins.spark import session
from flintmq.plugins.spark.pipeline.load import load_pipeline_text
from flintmq.plugins.spark.pipeline.planning import plan
from flintmq.plugins.spark.pipeline.running import run

COUNT = 60
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
AVRO = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "wide", "type": ["null", "int", "long"]},
        {"name": "some", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
    ],
}
Chapter = Callable[[Any, Served, Path], None]
CHAPTERS: dict[str, Chapter] = {}


def chapter(function: Chapter) -> Chapter:
    CHAPTERS[function.__name__] = function
    return function


def json_body(number: int) -> bytes:
    return json.dumps({"id": number, "city": f"c{number % 3}", "amount": number / 2}).encode()


def fill(
    served: Served, topic: str, first: int = 0, end: int = COUNT, body: Callable[[int], bytes] = json_body
) -> None:
    """Sends messages ``first`` to ``end``, a third to each of three queues; creates the topic before the first one."""
    if not first:
        served.create_topic(topic)
    for queue_id in range(3):
        numbers = [number for number in range(first, end) if number % 3 == queue_id]
        served.send(topic, [body(number) for number in numbers], queue_id, tags=f"t{queue_id}")


def ids(rows: list[Any]) -> list[int]:
    return sorted(json.loads(bytes(row.body))["id"] for row in rows)


def ended(query: Any, timeout_s: float = 120.0) -> Any:
    """The query, once it has ended by itself."""
    if not query.awaitTermination(timeout_s):
        query.stop()
        raise AssertionError(f"the query has not ended: {query.lastProgress}")
    return query


def rows_of_batches(query: Any) -> list[int]:
    """How many rows each micro-batch had that had any."""
    return [one.numInputRows for one in query.recentProgress if one.numInputRows]


def reader(spark: Any, served: Served, way: str, *, stream: bool = False, **options: str) -> Any:
    found = (spark.readStream if stream else spark.read).format("flintmq").options(**options)
    return (
        found.load(str(served.folder / "store"))
        if way == "files"
        else found.option("nameServer", served.namesrv).load()
    )


@chapter
def batch(spark: Any, served: Served, work: Path) -> None:
    """docs/spark.md's first example, by both ways; columns; a query's own filters; times that are times."""
    fill(served, "orders")
    for way in ("files", "wire"):
        orders = reader(spark, served, way, subscribe="orders")
        counts = {row.tags: row["count"] for row in orders.groupBy("tags").count().collect()}
        assert counts == {"t0": 20, "t1": 20, "t2": 20}, counts
        assert ids(orders.collect()) == list(range(COUNT))
        assert orders.count() == COUNT
        now_ms = time.time() * 1000
        (row,) = orders.selectExpr("max(unix_millis(storeTimestamp)) at").collect()
        assert now_ms - 600_000 < row.at <= now_ms + 60_000
        three = reader(spark, served, way, subscribe="orders", columns="topic,queueId,queueOffset")
        assert three.columns == ["topic", "queueId", "queueOffset"]
        assert three.where("queueId = 1").count() == 20
        pruned = reader(spark, served, way, subscribe="orders", pushdown="true")
        assert pruned.where("tags = 't1' and queueOffset >= 5").count() == 15
        assert {tuple(row.asDict()["properties"]) for row in orders.select("properties").limit(1).collect()}
    some = spark.read.format("flintmq").schema("topic string, body binary").option("subscribe", "orders")
    some = some.load(str(served.folder / "store"))
    assert some.columns == ["topic", "body"]
    assert some.count() == COUNT


@chapter
def streams(spark: Any, served: Served, work: Path) -> None:
    """docs/spark.md's second example: AvailableNow takes all there is, a restart what has come since, each message once."""
    for way in ("files", "wire"):
        topic = f"stream-{way}"
        fill(served, topic)

        def drained(topic: str = topic, way: str = way) -> list[int]:
            frame = reader(
                spark, served, way, stream=True, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="25"
            )
            writer = frame.select("topic", "tags", "body").writeStream.format("parquet")
            writer = writer.option("checkpointLocation", str(work / f"checkpoint-{way}"))
            query = ended(writer.trigger(availableNow=True).start(str(work / f"out-{way}")))
            return rows_of_batches(query)

        def found(way: str = way) -> list[int]:
            return ids(spark.read.parquet(str(work / f"out-{way}")).collect())

        read = drained()
        assert sum(read) == COUNT, read
        assert (max(read) <= 25) == (VERSION >= (4, 2)), read  # before, Spark hands over no limits
        assert found() == list(range(COUNT))
        assert drained() == []
        fill(served, topic, COUNT, 2 * COUNT)
        assert sum(drained()) == COUNT
        assert found() == list(range(2 * COUNT))


@chapter
def running(spark: Any, served: Served, work: Path) -> None:
    """A query that goes on: it begins with what comes, keeps its limits, is stopped, and goes on where it stood."""
    for way in ("files", "wire"):
        topic = f"running-{way}"
        fill(served, topic)
        out = work / f"running-{way}"

        def started(topic: str = topic, way: str = way, out: Path = out) -> Any:
            frame = reader(spark, served, way, stream=True, subscribe=topic, maxOffsetsPerTrigger="10")
            writer = frame.select("body").writeStream.format("parquet").trigger(processingTime="100 milliseconds")
            return writer.option("checkpointLocation", str(work / f"running-checkpoint-{way}")).start(str(out))

        def wait(query: Any, wanted: list[int], out: Path = out) -> None:
            until_s = time.monotonic() + 120
            while True:
                written = (out / "_spark_metadata").exists()
                found = ids(spark.read.schema("body binary").parquet(str(out)).collect()) if written else []
                if found == wanted:
                    return
                assert query.isActive, query.exception()
                assert time.monotonic() < until_s, (found, wanted, query.lastProgress)
                time.sleep(0.2)  # Spark tells nobody that a batch is done

        query = started()
        while query.lastProgress is None:
            assert query.isActive, query.exception()
            time.sleep(0.1)  # it begins with what comes once it has looked for the first time
        fill(served, topic, COUNT, 2 * COUNT)
        wait(query, list(range(COUNT, 2 * COUNT)))
        batches = rows_of_batches(query)
        assert max(batches) <= 10, batches
        query.stop()
        fill(served, topic, 2 * COUNT, 3 * COUNT)
        query = started()
        wait(query, list(range(COUNT, 3 * COUNT)))
        query.stop()


@chapter
def sending(spark: Any, served: Served, work: Path) -> None:
    """docs/pipelines.md, Sending rows: a batch and a stream into topics; a row that cannot be sent fails."""
    fill(served, "sent-from")
    served.create_topic("sent-batch")
    served.create_topic("sent-stream")
    rows = reader(spark, served, "wire", subscribe="sent-from")
    writer = rows.selectExpr("body", "tags", "keys").write.format("flintmq").mode("append")
    writer.options(nameServer=served.namesrv, topic="sent-batch").save()
    sent = served.messages("sent-batch")
    assert sorted(json.loads(one.body)["id"] for one in sent) == list(range(COUNT))
    assert {one.tags for one in sent} == {"t0", "t1", "t2"}
    assert len({one.properties["SPARK_TXN"] for one in sent}) == COUNT
    for end in (COUNT, 2 * COUNT):
        frame = reader(spark, served, "files", stream=True, subscribe="sent-from", startingOffsets="earliest")
        query = frame.select("body", "tags").writeStream.format("flintmq").trigger(availableNow=True)
        query = query.option("checkpointLocation", str(work / "sent-checkpoint"))
        ended(query.options(nameServer=served.namesrv, topic="sent-stream").start())
        sent = served.messages("sent-stream")
        assert sorted(json.loads(one.body)["id"] for one in sent) == list(range(end))
        assert len({one.properties["SPARK_TXN"] for one in sent}) == end
        if end == COUNT:
            fill(served, "sent-from", COUNT, 2 * COUNT)
    with pytest.raises(Exception, match="body is null"):
        spark.sql("SELECT CAST(NULL AS STRING) AS body").write.format("flintmq").mode("append").options(
            nameServer=served.namesrv, topic="sent-batch"
        ).save()


def avro_body(number: int) -> bytes:
    import datetime
    import decimal
    import io

    import fastavro

    value = {
        "id": number,
        "at": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=number),
        "price": decimal.Decimal(number) / 100,
        "wide": 2**40 + number if number % 2 else None,
        "some": {"a": [number / 2], "b": []},
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


def protobuf_body(number: int) -> bytes:
    order = new_order()
    order.id, order.big = number, 2**63 + number
    return bytes(order.SerializeToString())


@chapter
def decoders(spark: Any, served: Served, work: Path) -> None:
    """docs/pipelines.md, decode: each type of Avro and Protobuf arrives as it was written; a bad body is told."""
    import datetime
    import decimal

    import pyarrow.parquet

    fill(served, "avro", body=avro_body)
    fill(served, "proto", body=protobuf_body)
    served.send("avro", [b"\xff\xfe no Avro"], 3)
    (work / "shop.pb").write_bytes(descriptor_set())
    parts = {
        "avro": f"{{format: avro, schema: '{json.dumps(AVRO)}', on_error: drop}}",
        "proto": f"{{format: protobuf, schema_file: {work / 'shop.pb'}, message: {MESSAGE}, on_error: fail}}",
    }
    for topic, decode in parts.items():
        text = f"source: {{nameServer: '{served.namesrv}', subscribe: {topic}}}\ndecode: {decode}\n"
        text += "steps: [{view: flat, sql: 'SELECT value.* FROM messages'}]\n"
        text += f"sinks: [{{format: parquet, path: {work / f'decoded-{topic}'}}}]\n"
        result = run(plan(spark, load_pipeline_text(text, name="p.yaml")), show=print)
        assert [sink.rows for sink in result.sinks] == [COUNT], result
    rows = pyarrow.parquet.read_table(work / "decoded-avro").sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == list(range(COUNT))
    at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=7)
    assert rows[7]["at"].replace(tzinfo=datetime.UTC) == at, rows[7]
    assert rows[7]["price"] == decimal.Decimal("0.07"), rows[7]
    assert rows[7]["wide"] == 2**40 + 7
    assert rows[6]["wide"] is None
    assert dict(rows[7]["some"]) == {"a": [3.5], "b": []}, rows[7]
    proto = pyarrow.parquet.read_table(work / "decoded-proto").sort_by("id").to_pylist()
    assert [row["big"] for row in proto] == [decimal.Decimal(2**63 + number) for number in range(COUNT)]
    bad = text.replace("proto", "avro", 1).replace(parts["proto"], parts["avro"].replace("drop", "fail"))
    with pytest.raises(Exception, match="is not a valid avro value"):
        run(plan(spark, load_pipeline_text(bad.replace("decoded-", "bad-"), name="p.yaml")), show=print)


@chapter
def pipelines(spark: Any, served: Served, work: Path) -> None:
    """docs/pipelines.md, The file: a batch and a stream into Parquet, Delta and a topic; a second run takes what is new."""
    fill(served, "piped")
    served.create_topic("LargeOrders")
    text = f"""
name: orders
source: {{nameServer: '{served.namesrv}', subscribe: piped, startingOffsets: earliest}}
decode: {{format: json, schema: 'id BIGINT, city STRING, amount DOUBLE', into: order, on_error: "null"}}
steps:
  - view: large
    sql: SELECT order.id, order.city, to_json(order) AS body FROM messages WHERE order.amount >= 10
  - view: mail
    sql: SELECT body FROM large
sinks:
  - {{format: parquet, from: large, path: {work}/MODE/large, partition_by: [city]}}
  - {{format: delta, from: large, path: {work}/MODE/delta, partition_by: [city]}}
  - {{format: flintmq, from: mail, nameServer: '{served.namesrv}', topic: LargeOrders}}
  - {{format: console, from: large, rows: 3}}
"""

    def check(mode: str, numbers: range) -> None:
        import deltalake

        rows = spark.read.parquet(f"{work}/{mode}/large").collect()
        assert sorted(row.id for row in rows) == list(numbers)
        table = deltalake.DeltaTable(f"{work}/{mode}/delta").to_pyarrow_table()
        assert sorted(table.column("id").to_pylist()) == list(numbers)

    shown: list[str] = []
    batch = load_pipeline_text(text.replace("MODE", "batch"), name="p.yaml")
    result = run(plan(spark, batch), show=lambda name, rows: shown.append(rows))
    assert [sink.rows for sink in result.sinks] == [40, 40, 40, None], result
    check("batch", range(20, COUNT))
    assert shown
    stream_text = text.replace("MODE", "stream") + f"stream: {{checkpoint: {work}/piped-checkpoint}}\n"
    for end in (COUNT, 2 * COUNT):
        streaming = load_pipeline_text(stream_text, name="p.yaml")
        result = run(plan(spark, streaming), show=lambda name, rows: shown.append(rows))
        new = end - max(20, end - COUNT)
        assert [sink.rows for sink in result.sinks][:3] == [new, new, new], result
        check("stream", range(20, end))
        fill(served, "piped", end, end + COUNT)
    sent = sorted(json.loads(one.body)["id"] for one in served.messages("LargeOrders"))
    assert sent == sorted([*range(20, COUNT), *range(20, 2 * COUNT)])


@chapter
def landing(spark: Any, served: Served, work: Path) -> None:
    """docs/spark-feed.md, The landing zone: what the broker lands is read as Parquet, by topic and day."""
    fill(served, "landed")
    zone = served.folder / "zone"
    until_s = time.monotonic() + 120
    while True:
        found = list(zone.glob("topic=landed/date=*/part-*.parquet"))
        rows = spark.read.parquet(str(zone)).where("topic = 'landed'").collect() if found else []
        if len(rows) == COUNT:
            break
        assert time.monotonic() < until_s, found
        time.sleep(0.2)  # another process lands, and tells nobody here
    assert ids(rows) == list(range(COUNT))


@chapter
def sql(spark: Any, served: Served, work: Path) -> None:
    """Tables of SQL: made, read, written to, and gone again; their messages stay."""
    fill(served, "tabled")
    for way, options in (("files", f"path '{served.folder / 'store'}'"), ("wire", f"nameServer '{served.namesrv}'")):
        spark.sql(f"DROP TABLE IF EXISTS {way}_table")
        spark.sql(f"CREATE TABLE {way}_table USING flintmq OPTIONS ({options}, subscribe 'tabled')")
        (row,) = spark.sql(f"SELECT count(*) AS n, max(queueOffset) AS last FROM {way}_table").collect()
        assert (row.n, row.last) == (COUNT, COUNT // 3 - 1)
        spark.sql(f"DROP TABLE {way}_table")
    assert (served.folder / "store" / "commitlog").is_dir()
    served.create_topic("inserted")
    into = f"nameServer '{served.namesrv}', topic 'inserted'"
    spark.sql("DROP TABLE IF EXISTS out_table")
    spark.sql(f"CREATE TABLE out_table USING flintmq OPTIONS ({into}, columns 'body,tags', sendBatch '10')")
    spark.sql("INSERT INTO out_table VALUES (CAST('one' AS BINARY), 'a'), (CAST('two' AS BINARY), 'b')")
    assert {row.tags for row in spark.sql("SELECT * FROM out_table").collect()} == {"a", "b"}
    spark.sql("DROP TABLE out_table")
    spark.sql(f"CREATE TEMPORARY VIEW out_view (body STRING, tags STRING) USING flintmq OPTIONS ({into})")
    spark.sql("INSERT INTO out_view SELECT body, tags FROM VALUES ('three', 'c') AS t(body, tags)")
    assert sorted((one.body, one.tags) for one in served.messages("inserted")) == [
        (b"one", "a"),
        (b"three", "c"),
        (b"two", "b"),
    ]
    spark.sql("DROP VIEW out_view")


def made_session(master: str) -> Any:
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.sql.warehouse.dir": str(Path(sys.argv[2]).absolute() / "warehouse"),
    }
    return session(master, "contract", conf)


def main(master: str, folder: Path, *names: str) -> None:
    settings = (
        "dispatchers=consume_queue,index,spark_feed",
        "flush.strategy=group_commit",  # so that what is acknowledged is what is read
        f"spark_feed.landing.path={folder / 'served' / 'zone'}",
        "spark_feed.landing.roll_interval_ms=1s",
    )
    folder.mkdir(parents=True, exist_ok=True)
    with Served(folder / "served", *settings) as served:
        spark = made_session(master)
        try:
            for name in names or CHAPTERS:
                work = folder / name
                work.mkdir()
                begin_s = time.monotonic()
                CHAPTERS[name](spark, served, work)
                print(f"OK {name} ({time.monotonic() - begin_s:.1f} s)", flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute(), *sys.argv[3:])
