"""A pipeline's file: what it means, and that every mistake is told with its line and the name that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.load import load_pipeline, load_pipeline_text
from flintmq.plugins.spark.pipeline.models import FileSink, JdbcSink, TopicSink
from flintmq.plugins.spark.pipeline.references import Reference

WHOLE = """\
name: orders
source:
  nameServer: 127.0.0.1:9876
  subscribe: orders
  startingOffsets: earliest
decode:
  format: json
  schema: id BIGINT, amount DOUBLE
  into: o
  on_error: drop
steps:
  - view: big
    sql: SELECT o.id, o.amount FROM messages WHERE o.amount > 100
  - view: sums
    sql: SELECT sum(amount) AS amount FROM big
    watermark: {column: storeTimestamp, delay_ms: 10m}
sinks:
  - format: parquet
    path: /data/out
    partition_by: [id]
    from: big
  - name: warehouse
    format: jdbc
    url: jdbc:derby:memory:x
    table: t
    password: {env: DB_PASSWORD}
  - format: flintmq
    nameServer: 127.0.0.1:9876
    topic: big-orders
stream:
  checkpoint: /data/checkpoint
  trigger: processingTime
  interval_ms: 5s
"""


def test_all_sections_of_a_pipeline_file_are_read() -> None:
    """The file of the documentation: every section and kind of sink arrives as what it says, defaults filled in."""
    pipeline = load_pipeline_text(WHOLE).pipeline
    assert (pipeline.name, pipeline.is_streaming, pipeline.views) == ("orders", True, ("messages", "big", "sums"))
    assert pipeline.source["startingOffsets"] == "earliest"
    parquet, jdbc, topic = pipeline.sinks
    assert isinstance(parquet, FileSink)
    assert (parquet.name, parquet.view, parquet.partition_by) == ("parquet", "big", ("id",))
    assert isinstance(jdbc, JdbcSink)
    assert jdbc.password == Reference(env="DB_PASSWORD")
    assert isinstance(topic, TopicSink)
    assert topic.options == {"nameServer": "127.0.0.1:9876", "topic": "big-orders"}
    assert pipeline.stream is not None
    assert pipeline.stream.interval_ms == 5_000
    watermark = pipeline.steps[1].watermark
    assert watermark is not None
    assert watermark.delay_ms == 600_000


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("sinks:", "sink:", 17, "unknown key 'sink'; did you mean 'sinks'"),
        ("  format: json", "  fromat: json", 7, "did you mean 'decode.format'"),
        ("format: json", "format: jsn", 7, "must be one of binary, string, json, avro, protobuf"),
        ("  schema: id BIGINT, amount DOUBLE\n", "", 7, "a 'schema' or a 'schema_file'"),
        ("from: big", "from: bgi", 21, "did you mean 'big'"),
        ("- view: sums", "- view: big", 14, "another view already has the name 'big'"),
        ("- view: big", "- view: 'big orders'", 12, "letters, digits and underscores"),
        ("    sql: SELECT sum(amount) AS amount FROM big\n", "", 14, "exactly one of 'sql' and 'sql_file'"),
        ("format: jdbc", "format: jdcb", 23, "did you mean 'jdbc'"),
        ("    table: t\n", "", 22, "'sinks[1].table' is required"),
        ("{env: DB_PASSWORD}", "{evn: DB_PASSWORD}", 26, "did you mean 'sinks[1].password.env'"),
        ("{env: DB_PASSWORD}", "hunter2", 26, "may not stand here in plain text"),
        ("  subscribe: orders", "  accessKey: abc", 4, "may not stand here in plain text"),
        ("interval_ms: 5s", "interval_ms: 5 parsecs", 33, "a duration such as"),
        ("  trigger: processingTime\n", "", 32, "'stream.interval_ms' is only for the trigger processingTime"),
        ("    path: /data/out", "    path: /data/out\n    mode: append", 20, "has a meaning only without 'stream'"),
        ("    from: big", "    from: big\n    name: warehouse", 23, "another sink already has the name 'warehouse'"),
        ("  checkpoint: /data/checkpoint\n", "", 30, "'stream.checkpoint' is required"),
        ("name: orders", "name: or/ders", 1, "letters, digits"),
    ],
)
def test_the_error_about_an_invalid_key_names_its_line_in_the_pipeline_file(
    old: str, new: str, line: int, says: str
) -> None:
    """Somebody who mistypes a key must not have to search: the line, and the nearest name there is."""
    assert old in WHOLE
    with pytest.raises(ConfigError) as failure:
        load_pipeline_text(WHOLE.replace(old, new, 1), name="orders.yaml")
    assert says in str(failure.value)
    assert str(failure.value).startswith(f"orders.yaml:{line}:")


def test_the_error_about_a_plain_text_secret_does_not_repeat_the_secret() -> None:
    """The error that refuses a password in the file must not print it."""
    with pytest.raises(ConfigError) as failure:
        load_pipeline_text(WHOLE.replace("{env: DB_PASSWORD}", "hunter2"))
    assert "hunter2" not in str(failure.value)


def test_stream_settings_are_refused_in_a_batch_pipeline() -> None:
    """Without 'stream' a watermark or an output mode would silently do nothing."""
    batch = WHOLE[: WHOLE.index("stream:")]
    with pytest.raises(ConfigError, match=r"'steps\[1\].watermark' has a meaning only with 'stream'"):
        load_pipeline_text(batch)


def test_command_line_settings_override_the_pipeline_file(tmp_path: Path) -> None:
    """One file serves several machines: --set changes single values, and is named where it is wrong."""
    file = tmp_path / "some-orders.yaml"
    file.write_text(WHOLE.replace("name: orders\n", ""))
    loaded = load_pipeline(file, ["source.subscribe=payments", "stream.trigger=availableNow", "stream.interval_ms=0"])
    assert loaded.pipeline.name == "some_orders"
    assert loaded.pipeline.source["subscribe"] == "payments"
    with pytest.raises(ConfigError, match=r"command line: 'stream\.trigger' must be one of"):
        load_pipeline(file, ["stream.trigger=never"])
    with pytest.raises(ConfigError, match="is a list"):
        load_pipeline(file, ["sinks.path=x"])


def test_unnamed_sinks_are_named_after_their_formats() -> None:
    """Checkpoints lie under these names, so they must not depend on anything but the file."""
    text = "source: {path: /s}\nsinks: [{format: console}, {format: parquet, path: /a}, {format: parquet, path: /b}]\n"
    assert [sink.name for sink in load_pipeline_text(text).pipeline.sinks] == ["console", "parquet2", "parquet3"]


def test_a_pipeline_needs_a_source_and_a_sink() -> None:
    """The error must say which section is missing."""
    with pytest.raises(ConfigError, match="'source' is required"):
        load_pipeline_text("")
    with pytest.raises(ConfigError, match="'sinks' is required"):
        load_pipeline_text("source: {path: /s}\n")


def test_messages_whose_bodies_cannot_be_decoded_can_be_provided_in_a_separate_view() -> None:
    """Sinks find it by name; the last view stays the one they take by default."""
    text = WHOLE.replace("on_error: drop", "on_error: reject").replace("    from: big", "    from: rejects")
    pipeline = load_pipeline_text(text).pipeline
    assert (pipeline.views, pipeline.sinks[0].view) == (("rejects", "messages", "big", "sums"), "rejects")
    named = load_pipeline_text(
        text.replace("  into: o\n", "  into: o\n  rejects: bad\n").replace("from: rejects", "from: bad")
    )
    assert named.pipeline.views[0] == "bad"
    for before, after, says in (
        ("  into: o\n", "  into: o\n  rejects: messages\n", "another view already has the name 'messages'"),
        ("- view: big", "- view: Rejects", "another view already has the name 'Rejects'"),
        ("on_error: reject", "on_error: drop", "there is no view 'rejects'"),
    ):
        with pytest.raises(ConfigError, match=says):
            load_pipeline_text(text.replace(before, after))
