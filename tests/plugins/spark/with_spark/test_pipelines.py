"""Pipelines on a real session: every decoder, every sink, batches and streams, and what is said when something is wrong."""

from __future__ import annotations

import decimal
import importlib.util
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.load import LoadedPipeline, load_pipeline_text
from flintmq.plugins.spark.pipeline.planning import plan
from flintmq.plugins.spark.pipeline.running import PipelineError, PipelineResult, bound_sinks, run

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

AVRO = '{"type": "record", "name": "P", "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}]}'
BAD = b"\xff\xfe not of any format"


def avro_body(number: int) -> bytes:
    """A plain Avro body."""
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(json.loads(AVRO)), {"id": number, "city": f"c{number % 3}"}
    )
    return stream.getvalue()


def protobuf_body(number: int) -> bytes:
    """A plain Protobuf body."""
    from protobuf_samples import new_order

    order = new_order()
    order.id, order.big = number, 2**63 + number
    return bytes(order.SerializeToString())


def json_body(number: int) -> bytes:
    """A JSON body."""
    return json.dumps({"id": number, "city": f"c{number % 3}", "amount": number / 2}).encode()


EXTRAS = {"avro": "fastavro", "proto": "google.protobuf", "delta": "deltalake"}
"""The modules of formats for which the extra ``spark`` is not enough."""


def missing(kind: str) -> str:
    """The module that a format needs and that is not installed; empty where there is none."""
    name = EXTRAS.get(kind, "json")
    package = name.partition(".")[0]
    return "" if importlib.util.find_spec(package) and importlib.util.find_spec(name) else name


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> None:
    """Skips a test whose format is not installed."""
    call = getattr(request.node, "callspec", None)
    name = missing(call.params["kind"] if call else "delta")
    if name:
        pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a topic for each format: 60 messages that can be decoded, and one that cannot."""
    folder = tmp_path_factory.mktemp("served")
    with Served(folder) as served:
        for topic, body in (("json", json_body), ("avro", avro_body), ("proto", protobuf_body)):
            if missing(topic):
                continue
            served.create_topic(topic)
            for queue_id in range(3):
                served.send(topic, [body(n) for n in range(queue_id, 60, 3)], queue_id, tags=f"t{queue_id}")
            served.create_topic(f"{topic}-bad")
            served.send(f"{topic}-bad", [body(1), BAD, body(2)])
    return folder / "store"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A running broker with 60 JSON messages."""
    with Served(tmp_path / "served") as one:
        one.create_topic("json")
        one.create_topic("out")
        for queue_id in range(3):
            one.send("json", [json_body(n) for n in range(queue_id, 60, 3)], queue_id)
        yield one


DECODE = {
    "json": "decode: {format: json, schema: 'id BIGINT, city STRING, amount DOUBLE', on_error: %s}\n",
    "avro": "decode: {format: avro, schema: '" + AVRO + "', on_error: %s}\n",
    "proto": "decode: {format: protobuf, schema_file: /shop.pb, message: shop.Order, on_error: %s}\n",
}


def loaded(text: str) -> LoadedPipeline:
    return load_pipeline_text(text, name="p.yaml")


def go(spark: Any, text: str) -> PipelineResult:
    """Runs a pipeline to its end."""
    return run(plan(spark, loaded(text)), show=lambda name, rows: shown.append((name, rows)))


shown: list[tuple[str, str]] = []


def source(store: Path, topic: str) -> str:
    return f"source: {{path: {store}, subscribe: {topic}}}\n"


def descriptor_file(tmp_path: Path, text: str) -> str:
    """The text with its descriptor set in a real file."""
    file = tmp_path / "shop.pb"
    if "format: protobuf" in text:
        from protobuf_samples import descriptor_set

        file.write_bytes(descriptor_set())
    return text.replace("/shop.pb", str(file))


