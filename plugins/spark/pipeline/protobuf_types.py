"""Protobuf messages as Spark types, by the mapping that Spark's own ``from_protobuf`` has.

``uint32`` is a ``bigint`` and ``uint64`` a ``decimal(20,0)``, because Spark has no unsigned types; enums are their names;
``google.protobuf.Timestamp`` is a timestamp and ``Duration`` an interval. A message that contains itself has no column type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.config.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"


def message_descriptor(descriptor_set: bytes, message: str) -> Any:
    """The descriptor of a message type out of a descriptor set.

    Args:
        descriptor_set: what ``protoc --include_imports --descriptor_set_out=FILE`` writes.
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
        raise ConfigError("no descriptor set; protoc --descriptor_set_out makes one") from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except TypeError as error:
        raise ConfigError(f"imports are missing ({error}); call protoc with --include_imports") from error
    except KeyError as error:
        known = [f"{file.package}.{one.name}".strip(".") for file in files.file for one in file.message_type]
        raise ConfigError(f"there is no message '{message}', only {', '.join(known[:20])}") from error


def protobuf_type(descriptor: Any) -> DataType:
    """The Spark type of a message. Raises ``ConfigError`` where it contains itself."""
    return _message(descriptor, ())


def _message(descriptor: Any, inside: tuple[str, ...]) -> DataType:
    from pyspark.sql import types as spark

    name = descriptor.full_name
    if name == TIMESTAMP:
        return spark.TimestampType()
    if name == DURATION:
        return spark.DayTimeIntervalType()
    if name in inside:
        raise ConfigError(f"the message {name} contains itself, which no column can")
    return spark.StructType(
        [spark.StructField(field.name, _field(field, (*inside, name))) for field in descriptor.fields]
    )


def _field(field: Any, inside: tuple[str, ...]) -> DataType:
    from pyspark.sql import types as spark

    if is_map(field):
        entry = field.message_type.fields_by_name
        return spark.MapType(_single(entry["key"], inside), _single(entry["value"], inside))
    single = _single(field, inside)
    return spark.ArrayType(single) if field.is_repeated else single


def _single(field: Any, inside: tuple[str, ...]) -> DataType:
    from pyspark.sql import types as spark

    if field.message_type is not None:
        return _message(field.message_type, inside)
    by_kind: dict[int, DataType] = {
        field.CPPTYPE_INT32: spark.IntegerType(),
        field.CPPTYPE_INT64: spark.LongType(),
        field.CPPTYPE_UINT32: spark.LongType(),
        field.CPPTYPE_UINT64: spark.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: spark.DoubleType(),
        field.CPPTYPE_FLOAT: spark.FloatType(),
        field.CPPTYPE_BOOL: spark.BooleanType(),
        field.CPPTYPE_ENUM: spark.StringType(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return spark.BinaryType() if field.type == field.TYPE_BYTES else spark.StringType()
    return by_kind[field.cpp_type]


def is_map(field: Any) -> bool:
    """Whether a field is a map: a repeated message that protoc made for it."""
    return bool(field.message_type is not None and field.is_repeated and field.message_type.GetOptions().map_entry)
