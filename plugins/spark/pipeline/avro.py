"""Converts Avro schemas to Spark types, and decodes Avro bodies. A body may have no header, a schema registry's header, or the
single-object header of Avro.

A union of null and one type becomes that type. A union of ``int`` and ``long``, or ``float`` and ``double``, becomes the wider
type. Other unions and recursive types have no Spark type. For such a schema an error names the field.
"""

from __future__ import annotations

import datetime
import io
import json
import struct
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.arrow_decoder import BodyDecoder

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

REGISTRY_HEADER_BYTES: Final = 5
"""Size in bytes of the header that a schema registry's serializer writes before a body: a zero byte, and the schema's ID in
the registry."""
SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
"""First bytes of Avro's single-object header. The fingerprint of the schema follows these bytes."""

_PRIMITIVES: Final = {
    "boolean": "BooleanType",
    "int": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "bytes": "BinaryType",
    "string": "StringType",
    "enum": "StringType",
    "fixed": "BinaryType",
}
_LOGICAL: Final = {
    "date": "DateType",
    "timestamp-millis": "TimestampType",
    "timestamp-micros": "TimestampType",
    "local-timestamp-millis": "TimestampNTZType",
    "local-timestamp-micros": "TimestampNTZType",
    "time-millis": "StringType",
    "time-micros": "StringType",
    "uuid": "StringType",
}
"""Spark types, keyed by the logical types that fastavro decodes. The logical type ``decimal`` has no entry, because its Spark
type depends on the precision. A value of another logical type gets the Spark type of its underlying Avro type."""
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def parse_avro(text: str) -> dict[str, Any]:
    """Parse a JSON text, and return its Avro schema. The top level of the schema must be a record.

    Raises:
        ConfigError: the text is not such a schema.
    """
    import fastavro

    try:
        schema = fastavro.parse_schema(json.loads(text))
    except (ValueError, TypeError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ConfigError(f"the text is not a valid Avro schema: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError("an Avro schema of bodies must be a record")
    return schema


def avro_type(schema: dict[str, Any]) -> DataType:
    """Return the Spark type for the values of a parsed Avro schema.

    Raises:
        ConfigError: a type has no Spark counterpart. The error names the field.
    """
    return _type(schema, "the record", {}, ())


def _type(schema: Any, where: str, named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    """Return the Spark type for the values of a part of an Avro schema.

    Args:
        schema: the part.
        where: the part's name in errors.
        named: the named types that precede the part in the schema, keyed by name. The function adds the named types of the
            part.
        inside: the names of the records that contain the part.
    """
    from pyspark.sql import types as spark

    if isinstance(schema, list):
        return _type(_only_arm(schema, where), where, named, inside)
    if isinstance(schema, str):
        if schema == "null":
            raise ConfigError(f"{where} is always null in Avro, and no column type fits it")
        if schema in _PRIMITIVES:
            return getattr(spark, _PRIMITIVES[schema])()
        if schema not in named:
            raise ConfigError(f"{where} has the unknown Avro type '{schema[:80]}'")
        return _type(named[schema], where, named, inside)
    kind, name, logical = schema["type"], schema.get("name", ""), schema.get("logicalType")
    if name:
        named[name] = schema
    if kind in ("record", "error"):
        if name in inside:
            raise ConfigError(f"{where}: the Avro record '{name}' contains itself, and no column type fits it")
        return spark.StructType(
            [
                spark.StructField(one["name"], _type(one["type"], f"{where}.{one['name']}", named, (*inside, name)))
                for one in schema["fields"]
            ]
        )
    if kind == "array":
        return spark.ArrayType(_type(schema["items"], f"{where}[]", named, inside))
    if kind == "map":
        return spark.MapType(spark.StringType(), _type(schema["values"], f"{where}{{}}", named, inside))
    if logical == "decimal":
        return spark.DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL and kind != "enum":
        return getattr(spark, _LOGICAL[logical])()
    return _type(kind, where, named, inside)


def _only_arm(arms: list[Any], where: str) -> Any:
    present = [arm for arm in arms if arm != "null"]
    if len(present) == 1:
        return present[0]
    wider = _WIDER.get(frozenset(arm for arm in present if isinstance(arm, str))) if len(present) == 2 else None
    if wider is None:
        raise ConfigError(f"{where} is an Avro union of {len(present)} types, and no column type fits it")
    return wider


@attrs.frozen
class AvroDecoder:
    """Makes decoders of message bodies that were written with one Avro schema. Instances are picklable."""

    schema_json: str
    """The Avro schema, as JSON, with which the message bodies were written."""
    framing: Literal["plain", "confluent", "single_object"] = "plain"

    def __call__(self) -> BodyDecoder:
        import fastavro

        schema = fastavro.parse_schema(json.loads(self.schema_json))
        header = b""
        header_bytes = 0
        if self.framing == "confluent":
            header, header_bytes = b"\0", REGISTRY_HEADER_BYTES
        elif self.framing == "single_object":
            header = SINGLE_OBJECT_MAGIC + fingerprint(self.schema_json)
            header_bytes = len(header)

        def decode(body: bytes) -> Any:
            if not body.startswith(header) or len(body) < header_bytes:
                raise ValueError(f"the body does not begin with the {self.framing} header of the schema")
            stream = io.BytesIO(body)
            stream.seek(header_bytes)
            try:
                value = fastavro.schemaless_reader(stream, schema, None)
            except (struct.error, AssertionError, fastavro.read.SchemaResolutionError) as error:
                raise ValueError(str(error)) from error
            if stream.read(1):
                raise ValueError("bytes after the record")
            return plain(value)

        return decode


def fingerprint(schema_json: str) -> bytes:
    """Return the CRC-64-AVRO of an Avro schema's canonical form. The single-object header contains this fingerprint."""
    import fastavro

    canonical = fastavro.schema.to_parsing_canonical_form(json.loads(schema_json))
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def plain(value: Any) -> Any:
    """Convert a value from fastavro to a value for Spark. Times of day and UUIDs become text, because Spark has no types for
    them."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, (uuid.UUID, datetime.time)) else value