@pytest.mark.usefixtures("needs")
@pytest.mark.parametrize("kind", ["json", "avro", "proto"])
def test_fields_of_message_bodies_become_columns(spark: Any, store: Path, tmp_path: Path, kind: str) -> None:
    """Each format's values come out of SQL as they went into the body."""
    out = tmp_path / "out"
    text = source(store, kind) + DECODE[kind] % "fail"
    text += "steps: [{view: flat, sql: 'SELECT value.*, tags FROM messages'}]\n"
    text += f"sinks: [{{format: parquet, path: {out}, partition_by: [tags]}}]\n"
    result = go(spark, descriptor_file(tmp_path, text))
    assert [(sink.name, sink.rows) for sink in result.sinks] == [("parquet", 60)]
    rows = spark.read.parquet(str(out)).orderBy("id").collect()
    assert [(row.id, row.tags) for row in rows] == [(n, f"t{n % 3}") for n in range(60)]
    if kind == "proto":
        assert rows[7].big == decimal.Decimal(2**63 + 7)
    else:
        assert rows[7].city == "c1"


@pytest.mark.usefixtures("needs")
@pytest.mark.parametrize("kind", ["json", "avro", "proto"])
def test_the_on_error_setting_decides_whether_a_bad_body_raises_or_becomes_null_or_is_dropped(
    spark: Any, store: Path, tmp_path: Path, kind: str
) -> None:
    """The three answers to a body that cannot be decoded; failing names the message, so that somebody can look at it."""

    def text(on_error: str) -> str:
        found = source(store, f"{kind}-bad") + DECODE[kind] % on_error
        return descriptor_file(tmp_path, found + "sinks: [{format: console}]\n")

    with pytest.raises(
        PipelineError, match=rf"topic={kind}-bad .*queueId=0 queueOffset=1 is not a valid .*decode\.on_error"
    ):
        go(spark, text("fail").replace("console", f"parquet, path: {tmp_path / 'x'}"))
    kept = plan(spark, loaded(text("'null'"))).last.orderBy("queueOffset").collect()
    assert [row.value is None for row in kept] == [False, True, False]
    dropped = plan(spark, loaded(text("drop"))).last.orderBy("queueOffset").collect()
    assert [row.queueOffset for row in dropped] == [0, 2]


@pytest.mark.parametrize("kind", ["json", "avro", "proto"])
def test_messages_with_rejected_bodies_are_written_to_a_separate_table(
    spark: Any, store: Path, tmp_path: Path, kind: str
) -> None:
    """The run goes on, and what was rejected is kept as it came, with its place, to be looked at and sent again."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    text = source(store, f"{kind}-bad") + DECODE[kind] % "reject"
    text += f"sinks:\n  - {{format: parquet, path: {good}}}\n"
    text += f"  - {{name: rejects, from: rejects, format: parquet, path: {bad}}}\n"
    result = go(spark, descriptor_file(tmp_path, text))
    assert [(sink.name, sink.rows) for sink in result.sinks] == [("parquet", 2), ("rejects", 1)]
    (row,) = spark.read.parquet(str(bad)).collect()
    assert (bytes(row.body), row.topic, row.queueId, row.queueOffset) == (BAD, f"{kind}-bad", 0, 1)
    assert row.physicalOffset is not None
    assert "the body is not a valid" in row.badRecord


@pytest.fixture
def damaged(store: Path, tmp_path: Path, spark: Any) -> tuple[Path, int, int]:
    """A copy of the store in which the first record of ``json-bad`` is damaged, with the record's position and size."""
    columns = {"columns": "queueOffset,physicalOffset,storeSize", "subscribe": "json-bad"}
    rows = spark.read.format("flintmq").options(**columns).load(str(store)).orderBy("queueOffset").collect()
    copy = tmp_path / "damaged"
    shutil.copytree(store, copy)
    file = min((copy / "commitlog").iterdir())
    raw = bytearray(file.read_bytes())
    raw[rows[0].physicalOffset + 4] ^= 0xFF
    file.write_bytes(raw)
    return copy, rows[0].physicalOffset, rows[0].storeSize


