"""Writes Delta tables without a jar: tasks write Parquet files, the driver commits them with delta-rs in one transaction.

Files that no commit names do not exist for readers, so neither a killed task nor a killed driver leaves rows behind. A stream's
commit carries the query and the number of its batch (Delta's ``txn`` action): a batch that is run again is recognised and not
committed again. So streams are exactly-once.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from flintmq.plugins.spark.errors import OptionError, SchemaError

if TYPE_CHECKING:
    import pyarrow

FORMAT: Final = "flintmq_delta"
QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark tells tasks the streaming query's id; it survives restarts."""
NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
PARTITION_TYPES: Final = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")
ROWS_PER_FILE: Final = 5_000_000
ROWS_PER_GROUP: Final = 131_072


@attrs.frozen
class WrittenFile:
    """A Parquet file that a commit may name."""

    path: str
    """Relative to the table's folder."""
    size_bytes: int
    rows: int


@attrs.frozen
class WrittenFiles(WriterCommitMessage):
    """What a task has written."""

    files: tuple[WrittenFile, ...]
    query_id: str | None
    """The streaming query's id."""


class DeltaSource(DataSource):
    """``format("flintmq_delta")``: write only. Options: ``path``, a local or shared folder; ``partitionBy``, column names."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        raise OptionError(f"{FORMAT} only writes")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DeltaBatchWriter(_table(self.options, schema), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 -- Spark's
        return DeltaStreamWriter(_table(self.options, schema), overwrite)


@attrs.frozen
class DeltaTableWriter:
    """Writes files of one table and commits them. A value that pickles."""

    folder: Path
    schema_json: str
    partition_by: tuple[str, ...] = ()

    @property
    def arrow_schema(self) -> pyarrow.Schema:
        """The table's columns, timestamps in UTC."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema: pyarrow.Schema = to_arrow_schema(StructType.fromJson(json.loads(self.schema_json)), timezone="UTC")
        return schema

    def check(self) -> None:
        """Raise ``SchemaError`` where the table that is there has other columns."""
        from deltalake import DeltaTable, Schema

        if not DeltaTable.is_deltatable(str(self.folder)):
            return
        there = DeltaTable(str(self.folder))
        mine = {field.name: str(field.type) for field in Schema.from_arrow(self.arrow_schema).fields}
        theirs = {field.name: str(field.type) for field in there.schema().fields}
        other = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        if other:
            raise SchemaError(f"the Delta table {self.folder} has other columns: {', '.join(other)} differ")
        if tuple(there.metadata().partition_columns) != self.partition_by:
            theirs_by = ", ".join(there.metadata().partition_columns) or "nothing"
            raise SchemaError(
                f"the Delta table {self.folder} is partitioned by {theirs_by}: make partition_by the same"
            )

    def write(self, batches: Iterator[pyarrow.RecordBatch]) -> WrittenFiles:
        """What a task does: writes its rows, makes them durable, says where they are."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        schema = self.arrow_schema
        found: list[WrittenFile] = []

        def written(file: Any) -> None:
            relative = str(Path(file.path).relative_to(self.folder))
            found.append(WrittenFile(relative, Path(file.path).stat().st_size, file.metadata.num_rows))

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch.cast(schema)

        partitioning = None
        if self.partition_by:
            fields = pa.schema([schema.field(name) for name in self.partition_by])
            partitioning = ds.partitioning(fields, flavor="hive")
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(schema, rows()),
            self.folder,
            format="parquet",
            partitioning=partitioning,
            basename_template=f"part-{uuid.uuid4()}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
            file_visitor=written,
            max_rows_per_file=ROWS_PER_FILE,
            max_rows_per_group=ROWS_PER_GROUP,
        )
        kept = self._without_empty(found)
        self._make_durable(kept)
        return WrittenFiles(tuple(kept), TaskContext.get().getLocalProperty(QUERY_ID))

    def _without_empty(self, found: Sequence[WrittenFile]) -> list[WrittenFile]:
        """A task without rows still writes a file."""
        for file in found:
            if file.rows == 0:
                (self.folder / file.path).unlink()
        return [file for file in found if file.rows]

    def _make_durable(self, files: Iterable[WrittenFile]) -> None:
        places = [self.folder / file.path for file in files]
        for place in dict.fromkeys([*places, *(place.parent for place in places)]):
            handle = os.open(place, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def commit(self, messages: Sequence[WriterCommitMessage | None], overwrite: bool, batch_id: int | None) -> None:
        """Make files part of the table, all at once; those of a batch that is committed already are removed instead."""
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction
        from deltalake.transaction import AddAction

        schema = Schema.from_arrow(self.arrow_schema)
        if not DeltaTable.is_deltatable(str(self.folder)):
            DeltaTable.create(str(self.folder), schema, partition_by=list(self.partition_by))
        table = DeltaTable(str(self.folder))
        tasks = [message for message in messages if isinstance(message, WrittenFiles)]
        properties = None
        query_id = next((task.query_id for task in tasks if task.query_id), None)
        if batch_id is not None and query_id is not None:
            done = table.transaction_version(f"flintmq:{query_id}")
            if done is not None and done >= batch_id:
                self.remove(messages)
                return
            properties = CommitProperties(app_transactions=[Transaction(f"flintmq:{query_id}", batch_id)])
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
        if actions or overwrite:
            mode = "overwrite" if overwrite else "append"
            table.create_write_transaction(actions, mode, schema, list(self.partition_by), commit_properties=properties)

    def remove(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove files that no commit will name."""
        for message in messages:
            for file in message.files if isinstance(message, WrittenFiles) else ():
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / file.path).unlink()


class DeltaBatchWriter(DataSourceArrowWriter):
    """Writes one batch in one commit."""

    def __init__(self, table: DeltaTableWriter, overwrite: bool) -> None:
        self._table = table
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return self._table.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._table.commit(messages, self._overwrite, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._table.remove(messages)


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in one commit, once."""

    def __init__(self, table: DeltaTableWriter, overwrite: bool) -> None:
        self._table = table
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return self._table.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's
        self._table.commit(messages, self._overwrite, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's
        self._table.remove(messages)


def partition_values(path: str) -> dict[str, str | None]:
    """Columns and values out of a file's path, as ``day=2026-01-31/part-….parquet`` has them."""
    found: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, _, value = part.partition("=")
        found[urllib.parse.unquote(name)] = None if value == NO_PARTITION else urllib.parse.unquote(value)
    return found


def local_folder(path: str) -> Path:
    """The folder that a path or a ``file:`` address names.

    Raises:
        OptionError: it is on no file system that this process sees.
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


def _table(options: Mapping[str, str], schema: StructType) -> DeltaTableWriter:
    if not options.get("path"):
        raise OptionError(f"{FORMAT} needs the option path")
    partition_by = tuple(name.strip() for name in (options.get("partitionBy") or "").split(",") if name.strip())
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in partition_by:
        if types.get(name) not in PARTITION_TYPES:
            raise SchemaError(
                f"a table cannot be partitioned by {name}, a {types.get(name, 'column that is not there')}"
            )
    table = DeltaTableWriter(local_folder(options["path"]), schema.json(), partition_by)
    table.check()
    return table
