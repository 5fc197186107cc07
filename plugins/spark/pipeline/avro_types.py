"""Avro schemas as Spark types. Pure: text in, types out.

Unions of null and one type are that type; of ``int`` and ``long``, or ``float`` and ``double``, the wider one. Any other union
has no column type, and a type that contains itself none of finite depth: both are refused by name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from flintmq.config.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def parse_avro(text: str) -> dict[str, Any]:
    """A schema of JSON text; its top level must be a record.

    Raises:
        ConfigError: it is not such a schema.
    """
    import fastavro

    try:
        schema = fastavro.parse_schema(json.loads(text))
    except (ValueError, TypeError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ConfigError(f"no Avro schema: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError("an Avro schema of bodies must be a record")
    return schema


def avro_type(schema: dict[str, Any]) -> DataType:
    """The Spark type of values of a parsed schema.

    Raises:
        ConfigError: a type has no counterpart; names the field.
    """
    return _Types({}).of(schema, "the record", ())


class _Types:
    """Types under way, with the named ones met so far."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, where: str, inside: tuple[str, ...]) -> DataType:
        if isinstance(schema, list):
            return self._union(schema, where, inside)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _primitive(schema, where)
            if schema not in self._named:
                raise ConfigError(f"{where} has the unknown Avro type '{schema[:80]}'")
            return self.of(self._named[schema], where, inside)
        return self._complex(schema, where, inside)

    def _complex(self, schema: dict[str, Any], where: str, inside: tuple[str, ...]) -> DataType:
        from pyspark.sql import types as spark

        kind, name = schema["type"], schema.get("name", "")
        if name:
            self._named[name] = schema
        if kind in ("record", "error"):
            if name in inside:
                raise ConfigError(f"{where}: the Avro record '{name}' contains itself, which no column can")
            fields = [
                spark.StructField(field["name"], self.of(field["type"], f"{where}.{field['name']}", (*inside, name)))
                for field in schema["fields"]
            ]
            return spark.StructType(fields)
        if kind == "array":
            return spark.ArrayType(self.of(schema["items"], f"{where}[]", inside))
        if kind == "map":
            return spark.MapType(spark.StringType(), self.of(schema["values"], f"{where}{{}}", inside))
        if kind == "enum":
            return spark.StringType()
        logical = _logical(schema)
        if logical is not None:
            return logical
        return spark.BinaryType() if kind == "fixed" else self.of(kind, where, inside)

    def _union(self, arms: list[Any], where: str, inside: tuple[str, ...]) -> DataType:
        present = [arm for arm in arms if arm != "null"]
        if len(present) == 1:
            return self.of(present[0], where, inside)
        wider = _WIDER.get(frozenset(arm for arm in present if isinstance(arm, str))) if len(present) == 2 else None
        if wider is None:
            raise ConfigError(f"{where} is an Avro union of {len(present)} types, which no column can be")
        return _primitive(wider, where)


def _primitive(name: str, where: str) -> DataType:
    from pyspark.sql import types as spark

    if name == "null":
        raise ConfigError(f"{where} is always null in Avro, which no column can be")
    return {
        "boolean": spark.BooleanType(),
        "int": spark.IntegerType(),
        "long": spark.LongType(),
        "float": spark.FloatType(),
        "double": spark.DoubleType(),
        "bytes": spark.BinaryType(),
        "string": spark.StringType(),
    }[name]


def _logical(schema: dict[str, Any]) -> DataType | None:
    """Return the type of a logical type that fastavro decodes; any other is its plain type."""
    from pyspark.sql import types as spark

    kind = schema.get("logicalType")
    if kind == "decimal":
        return spark.DecimalType(schema["precision"], schema.get("scale", 0))
    if kind == "date":
        return spark.DateType()
    if kind in ("timestamp-millis", "timestamp-micros"):
        return spark.TimestampType()
    if kind in ("local-timestamp-millis", "local-timestamp-micros"):
        return spark.TimestampNTZType()
    if kind in ("time-millis", "time-micros", "uuid"):
        return spark.StringType()
    return None
