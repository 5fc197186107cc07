"""Reads a store as Spark would, without Spark: plan on the driver, pickle, read in a worker."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from expected_rows import rows_of

from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Limit, Offset
from flintmq.plugins.spark.store.pieces import StorePart
from flintmq.plugins.spark.store.transport import StoreTransport

Row = dict[str, Any]


def transport(root: Path, **options: str) -> StoreTransport:
    return StoreTransport(ReadOptions.parse({"path": str(root), **options}))


def read_parts(reader: StoreTransport, parts: Any) -> list[Row]:
    """The rows of parts, each read by a copy as in a worker."""
    rows: list[Row] = []
    for part in parts:
        copy, there = pickle.loads(pickle.dumps((reader, part)))
        for batch in copy.read(there):
            assert batch.num_rows
            rows += rows_of(batch)
    return rows


def planned(root: Path, **options: str) -> tuple[StoreTransport, list[StorePart]]:
    reader = transport(root, **options)
    return reader, list(reader.plan(reader.initial("earliest"), reader.final()))


def batch(root: Path, **options: str) -> list[Row]:
    """All rows of a batch read."""
    return read_parts(*planned(root, **options))


def stream(reader: StoreTransport, start: Offset, limit: Limit) -> tuple[list[list[Row]], Offset]:
    """The rows of each micro-batch until there is nothing more, and where the stream stands then."""
    batches = []
    while (end := reader.limited(start, reader.latest(), limit)) != start:
        batches.append(read_parts(reader, reader.plan(start, end)))
        start = end
    return batches, start


def places(rows: list[Row]) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows]