def keeping(store: Path, tmp_path: Path, decode: str) -> str:
    """A pipeline that writes bad records and undecodable bodies to a table of their own."""
    text = source(store, "json-bad").replace("}", ", badRecords: keep, startingOffsets: earliest}") + decode
    text += f"sinks:\n  - {{format: parquet, path: {tmp_path / 'good'}}}\n"
    return text + f"  - {{name: rejects, from: rejects, format: parquet, path: {tmp_path / 'bad'}}}\n"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_pipeline_writes_damaged_records_to_the_table_of_rejected_records(
    spark: Any, damaged: tuple[Path, int, int], tmp_path: Path, streaming: bool
) -> None:
    """Damage of the log is one row with its place and the reason, also when a stream runs its last batch again."""
    store, position, size_bytes = damaged
    text = keeping(store, tmp_path, DECODE["json"] % "reject")
    if streaming:
        text += f"stream: {{checkpoint: {tmp_path / 'checkpoint'}}}\n"
    result = go(spark, text)
    assert [(sink.name, sink.rows) for sink in result.sinks] == [("parquet", 1), ("rejects", 2)]
    if streaming:
        commits = tmp_path / "checkpoint" / "rejects" / "commits"
        for file in commits.iterdir():
            file.unlink()
        go(spark, text)
    good = spark.read.parquet(str(tmp_path / "good"))
    assert [row.value.id for row in good.collect()] == [2]
    assert "badRecord" not in good.columns
    rows = spark.read.parquet(str(tmp_path / "bad")).orderBy("physicalOffset").collect()
    assert [(row.physicalOffset, row.storeSize, row.topic, row.body) for row in rows[:1]] == [
        (position, size_bytes, None, None)
    ]
    assert "magic" in rows[0].badRecord
    assert [(row.queueOffset, bytes(row.body)) for row in rows[1:]] == [(1, BAD)]


def test_a_setting_decides_whether_a_damaged_record_fails_the_pipeline(
    spark: Any, damaged: tuple[Path, int, int], tmp_path: Path
) -> None:
    """A pipeline without rejects fails, drops them, or has null and the reason."""
    store, position, _size = damaged
    with pytest.raises(PipelineError, match=rf"physicalOffset={position} cannot be read: .*magic.*decode\.on_error"):
        go(spark, keeping(store, tmp_path, DECODE["json"] % "fail").partition("  - {name")[0])

    def rows(on_error: str) -> list[Any]:
        text = keeping(store, tmp_path, DECODE["json"] % on_error).partition("  - {name")[0]
        return list(plan(spark, loaded(text)).last.orderBy("physicalOffset").collect())

    assert [row.queueOffset for row in rows("drop")] == [2]
    assert [(row.value is None, row.badRecord is None) for row in rows("'null'")] == [
        (True, False),
        (True, True),
        (False, True),
    ]


def test_a_body_that_is_not_utf_8_becomes_a_null_value_if_it_is_decoded_as_a_string(spark: Any, store: Path) -> None:
    """Such bytes must not be taken for text."""
    text = source(store, "json-bad") + "decode: {format: string, on_error: 'null'}\nsinks: [{format: console}]\n"
    rows = plan(spark, loaded(text)).last.orderBy("queueOffset").collect()
    assert rows[0].value.startswith('{"id": 1')
    assert rows[1].value is None


