"""Decodes records of the commit log to Arrow columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.core.record import properties as props
from flintmq.core.record.heads import Heads, read_heads
from flintmq.core.record.record import RECORD_MIN_BYTES, RecordError, decode_record
from flintmq.plugins.spark.decoder.bodies import body_column, is_compressed, plain_runs, wrong_crc
from flintmq.plugins.spark.decoder.chain import BATCH_BYTES, BATCH_BYTES_MAX
from flintmq.plugins.spark.decoder.property_map import PropertyMap
from flintmq.plugins.spark.decoder.rows import RowFilter, has_tag
from flintmq.plugins.spark.decoder.slices import (
    Bools,
    Ints,
    as_text,
    born_host_at,
    host_column,
    message_id_column,
    store_host_at,
    take_slices,
)
from flintmq.plugins.spark.errors import BadRecordError
from flintmq.plugins.spark.schema import ALL_NAMES, BAD_RECORD, BadRecords, PropertiesFormat, arrow_schema

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""First and last ms, since 1970, of the years 1 to 9999. Python, and Spark's text form of timestamps, cannot represent other
times."""

_INT64_MAX: Final = 2**63 - 1

_INT_FIELDS: Final = {
    "queueId": "queue_id",
    "storeSize": "size",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "reconsumeTimes": "reconsume_times",
    "bodyCrc": "body_crc",
}
_LONG_FIELDS: Final = {
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "preparedTransactionOffset": "prepared_offset",
}
_TIME_FIELDS: Final = {"bornTimestamp": "born_timestamp", "storeTimestamp": "store_timestamp"}
_PROPERTIES: Final = {"uniqKey": props.UNIQ_KEY, "tags": props.TAGS, "keys": props.KEYS}


@attrs.define
class _Rows:
    """The records of one batch, as bytes and as the decoded fixed fields of each record."""

    data: npt.NDArray[np.uint8]
    heads: Heads
    _properties: PropertyMap | None = None

    def properties(self) -> PropertyMap:
        """Return the properties of the batch's records. The first call parses the properties."""
        if self._properties is None:
            self._properties = PropertyMap(self.data, self.heads)
        return self._properties

    def chosen(self, mask: Bools | None) -> _Rows:
        return self if mask is None else _Rows(self.data, self.heads.chosen(mask))


