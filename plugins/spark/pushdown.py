"""From the filters of a query to bounds: only what is surely implied; whatever is not understood bounds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
from pyspark.sql import datasource as spark

from flintmq.plugins.spark.ports import Bounds, Range
from flintmq.plugins.spark.schema import BY_NAME

_RANGES: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "storeTimestamp": "store_timestamp_ms",
}
_SETS: Final = {"topic": "topics", "tags": "tags"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filters: Iterable[spark.Filter]) -> Bounds:
    """What rows must be like to pass all the filters."""
    bounds = Bounds()
    for one in filters:
        bounds = _narrowed(bounds, one)
    return bounds


def _narrowed(bounds: Bounds, one: spark.Filter) -> Bounds:
    path = getattr(one, "attribute", None)
    column = BY_NAME.get(path[0].lower()) if path is not None and len(path) == 1 else None
    if column is None:
        return bounds
    if column.name in _SETS:
        values = _texts(one)
        if values is None:
            return bounds
        field = _SETS[column.name]
        known: frozenset[str] | None = getattr(bounds, field)
        change: dict[str, Any] = {field: values if known is None else known & values}
        return attrs.evolve(bounds, **change)
    if column.name in _RANGES:
        found = _range(one, _whole_ms if column.name == "storeTimestamp" else _whole_number)
        field = _RANGES[column.name]
        return bounds if found is None else attrs.evolve(bounds, **{field: getattr(bounds, field).both(found)})
    return bounds


def _texts(one: spark.Filter) -> frozenset[str] | None:
    """The texts that a filter lets through; None when it does not name them."""
    if isinstance(one, spark.EqualTo | spark.EqualNullSafe) and isinstance(one.value, str):
        return frozenset({one.value})
    if isinstance(one, spark.In) and all(isinstance(value, str) for value in one.value):
        return frozenset(one.value)
    return None


def _range(one: spark.Filter, whole: Callable[[Any], tuple[int, int] | None]) -> Range | None:
    """The numbers that a filter lets through; None when it does not bound them.

    ``whole`` gives the whole numbers next below and above a value: a time may lie between two milliseconds.
    """
    if isinstance(one, spark.In):
        values = [whole(value) for value in one.value]
        if not values or any(value is None for value in values):
            return None
        return Range(min(value[0] for value in values if value), max(value[1] for value in values if value))
    value = whole(getattr(one, "value", None))
    if value is None:
        return None
    if isinstance(one, spark.EqualTo | spark.EqualNullSafe):
        return Range(*value)
    if isinstance(one, spark.GreaterThan | spark.GreaterThanOrEqual):
        return Range(low=value[0])
    if isinstance(one, spark.LessThan | spark.LessThanOrEqual):
        return Range(high=value[1])
    return None


def _whole_number(value: Any) -> tuple[int, int] | None:
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _whole_ms(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, datetime):
        return None
    since = (value if value.tzinfo is not None else value.astimezone()) - _EPOCH
    below = since // timedelta(milliseconds=1)
    return below, below + 1