def test_the_flatten_setting_adds_body_fields_beside_the_message_columns(spark: Any, store: Path) -> None:
    """flatten saves the value.* everywhere, and refuses names that are taken."""
    text = source(store, "json") + "decode: {format: json, schema: 'id BIGINT, KEYS STRING', flatten: true}\n"
    with pytest.raises(ConfigError, match=r"p\.yaml:2: 'decode\.flatten': .*KEYS"):
        plan(spark, loaded(text + "sinks: [{format: console}]\n"))
    flat = plan(spark, loaded(text.replace(", KEYS STRING", "") + "sinks: [{format: console}]\n")).last
    assert flat.columns[-1] == "id"
    assert "value" not in flat.columns


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sum(value.amount)", "sum(value.amont)", r"p\.yaml:5: 'steps\[0\]\.sql': .*amont"),
        ("FROM messages", "FROM mesages", r"p\.yaml:5: 'steps\[0\]\.sql': .*mesages"),
        ("SELECT", "SELEC", r"p\.yaml:5: 'steps\[0\]\.sql': .*SELEC"),
        ("id BIGINT", "id BIGGINT", r"p\.yaml:2: 'decode\.schema' is not a schema"),
        ("subscribe", "subscrbe", r"p\.yaml:1: 'source\.subscrbe': .*did you mean 'subscribe'"),
        ("[city]", "[town]", r"p\.yaml:9: 'sinks\[0\]\.partition_by': the rows have no column 'town'"),
        ("into: value", "into: topic", r"p\.yaml:2: 'decode\.into': messages have a column 'topic'"),
        ("column: body", "column: bodi", r"p\.yaml:2: 'decode\.column': messages have no column 'bodi'"),
        ("{env: FLINTMQ_TEST_SECRET}", "{env: FLINTMQ_NO_SUCH}", r"p\.yaml:13: .*FLINTMQ_NO_SUCH is not set"),
        ("topic: out", "topci: out", r"p\.yaml:18: 'sinks\[2\]\.topci': .*did you mean 'topic'"),
    ],
)
def test_mistakes_in_sql_steps_are_found_before_the_pipeline_runs(
    spark: Any, store: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, says: str
) -> None:
    """The option ``--dry-run`` lets Spark analyze the queries, and the error names the line of the file."""
    monkeypatch.setenv("FLINTMQ_TEST_SECRET", "hunter2")
    text = source(store, "json")
    text += "decode: {format: json, schema: 'id BIGINT, city STRING, amount DOUBLE', into: value, column: body}\n"
    text += "steps:\n  - view: sums\n    sql: SELECT value.city AS city, sum(value.amount) AS body FROM messages GROUP BY 1\n"
    text += "sinks:\n  - format: parquet\n    path: /nowhere\n    partition_by: [city]\n"
    text += "  - format: jdbc\n    url: jdbc:derby:memory:x\n    table: t\n    password: {env: FLINTMQ_TEST_SECRET}\n"
    text += "  - format: flintmq\n    from: messages\n    nameServer: h:1\n    # a comment\n    topic: out\n"
    assert old in text
    with pytest.raises(ConfigError, match=says) as failure:
        bound_sinks(plan(spark, loaded(text.replace(old, new, 1))))
    assert "hunter2" not in str(failure.value)


