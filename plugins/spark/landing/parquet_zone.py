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

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.plugins.spark.landing.errors import LandingError
from flintmq.plugins.spark.landing.manifest import Commit, LandedFile, Manifest
from flintmq.plugins.spark.landing.names import MANIFEST_FOLDER, date_folder, part_name, topic_folder
from flintmq.plugins.spark.landing.partitions import partitions
from flintmq.plugins.spark.landing.source import LogSource

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("flintmq.landing")

ROW_GROUP_BYTES: Final = 128 * 1024 * 1024
"""More is never one row group: a reader holds a whole one in memory."""
_ROW_GROUP_ROWS: Final = 1_048_576


class ParquetZone:
    """See :class:`flintmq.plugins.spark.landing.zone.LandingZone`.

    Args:
        disk: where the zone lies.
        root: its folder; made when it is opened.
        source: the log that lands here.
        clock: time.
        compression: the files'.
    """

    def __init__(self, disk: Disk, root: Path, source: LogSource, clock: Clock, compression: str) -> None:
        self._disk = disk
        self._root = root
        self._source = source
        self._clock = clock
        self._compression = compression
        self._manifest: Manifest | None = None

    @property
    def manifest(self) -> Manifest:
        """The commits; only while it is open."""
        if self._manifest is None:
            raise LandingError(f"{self._root}: the landing zone is not open")
        return self._manifest

    @property
    def committed_bytes(self) -> int | None:
        return self.manifest.committed_bytes

    def open(self) -> None:
        self._disk.make_folder(self._root / MANIFEST_FOLDER)
        manifest = Manifest(self._disk, self._root)
        if manifest.last is not None:
            check_source(self._root, self._source, manifest.last)
        manifest.clean()
        if manifest.last is not None:
            self._name_files(manifest.last)
        self._sweep()
        self._manifest = manifest

    def publish(
        self, start_offset_bytes: int, end_offset_bytes: int, rows: pyarrow.Table, *, lost_to_bytes: int | None = None
    ) -> Commit:
        name = part_name(start_offset_bytes, end_offset_bytes)
        files = []
        for part in partitions(rows):
            folder = f"{topic_folder(part.topic)}/{date_folder(part.day)}"
            data = self._encode(part.rows)
            self._disk.make_folder(self._root / folder)
            self._disk.write_file(self._root / folder / f".{name}", data)
            files.append(LandedFile(f"{folder}/{name}", part.topic, part.rows.num_rows, len(data)))
        commit = Commit(
            start_offset_bytes=start_offset_bytes,
            end_offset_bytes=end_offset_bytes,
            files=tuple(files),
            store_id=self._source.store_id,
            epoch=self._source.epoch,
            broker_name=self._source.broker_name,
            committed_at_ms=self._clock.now_ms(),
            lost_to_bytes=lost_to_bytes,
        )
        self.manifest.add(commit)
        self._name_files(commit)
        self.manifest.join_old()
        return commit

    def close(self) -> None:
        self._manifest = None

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
            write_statistics=True,
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


def check_source(root: Path, source: LogSource, last: Commit) -> None:
    """Refuse a zone that another log, or an abandoned history of this one, has landed in. Raises LandingError."""
    if last.store_id != source.store_id:
        raise LandingError(
            f"{root}: messages of another store (id {last.store_id}, broker {last.broker_name}) land here, "
            f"this one has id {source.store_id}: set spark_feed.landing.path to another folder"
        )
    cut = source.cut_below(last.epoch, last.end_offset_bytes)
    if cut is not None:
        raise LandingError(
            f"{root}: the log has landed up to position {last.end_offset_bytes}, but a recovery cut it at {cut} since: "
            "the rows behind that are no longer in the log. Set spark_feed.landing.path to another folder"
        )
