"""Delta tables without a jar and without a Spark: files by tasks, one commit by the driver, each batch once."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from deltalake import DeltaTable  # noqa: E402
from pyspark.sql import types as spark  # noqa: E402

from flintmq.plugins.spark.errors import OptionError, SchemaError  # noqa: E402
from flintmq.plugins.spark.pipeline import delta_source  # noqa: E402
from flintmq.plugins.spark.pipeline.delta_source import DeltaSource, DeltaWriter, local_folder, partition_values  # noqa: E402

SCHEMA = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("city", spark.StringType()),
        spark.StructField("at", spark.TimestampType()),
        spark.StructField("counts", spark.MapType(spark.StringType(), spark.IntegerType())),
    ]
)
NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


class _Context:
    """What a task knows of its query."""

    query_id: str | None = None

    def getLocalProperty(self, _name: str) -> str | None:  # noqa: N802 -- Spark's
        return self.query_id


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> _Context:
    """The task context of Spark's workers."""
    context = _Context()
    monkeypatch.setattr(delta_source.TaskContext, "get", lambda: context)
    return context


def rows(first: int, last: int, zone: str = "UTC") -> Any:
    """A batch as Spark hands it to writers: timestamps in the session's zone."""
    ids = range(first, last)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "city": [None if n % 5 == 4 else f"c {n % 5}/ä" for n in ids],
            "at": pa.array([NOON for _ in ids], pa.timestamp("us", tz=zone)),
            "counts": pa.array([[("a", n)] for n in ids], pa.map_(pa.string(), pa.int32())),
        }
    )


def table_of(folder: Path, *partition_by: str, overwrite: bool = False) -> DeltaWriter:
    return DeltaWriter(folder, SCHEMA.json(), partition_by, overwrite)


def content(folder: Path) -> list[dict[str, Any]]:
    found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("partition_by", [(), ("city",)])
def test_rows_written_by_all_tasks_become_visible_at_the_delta_commit(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """Two tasks write, one of them nothing; readers see all rows at once, with nulls, blanks and slashes in partition names."""
    table = table_of(tmp_path / "t", *partition_by)
    messages = [table.write(iter([rows(0, 10, "Europe/Berlin"), rows(10, 20)])), table.write(iter([]))]
    assert not DeltaTable.is_deltatable(str(tmp_path / "t"))
    table.commit(messages)
    found = content(tmp_path / "t")
    assert [row["id"] for row in found] == list(range(20))
    assert [row["city"] for row in found[:5]] == ["c 0/ä", "c 1/ä", "c 2/ä", "c 3/ä", None]
    assert found[7]["at"] == NOON
    assert found[7]["counts"] == [("a", 7)]
    replacing = table_of(tmp_path / "t", *partition_by, overwrite=True)
    replacing.commit([replacing.write(iter([rows(5, 6)]))])
    assert [row["id"] for row in content(tmp_path / "t")] == [5]


def test_a_repeated_batch_is_committed_to_the_delta_table_once(tmp_path: Path, task: _Context) -> None:
    """A driver killed behind its commit runs the batch again: the rows are there already, and the new files go away."""
    task.query_id = "5f1c"
    table = table_of(tmp_path)
    table.commit([table.write(iter([rows(0, 3)]))], 0)
    table.commit([table.write(iter([rows(3, 6)]))], 1)
    again = table.write(iter([rows(3, 6)]))
    table.commit([again], 1)
    assert [row["id"] for row in content(tmp_path)] == list(range(6))
    assert not any((tmp_path / file.path).exists() for file in again.files)
    task.query_id = "another"
    table.commit([table.write(iter([rows(6, 7)]))], 0)
    assert len(content(tmp_path)) == 7


def test_files_of_a_failed_write_to_a_delta_table_are_removed(tmp_path: Path) -> None:
    """An abort leaves neither rows nor files, also where a task's message is missing."""
    table = table_of(tmp_path, "city")
    written = table.write(iter([rows(0, 10)]))
    assert all((tmp_path / file.path).exists() for file in written.files)
    table.abort([written, None])
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_delta_table_with_unexpected_columns_or_partitions_is_refused(tmp_path: Path) -> None:
    """Files with other columns would make the whole table unreadable."""
    table_of(tmp_path).commit([])
    wider = spark.StructType([*SCHEMA.fields, spark.StructField("more", spark.StringType())])
    options = {"path": str(tmp_path)}
    with pytest.raises(SchemaError, match="other columns than the rows: more differ"):
        DeltaSource(options).writer(wider, False)
    with pytest.raises(SchemaError, match="partitioned by nothing"):
        DeltaSource(options | {"partitionBy": "city"}).writer(SCHEMA, False)
    with pytest.raises(SchemaError, match="cannot be partitioned by at, a timestamp"):
        DeltaSource({"path": str(tmp_path / "new"), "partitionBy": "at"}).writer(SCHEMA, False)
    assert DeltaSource(options).streamWriter(SCHEMA, False) is not None


def test_the_option_merge_schema_adds_new_columns_to_a_delta_table(tmp_path: Path, task: _Context) -> None:
    """Delta's mergeSchema: the table gets the columns, rows without one have null; another type is refused still."""
    task.query_id = "q"
    first = table_of(tmp_path)
    first.commit([first.write(iter([rows(0, 2)]))], 0)
    wider = spark.StructType([*SCHEMA.fields[:2], spark.StructField("more", spark.StringType())])
    options = {"path": str(tmp_path), "mergeSchema": "true"}
    second = DeltaSource(options).streamWriter(wider, False)
    batch = pa.record_batch({"id": [2], "city": ["x"], "more": ["new"]})
    written = second.write(iter([batch]))
    second.commit([written], 1)
    second.commit([second.write(iter([batch]))], 1)  # run again after a crash
    assert [(row["id"], row["more"], row["at"] is None) for row in content(tmp_path)] == [
        (0, None, False),
        (1, None, False),
        (2, "new", True),
    ]
    first.commit([first.write(iter([rows(3, 4)]))], 2)  # a task that began before
    assert len(content(tmp_path)) == 4
    other = spark.StructType([spark.StructField("id", spark.StringType())])
    with pytest.raises(SchemaError, match="other columns than the rows: id differ"):
        DeltaSource(options).writer(other, False)


def test_a_delta_table_address_other_than_a_local_folder_is_refused() -> None:
    """A table that each worker writes to a folder of that name would be lost."""
    assert local_folder("file:///data/a%20b") == Path("/data/a b")
    assert local_folder("lake").is_absolute()
    with pytest.raises(OptionError, match=r"spark\.jars\.packages"):
        local_folder("s3://bucket/lake")


def test_partition_values_of_a_delta_table_are_read_from_paths() -> None:
    """Writers of partition folders escape values and have a special word for null."""
    assert partition_values("a=1/b=x%2Fy%20z/part.parquet") == {"a": "1", "b": "x/y z"}
    assert partition_values("a=__HIVE_DEFAULT_PARTITION__/part.parquet") == {"a": None}
    assert partition_values("part.parquet") == {}