def test_explained_plans_of_a_pipeline_contain_no_secret(
    spark: Any, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is shown to colleagues, who must not read a password in it."""
    monkeypatch.setenv("FLINTMQ_TEST_SECRET", "hunter2")
    text = source(store, "json") + "steps: [{view: v, sql: \"SELECT 'hunter2' AS leak, body FROM messages\"}]\n"
    text += "sinks: [{format: jdbc, url: 'jdbc:derby:memory:x', table: t, password: {env: FLINTMQ_TEST_SECRET}}]\n"
    planned = plan(spark, loaded(text))
    bound_sinks(planned)
    explained = planned.explain(0)
    assert "Physical Plan" in explained
    assert "hunter2" not in explained


@pytest.mark.usefixtures("needs")
def test_one_pipeline_run_writes_to_every_sink(spark: Any, store: Path, served: Served, tmp_path: Path) -> None:
    """Parquet, Delta, a database, the console and another topic get the same rows of one batch; a second run is refused."""
    shown.clear()
    text = source(store, "json") + DECODE["json"] % "fail"
    text += "steps: [{view: big, cache: true, sql: 'SELECT value.id, value.city FROM messages WHERE value.id >= 30'},\n"
    text += "  {view: mail, sql: 'SELECT to_json(struct(id, city)) AS body, city AS tags FROM big'}]\n"
    text += "sinks:\n"
    text += f"  - {{format: parquet, from: big, path: {tmp_path / 'parquet'}, options: {{compression: zstd}}}}\n"
    text += f"  - {{format: delta, from: big, path: {tmp_path / 'delta'}, partition_by: [city], mode: append}}\n"
    text += f"  - {{format: jdbc, from: big, url: 'jdbc:derby:{tmp_path / 'db'};create=true', table: orders}}\n"
    text += "  - {format: console, from: big, rows: 5}\n"
    text += f"  - {{format: flintmq, from: mail, nameServer: '{served.namesrv}', topic: out}}\n"
    result = go(spark, text)
    assert [(sink.name, sink.rows) for sink in result.sinks] == [
        ("parquet", 30), ("delta", 30), ("jdbc", 30), ("console", None), ("flintmq", 30),
    ]  # fmt: skip
    ids = list(range(30, 60))
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "parquet")).collect()) == ids
    assert delta_ids(tmp_path / "delta") == ids
    table = spark.read.format("jdbc").options(url=f"jdbc:derby:{tmp_path / 'db'}", dbtable="orders").load()
    assert sorted(row.ID if hasattr(row, "ID") else row.id for row in table.collect()) == ids
    ((name, rows),) = shown
    assert name == "console"
    assert rows.count("\n|") >= 5
    messages = served.messages("out")
    assert sorted(json.loads(message.body)["id"] for message in messages) == ids
    assert {message.tags for message in messages} == {"c0", "c1", "c2"}
    assert len({message.properties["SPARK_TXN"] for message in messages}) == 30
    with pytest.raises(ConfigError, match=r"p\.yaml:\d+: 'sinks\[0\]': .*already exists") as failure:
        go(spark, text)
    assert "\n" not in str(failure.value)
    ignoring = text.replace("options: {compression: zstd}", "mode: ignore").split("  - {format: delta")[0]
    assert go(spark, ignoring).sinks[0].rows is None


@pytest.mark.usefixtures("needs")
def test_a_pipeline_run_over_an_empty_topic_succeeds_without_rows(spark: Any, served: Served, tmp_path: Path) -> None:
    """An empty topic must cause neither an error nor a wait."""
    text = f"source: {{nameServer: '{served.namesrv}', subscribe: out}}\n" + DECODE["json"] % "fail"
    text += f"sinks: [{{format: parquet, path: {tmp_path / 'p'}}}, {{format: delta, path: {tmp_path / 'd'}}}]\n"
    assert [sink.rows for sink in go(spark, text).sinks] == [0, 0]


def delta_ids(folder: Path) -> list[int]:
    from deltalake import DeltaTable

    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("id").to_pylist())


@pytest.mark.usefixtures("needs")
def test_write_modes_of_a_delta_sink_keep_or_replace_its_table(spark: Any, store: Path, tmp_path: Path) -> None:
    """overwrite replaces, ignore leaves alone, errorifexists and other columns are refused."""

    def text(mode: str, columns: str = "value.id AS id, value.city AS city") -> str:
        found = (
            source(store, "json")
            + DECODE["json"] % "fail"
            + f"steps: [{{view: v, sql: 'SELECT {columns} FROM messages'}}]\n"
        )
        return found + f"sinks: [{{format: delta, path: {tmp_path / 'd'}, partition_by: [city], mode: {mode}}}]\n"

    go(spark, text("errorifexists"))
    with pytest.raises(ConfigError, match="there is a Delta table"):
        go(spark, text("errorifexists"))
    assert go(spark, text("ignore")).sinks[0].batches == 0
    go(spark, text("overwrite", "value.id + 100 AS id, value.city AS city"))
    assert delta_ids(tmp_path / "d") == list(range(100, 160))
    with pytest.raises((PipelineError, ConfigError), match="other columns than the rows: id differ"):
        go(spark, text("append", "value.city AS id, value.city AS city"))


def stream(served: Served, tmp_path: Path, *sinks: str, topic: str = "json") -> str:
    """A streaming pipeline up to what there is, in several micro-batches."""
    text = f"source: {{nameServer: '{served.namesrv}', subscribe: {topic}, startingOffsets: earliest"
    text += ", maxOffsetsPerTrigger: '25'}\n"
    text += DECODE["json"] % "fail"
    text += "steps: [{view: flat, sql: 'SELECT value.id, value.city, CAST(body AS STRING) AS body FROM messages'}]\n"
    text += f"stream: {{checkpoint: {tmp_path / 'checkpoint'}}}\nsinks:\n"
    return text + "".join(f"  - {sink}\n" for sink in sinks)


@pytest.mark.usefixtures("needs")
def test_a_second_pipeline_run_writes_only_new_rows_to_every_sink(spark: Any, served: Served, tmp_path: Path) -> None:
    """Each sink takes what has come since, once; also when the first run died before it had noted its last batch.

    Parquet and Delta know a batch that comes again. The database and the topic get it again, with its number or transaction.
    """
    table = f"jdbc:derby:{tmp_path / 'db'}"
    text = stream(
        served,
        tmp_path,
        f"{{format: parquet, path: {tmp_path / 'parquet'}}}",
        f"{{format: delta, path: {tmp_path / 'delta'}}}",
        f"{{format: jdbc, url: '{table};create=true', table: orders, batch_column: batch}}",
        "{format: console, rows: 100, truncate: false}",
        f"{{format: flintmq, from: mail, nameServer: '{served.namesrv}', topic: out}}",
    )
    text = text.replace("steps: [", "steps: [{view: mail, sql: 'SELECT body, value.city AS tags FROM messages'}, ")

    def database() -> list[tuple[int, int]]:
        rows = spark.read.format("jdbc").options(url=table, dbtable="orders").load()
        rows = rows.toDF(*[name.lower() for name in rows.columns])
        return sorted((row.id, row.batch) for row in rows.collect())

    def sent() -> list[tuple[int, str]]:
        return sorted((json.loads(one.body)["id"], one.properties["SPARK_TXN"]) for one in served.messages("out"))

    def check(count: int) -> None:
        ids = list(range(count))
        assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "parquet")).collect()) == ids
        assert delta_ids(tmp_path / "delta") == ids
        assert [one for one, _batch in sorted(set(database()))] == ids
        assert [one for one, _transaction in sorted(set(sent()))] == ids

    shown.clear()
    go(spark, text)
    check(60)
    assert (
        len(database()) == len(set(sent())) == 60
    )  # a send whose answer was late is repeated, with the same SPARK_TXN
    assert sum(rows.count("c0") for _name, rows in shown) >= 20
    batches = len(shown)
    for sink in ("parquet", "delta", "jdbc", "flintmq"):
        commits = tmp_path / "checkpoint" / sink / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
    for queue_id in range(3):
        served.send("json", [json_body(n) for n in range(60 + queue_id, 90, 3)], queue_id)
    go(spark, text)
    check(90)
    assert len(database()) > 90
    assert len(sent()) > 90
    assert len(shown) > batches


@pytest.mark.usefixtures("needs")
def test_the_watermark_of_a_streaming_pipeline_closes_time_windows(spark: Any, served: Served, tmp_path: Path) -> None:
    """Without the watermark of the file, an aggregate could never be appended to a sink."""
    text = stream(served, tmp_path, f"{{format: delta, path: {tmp_path / 'sums'}, from: sums}}")
    text = text.replace("stream: {", "stream: {watermark: {column: storeTimestamp, delay_ms: 1s}, ")
    text = text.replace(
        "}]\n",
        "}, {view: sums, sql: \"SELECT window(storeTimestamp, '1 second').start AS at, count(*) AS n FROM messages "
        "GROUP BY window(storeTimestamp, '1 second')\"}]\n",
        1,
    )
    go(spark, text)
    no_watermark = text.replace("watermark: {column: storeTimestamp, delay_ms: 1s}, ", "")
    with pytest.raises((PipelineError, ConfigError), match=r"[Ww]atermark"):
        go(spark, no_watermark.replace("checkpoint}", "checkpoint2}"))


def test_a_failing_stream_of_a_pipeline_stops_its_other_streams(spark: Any, served: Served, tmp_path: Path) -> None:
    """One bad body: the run ends with an error that names sink and message, and no query is left running."""
    served.send("json", [BAD], 3)
    text = stream(served, tmp_path, "{format: console}", f"{{format: parquet, path: {tmp_path / 'p'}}}")
    with pytest.raises(PipelineError, match=r"sink '(console|parquet)': .*queueId=3 queueOffset=0"):
        go(spark, text.replace("availableNow", "processingTime"))
    assert not spark.streams.active
