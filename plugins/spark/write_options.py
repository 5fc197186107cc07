"""The options of a write, and which columns a row may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from flintmq.core.limits import BATCH_MAX_MESSAGES
from flintmq.plugins.spark import option_values as values
from flintmq.plugins.spark.errors import OptionError, SchemaError
from flintmq.plugins.spark.options import Option, field_of, parse
from flintmq.plugins.spark.schema import ALL_NAMES, nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DEFAULT_GROUP: Final = "FLINTMQ_SPARK_WRITER"

WRITE_OPTIONS: Final = (
    Option("nameServer", values.text, "", "Addresses `host:port`, separated by `;`. This or `brokerAddr` is needed."),
    Option("brokerAddr", values.text, "", "One broker's `host:port`, without a name server; its topics must exist."),
    Option("topic", values.text, "", "Where rows go that have no column `topic`, or null in it."),
    Option("group", values.text, DEFAULT_GROUP, "The producer group."),
    Option(
        "sendBatch", values.count, "256", f"At most so many rows in a request, {BATCH_MAX_MESSAGES} being the most."
    ),
    Option("sendPipeline", values.count, "4", "How many requests of a task are under way at once."),
    Option("sendTimeoutMs", values.count, "3000", "How long an answer may take, in ms."),
    Option("sendAttempts", values.count, "6", "How often a request is sent before the task fails."),
    Option(
        "maxMessageSize",
        values.size_bytes,
        "4m",
        "The largest request, as the brokers' `maxMessageSize` has it; a larger body fails the query.",
    ),
    Option(
        "compressOver", values.size_bytes, "", "Bodies of this size and more are compressed, in requests of their own."
    ),
)
"""Every option of a write, in the order of the documentation."""

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string",),
    "shardingKey": ("string",),
    "flag": ("int",),
    "delayLevel": ("int",),
    "properties": ("map<string,string>",),
}
"""The columns that make a message, each with the types it may have."""


@attrs.frozen
class WriteOptions:
    """The options of one write, checked. A value that pickles: it travels to the workers."""

    name_server: str | None = None
    broker_addr: str | None = None
    topic: str | None = None
    group: str = DEFAULT_GROUP
    send_batch: int = 256
    send_pipeline: int = 4
    send_timeout_ms: int = 3_000
    send_attempts: int = 6
    max_message_size_bytes: int = 4 * 1024 * 1024
    compress_over_bytes: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Read the options of a ``df.write`` or ``writeStream``.

        Raises:
            OptionError: one is unknown or has a value that cannot be used, or the address is missing, or more than one
                is given.
        """
        # Spark hands a stream's own options on to the sink; they are not for us.
        found = parse(WRITE_OPTIONS, {name: value for name, value in given.items() if name.lower() not in _SPARKS})
        options = cls(**{field_of(name): value for name, value in found.items()})
        if (options.name_server is None) is (options.broker_addr is None):
            raise OptionError("where to? Give one of the options nameServer and brokerAddr")
        if options.send_batch > BATCH_MAX_MESSAGES:
            raise OptionError(f"option sendBatch must be at most {BATCH_MAX_MESSAGES}, not {options.send_batch}")
        return options


_SPARKS: Final = ("checkpointlocation", "queryname", "path")


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Whether rows of a schema can be sent. Columns of a read that no producer decides are passed over.

    Raises:
        SchemaError: no body, no topic, a column of another type, or one that nothing is known of.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, given in types.items():
        wanted = TYPES.get(name)
        if wanted is not None and given not in wanted:
            raise SchemaError(f"the column {name} must be {' or '.join(wanted)}, not {given}: cast it")
        if wanted is None and name not in ALL_NAMES:
            known = list(TYPES)
            raise SchemaError(
                f"a message has no {name!r}{nearest(name, known)}: select what shall be sent, rename the rest"
            )
    if "body" not in types:
        raise SchemaError(f"the rows have no column body, only {', '.join(types)}: name what shall be sent 'body'")
    if "topic" not in types and options.topic is None:
        raise SchemaError("where do the rows go? Give the option topic, or a column topic")
