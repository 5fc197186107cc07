"""Converts Protobuf message types in a descriptor set to Spark types, and decodes Protobuf bodies, without generated code.

The types are those of ``from_protobuf``. ``uint32`` becomes ``bigint`` and ``uint64`` becomes ``decimal(20,0)``, because Spark
has no unsigned types. An enum becomes its name, ``google.protobuf.Timestamp`` a timestamp, and ``Duration`` an interval. A
recursive message has no Spark type.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.arrow_decoder import BodyDecoder

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_VARINT_MAX_BYTES: Final = 10

Convert = Callable[[Any], Any]
"""Function that converts a field's value from Protobuf's type to the type for Arrow."""


def message_descriptor(descriptor_set: bytes, message: str) -> Any:
    """Return the descriptor of a Protobuf message type from a descriptor set.

    Args:
        descriptor_set: the content of the file that ``protoc --include_imports --descriptor_set_out=FILE`` writes.
        message: the type with its package.

    Raises:
        ConfigError: the bytes are not a descriptor set, imports are missing, or the message is unknown.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf import message as protobuf_message

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptor_set)
    except protobuf_message.DecodeError as error:
        raise ConfigError("the file is not a descriptor set, which protoc --descriptor_set_out makes") from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except TypeError as error:
        raise ConfigError(f"imports are missing ({error}); call protoc with --include_imports") from error
    except KeyError as error:
        known = [f"{file.package}.{one.name}".strip(".") for file in files.file for one in file.message_type]
        raise ConfigError(f"the schema has no message '{message}'; its messages are {', '.join(known[:20])}") from error


def protobuf_type(descriptor: Any) -> DataType:
    """Return the Spark type for a Protobuf message type. Raises ConfigError if the message type is recursive."""
    return _message(descriptor, ())[0]


@attrs.frozen
class ProtobufDecoder:
    """Makes decoders of bodies that contain one Protobuf message type. Instances are picklable."""

    descriptor_set: bytes
    message: str
    framing: Literal["plain", "confluent"] = "plain"

    def __call__(self) -> BodyDecoder:
        from google.protobuf import message as protobuf_message
        from google.protobuf.message_factory import GetMessageClass

        descriptor = message_descriptor(self.descriptor_set, self.message)
        make, (_type, convert) = GetMessageClass(descriptor), _message(descriptor, ())
        strip = behind_registry_header if self.framing == "confluent" else bytes

        def decode(body: bytes) -> Any:
            message = make()
            try:
                message.ParseFromString(strip(body))
            except protobuf_message.DecodeError as error:
                raise ValueError(str(error)) from error
            return convert(message)

        return decode


def behind_registry_header(body: bytes) -> bytes:
    """Return the Protobuf message in a body that begins with a schema registry's header. The header consists of a zero byte,
    the schema's ID in the registry, and the path of the message type in the schema."""
    if len(body) < 6 or body[0] != 0:
        raise ValueError("no schema registry header")
    count, position = _varint(body, 5)
    for _ in range(count):
        _, position = _varint(body, position)
    return body[position:]


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Return the zigzag-coded number at a position, and the position after it. The number must not be negative."""
    value = 0
    for place, byte in enumerate(body[position : position + _VARINT_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value >> 1, position + place + 1
    raise ValueError("the schema registry header has a variable-length number that is cut off or too long")


def _message(descriptor: Any, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
    """Return the Spark type for a Protobuf message type, and the function that converts its values for Spark. ``inside`` has
    the names of the message types that contain this type."""
    from pyspark.sql import types as spark

    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return spark.TimestampType(), lambda stamp: stamp.ToDatetime(tzinfo=datetime.UTC)
    if name == "google.protobuf.Duration":
        return spark.DayTimeIntervalType(), lambda duration: duration.ToTimedelta()
    if name in inside:
        raise ConfigError(f"the message {name} contains itself, and no column type fits it")
    types, converts = [], []
    for field in descriptor.fields:
        column, convert = _field(field, (*inside, name))
        types.append(spark.StructField(field.name, column))
        converts.append((field.name, convert, field.has_presence))

    def convert_message(message: Any) -> dict[str, Any]:
        return {
            name: convert(getattr(message, name)) if not tracked or message.HasField(name) else None
            for name, convert, tracked in converts
        }

    return spark.StructType(types), convert_message


def _field(field: Any, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
    from pyspark.sql import types as spark

    if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        (key_type, key), (value_type, value) = _single(entry["key"], inside), _single(entry["value"], inside)
        return spark.MapType(key_type, value_type), lambda found: [(key(name), value(found[name])) for name in found]
    column, single = _single(field, inside)
    if field.is_repeated:
        return spark.ArrayType(column), lambda found: [single(one) for one in found]
    return column, single


def _single(field: Any, inside: tuple[str, ...]) -> tuple[DataType, Convert]:
    from pyspark.sql import types as spark

    if field.message_type is not None:
        return _message(field.message_type, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return spark.StringType(), lambda number: names.get(number, str(number))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return spark.DecimalType(20, 0), Decimal
    by_kind: dict[int, DataType] = {
        field.CPPTYPE_INT32: spark.IntegerType(),
        field.CPPTYPE_INT64: spark.LongType(),
        field.CPPTYPE_UINT32: spark.LongType(),
        field.CPPTYPE_DOUBLE: spark.DoubleType(),
        field.CPPTYPE_FLOAT: spark.FloatType(),
        field.CPPTYPE_BOOL: spark.BooleanType(),
        field.CPPTYPE_STRING: spark.BinaryType() if field.type == field.TYPE_BYTES else spark.StringType(),
    }
    return by_kind[field.cpp_type], lambda value: value
