"""Converts records of the commit log to Arrow batches, without a Python step per record (docs/spark.md).

Three methods make the conversion fast:

* One strided view over the bytes gathers the fixed fields of all records in one C loop (:mod:`flintmq.core.record.heads`).
* For a field of variable length, an Arrow array over the file's bytes is made. Its items are alternately a value and the gap
  that follows the value. Taking the items with even numbers copies each value once (:mod:`slices`).
* Addresses and property names are dictionary-encoded, so that each distinct address or name is converted once (:mod:`slices`,
  :mod:`property_map`).

The decoder reads records at any ascending positions of any bytes: ranges of the log, single queues, the bodies of PULL answers.
Each length in a record is checked against the record's size and the end of the bytes before it is used.
"""

from __future__ import annotations

from flintmq.core.record.heads import Heads
from flintmq.plugins.spark.decoder.decoder import Decoder, decode
from flintmq.plugins.spark.decoder.rows import RowFilter

__all__ = ["Decoder", "Heads", "RowFilter", "decode"]
