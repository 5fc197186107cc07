"""A landing zone that is a Delta Lake table, partitioned by topic and day. Needs the package deltalake, no JVM.

The position in the log is part of each transaction (``txn`` with the store's id as application and the physical offset as
version), so data and position become visible in one step and nothing has to be repaired after a crash.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from flintmq.core.io.clock import Clock
from flintmq.plugins.spark.landing.errors import LandingError
from flintmq.plugins.spark.landing.manifest import Commit, LandedFile
from flintmq.plugins.spark.landing.parquet_zone import check_source
from flintmq.plugins.spark.landing.source import LogSource

if TYPE_CHECKING:
    import pyarrow

_Codec = Literal["ZSTD", "SNAPPY", "UNCOMPRESSED"]
_COMPRESSION: Final[dict[str, _Codec]] = {"zstd": "ZSTD", "snappy": "SNAPPY", "none": "UNCOMPRESSED"}


class DeltaZone:
    """See :class:`flintmq.plugins.spark.landing.zone.LandingZone`.

    The table has every column of the Parquet zone, with ``topic`` and ``date`` as partitions. Several brokers may land in one
    table.
    """

    def __init__(self, root: Path, source: LogSource, clock: Clock, compression: str) -> None:
        self._root = root
        self._source = source
        self._clock = clock
        self._compression = compression
        self._committed: int | None = None

    @property
    def _application(self) -> str:
        return f"flintmq:{self._source.store_id}"

    @property
    def committed_bytes(self) -> int | None:
        return self._committed

    def open(self) -> None:
        from deltalake import DeltaTable

        self._committed = None
        if not DeltaTable.is_deltatable(str(self._root)):
            return
        table = DeltaTable(str(self._root))
        version = table.transaction_version(self._application)
        if version is None:
            return
        self._committed = int(version)
        last = self._last_commit(table)
        if last is not None:
            check_source(self._root, self._source, last)

    def _last_commit(self, table: Any) -> Commit | None:
        """This store's newest commit, from the table's history; None where that was cleaned up."""
        for entry in table.history(limit=100):
            text = entry.get("flintmq")
            if text is None:
                continue
            commit = Commit.from_json(text if isinstance(text, str) else json.dumps(text), self._root)
            if commit.store_id == self._source.store_id:
                return commit
        return None

    def publish(
        self, start_offset_bytes: int, end_offset_bytes: int, rows: pyarrow.Table, *, lost_to_bytes: int | None = None
    ) -> Commit:
        from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake

        files = () if not rows.num_rows else (LandedFile(f"@{end_offset_bytes}", "", rows.num_rows, rows.nbytes),)
        commit = Commit(
            start_offset_bytes=start_offset_bytes,
            end_offset_bytes=end_offset_bytes,
            files=files,
            store_id=self._source.store_id,
            epoch=self._source.epoch,
            broker_name=self._source.broker_name,
            committed_at_ms=self._clock.now_ms(),
            lost_to_bytes=lost_to_bytes,
        )
        try:
            write_deltalake(
                str(self._root),
                with_date(rows),
                mode="append",
                partition_by=["topic", "date"],
                writer_properties=WriterProperties(compression=_COMPRESSION[self._compression]),
                commit_properties=CommitProperties(
                    custom_metadata={"flintmq": commit.to_json()},
                    app_transactions=[Transaction(self._application, end_offset_bytes)],
                ),
            )
        except Exception as error:
            if isinstance(error, OSError):
                raise
            raise LandingError(f"{self._root}: the Delta table cannot be appended to: {error}") from error
        self._committed = end_offset_bytes
        return commit

    def close(self) -> None:
        """Keep nothing open."""


def with_date(rows: pyarrow.Table) -> pyarrow.Table:
    """The rows and a column ``date``: the day of the store time in UTC."""
    import pyarrow as pa

    return rows.append_column("date", rows.column("storeTimestamp").cast(pa.timestamp("us")).cast(pa.date32()))
