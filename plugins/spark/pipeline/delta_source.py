"""Writes Delta tables without a jar: tasks write Parquet files, and the driver commits them with delta-rs in one transaction.

Readers ignore files that no commit names, so neither a killed task nor a killed driver leaves rows. A stream's commit contains
the query's id and the batch's number (Delta's ``txn`` action). A repeated batch is recognized by these two values and not
committed again. A stream therefore writes each row exactly once.
"""

from __future__ import annotations

import json
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flintmq.core.io.paths import sync_file, sync_folder
from flintmq.plugins.spark.errors import OptionError, SchemaError
from flintmq.plugins.spark.spark_api import DataSourceStreamArrowWriter, to_arrow_schema

if TYPE_CHECKING:
    import pyarrow

FORMAT: Final = "flintmq_delta"
QUERY_ID: Final = "sql.streaming.queryId"
"""Name of a local property of Spark tasks, whose value is the id of the streaming query. The id stays the same after a restart
of the query."""
NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
PARTITION_TYPES: Final = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")
ROWS_PER_FILE: Final = 5_000_000
ROWS_PER_GROUP: Final = 131_072


@attrs.frozen
class WrittenFile:
    """A Parquet file of a Delta table that a Spark task wrote."""

    path: str
    """Path of the written file, relative to the table's folder."""
    size_bytes: int
    rows: int


@attrs.frozen
class WrittenFiles(WriterCommitMessage):
    """The Parquet files of a Delta table that one Spark task wrote."""

    files: tuple[WrittenFile, ...]
    query_id: str | None
    """Id of the streaming query; None for a batch query."""


class DeltaSource(DataSource):
    """Spark's format ``flintmq_delta``, which only writes.

    Its options are ``path`` (a local or shared folder), ``partitionBy`` (column names) and ``mergeSchema``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        raise OptionError(f"{FORMAT} only writes")

    def writer(self, schema: StructType, overwrite: bool) -> DeltaWriter:
        return _writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaWriter:  # noqa: N802 -- Spark's
        return _writer(self.options, schema, overwrite)


@attrs.frozen
class DeltaWriter(DataSourceStreamArrowWriter, DataSourceArrowWriter):
    """Writes the files of a batch or micro-batch to a Delta table, and commits the files in one transaction. Instances are
    picklable."""

    folder: Path
    schema_json: str
    partition_by: tuple[str, ...] = ()
    overwrite: bool = False
    merge_schema: bool = False
    """Whether columns may differ (Delta's ``mergeSchema``). If True, columns that only the rows have are added to the table,
    and columns that only the table has are null in the new rows."""

    @property
    def arrow_schema(self) -> pyarrow.Schema:
        """The columns of the Delta table as an Arrow schema, with timestamps in UTC."""
        return to_arrow_schema(StructType.fromJson(json.loads(self.schema_json)))

    def check(self) -> None:
        """Raise SchemaError if the Delta table exists with other columns or another partitioning than the rows to write."""
        from deltalake import DeltaTable, Schema

        if not DeltaTable.is_deltatable(str(self.folder)):
            return
        there = DeltaTable(str(self.folder))
        mine = {field.name: str(field.type) for field in Schema.from_arrow(self.arrow_schema).fields}
        theirs = {field.name: str(field.type) for field in there.schema().fields}
        names = mine.keys() & theirs.keys() if self.merge_schema else mine.keys() | theirs.keys()
        other = sorted(name for name in names if mine.get(name) != theirs.get(name))
        if other:
            hint = "" if self.merge_schema else "; with the option mergeSchema=true new ones are added"
            raise SchemaError(
                f"the Delta table {self.folder} has other columns than the rows: {', '.join(other)} differ{hint}"
            )
        if tuple(there.metadata().partition_columns) != self.partition_by:
            theirs_by = ", ".join(there.metadata().partition_columns) or "nothing"
            raise SchemaError(
                f"the Delta table {self.folder} is partitioned by {theirs_by}: make partition_by the same"
            )

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WrittenFiles:
        """Write the rows of a Spark task to Parquet files, sync the files to disk, and return them. Called by Spark in a
        worker."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        schema = self.arrow_schema
        found: list[WrittenFile] = []

        def written(file: Any) -> None:
            place = Path(file.path)
            if file.metadata.num_rows:
                relative = str(place.relative_to(self.folder))
                found.append(WrittenFile(relative, place.stat().st_size, file.metadata.num_rows))
            else:  # The Arrow writer creates an empty file for a task without rows, so the empty file is deleted.
                place.unlink()

        partitioning = None
        if self.partition_by:
            fields = pa.schema([schema.field(name) for name in self.partition_by])
            partitioning = ds.partitioning(fields, flavor="hive")
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in iterator)),
            self.folder,
            format="parquet",
            partitioning=partitioning,
            basename_template=f"part-{uuid.uuid4()}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
            file_visitor=written,
            max_rows_per_file=ROWS_PER_FILE,
            max_rows_per_group=ROWS_PER_GROUP,
        )
        places = [self.folder / file.path for file in found]
        for place in places:
            sync_file(place)
        for folder in {place.parent for place in places}:
            sync_folder(folder)
        return WrittenFiles(tuple(found), TaskContext.get().getLocalProperty(QUERY_ID))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 -- Spark's
        """Add the files of a batch's tasks to the Delta table in one transaction. If the batch is already committed, remove the
        files instead."""
        from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
        from deltalake.transaction import AddAction

        schema = Schema.from_arrow(self.arrow_schema)
        if not DeltaTable.is_deltatable(str(self.folder)):
            DeltaTable.create(str(self.folder), schema, partition_by=list(self.partition_by))
        table = DeltaTable(str(self.folder))
        if self.merge_schema:
            known = {field.name for field in table.schema().fields}
            new = [Field(field.name, field.type, nullable=True) for field in schema.fields if field.name not in known]
            if new:
                table.alter.add_columns(new)
                table = DeltaTable(str(self.folder))
            schema = table.schema()
        tasks = [message for message in messages if isinstance(message, WrittenFiles)]
        properties = None
        query_id = next((task.query_id for task in tasks if task.query_id), None)
        if batchId is not None and query_id is not None:
            done = table.transaction_version(f"flintmq:{query_id}")
            if done is not None and done >= batchId:
                self.abort(messages)
                return
            properties = CommitProperties(app_transactions=[Transaction(f"flintmq:{query_id}", batchId)])
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(
                file.path,
                file.size_bytes,
                partition_values(file.path),
                now_ms,
                True,
                json.dumps({"numRecords": file.rows}),
            )
            for task in tasks
            for file in task.files
        ]
        if actions or self.overwrite:
            mode = "overwrite" if self.overwrite else "append"
            table.create_write_transaction(actions, mode, schema, list(self.partition_by), commit_properties=properties)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 -- Spark's
        """Remove the files that the tasks of a failed batch wrote to the Delta table's folder."""
        for message in messages:
            for file in message.files if isinstance(message, WrittenFiles) else ():
                (self.folder / file.path).unlink(missing_ok=True)


