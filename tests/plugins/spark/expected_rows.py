"""Rows made record by record with the broker's own parser: what the vectorised decoder must equal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flintmq.core.record.host import host_text
from flintmq.core.record.record import Record, decode_record
from flintmq.remoting.client.compression import CompressionError, decompress

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
FIRST_MS = -62_135_596_800_000


def timestamp(time_ms: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=time_ms) if FIRST_MS <= time_ms <= LAST_MS else None


def body_of(record: Record) -> bytes:
    """Decompressed where that is possible."""
    if not record.body:
        return record.body
    try:
        return decompress(record.body, record.sys_flag)
    except CompressionError:
        return record.body


def row_of(record: Record, broker_name: str | None = None) -> dict[str, Any]:
    """One record as a row of all columns; the map as Arrow gives it, a list of pairs."""
    properties = record.properties
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.commit_log_offset_bytes,
        "storeSize": record.size_bytes,
        "msgId": (record.store_host + record.commit_log_offset_bytes.to_bytes(8, "big")).hex().upper(),
        "uniqKey": properties.get("UNIQ_KEY"),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": timestamp(record.born_timestamp_ms),
        "storeTimestamp": timestamp(record.store_timestamp_ms),
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset_bytes,
        "bodyCrc": record.body_crc,
        "body": body_of(record),
        "properties": properties,
    }


def rows_at(buffer: bytes | memoryview, starts: list[int], broker_name: str | None = None) -> list[dict[str, Any]]:
    """The rows of the visible records at some places."""
    records = [decode_record(buffer, at, check_crc=False) for at in starts]
    return [row_of(record, broker_name) for record in records if not record.sys_flag & 4]


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """A batch's rows with maps as dictionaries; a name that comes twice in a map fails."""
    rows = batch.to_pylist()
    for row in rows:
        if isinstance(row.get("properties"), list):
            pairs = row["properties"]
            row["properties"] = dict(pairs)
            assert len(row["properties"]) == len(pairs)
    return list(rows)
