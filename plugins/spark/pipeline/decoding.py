"""Decodes the message bodies of a pipeline, and makes the pipeline's first view from them.

The setting ``on_error`` determines the treatment of a body that cannot be decoded. With the setting ``flatten``, each field of
the decoded struct becomes a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flintmq.plugins.spark.pipeline.arrow_decoder import BodyDecoder, decoded_column, reason_column
from flintmq.plugins.spark.pipeline.avro import AvroDecoder, avro_type, parse_avro
from flintmq.plugins.spark.pipeline.load import LoadedPipeline
from flintmq.plugins.spark.pipeline.protobuf import ProtobufDecoder, message_descriptor, protobuf_type
from flintmq.plugins.spark.pipeline.references import require
from flintmq.plugins.spark.schema import BAD_RECORD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

CORRUPT: Final = "_flintmq_corrupt"
"""Name of the column in which ``from_json`` puts a message body that is not valid JSON for the schema."""


def decoded(messages: DataFrame, loaded: LoadedPipeline) -> DataFrame:
    """Decode the bodies of messages as the pipeline's ``decode`` section says, and return the data frame with the decoded
    columns.

    With the source's option ``badRecords=keep``, a row may stand for a damaged record. Such a row is treated like a message
    whose body cannot be decoded.

    Raises:
        ConfigError: the schema cannot be read or used, the column of the bodies is missing, or a new column would have the name
            of an existing column. The error names the line in the pipeline's file.
    """
    section = loaded.pipeline.decode
    if section.format == "binary":
        return messages
    _check_names(messages, loaded)
    column = _column(messages, loaded)
    return _flattened(_checked(messages, column, loaded), loaded)


def rejected(messages: DataFrame, loaded: LoadedPipeline) -> DataFrame:
    """Return the rows that a pipeline rejects: messages whose bodies cannot be decoded, and damaged records of the log, which a
    read with the option ``badRecords=keep`` returns as rows. The column ``badRecord`` has the reason; the other columns are
    unchanged. Raises ConfigError if the schema or the column of the bodies cannot be used."""
    from pyspark.sql import functions as sql

    _check_names(messages, loaded)
    reason = _reason(messages, loaded)
    if BAD_RECORD in messages.columns:
        reason = sql.coalesce(messages[BAD_RECORD], reason)
    return messages.withColumn(BAD_RECORD, reason).where(sql.col(BAD_RECORD).isNotNull())


def _check_names(messages: DataFrame, loaded: LoadedPipeline) -> None:
    section = loaded.pipeline.decode
    if section.column not in messages.columns:
        raise loaded.error(
            "decode.column",
            f"'decode.column': messages have no column '{section.column}': {', '.join(messages.columns)}",
        )
    if section.into in messages.columns and section.into != section.column:
        raise loaded.error("decode.into", f"'decode.into': messages have a column '{section.into}' already")


def _column(messages: DataFrame, loaded: LoadedPipeline) -> Column:
    """Return a Spark column with the decoded values of message bodies; null for a body that cannot be decoded."""
    section = loaded.pipeline.decode
    body = messages[section.column]
    if section.format == "string":
        from pyspark.sql import functions as sql

        # try_validate_utf8() returns null for a body that is not UTF-8. A cast alone would keep the invalid bytes.
        return sql.try_validate_utf8(body.cast("string"))
    if section.format == "json":
        return _json(body, loaded)
    return decoded_column(body, *_decoder(loaded))


def _reason(messages: DataFrame, loaded: LoadedPipeline) -> Column:
    """Return a Spark column that contains, for each message body, the reason why the body cannot be decoded. The reason is null
    if the body can be decoded."""
    from pyspark.sql import functions as sql

    section = loaded.pipeline.decode
    body = messages[section.column]
    invalid = sql.lit(f"the {section.column} {_invalid(loaded)}")
    if section.format in ("string", "json"):
        return sql.when(body.isNotNull() & _column(messages, loaded).isNull(), invalid)
    return sql.concat(invalid, sql.lit(": "), reason_column(body, *_decoder(loaded)))


def _invalid(loaded: LoadedPipeline) -> str:
    return f"is not a valid {loaded.pipeline.decode.format} value of the pipeline's schema"


def _decoder(loaded: LoadedPipeline) -> tuple[Callable[[], BodyDecoder], DataType]:
    """Return the function that makes the decoder of Avro or Protobuf bodies, and the Spark type of the decoded values."""
    section = loaded.pipeline.decode
    if section.format == "avro":
        key, schema_json = _schema(loaded)
        require("avro", "decode.format: avro", loaded.origin("decode.format"))
        with loaded.placed(key):
            avro = avro_type(parse_avro(schema_json))
        return AvroDecoder(json.dumps(json.loads(schema_json)), section.framing), avro
    require("protobuf", "decode.format: protobuf", loaded.origin("decode.format"))
    assert section.schema_file is not None
    assert section.message is not None
    assert section.framing != "single_object"
    descriptor_set = loaded.read("decode.schema_file", section.schema_file)
    with loaded.placed("decode.message"):
        result = protobuf_type(message_descriptor(descriptor_set, section.message))
    return ProtobufDecoder(descriptor_set, section.message, section.framing), result


def _json(body: Column, loaded: LoadedPipeline) -> Column:
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StringType, StructField, StructType

    wanted = json_schema(loaded)
    with_corrupt = StructType([*wanted.fields, StructField(CORRUPT, StringType())])
    options = {**loaded.pipeline.decode.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = sql.from_json(body.cast("string"), with_corrupt, options)
    kept = sql.struct(*(parsed[field.name].alias(field.name) for field in wanted.fields))
    return sql.when(parsed.isNotNull() & parsed[CORRUPT].isNull(), kept)


def json_schema(loaded: LoadedPipeline) -> StructType:
    """Return the schema of JSON bodies. A pipeline's file has the schema as Spark's DDL or as the JSON of
    ``StructType.json()``.

    Raises:
        ConfigError: the text is not such a schema, or names no columns.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    key, text = _schema(loaded)
    text = text.strip()
    try:
        found: DataType = StructType.fromJson(json.loads(text)) if text.startswith("{") else StructType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split("\n\n")[0].split())[:200]
        raise loaded.error(key, f"'{key}' is not a schema such as 'id BIGINT, name STRING': {reason}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise loaded.error(key, f"'{key}' names no columns")
    return found


def _schema(loaded: LoadedPipeline) -> tuple[str, str]:
    """Return the key that names the schema of message bodies in the pipeline's file, and the text of the schema."""
    section = loaded.pipeline.decode
    if section.schema is not None:
        return "decode.schema", section.schema
    assert section.schema_file is not None
    return "decode.schema_file", loaded.read_text("decode.schema_file", section.schema_file)


def _checked(messages: DataFrame, column: Column, loaded: LoadedPipeline) -> DataFrame:
    from pyspark.sql import functions as sql

    section = loaded.pipeline.decode
    present = sql.col(section.column).isNotNull()
    has_bad = BAD_RECORD in messages.columns
    bad = sql.col(BAD_RECORD) if has_bad else sql.lit(None).cast("string")
    if has_bad:
        present = present | bad.isNotNull()
        column = sql.when(bad.isNull(), column)
    if section.on_error == "fail":
        keys = ["topic", "brokerName", "queueId", "queueOffset"]
        if has_bad:  # A damaged record has no known queue, so the error text names its physical offset.
            keys.append("physicalOffset")
        named = [name for name in keys if name in messages.columns]
        place = sql.concat_ws(" ", *(sql.concat(sql.lit(f"{name}="), sql.col(name).cast("string")) for name in named))
        complaint = sql.concat(
            sql.lit(f"the {section.column} of the message "),
            place,
            sql.lit(" "),
            sql.coalesce(sql.concat(sql.lit("cannot be read: "), bad), sql.lit(_invalid(loaded))),
            sql.lit("; decode.on_error: null, drop or reject continues"),
        )
        column = sql.coalesce(column, sql.when(present, sql.raise_error(complaint)))
    if section.on_error not in ("drop", "reject"):
        return messages.withColumn(section.into, column)
    # Rows are filtered before the body is replaced, because the setting 'into' may name the body's column.
    marked = messages.select("*", column.alias(CORRUPT)).where(sql.col(CORRUPT).isNotNull() | ~present)
    return marked.withColumn(section.into, sql.col(CORRUPT)).drop(CORRUPT, *([BAD_RECORD] if has_bad else []))


def _flattened(frame: DataFrame, loaded: LoadedPipeline) -> DataFrame:
    section = loaded.pipeline.decode
    if not section.flatten:
        return frame
    inner = frame.select(f"{section.into}.*").columns
    outer = [name for name in frame.columns if name != section.into]
    known = {name.casefold() for name in outer}
    both = [name for name in inner if name.casefold() in known]
    if both:
        message = f"'decode.flatten': messages have columns of these names already: {', '.join(both)}"
        raise loaded.error("decode.flatten", message)
    return frame.select(*outer, f"{section.into}.*")
