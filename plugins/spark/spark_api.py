"""Provides the newest PySpark's interface for data sources to all versions of PySpark since 4.0.

========  ==========================================================================================================
PySpark   lacks
========  ==========================================================================================================
4.0       filters for sources, a writer of streams that takes Arrow batches, ``arrow_udf``; and all that 4.1 lacks
4.1       ``latestOffset(start, limit)`` with its limits, a source's own ``AvailableNow``, time zones in ``to_arrow_schema``
========  ==========================================================================================================

Modules of the Spark plugin import the names of this interface from this module. docs/spark.md says what users notice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.pandas import types as arrow_types

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

try:
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
except ImportError:

    class Filter:  # type: ignore[no-redef]
        """The base class of filters that a Spark query applies to a source's rows. This version of PySpark passes no filters to
        a source."""

    class EqualTo(Filter):  # type: ignore[no-redef]
        """The filter ``column = value`` of a Spark query."""

    class EqualNullSafe(Filter):  # type: ignore[no-redef]
        """The filter ``column <=> value`` of a Spark query: column and value are equal, or both are null."""

    class GreaterThan(Filter):  # type: ignore[no-redef]
        """The filter ``column > value`` of a Spark query."""

    class GreaterThanOrEqual(Filter):  # type: ignore[no-redef]
        """The filter ``column >= value`` of a Spark query."""

    class LessThan(Filter):  # type: ignore[no-redef]
        """The filter ``column < value`` of a Spark query."""

    class LessThanOrEqual(Filter):  # type: ignore[no-redef]
        """The filter ``column <= value`` of a Spark query."""

    class In(Filter):  # type: ignore[no-redef]
        """The filter ``column in values`` of a Spark query."""


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef]
        """The base class of Spark stream writers that take Arrow batches, for versions of PySpark that do not define this
        class.

        These versions pass Arrow batches to a stream writer if it is a ``DataSourceArrowWriter``.
        """


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:

    @attrs.frozen
    class ReadLimit:  # type: ignore[no-redef]
        """The base class of limits for the size of a micro-batch. This version of PySpark passes no limits to a source."""

    @attrs.frozen
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """The value that Spark passes in place of a limit if a micro-batch contains all available rows."""

    @attrs.frozen
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """The limit of a micro-batch in rows."""

        max_rows: int

    @attrs.frozen
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """The limit of a micro-batch in bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replacement for a class of PySpark 4.2 that older versions lack. In PySpark 4.2, a stream reader with this base class
        decides itself where a query with the trigger AvailableNow ends. Older versions ignore the class, and end such a query
        after one batch."""


HAS_FILTERS: Final = hasattr(DataSourceReader, "pushFilters")
"""Whether Spark passes a query's filters to a source. Spark does so from version 4.1 on."""
TELLS_START: Final = bool(len(inspect.signature(DataSourceStreamReader.latestOffset).parameters) > 1)
"""Whether Spark passes the query's offset and a limit to ``latestOffset``. Spark does so from version 4.2 on."""
_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"}
    if "timezone" in inspect.signature(arrow_types.to_arrow_schema).parameters
    else {"timestamp_utc": True}
)

__all__ = [
    "HAS_FILTERS",
    "TELLS_START",
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_column",
    "register_source",
    "to_arrow_schema",
    "to_arrow_type",
]


def to_arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Convert a Spark schema to an Arrow schema, with timestamps in UTC."""
    return arrow_types.to_arrow_schema(schema, **_UTC)


def to_arrow_type(data_type: DataType) -> pyarrow.DataType:
    """Convert a Spark type to an Arrow type, with timestamps in UTC."""
    return arrow_types.to_arrow_type(data_type, **_UTC)


def register_source(spark: Any, source: type[datasource.DataSource]) -> None:
    """Register a data source with a Spark session. A data source of the same name is replaced.

    Args:
        spark: a SparkSession, of Spark Connect or not.
        source: the data source's class.
    """
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark before 4.2 refuses to register an installed source. The refusal is ignored: queries use the installed source.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def arrow_column(function: Callable[[pyarrow.Array], pyarrow.Array], column: Column, result: DataType) -> Column:
    """Return a column that the workers compute from another column, one Arrow array at a time.

    Before PySpark 4.1 the function is called once for each value.

    Args:
        function: takes an array and returns an array of the same length; must be picklable.
        column: the column to compute from.
        result: the type of the new column.
    """
    import pyarrow as pa
    from pyspark.sql import functions as sql

    if hasattr(sql, "arrow_udf"):

        def of_array(values: pyarrow.Array) -> pyarrow.Array:
            return function(values)

        # The annotations of of_array() are replaced by types, because Spark does not accept annotations that are strings.
        of_array.__annotations__ = {"values": pa.Array, "return": pa.Array}
        return sql.arrow_udf(of_array, returnType=result)(column)

    def of_value(value: Any) -> Any:
        array = function(pa.array([None if value is None else bytes(value)], pa.binary()))
        return _with_maps(array[0].as_py(), array.type)

    of_value.__annotations__ = {}
    return sql.udf(of_value, returnType=result)(column)


def _with_maps(value: Any, arrow_type: pyarrow.DataType) -> Any:
    """Convert an Arrow value to a Python value whose maps are dictionaries, as Spark expects. Arrow itself converts a map to a
    list of pairs."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(arrow_type):
        return {field.name: _with_maps(value[field.name], field.type) for field in arrow_type}
    if pa.types.is_map(arrow_type):
        return {
            _with_maps(key, arrow_type.key_type): _with_maps(item, arrow_type.item_type)
            for key, item in dict(value).items()
        }
    if pa.types.is_list(arrow_type):
        return [_with_maps(one, arrow_type.value_type) for one in value]
    return value
