"""From pulled records to Arrow batches: as many together as a batch may hold, because each batch has its price."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs
import numpy as np

from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.wire.pulling import Pulled

if TYPE_CHECKING:
    import pyarrow


def batches(
    pulled: Iterable[Pulled], decoder: Decoder, batch_rows: int, batch_bytes: int
) -> Iterator[pyarrow.RecordBatch]:
    """Decode what is pulled, in batches of ``batch_rows`` or ``batch_bytes``, whichever comes first, and one answer more.

    Raises:
        BadRecordError: see :meth:`Decoder.decode`.
    """
    held: list[Pulled] = []
    rows = size_bytes = 0
    for one in pulled:
        full = rows + len(one.starts) > batch_rows or size_bytes + len(one.records) > batch_bytes
        if held and (full or one.queue.broker_name != held[0].queue.broker_name):
            yield from _decoded(held, decoder)
            held, rows, size_bytes = [], 0, 0
        held.append(one)
        rows += len(one.starts)
        size_bytes += len(one.records)
    if held:
        yield from _decoded(held, decoder)


def _decoded(held: list[Pulled], decoder: Decoder) -> Iterator[pyarrow.RecordBatch]:
    begins = np.cumsum([0, *(len(one.records) for one in held)])
    starts = np.concatenate([one.starts + begin for one, begin in zip(held, begins, strict=False)])
    records = held[0].records if len(held) == 1 else b"".join(one.records for one in held)
    queue = held[0].queue
    batch = attrs.evolve(decoder, broker_name=queue.broker_name).decode(
        records, starts, f"answers of {queue.broker_name}"
    )
    if batch.num_rows:
        yield batch
