"""Decodes message bodies with Python code in Spark's workers. The input is an Arrow array of bodies, and the result is an Arrow
array of structs.

Spark's own ``from_avro`` and ``from_protobuf`` need jars that no wheel contains. This module needs only fastavro or protobuf. A
body that cannot be decoded becomes null. The setting ``on_error`` of the pipeline determines the treatment of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

BodyDecoder = Callable[[bytes], Any]
"""Function that returns the decoded value of a message body. For a body that cannot be decoded, the function raises one of the
errors in :data:`BAD_BODY`."""

BAD_BODY: tuple[type[Exception], ...] = (ValueError, TypeError, EOFError, LookupError, OverflowError, ArithmeticError)
"""Errors by which a decoder reports that a body cannot be decoded. Any other error is a defect and fails the query."""


_REASON_MAX_CHARS: Final = 500


def decoded_column(column: Column, make: Callable[[], BodyDecoder], result: DataType) -> Column:
    """Return a Spark column of decoded message bodies. Spark's workers decode the bodies in Python.

    Args:
        column: the column of bodies.
        make: a picklable function that makes the decoder. It is called once per task.
        result: the type of the decoder's values.
    """
    return _worker_column(column, make, result, decode_array, result)


def reason_column(column: Column, make: Callable[[], BodyDecoder], result: DataType) -> Column:
    """Return a Spark column that contains, for each message body, the reason why the body cannot be decoded. The reason is null
    if the body can be decoded. For the arguments see :func:`decoded_column`."""
    from pyspark.sql.types import StringType

    return _worker_column(column, make, result, reason_array, StringType())


def _worker_column(
    column: Column,
    make: Callable[[], BodyDecoder],
    decoded: DataType,
    of_bodies: Callable[[pyarrow.Array, BodyDecoder, pyarrow.DataType], pyarrow.Array],
    result: DataType,
) -> Column:
    from flintmq.plugins.spark.spark_api import arrow_column, to_arrow_type

    arrow_type = to_arrow_type(decoded)
    decode: list[BodyDecoder] = []

    def of_array(bodies: pyarrow.Array) -> pyarrow.Array:
        if not decode:
            decode.append(make())
        return of_bodies(bodies, decode[0], arrow_type)

    return arrow_column(of_array, column, result)


def decode_array(bodies: pyarrow.Array, decode: BodyDecoder, arrow_type: pyarrow.DataType) -> pyarrow.Array:
    """Decode an Arrow array of message bodies, and return an Arrow array of the decoded values. A body that is missing or
    cannot be decoded becomes null."""
    import pyarrow as pa

    values = [None if body is None else _value(decode, body) for body in bodies.to_pylist()]
    try:
        return pa.array(values, type=arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Each value is converted separately, because an error of pa.array() does not name the value that does not fit the type.
        return pa.concat_arrays([_alone(value, arrow_type) for value in values])


def reason_array(bodies: pyarrow.Array, decode: BodyDecoder, arrow_type: pyarrow.DataType) -> pyarrow.Array:
    """Return, for each message body in an Arrow array, why the body cannot be decoded. The reason is null for a body that is
    missing or can be decoded."""
    import pyarrow as pa

    missing = decode_array(bodies, decode, arrow_type).is_null().to_pylist()
    reasons = [
        _reason(decode, body, arrow_type) if is_missing and body is not None else None
        for body, is_missing in zip(bodies.to_pylist(), missing, strict=True)
    ]
    return pa.array(reasons, pa.string())


def _reason(decode: BodyDecoder, body: bytes, arrow_type: pyarrow.DataType) -> str:
    import pyarrow as pa

    try:
        pa.array([decode(body)], type=arrow_type)
    except (*BAD_BODY, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        return f"{type(error).__name__}: {error}"[:_REASON_MAX_CHARS]
    return "the body has no value"


def _value(decode: BodyDecoder, body: bytes) -> Any:
    try:
        return decode(body)
    except BAD_BODY:
        return None


def _alone(value: Any, arrow_type: pyarrow.DataType) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return pa.array([value], type=arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.nulls(1, arrow_type)
