"""The two forms of a landing zone: Parquet files by topic and day, and a Delta Lake table."""

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
"""Maximum size in bytes of a row group in a landed Parquet file. Readers hold a whole row group in memory."""
_ROW_GROUP_ROWS: Final = 1_048_576
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Name of a partition folder that Hive, Spark and pyarrow read as the value null."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_VALUE_BYTES_MAX: Final = 200
_Codec = Literal["ZSTD", "SNAPPY", "UNCOMPRESSED"]
_DELTA_COMPRESSION: Final[dict[str, _Codec]] = {"zstd": "ZSTD", "snappy": "SNAPPY", "none": "UNCOMPRESSED"}


class LandingZone(Protocol):
    """The interface of a landing zone: a folder to which the lander copies the log, one part in each step. The lander locks the
    folder against other landers."""

    def open(self) -> int | None:
        """Open the landing zone. A commit that a crash interrupted is completed or undone.

        Returns:
            the physical offset up to which the log has landed; None if nothing has landed.

        Raises:
            LandingError: the zone belongs to another log, or is damaged. The text says what to change.
        """
        ...

    def publish(self, commit: Commit, rows: pyarrow.Table) -> Commit:
        """Write rows durably, and make them visible in one step: after a crash a commit is complete or absent.

        Args:
            commit: the commit without its files; it begins at the end of the previous commit.
            rows: every column of :mod:`flintmq.plugins.spark.schema`, in the log's order.

        Returns:
            the commit with its files.

        Raises:
            StoreError, OSError: the commit may not be durable. The next opening undoes or completes the commit.
        """
        ...


class ParquetZone:
    """A landing zone of Parquet files. The arguments are the disk, the folder, the log to land, and the compression.

    ::

        landing/
          topic=Orders/date=2026-11-22/part-<start>-<end>.parquet
          _flintmq/commit-<start>-<end>.json

    A commit becomes visible in three steps. Each step is durable before the next step begins:

    1. The files are written under names that begin with a dot, which readers ignore.
    2. The commit with the list of its files is added to the manifest. From then on the commit is valid.
    3. The files are renamed to their final names.

    After a crash before step 2 the next opening removes the files with a dot, and their rows land again. After a crash past
    step 2 the next opening renames the files. No row is missing or duplicated, for readers of the manifest and of the files.
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
                # A committed file that exists under neither its hidden nor its final name was removed by another program.
                log.warning(
                    "landing.file_missing", "%(path)s has landed, but was removed afterwards from outside", path=path
                )

    def _sweep(self) -> None:
        """Remove data files of the landing zone whose commit was never published."""
        for topic in self._disk.list_folders(self._root):
            if not topic.name.startswith("topic="):
                continue
            for day in self._disk.list_folders(topic):
                for path in self._disk.list_files(day):
                    if path.name.startswith(".part-"):
                        self._disk.remove(path)


class DeltaZone:
    """A Delta Lake table with the columns of the Parquet zone, partitioned by topic and day. Needs deltalake, but no JVM.

    Each transaction contains the position in the log (``txn`` with the store's id as application and the physical offset as
    version). Data and position thus become visible in one step, and a crash leaves nothing to repair. Several brokers may copy
    their messages to one table.
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
        """Return this store's newest commit from the history of the Delta table; None if the history no longer has the
        commit."""
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
    """Divide rows by topic and day. Yield topic, day and rows of each partition, in the log's order. The rows lack the column
    of the topic, because the partition's folder names the topic."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = pa.table({"topic": pc.fill_null(rows["topic"], ""), "date": dates(rows)}).combine_chunks()
    by_key = [("topic", "ascending"), ("date", "ascending")]
    counts = keys.group_by(["topic", "date"]).aggregate([([], "count_all")]).sort_by(by_key)
    rows = rows.drop_columns(["topic"])
    if counts.num_rows > 1:
        # sort_indices() is stable, so rows of the same topic and date stay in the log's order.
        rows = rows.take(pc.sort_indices(keys, by_key))
    start = 0
    for part in counts.to_pylist():
        yield part["topic"], part["date"], rows.slice(start, part["count_all"])
        start += part["count_all"]


def dates(rows: pyarrow.Table) -> pyarrow.ChunkedArray:
    """Return, for each row, the UTC day of the message's store time; null for a null time."""
    import pyarrow as pa

    return rows["storeTimestamp"].cast(pa.timestamp("us")).cast(pa.date32())


def topic_folder(topic: str) -> str:
    """Return the name of a topic's folder in a landing zone, such as ``topic=Orders``.

    Characters other than letters, digits, ``-`` and ``_`` are written as ``%`` and two hex digits, which readers decode. A
    topic in a store of another broker may contain any character, and the written name keeps the path inside the landing zone. A
    name that is too long for a file system ends in a hash. The manifest has the whole name.
    """
    value = "".join(
        one if _PLAIN.fullmatch(one) else "".join(f"%{byte:02X}" for byte in one.encode("utf-8", "replace"))
        for one in topic
    )
    if len(value) > _VALUE_BYTES_MAX:
        value = f"{value[:150]}-{hashlib.sha256(topic.encode('utf-8', 'replace')).hexdigest()[:32]}"
    return f"topic={value or _NULL}"


def date_folder(day: date | None) -> str:
    """Return the name of a day's folder in a landing zone, such as ``date=2026-11-22``."""
    return f"date={day or _NULL}"