def partition_values(path: str) -> dict[str, str | None]:
    """Return the values of a Delta table's partition columns in the path of a data file, such as
    ``day=2026-01-31/part-….parquet``."""
    found: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, _, value = part.partition("=")
        found[urllib.parse.unquote(name)] = None if value == NO_PARTITION else urllib.parse.unquote(value)
    return found


def local_folder(path: str) -> Path:
    """Return the folder of a Delta table that a path or a ``file:`` address names.

    Raises:
        OptionError: the path is not on a file system of this machine.
    """
    address = urllib.parse.urlsplit(path)
    if address.scheme == "file" and address.netloc in ("", "localhost"):
        return Path(urllib.parse.unquote(address.path))
    if address.scheme:
        raise OptionError(
            f"{path[:200]}: without a jar, Delta tables are written to local or shared folders; for object stores "
            "add Delta's jar by spark.jars.packages and io.delta.sql.DeltaSparkSessionExtension to spark.sql.extensions"
        )
    return Path(path).absolute()


def _writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DeltaWriter:
    if not options.get("path"):
        raise OptionError(f"{FORMAT} needs the option path")
    partition_by = tuple(name.strip() for name in (options.get("partitionBy") or "").split(",") if name.strip())
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in partition_by:
        if types.get(name) not in PARTITION_TYPES:
            raise SchemaError(
                f"a table cannot be partitioned by {name}, a {types.get(name, 'column that is not there')}"
            )
    merge_schema = (options.get("mergeSchema") or "").strip().lower() == "true"
    writer = DeltaWriter(local_folder(options["path"]), schema.json(), partition_by, overwrite, merge_schema)
    writer.check()
    return writer
