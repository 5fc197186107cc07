"""Only the columns that a query uses are made, and what it finds is what it would find with all of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flintmq.plugins.spark.schema import ALL_NAMES
from flintmq.testing.store import message, open_store

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

COUNT = 120


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of two queues, three tags."""
    root = tmp_path_factory.mktemp("used") / "store"
    store = open_store(root)
    for number in range(COUNT):
        store.put(
            [message(("orders", "payments")[number % 2], number // 2 % 2, b"%d" % number, tags="abc"[number % 3])]
        )
    store.dispatch()
    store.close()
    return root


def scanned(frame: Any) -> list[list[str]]:
    """The columns that each scan of a query makes, as its plan says."""
    scans = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    outputs = [scans.apply(number).output() for number in range(scans.size())]
    return [[output.apply(number).name() for number in range(output.size())] for output in outputs]


def test_a_query_decodes_only_the_columns_it_uses(spark: Any, filled: Path) -> None:
    """Unused columns would cost most of the time of a read."""
    frame = spark.read.format("flintmq").load(str(filled))
    assert scanned(frame.groupBy().count()) == [["queueOffset"]]
    assert scanned(frame.select("body", "topic")) == [["topic", "body"]]
    assert scanned(frame.where("tags = 'a'").groupBy().count()) == [["tags"]]
    assert scanned(frame.where("tags = 'a' and length(body) > 1").groupBy("topic").count()) == [
        ["topic", "tags", "body"]
    ]
    assert scanned(frame.selectExpr("properties['TAGS'] as t")) == [["properties"]]
    others = frame.selectExpr("physicalOffset", "keys as other")
    joined = frame.join(others, "physicalOffset").select("topic", "other")
    assert scanned(joined) == [["topic", "physicalOffset"], ["physicalOffset", "keys"]]
    assert scanned(frame) == [list(ALL_NAMES)]
    narrow = spark.read.format("flintmq").option("columns", "body,tags,topic").load(str(filled))
    assert scanned(narrow.groupBy().count()) == [["body"]]
    assert narrow.count() == COUNT


def test_column_pruning_does_not_change_the_rows(spark: Any, filled: Path) -> None:
    """Each scan of the same frame asks for other columns, and a cached frame must keep its own."""
    frame = spark.read.format("flintmq").load(str(filled))
    whole = frame.orderBy("physicalOffset").collect()
    assert frame.count() == len(whole) == COUNT
    for names in (["topic", "body"], ["queueOffset"], ["tags", "queueId", "storeTimestamp"], ["body", "topic"]):
        rows = frame.orderBy("physicalOffset").select(*names).collect()
        assert [tuple(row) for row in rows] == [tuple(row[name] for name in names) for row in whole]
    assert frame.where("tags = 'a' and queueId = 1").count() == sum(
        row.tags == "a" and row.queueId == 1 for row in whole
    )
    cached = frame.select("topic", "tags").cache()
    assert cached.count() == COUNT
    assert cached.where("tags = 'b'").count() == COUNT // 3
    cached.unpersist()
    both = frame.select("topic", "body").union(frame.select("tags", "body"))
    assert both.distinct().count() == 2 * COUNT
    assert (
        frame.join(frame.select("physicalOffset", "tags").withColumnRenamed("tags", "other"), "physicalOffset").count()
        == COUNT
    )


def test_columns_used_only_by_pushed_down_filters_are_not_pruned(spark: Any, filled: Path) -> None:
    """With the option ``pushdown``, Spark asks the reader before the columns are pruned."""
    frame = spark.read.format("flintmq").option("pushdown", True).load(str(filled))
    assert frame.where("tags = 'a'").count() == COUNT // 3
    assert frame.where("topic = 'orders' and queueOffset < 5").select("body").count() == 10


def test_catalog_tables_keep_their_options_when_columns_are_pruned(spark: Any, filled: Path) -> None:
    """A pruned read of a table must still choose the same topics."""
    spark.sql("DROP TABLE IF EXISTS used_columns")
    spark.sql(f"CREATE TABLE used_columns USING flintmq OPTIONS (path '{filled}', subscribe 'orders')")
    try:
        assert spark.sql("SELECT count(*) FROM used_columns").first()[0] == COUNT // 2
        assert spark.sql("SELECT count(DISTINCT body) FROM used_columns WHERE tags = 'a'").first()[0] == COUNT // 6
    finally:
        spark.sql("DROP TABLE used_columns")


def test_the_column_pruning_rule_is_registered_once(spark: Any) -> None:
    """A program may register the source several times, and rules of other packages must stay."""
    from flintmq.plugins.spark import register

    register(spark)
    register(spark)
    rules = spark._jsparkSession.experimental().extraOptimizations()
    assert [rules.apply(number).ruleName() for number in range(rules.size())] == ["flintmq.ColumnPruning"]


def test_the_row_count_of_a_dataframe_includes_the_rows_for_damaged_records(
    spark: Any, filled: Path, tmp_path: Path
) -> None:
    """``count()`` reads one column, which the consume queues have; they do not show the damage."""
    places = spark.read.format("flintmq").option("columns", "physicalOffset").load(str(filled)).collect()
    root = tmp_path / "damaged"
    shutil.copytree(filled, root)
    file = min((root / "commitlog").iterdir())
    raw = bytearray(file.read_bytes())
    for row in sorted(places)[5:8]:
        raw[row.physicalOffset + 4] ^= 0xFF
    file.write_bytes(raw)
    frame = spark.read.format("flintmq").option("badRecords", "keep").load(str(root))
    assert frame.columns == [*ALL_NAMES, "badRecord"]
    assert frame.count() == len(frame.collect()) == COUNT - 3 + 1
    assert [row.physicalOffset for row in frame.where("badRecord IS NOT NULL").collect()] == [
        sorted(places)[5].physicalOffset
    ]
