"""Rows to messages to a broker, without Spark: what a row becomes, what is refused, what is sent again."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from served import Served

from flintmq.core.errors import RefusedError, RemotingError
from flintmq.plugins.spark.errors import OptionError, RowError, SchemaError, SparkPluginError
from flintmq.plugins.spark.options import WriteOptions
from flintmq.plugins.spark.schema import check_sent_columns
from flintmq.plugins.spark.wire import client as wire_client
from flintmq.plugins.spark.wire.sending import Sender, row_messages
from flintmq.remoting.client.producer import Producer

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        one.create_topic("out")
        yield one


def options(served: Served | None = None, **more: str) -> WriteOptions:
    return WriteOptions.parse({"nameServer": served.namesrv if served else "h:1", "topic": "out"} | more)


def batch(**columns: Any) -> Any:
    types = {"properties": pa.map_(pa.string(), pa.string()), "flag": pa.int32(), "delayLevel": pa.int32()}
    arrays = [pa.array(values, types.get(name)) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def send(chosen: WriteOptions, *batches: Any) -> Sender:
    with contextlib.closing(Sender(chosen)) as sender:
        for message in row_messages(batches, chosen, "q:0:0"):
            sender.send(message)
        sender.flush()
        return sender


def test_each_sent_message_has_the_body_and_the_tags_and_the_keys_of_its_spark_row(served: Served) -> None:
    """Every column arrives where consumers look for it; properties of the message that was read are not passed on."""
    rows = batch(
        body=["text", "ä"],
        tags=["a", None],
        keys=["k1 k2", None],
        flag=[5, None],
        properties=[[("mine", "1"), ("UNIQ_KEY", "old"), ("TAGS", "x")], [("TAGS", "x"), ("KEYS", "k3")]],
        queueOffset=[7, 8],
    )
    send(options(served, sendBatch="10"), rows)
    first, second = sorted(served.messages("out"), key=lambda message: message.properties["SPARK_TXN"])
    assert (first.body, first.tags, first.keys, first.flag, first.properties["mine"]) == (
        b"text",
        "a",
        ("k1", "k2"),
        5,
        "1",
    )
    assert first.properties["UNIQ_KEY"] != "old"
    assert (second.body.decode(), second.tags, second.keys, second.flag) == ("ä", "x", ("k3",), 0)
    assert [first.properties["SPARK_TXN"], second.properties["SPARK_TXN"]] == ["q:0:0:0", "q:0:0:1"]


def test_rows_are_sent_in_batches(served: Served) -> None:
    """Batches by number and by size, several topics at once, and each row exactly once when nothing goes wrong."""
    served.create_topic("other")
    count = 2_500
    rows = batch(
        body=[f"{n}".encode() for n in range(count)], topic=["out" if n % 2 else "other" for n in range(count)]
    )
    large = batch(body=[b"x" * 300_000] * 10, topic=["out"] * 10)
    sender = send(attrs.evolve(options(served, sendBatch="100"), topic=None), rows, large)
    found = served.messages("out") + served.messages("other")
    assert Counter(message.body for message in found) == Counter(
        [*(f"{n}".encode() for n in range(count)), *[b"x" * 300_000] * 10]
    )
    assert (sender.rows, sender.repeated) == (count + 10, 0)
    assert 26 <= sender.requests <= 40


def test_rows_with_the_same_sharding_key_keep_their_order(served: Served) -> None:
    """Rows of a sharding key lie in one queue, in the order they were sent, though requests overlap."""
    count = 600
    rows = batch(body=[f"{n}".encode() for n in range(count)], shardingKey=[f"k{n % 7}" for n in range(count)])
    send(options(served, sendBatch="10", sendPipeline="8"), rows)
    by_key: dict[int, list[Any]] = {key: [] for key in range(7)}
    for message in served.messages("out"):
        by_key[int(message.body) % 7].append(message)
    for key, messages in by_key.items():
        assert len({message.queue_id for message in messages}) == 1
        assert [int(message.body) for message in messages] == list(range(key, count, 7))


def test_delayed_and_compressed_messages_are_not_sent_in_batches(served: Served) -> None:
    """The protocol allows neither of them in a batch."""
    rows = batch(body=[b"now", b"later", b"y" * 20_000], delayLevel=[None, 1, 0])
    sender = send(options(served, compressOver="10k"), rows)
    assert sender.requests == 3
    bodies = {message.body for message in served.messages("out")}
    assert bodies >= {b"now", b"y" * 20_000}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"body": [b"a", None]}, "row q:0:0:1: body is null"),
        ({"body": [b"x" * 5_000]}, "the body has 5000 bytes, but at most 4096 are sent.*maxMessageSize"),
        ({"body": [b"a"], "properties": [[("a\x01b", "c")]]}, "row q:0:0:0: property .* separator"),
    ],
)
def test_the_error_about_an_unsendable_row_names_the_row(served: Served, columns: dict[str, Any], says: str) -> None:
    """The user must find it among a million rows, and learn the remedy."""
    with pytest.raises(RowError, match=says):
        send(options(served, maxMessageSize="4096"), batch(**columns))


def test_the_topic_option_of_a_write_overrides_the_topic_column(served: Served) -> None:
    """Rows that were read keep the topic that they came from in a column: copied, they must not go back there."""
    served.create_topic("source")
    rows = batch(body=[b"1", b"2", b"3"], topic=["source", None, ""])
    send(options(served), rows)
    assert sorted(message.body for message in served.messages("out")) == [b"1", b"2", b"3"]
    assert served.messages("source") == []


def test_the_error_about_a_missing_topic_names_the_row() -> None:
    """A null in the column 'topic' has no option to fall back to."""
    chosen = WriteOptions.parse({"nameServer": "h:1"})
    with pytest.raises(RowError, match="row q:0:0:0: the column 'topic' is null"):
        list(row_messages([batch(body=[b"a"], topic=[None])], chosen, "q:0:0"))


def test_a_row_is_sent_again_after_a_temporary_failure(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy broker and a lost answer cost time, not rows; a refusal for good fails at once with the broker's words."""
    monkeypatch.setattr(wire_client, "PAUSE_S", 0.001)
    real = Producer.send_batch
    trouble: list[Exception] = [RefusedError(2, "busy", reason="x"), RemotingError("connection lost")]

    async def troubled(self: Producer, *arguments: Any, **more: Any) -> Any:
        if trouble:
            raise trouble.pop()
        return await real(self, *arguments, **more)

    monkeypatch.setattr(Producer, "send_batch", troubled)
    rows = batch(body=[f"{n}".encode() for n in range(50)])
    sender = send(options(served), rows)
    assert (sender.rows, sender.requests, sender.repeated) == (50, 1, 1)
    assert len(served.messages("out")) == 50
    trouble.append(RefusedError(16, "the broker is not writeable", reason="x"))
    with pytest.raises(SparkPluginError, match=r"not writeable \(50 rows to out, q:0:0:0 to q:0:0:49, attempt 1\)"):
        send(options(served), rows)
    trouble += [RemotingError("connection lost")] * 3
    with pytest.raises(SparkPluginError, match=r"rows to topic out failed in attempt 3: .*connection lost"):
        send(options(served, sendAttempts="3"), rows)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": "x"}, "nameServer and brokerAddr"),
        ({"nameServer": "h:1", "brokerAddr": "h:2"}, "nameServer and brokerAddr"),
        ({"nameServer": "h:1", "sendBtach": "3"}, "did you mean 'sendBatch'"),
        ({"nameServer": "h:1", "sendBatch": "5000"}, "sendBatch must be at most 4096"),
    ],
)
def test_write_options_are_refused_if_an_option_is_missing_or_conflicting_or_unknown_or_too_large(
    given: dict[str, str], says: str
) -> None:
    """The error must come on the driver, before any row is sent."""
    with pytest.raises(OptionError, match=says):
        WriteOptions.parse(given)


def schema(**columns: str) -> Any:
    """A schema of Spark's by its types' names; no session is needed."""
    types = pytest.importorskip("pyspark.sql.types")
    known = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "map": types.MapType(types.StringType(), types.IntegerType()),
    }
    return types.StructType([types.StructField(name, known[kind]) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"payload": "binary"}, "payload"),
        ({"body": "int"}, "body must be binary or string, not int: cast it"),
        ({"tags": "string"}, "no column body"),
        ({"body": "binary", "tag": "string"}, "did you mean 'tags'"),
        ({"body": "binary", "properties": "map"}, "properties must be"),
    ],
)
def test_a_write_refuses_unknown_columns(columns: dict[str, str], says: str) -> None:
    """A misspelt column that is silently left out costs data."""
    with pytest.raises(SchemaError, match=says):
        check_sent_columns(schema(**columns), has_topic=True)


def test_columns_that_are_used_only_by_reads_are_ignored_by_a_write() -> None:
    """Copying a topic must work without dropping columns; without a topic anywhere it must not."""
    rows = schema(body="binary", queueOffset="bigint", sysFlag="int")
    check_sent_columns(rows, has_topic=True)
    with pytest.raises(SchemaError, match="option topic"):
        check_sent_columns(rows, has_topic=False)
