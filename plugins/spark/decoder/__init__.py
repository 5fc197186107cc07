"""From records of the commit log to Arrow, without a Python step per record (docs/spark.md).

Three steps make it fast. One strided view over the bytes gathers the fixed fields of all records in one C loop
(:mod:`flintmq.core.record.heads`). Whatever has a length becomes an Arrow array whose offsets alternate value, gap, value, gap
over the very bytes of the file, and taking the even items copies each value once (:mod:`slices`). Addresses and property names
are dictionary-encoded before anything is done per value (:mod:`slices`, :mod:`property_map`).

It works on any ascending subset of records in any bytes: ranges of the log, single queues, the bodies of PULL answers. No
length that a record gives is followed before it was checked against the record's size and the end of the bytes.
"""

from __future__ import annotations

from flintmq.core.record.heads import Heads
from flintmq.plugins.spark.decoder.decoder import Decoder, decode
from flintmq.plugins.spark.decoder.rows import RowFilter

__all__ = ["Decoder", "Heads", "RowFilter", "decode"]
