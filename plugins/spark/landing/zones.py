"""The forms of a landing zone: Parquet files by topic and day, and a Delta Lake table."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import attrs

from flintmq.core.io.disk import Disk
from flintmq.core.log_events import event_log
from flintmq.plugins.spark.landing.manifest import MANIFEST_FOLDER, Commit, LandedFile, Manifest, check_source
from flintmq.plugins.spark.landing.task import LandingError, LogSource

if TYPE_CHECKING:
    import pyarrow

log = event_log("flintmq.landing")

ROW_GROUP_BYTES: Final = 128 * 1024 * 1024
"""More is never one row group: a reader holds a whole one in memory."""
_ROW_GROUP_ROWS: Final = 1_048_576
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and pyarrow read as null."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_VALUE_BYTES_MAX: Final = 200
_Codec = Literal["ZSTD", "SNAPPY", "UNCOMPRESSED"]
_DELTA_COMPRESSION: Final[dict[str, _Codec]] = {"zstd": "ZSTD", "snappy": "SNAPPY", "none": "UNCOMPRESSED"}


class LandingZone(Protocol):
    """A place where a stretch of the log lands in one step. One user at a time: the lander keeps others out."""

    def open(self) -> int | None:
        """Finishes or undoes what a crash interrupted. Everything below the physical offset returned has landed; None: nothing.

        Raises:
            LandingError: the zone belongs to another log, or is damaged; says what to change.
        """
        ...

    def publish(self, commit: Commit, rows: pyarrow.Table) -> Commit:
        """Make rows visible, durably and once: after a crash either all of a commit is there or nothing.

        Args:
            commit: all about it but the files; it begins where the last one ended.
            rows: every column of :mod:`flintmq.plugins.spark.schema`, in the log's order.

        Returns:
            the commit with its files.

        Raises:
            StoreError, OSError: it could not be made durable; nothing has happened, or the next opening finishes it.
        """
        ...


class ParquetZone:
    """Parquet files; the arguments are the disk, the folder, the log that lands there, and the files' compression.

    ::

        landing/
          topic=Orders/date=2026-11-22/part-<start>-<end>.parquet
          _flintmq/commit-<start>-<end>.json

    A commit becomes visible in three steps, each of them durable before the next one begins:

    1. the files are written under names that begin with a dot, which no reader looks at;
    2. the manifest gets the commit, with the list of its files: this is the moment at which it has happened;
    3. the files get their names.

    A crash before 2 leaves files with a dot, which the next opening removes; what was in them lands again. A crash after 2
    leaves files that the next opening gives their names. No row is missing or there twice, whether a reader goes by the
    manifest or by the files.
    """

    def __init__(self, disk: Disk, root: Path, source: LogSource, compression: str) -> None:
        self._disk = disk
        self._root = root
        self._source = source
        self._compression = compression

    def open(self) -> int | None:
        self._disk.make_folder(self._root / MANIFEST_FOLDER)
        self._manifest = Manifest(self._disk, self._root)
        last = self._manifest.last
        if last is not None:
            check_source(self._root, self._source, last)
        self._manifest.clean()
        if last is not None:
            self._name_files(last)
        self._sweep()
        return last.end_offset_bytes if last is not None else None

    def publish(self, commit: Commit, rows: pyarrow.Table) -> Commit:
        name = f"part-{commit.start_offset_bytes:020d}-{commit.end_offset_bytes:020d}.parquet"
        files = []
        for topic, day, part in partitions(rows):
            folder = f"{topic_folder(topic)}/{date_folder(day)}"
            data = self._encode(part)
            self._disk.make_folder(self._root / folder)
            self._disk.write_file(self._root / folder / f".{name}", data)
            files.append(LandedFile(f"{folder}/{name}", topic, part.num_rows, len(data)))
        commit = attrs.evolve(commit, files=tuple(files))
        self._manifest.add(commit)
        self._name_files(commit)
        self._manifest.join_old()
        return commit

    def _encode(self, rows: pyarrow.Table) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        sink = pa.BufferOutputStream()
        pq.write_table(
            rows,
            sink,
            compression=self._compression,
            row_group_size=max(1, min(_ROW_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes)),
            store_schema=False,
        )
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def _name_files(self, commit: Commit) -> None:
        for file in commit.files:
            path = self._root / file.path
            hidden = path.with_name(f".{path.name}")
            if self._disk.exists(hidden):
                self._disk.replace(hidden, path)
            elif not self._disk.exists(path):
                # It was durable under one of its names before the commit was: it has been deleted since.
                log.warning(
                    "landing.file_missing", "%(path)s has landed and is not there any more; who removed it?", path=path
                )

    def _sweep(self) -> None:
        """Remove files of a commit that never happened."""
        for topic in self._disk.list_folders(self._root):
            if not topic.name.startswith("topic="):
                continue
            for day in self._disk.list_folders(topic):
                for path in self._disk.list_files(day):
                    if path.name.startswith(".part-"):
                        self._disk.remove(path)


class DeltaZone:
    """A Delta Lake table with every column of the Parquet zone, partitioned by topic and day. Needs deltalake, no JVM.

    The position in the log is part of each transaction (``txn`` with the store's id as application and the physical offset as
    version), so data and position become visible in one step and nothing has to be repaired after a crash. Several brokers may
    land in one table.
    """

    def __init__(self, root: Path, source: LogSource, compression: str) -> None:
        self._root = root
        self._source = source
        self._compression = compression
        self._application = f"flintmq:{source.store_id}"

    def open(self) -> int | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self._root)):
            return None
        table = DeltaTable(str(self._root))
        version = table.transaction_version(self._application)
        if version is None:
            return None
        last = self._last_commit(table)
        if last is not None:
            check_source(self._root, self._source, last)
        return int(version)

    def _last_commit(self, table: Any) -> Commit | None:
        """Return this store's newest commit, from the table's history; None where that was cleaned up."""
        for entry in table.history(limit=100):
            text = entry.get("flintmq")
            if text is None:
                continue
            commit = Commit.from_json(text if isinstance(text, str) else json.dumps(text), self._root)
            if commit.store_id == self._source.store_id:
                return commit
        return None

    def publish(self, commit: Commit, rows: pyarrow.Table) -> Commit:
        from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake

        end = commit.end_offset_bytes
        if rows.num_rows:
            commit = attrs.evolve(commit, files=(LandedFile(f"@{end}", "", rows.num_rows, rows.nbytes),))
        try:
            write_deltalake(
                str(self._root),
                rows.append_column("date", dates(rows)),
                mode="append",
                partition_by=["topic", "date"],
                writer_properties=WriterProperties(compression=_DELTA_COMPRESSION[self._compression]),
                commit_properties=CommitProperties(
                    custom_metadata={"flintmq": commit.to_json()},
                    app_transactions=[Transaction(self._application, end)],
                ),
            )
        except OSError:
            raise
        except Exception as error:
            raise LandingError(f"{self._root}: the Delta table cannot be appended to: {error}") from error
        return commit


def partitions(rows: pyarrow.Table) -> Iterator[tuple[str, date | None, pyarrow.Table]]:
    """Topic, day and rows of each part, in the log's order, without the columns that the folder tells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = pa.table({"topic": pc.fill_null(rows["topic"], ""), "date": dates(rows)}).combine_chunks()
    by_key = [("topic", "ascending"), ("date", "ascending")]
    counts = keys.group_by(["topic", "date"]).aggregate([([], "count_all")]).sort_by(by_key)
    rows = rows.drop_columns(["topic"])
    if counts.num_rows > 1:
        rows = rows.take(pc.sort_indices(keys, by_key))  # stable: equal keys stay in the log's order
    start = 0
    for part in counts.to_pylist():
        yield part["topic"], part["date"], rows.slice(start, part["count_all"])
        start += part["count_all"]


def dates(rows: pyarrow.Table) -> pyarrow.ChunkedArray:
    """Return the days of the store times, in UTC; null where that is not a time."""
    import pyarrow as pa

    return rows["storeTimestamp"].cast(pa.timestamp("us")).cast(pa.date32())


def topic_folder(topic: str) -> str:
    """``topic=Orders``; any character but letters, digits, ``-`` and ``_`` is written as ``%25``, which readers decode.

    A topic comes from clients and may hold anything in a store of another maker: no name made of it leaves the zone. One too
    long for a file system ends in a hash; the manifest has its name.
    """
    value = "".join(
        one if _PLAIN.fullmatch(one) else "".join(f"%{byte:02X}" for byte in one.encode("utf-8", "replace"))
        for one in topic
    )
    if len(value) > _VALUE_BYTES_MAX:
        value = f"{value[:150]}-{hashlib.sha256(topic.encode('utf-8', 'replace')).hexdigest()[:32]}"
    return f"topic={value or _NULL}"


def date_folder(day: date | None) -> str:
    """``date=2026-11-22``."""
    return f"date={day or _NULL}"
