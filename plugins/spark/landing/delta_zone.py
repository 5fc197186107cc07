"""A landing zone that is a Delta Lake table, partitioned by topic and day. Needs the package deltalake, no JVM.

The position in the log is part of each transaction (``txn`` with the store's id as application and the physical offset as
version), so data and position become visible in one step and nothing has to be repaired after a crash.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from flintmq.plugins.spark.landing.manifest import Commit, LandedFile, check_source
from flintmq.plugins.spark.landing.parquet_zone import dates
from flintmq.plugins.spark.landing.task import LandingError, LogSource

if TYPE_CHECKING:
    import pyarrow

_Codec = Literal["ZSTD", "SNAPPY", "UNCOMPRESSED"]
_COMPRESSION: Final[dict[str, _Codec]] = {"zstd": "ZSTD", "snappy": "SNAPPY", "none": "UNCOMPRESSED"}


class DeltaZone:
    """See :class:`flintmq.plugins.spark.landing.lander.LandingZone`.

    The table has every column of the Parquet zone, with ``topic`` and ``date`` as partitions. Several brokers may land in one
    table.
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
        """This store's newest commit, from the table's history; None where that was cleaned up."""
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
                writer_properties=WriterProperties(compression=_COMPRESSION[self._compression]),
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
