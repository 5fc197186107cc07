"""Whole batches are packed and taken apart in one call, however many messages they have."""

from __future__ import annotations

import pytest

from flintmq.core.record.rows import rows_struct


@pytest.mark.parametrize("rows", [1, 2, 64, 65, 4_096])
def test_no_padding_is_inserted_between_packed_rows(rows: int) -> None:
    fields = [field for row in range(rows) for field in (row, b"%05d" % row, -row)]
    packed = rows_struct(rows, "i%dsq", 5).pack(*fields)
    assert len(packed) == 17 * rows
    assert packed[-17:] == (rows - 1).to_bytes(4, "big") + b"%05d" % (rows - 1) + (1 - rows).to_bytes(
        8, "big", signed=True
    )
    assert list(rows_struct(rows, "i%dsq", 5).unpack(packed)) == fields
