"""How bodies are decoded by Python in Spark's workers: an Arrow array of bodies in, an Arrow array of structs out.

Spark's own ``from_avro`` and ``from_protobuf`` need jars that no wheel holds; this needs fastavro or protobuf and nothing else.
A body that cannot be decoded becomes null; what that means is decided in SQL (``on_error``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

BodyDecoder = Callable[[bytes], Any]
"""Makes a value of a body. Raises one of ``ValueError``, ``TypeError``, ``EOFError``, ``LookupError``, ``OverflowError``
where the body is none."""

BAD_BODY: tuple[type[Exception], ...] = (ValueError, TypeError, EOFError, LookupError, OverflowError, ArithmeticError)
"""What decoders raise for bodies that are no such value; anything else is a fault of ours and fails the query."""


def decoded_column(column: Column, make: Callable[[], BodyDecoder], result: DataType) -> Column:
    """Return a column decoded in the workers.

    Args:
        column: of bodies.
        make: makes the decoder, once per task; must pickle.
        result: what the decoder's values are.
    """
    from flintmq.plugins.spark.spark_api import arrow_column, to_arrow_type

    arrow_type = to_arrow_type(result)
    decode: list[BodyDecoder] = []

    def decode_bodies(bodies: pyarrow.Array) -> pyarrow.Array:
        if not decode:
            decode.append(make())
        return decode_array(bodies, decode[0], arrow_type)

    return arrow_column(decode_bodies, column, result)


def decode_array(bodies: pyarrow.Array, decode: BodyDecoder, arrow_type: pyarrow.DataType) -> pyarrow.Array:
    """Decode a batch; null where the body is missing or bad."""
    import pyarrow as pa

    values = [None if body is None else _value(decode, body) for body in bodies.to_pylist()]
    try:
        return pa.array(values, type=arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # One value does not fit its column; which one is only known by trying each.
        return pa.concat_arrays([_alone(value, arrow_type) for value in values])


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
