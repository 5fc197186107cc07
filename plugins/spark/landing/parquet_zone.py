"""A landing zone of Parquet files by topic and day.

::

    landing/
      topic=Orders/date=2026-11-22/part-<start>-<end>.parquet
      _flintmq/commit-<start>-<end>.json

A commit becomes visible in three steps, each of them durable before the next one begins:

1. the files are written under names that begin with a dot, which no reader looks at;
2. the manifest gets the commit, with the list of its files: this is the moment at which it has happened;
3. the files get their names.

A crash before 2 leaves files with a dot, which the next opening removes; what was in them lands again. A crash after 2 leaves
files that the next opening gives their names. No row is missing or there twice, whether a reader goes by the manifest or by
the files.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.core.io.disk import Disk
from flintmq.plugins.spark.landing.manifest import MANIFEST_FOLDER, Commit, LandedFile, Manifest, check_source
from flintmq.plugins.spark.landing.task import LogSource

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("flintmq.landing")

ROW_GROUP_BYTES: Final = 128 * 1024 * 1024
"""More is never one row group: a reader holds a whole one in memory."""
_ROW_GROUP_ROWS: Final = 1_048_576
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and pyarrow read as null."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_VALUE_BYTES_MAX: Final = 200


class ParquetZone:
    """See :class:`flintmq.plugins.spark.landing.lander.LandingZone`.

    Args:
        disk: where the zone lies.
        root: its folder; made when it is opened.
        source: the log that lands here.
        compression: the files'.
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
                log.warning("%s has landed and is not there any more; who removed it?", path)

    def _sweep(self) -> None:
        """Remove files of a commit that never happened."""
        for topic in self._disk.list_folders(self._root):
            if not topic.name.startswith("topic="):
                continue
            for day in self._disk.list_folders(topic):
                for path in self._disk.list_files(day):
                    if path.name.startswith(".part-"):
                        self._disk.remove(path)


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
    """The days of the store times, in UTC; null where that is not a time."""
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
