"""The table of a message's columns, with the names that rocketmq-spark uses (docs/spark.md).

Spark's and Arrow's schemas, the option ``columns``, ``.schema(...)`` and the documentation use this table. PySpark and pyarrow
are imported only when a schema is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from flintmq.config import errors
from flintmq.plugins.spark.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

ColumnType = Literal["string", "int", "bigint", "timestamp", "binary", "map<string,string>"]
PropertiesFormat = Literal["map", "json"]
BadRecords = Literal["fail", "skip", "keep"]


@attrs.frozen
class Column:
    """A column of the table of messages that Spark reads and writes."""

    name: str
    type: ColumnType
    """The column's type in Spark's DDL."""
    meaning: str
    """Description of the column in the documentation."""


COLUMNS: Final = (
    Column("topic", "string", "The topic."),
    Column("brokerName", "string", "The broker's name; null if the store does not record it (see `brokerName`)."),
    Column("queueId", "int", "Number of the queue."),
    Column("queueOffset", "bigint", "Position of the message in its queue."),
    Column("physicalOffset", "bigint", "Position of the record in the commit log, in bytes."),
    Column("storeSize", "int", "Size of the record in the commit log, in bytes."),
    Column("msgId", "string", "The broker's id of the message (offsetMsgId): store host and physical offset in hex."),
    Column("uniqKey", "string", "The id that the producer's client gave the message; null if it has none."),
    Column("tags", "string", "The tag; null if the message has none."),
    Column("keys", "string", "The keys, separated by blanks; null if the message has none."),
    Column("flag", "int", "The producer's flag."),
    Column("sysFlag", "int", "Bits: 1 compressed, 4 and 8 transaction, 16 and 32 IPv6 hosts."),
    Column(
        "bornTimestamp", "timestamp", "Time at which the producer made the message; null outside the years 1 to 9999."
    ),
    Column("storeTimestamp", "timestamp", "Time at which the broker stored the message."),
    Column("bornHost", "string", "The producer's `ip:port`, `[ip]:port` for IPv6."),
    Column("storeHost", "string", "The broker's `ip:port`."),
    Column("reconsumeTimes", "int", "How often a consumer has sent the message back."),
    Column("preparedTransactionOffset", "bigint", "Physical offset of a committed transaction's half message."),
    Column("bodyCrc", "int", "CRC-32 of the stored body, without the highest bit."),
    Column("body", "binary", "The body, decompressed (see `rawBody`)."),
    Column("properties", "map<string,string>", "All properties; if a name occurs twice, the last value counts."),
    Column("badRecord", "string", "With `badRecords=keep`: why the record or its body cannot be read; otherwise null."),
)
"""All columns of a read, in the order of ``SELECT *``."""

BAD_RECORD: Final = COLUMNS[-1].name
"""Name of the column that a read has only with ``badRecords=keep``, or if the option ``columns`` names it."""

BY_NAME: Final = {column.name.lower(): column for column in COLUMNS}
"""The columns, keyed by their names in lower case, because Spark ignores the case of column names."""

ALL_NAMES: Final = tuple(column.name for column in COLUMNS if column.name != BAD_RECORD)
"""Names of the columns that a read has by default."""


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of message columns, and return the names as the table of columns spells them, in the given order.

    Raises:
        SchemaError: a name is unknown or is given twice, or no name is given.
    """
    found: list[str] = []
    for name in names:
        column = BY_NAME.get(name.strip().lower())
        if column is None:
            raise SchemaError(f"messages have no column {name.strip()[:80]!r}{nearest(name, ALL_NAMES)}")
        if column.name in found:
            raise SchemaError(f"the option columns names the column {column.name} twice")
        found.append(column.name)
    if not found:
        raise SchemaError("the option columns is empty: name at least one column")
    return tuple(found)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the end of an error text about an unknown name: ``; did you mean 'x'?`` if a known name is similar, else the list
    of known names."""
    return errors.hint(name.strip(), known, f"; known are: {', '.join(known)}")


def type_of(name: str, properties_format: PropertiesFormat = "map") -> str:
    """Return the Spark type of a message column."""
    if name == "properties" and properties_format == "json":
        return "string"
    return BY_NAME[name.lower()].type


def arrow_schema(columns: Sequence[str], properties_format: PropertiesFormat = "map") -> pyarrow.Schema:
    """Return the Arrow schema of batches with the given message columns. The Arrow schema must equal Spark's schema exactly,
    including the time zone."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[type_of(name, properties_format)]) for name in columns])


def spark_schema(columns: Sequence[str] = ALL_NAMES, properties_format: PropertiesFormat = "map") -> StructType:
    """Return the Spark schema of a data frame with the given message columns. All columns are nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(chosen(columns), properties_format))


def columns_of(schema: StructType, properties_format: PropertiesFormat = "map") -> tuple[str, ...]:
    """Check a schema that a user passes to ``.schema(...)``, and return the names of its columns. Only these columns are read.

    Raises:
        SchemaError: a column is unknown, is given twice, has another type, or is not nullable.
    """
    names = chosen(schema.fieldNames())
    for name, field in zip(names, schema.fields, strict=True):
        expected, given = type_of(name, properties_format), field.dataType.simpleString()
        if given != expected:
            raise SchemaError(
                f"the column {name} has type {expected}, the schema says {given}: use that type in .schema(...), or leave "
                ".schema(...) out and cast the column afterwards"
            )
        if field.name != name:
            raise SchemaError(f"the column is spelled {name!r}, the schema says {field.name!r}")
        if not field.nullable:
            raise SchemaError(f"the column {name} may be null, but the schema says NOT NULL: remove NOT NULL")
    return names


SENT_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string",),
    "shardingKey": ("string",),
    "flag": ("int",),
    "delayLevel": ("int",),
    "properties": ("map<string,string>",),
}
"""The columns that a write uses, keyed by name, each with the Spark types that it accepts."""


def check_sent_columns(schema: StructType, *, has_topic: bool) -> None:
    """Check that rows of a schema can be sent as messages. Columns that only a broker sets are ignored.

    Args:
        schema: the schema of the rows.
        has_topic: whether the write names a topic.

    Raises:
        SchemaError: the body or the topic is missing, or a column is unknown or has another type.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, given in types.items():
        wanted = SENT_TYPES.get(name)
        if wanted is not None and given not in wanted:
            raise SchemaError(f"the column {name} must be {' or '.join(wanted)}, not {given}: cast it")
        if wanted is None and name not in (*ALL_NAMES, BAD_RECORD):
            raise SchemaError(
                f"a message has no column {name!r}{nearest(name, list(SENT_TYPES))}: select only columns of a message, or "
                "rename the column"
            )
    if "body" not in types:
        raise SchemaError(
            f"the rows have no column body, only {', '.join(types)}: rename the column with the bodies to 'body'"
        )
    if "topic" not in types and not has_topic:
        raise SchemaError("the topic of the rows is missing: give the option topic, or a column topic")