@attrs.frozen
class Decoder:
    """Converts records to rows of an Arrow batch. A picklable value without state, usable from any thread."""

    columns: tuple[str, ...] = ALL_NAMES
    """Names of the Arrow columns to make, spelled as in the table of :mod:`flintmq.plugins.spark.schema`."""
    rows: RowFilter = attrs.field(factory=RowFilter)
    broker_name: str | None = None
    """Value of the column ``brokerName`` in all rows."""
    raw_body: bool = False
    properties_format: PropertiesFormat = "map"
    verify_crc: bool = False
    bad_records: BadRecords = "fail"

    def decode(
        self, buffer: Any, starts: Sequence[int] | Ints, where: str = "", first_offset_bytes: int | None = None
    ) -> pa.RecordBatch:
        """Return the rows of the records at the given positions in a buffer.

        Args:
            buffer: an object with bytes, such as a memory map of a file or the body of a PULL answer.
            starts: ascending positions of records in the buffer.
            where: the bytes' origin, for error texts.
            first_offset_bytes: the physical offset of the first byte, if the bytes are a part of the log. If this argument is
                given, each record must name the physical offset at which the record lies.

        Returns:
            One row for each record that :attr:`rows` accepts. Use :meth:`batches` if the bodies may be large.

        Raises:
            BadRecordError: the bytes at a position are not a record, or with :attr:`verify_crc` a body does not match its CRC.
                The error is never raised if :attr:`bad_records` is ``skip``. It is not raised for a body that does not match
                its CRC if :attr:`bad_records` is ``keep``: the message's row is returned.
        """
        rows = self._chosen(buffer, starts, where, first_offset_bytes)
        return self._batch(rows, next(self._runs(rows, _INT64_MAX))[1])

    def batches(
        self,
        buffer: Any,
        starts: Sequence[int] | Ints,
        where: str = "",
        first_offset_bytes: int | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Read records like :meth:`decode`, and yield batches of rows, each with the number of records that it covers.

        A body may decompress to a thousand times its stored size. A batch therefore ends when its decompressed bodies have
        ``batch_bytes``; it has at least one row. The bodies of only one batch are in memory at a time.

        With :attr:`bad_records` ``keep`` a damaged record is a batch of one row (:meth:`damaged`).
        """
        places = np.asarray(starts, np.int64)
        if self.bad_records != "keep":
            yield from self._batches(buffer, places, where, first_offset_bytes, batch_bytes)
            return
        data = np.frombuffer(buffer, np.uint8)
        heads, wrong = _heads(data, places, first_offset_bytes)
        begin = 0
        for index in wrong.tolist():
            if begin < index:
                yield from self._batches(buffer, places[begin:index], where, first_offset_bytes, batch_bytes)
            at = int(places[index])
            is_headless = index >= len(heads)
            size = len(data) - at if is_headless else int(heads.size[index])
            named = None if is_headless else int(heads.raw["physical_offset"][index])
            position = named if first_offset_bytes is None else first_offset_bytes + at
            yield self.damaged(position, size, reason_of(data, at)), 1
            begin = index + 1
        if begin < len(places):
            yield from self._batches(buffer, places[begin:], where, first_offset_bytes, batch_bytes)

    def damaged(self, physical_offset: int | None, size_bytes: int, reason: str) -> pa.RecordBatch:
        """Return a batch with one row that describes a damaged part of the log: its physical offset, its size in bytes and the
        damage.

        The batch is empty if the filter :attr:`rows` leaves out topics and queues that the query has already read. A query with
        this filter reads a part of the log for the second time, because its options now choose more topics or queues. The first
        read has already returned the row for the damage.
        """
        schema = arrow_schema(self.columns, self.properties_format)
        values = {
            "brokerName": self.broker_name,
            "physicalOffset": physical_offset,
            "storeSize": size_bytes,
            BAD_RECORD: reason,
        }
        count = 0 if self.rows.without else 1
        arrays = [pa.array([values.get(field.name)] * count, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _batches(
        self, buffer: Any, places: Ints, where: str, first_offset_bytes: int | None, batch_bytes: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        rows = self._chosen(buffer, places, where, first_offset_bytes)
        done = 0
        for run, plain in self._runs(rows, min(batch_bytes, BATCH_BYTES_MAX)):
            is_last = run.stop >= len(rows.heads)
            until = len(places) if is_last else int(np.searchsorted(places, rows.heads.start[run.stop]))
            some = rows if is_last and not run.start else _Rows(rows.data, rows.heads.chosen(run))
            yield self._batch(some, plain), until - done
            done = until

    def _runs(self, rows: _Rows, max_bytes: int) -> Iterator[tuple[slice, list[bytes | None]]]:
        """Divide rows into runs of consecutive rows, and yield each run as a slice with the run's decompressed message
        bodies."""
        asked = "body" in self.columns or (self.bad_records == "keep" and BAD_RECORD in self.columns)
        if asked and not self.raw_body and is_compressed(rows.heads).any():
            return plain_runs(rows.data, rows.heads, max_bytes)
        return iter([(slice(0, len(rows.heads)), [])])

    def _chosen(self, buffer: Any, starts: Sequence[int] | Ints, where: str, first_offset_bytes: int | None) -> _Rows:
        """Return the records of a buffer that become rows: valid records that fulfill the conditions in :attr:`rows`."""
        data = np.frombuffer(buffer, np.uint8)
        rows = self._whole(data, np.asarray(starts, np.int64), where, first_offset_bytes)
        rows = rows.chosen(self.rows.mask(data, rows.heads))
        if self.rows.tags is not None:
            mask = has_tag(rows.properties().column(props.TAGS), self.rows.tags)
            rows = rows if mask.all() else rows.chosen(mask)
        if self.verify_crc:
            rows = self._intact(rows, where)
        return rows

    def _batch(self, rows: _Rows, plain: list[bytes | None]) -> pa.RecordBatch:
        """Return an Arrow batch with the requested columns of some rows. ``plain`` contains the decompressed bodies of the
        compressed records."""
        bodies = {"body": body_column(rows.data, rows.heads, plain)} if "body" in self.columns else {}
        if BAD_RECORD in self.columns:
            bodies[BAD_RECORD] = self._reasons(rows, plain)
        arrays = [bodies[name] if name in bodies else self._column(name, rows) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.columns, self.properties_format))

    def _whole(self, data: npt.NDArray[np.uint8], starts: Ints, where: str, first_offset_bytes: int | None) -> _Rows:
        """Return the heads (fixed fields) of the valid records. Raises BadRecordError if a record is invalid and must not be
        skipped."""
        heads, wrong = _heads(data, starts, first_offset_bytes)
        if not len(wrong):
            return _Rows(data, heads)
        if self.bad_records != "skip":
            raise _bad(data, int(starts[wrong[0]]), where)
        return _Rows(data, read_heads(data, np.delete(starts, wrong)))

    def _intact(self, rows: _Rows, where: str) -> _Rows:
        """Return the records whose body matches its CRC. Raises BadRecordError if a body does not match and its record must not
        be skipped."""
        wrong = wrong_crc(rows.data, rows.heads) if self.bad_records != "keep" else None
        if wrong is None:
            return rows
        if self.bad_records == "fail":
            raise _bad(rows.data, int(rows.heads.start[wrong][0]), where)
        return rows.chosen(~wrong)

    def _reasons(self, rows: _Rows, plain: list[bytes | None]) -> pa.Array:
        """Return, for each record, why its body cannot be read. The reason is null for a readable body, and for all bodies
        unless ``badRecords`` is ``keep``."""
        found: list[str | None] = [None] * len(rows.heads)
        if self.bad_records == "keep":
            packed = np.flatnonzero(is_compressed(rows.heads)).tolist() if plain else []
            for row, body in zip(packed, plain, strict=True):
                if body is None:
                    found[row] = "the body is marked as compressed, but cannot be decompressed"
            wrong = wrong_crc(rows.data, rows.heads) if self.verify_crc else None
            for row in () if wrong is None else np.flatnonzero(wrong).tolist():
                found[row] = "the body does not match its CRC-32"
        return pa.array(found, pa.string())

    def _column(self, name: str, rows: _Rows) -> pa.Array:
        if name in _INT_FIELDS:
            return pa.array(rows.heads.raw[_INT_FIELDS[name]].astype(np.int32))
        if name in _LONG_FIELDS:
            return pa.array(rows.heads.raw[_LONG_FIELDS[name]].astype(np.int64))
        if name in _TIME_FIELDS:
            return _timestamps(rows.heads.raw[_TIME_FIELDS[name]].astype(np.int64))
        if name in _PROPERTIES:
            return rows.properties().column(_PROPERTIES[name])
        if name == "brokerName":
            return pa.array([self.broker_name], pa.string()).take(pa.array(np.zeros(len(rows.heads), np.int32)))
        if name == "properties":
            return self._properties(rows.properties())
        return _TEXTS[name](rows.data, rows.heads)

    def _properties(self, properties: PropertyMap) -> pa.Array:
        if self.properties_format == "map":
            return properties.maps()
        texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in properties.dictionaries()]
        return pa.array(texts, pa.string())


def decode(buffer: Any, starts: Sequence[int] | Ints, columns: Sequence[str] = ALL_NAMES) -> pa.RecordBatch:
    """Decode the records at the given ascending positions in a buffer, and return their rows; see :meth:`Decoder.decode`."""
    return Decoder(tuple(columns)).decode(buffer, starts)


_TEXTS: Final[dict[str, Callable[[npt.NDArray[np.uint8], Heads], pa.Array]]] = {
    "topic": lambda data, heads: as_text(take_slices(data, heads.topic_at, heads.topic_length)),
    "bornHost": lambda data, heads: host_column(data, born_host_at(heads), heads.born_v6),
    "storeHost": lambda data, heads: host_column(data, store_host_at(heads), heads.store_v6),
    "msgId": message_id_column,
}


def _timestamps(times_ms: Ints) -> pa.Array:
    """Convert times in milliseconds to Spark's timestamps in microseconds. Times outside the years 1 to 9999 become null; a
    client can set any ``bornTimestamp``."""
    outside = (times_ms < _FIRST_MS) | (times_ms > _LAST_MS)
    mask = outside if outside.any() else None
    times_us = pa.array(np.where(outside, 0, times_ms) * 1000, mask=mask)
    return times_us.view(pa.timestamp("us", tz="UTC"))


def _heads(data: npt.NDArray[np.uint8], starts: Ints, first_offset_bytes: int | None) -> tuple[Heads, Ints]:
    """Return the heads (fixed fields) of the records at ascending positions, and the indices of the positions without a valid
    record. Records that the end of the data cuts off have no head."""
    count = int(np.searchsorted(starts, len(data) - RECORD_MIN_BYTES, "right"))
    heads = read_heads(data, starts[:count])
    bad = heads.bad
    if first_offset_bytes is not None:
        strays = heads.raw["physical_offset"] != starts[:count] + first_offset_bytes
        bad = strays if bad is None else bad | strays
    wrong = np.arange(count, len(starts))
    return heads, wrong if bad is None else np.concatenate([np.flatnonzero(bad), wrong])


def reason_of(data: npt.NDArray[np.uint8], at: int) -> str:
    """Return the reason why no valid record of the commit log begins at a position."""
    try:
        decode_record(data.data, at)
    except RecordError as error:
        return str(error)
    return "the record there names another physical offset as its own"


def _bad(data: npt.NDArray[np.uint8], at: int, where: str) -> BadRecordError:
    return BadRecordError(
        f"{where or 'the bytes'}: no record at {at}: {reason_of(data, at)}. With option badRecords=skip it is left out, with "
        "keep it is a row"
    )
