"""Exports messages from a store's files as JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec

from flintmq.core.errors import FlintError
from flintmq.core.record.host import host_text
from flintmq.core.record.log_walk import Kind
from flintmq.core.record.record import Record
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.walk import Piece, walk

_ROWS = 16_384
_HELD_MAX_BYTES = 8 * 1024 * 1024
"""Total size, in bytes, of collected records at which the records are written to the file. The limit is small, because Arrow
copies the records."""


@attrs.frozen
class Wanted:
    """Conditions on the messages to export. A condition that is None is not checked."""

    topic: str | None = None
    queue_id: int | None = None
    tag: str | None = None
    from_timestamp_ms: int | None = None
    until_timestamp_ms: int | None = None
    limit: int | None = None

    def takes(self, record: Record) -> bool:
        """Return whether a record fulfills the conditions for an export. The limit of messages is not checked."""
        return (
            (self.topic is None or record.topic == self.topic)
            and (self.queue_id is None or record.queue_id == self.queue_id)
            and (self.from_timestamp_ms is None or record.store_timestamp_ms >= self.from_timestamp_ms)
            and (self.until_timestamp_ms is None or record.store_timestamp_ms < self.until_timestamp_ms)
            and (self.tag is None or record.properties.get("TAGS") == self.tag)
        )


def messages(
    files: StoreFiles,
    wanted: Wanted,
    progress: Callable[[int], None] | None = None,
    damaged: Callable[[Piece], None] | None = None,
) -> Iterator[Record]:
    """Yield the wanted records in the order of the log.

    Args:
        files: the store.
        wanted: the conditions on records.
        progress: called from time to time with the number of bytes read.
        damaged: called for each damaged part between records.
    """
    left = wanted.limit
    for piece in walk(files, progress):
        if piece.kind is Kind.RECORD and piece.record is not None and wanted.takes(piece.record):
            yield piece.record
            if left is not None:
                left -= 1
                if left <= 0:
                    return
        elif piece.kind is Kind.DAMAGE and damaged is not None:
            damaged(piece)


def to_parquet(
    files: StoreFiles,
    wanted: Wanted,
    target: Path,
    progress: Callable[[int], None] | None = None,
    damaged: Callable[[Piece], None] | None = None,
) -> int:
    """Write the wanted messages to a Parquet file, and return their number. The arguments are those of :func:`messages`.

    Raises:
        FlintError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise FlintError("Parquet needs pyarrow: pip install '.[parquet]' in FlintMQ's folder") from error
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("queue_id", pa.int32()),
            ("queue_offset", pa.int64()),
            ("commit_log_offset_bytes", pa.int64()),
            ("store_timestamp", pa.timestamp("ms", tz="UTC")),
            ("born_timestamp", pa.timestamp("ms", tz="UTC")),
            ("born_host", pa.string()),
            ("flag", pa.int32()),
            ("sys_flag", pa.int32()),
            ("reconsume_times", pa.int32()),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("body", pa.binary()),
        ]
    )
    count = held_bytes = 0
    rows: list[dict[str, Any]] = []
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for record in messages(files, wanted, progress, damaged):
            rows.append(_row(record))
            count += 1
            held_bytes += record.size_bytes
            if len(rows) >= _ROWS or held_bytes >= _HELD_MAX_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows, held_bytes = [], 0
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return count


def _row(record: Record) -> dict[str, Any]:
    """Return the values of a message for the columns of the Parquet schema; other values of the message are ignored."""
    return {
        **msgspec.structs.asdict(record),
        "store_timestamp": record.store_timestamp_ms,
        "born_timestamp": record.born_timestamp_ms,
        "born_host": host_text(record.born_host),
        "properties": list(record.properties.items()),
    }
