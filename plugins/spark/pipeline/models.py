"""Defines a pipeline as an immutable value: :class:`Pipeline`, with the defaults of every section.

Keys in the file are the names of the fields, in snake case. Options for Spark or for the source keep their own names
(``startingOffsets``, ``maxBytesPerTrigger``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option
from flintmq.plugins.spark.pipeline.references import Text

NAME_PATTERN: Final = r"[A-Za-z_]\w*"
DEFAULT_VIEW: Final = "messages"

DecodeFormat = Literal["binary", "string", "json", "avro", "protobuf"]
SaveMode = Literal["append", "overwrite", "errorifexists", "ignore"]
OutputMode = Literal["append", "update", "complete"]


def _view(default: str) -> str:
    return option(default, pattern=NAME_PATTERN, expects="a name of letters, digits and underscores")


def _named(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if re.fullmatch(NAME_PATTERN, value, re.ASCII) is None:
        message = f"'{attribute.name}' must be a name of letters, digits and underscores, not '{value[:80]}'"
        raise ConfigError(message, key=attribute.name)


@attrs.frozen(kw_only=True)
class Watermark:
    """How late rows may arrive, relative to a timestamp column."""

    column: str
    """The timestamp column, for example ``storeTimestamp``."""
    delay_ms: int = option(600_000, unit="ms", minimum=0)
    """Largest age in ms of a row, relative to the newest row, at which the row still counts."""


@attrs.frozen(kw_only=True)
class DecodeSection:
    """How message bodies become columns."""

    format: DecodeFormat = "binary"
    """The format of the bodies; ``binary`` leaves them unchanged."""
    column: str = _view("body")
    """The column to decode."""
    into: str = _view("value")
    """The column that gets the decoded body: a struct, or a text for ``string``."""
    view: str = _view(DEFAULT_VIEW)
    """The view of the decoded rows for SQL steps."""
    flatten: bool = False
    """Whether a struct's fields become columns beside the message's columns, instead of the column ``into``."""
    on_error: Literal["fail", "null", "drop", "reject"] = "fail"
    """The treatment of a body that cannot be decoded: the run fails and names the message, ``into`` is null, the row is
    dropped, or the row goes to the view ``rejects``."""
    rejects: str = _view("rejects")
    """The view of the rejected messages for steps and sinks; its column ``badRecord`` has the reason."""
    schema: str | None = None
    """For JSON: columns as Spark's DDL (``id BIGINT, name STRING``). For Avro: the schema as JSON."""
    schema_file: Path | None = None
    """File with the schema, relative to the pipeline's folder: columns or Avro JSON, or a Protobuf descriptor set."""
    message: str | None = None
    """For Protobuf: the message type with its package, such as ``shop.Order``."""
    framing: Literal["plain", "confluent", "single_object"] = "plain"
    """For Avro and Protobuf: the header before each body: none, a schema registry's, or Avro's single-object header."""
    options: Mapping[str, str] = attrs.field(factory=dict)
    """For JSON: options of Spark's ``from_json``."""

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("schema", "schema_file") if getattr(self, name) is not None]
        wanted = self.format in ("json", "avro", "protobuf")
        if wanted and len(given) != 1:
            say = "only one of 'schema' and 'schema_file' can be given" if given else f"'format' {self.format} needs"
            raise ConfigError(
                say if given else f"{say} a 'schema' or a 'schema_file'", key=given[-1] if given else None
            )
        if given and not wanted:
            raise ConfigError(f"'{given[0]}' has no meaning for {self.format}", key=given[0])
        if (self.format == "protobuf") is (self.message is None):
            raise ConfigError("'message' names the message type of protobuf, and of nothing else", key="message")
        if self.format == "protobuf" and self.schema is not None:
            raise ConfigError(
                "'schema' must be a 'schema_file' for protobuf: protoc --descriptor_set_out", key="schema"
            )
        if self.framing != "plain" and self.format not in ("avro", "protobuf"):
            raise ConfigError(f"'framing' has no meaning for {self.format}", key="framing")
        if self.framing == "single_object" and self.format != "avro":
            raise ConfigError("'framing' single_object is Avro's", key="framing")
        if self.on_error == "reject" and self.format == "binary":
            raise ConfigError("'on_error' reject has no meaning for binary: every body is one", key="on_error")
        if self.on_error == "reject" and self.rejects.casefold() == self.view.casefold():
            raise ConfigError(f"'rejects': there is a view '{self.view}' already", key="rejects")
        if self.options and self.format != "json":
            raise ConfigError(f"'options' have no meaning for {self.format}", key="options")
        if self.flatten and self.format in ("binary", "string"):
            raise ConfigError(f"'flatten' has no meaning for {self.format}", key="flatten")


@attrs.frozen(kw_only=True)
class StepSection:
    """A SQL query and the view of its result."""

    view: str = attrs.field(validator=_named)
    """The name of the view for later steps and sinks."""
    sql: str | None = None
    """A query over earlier views."""
    sql_file: Path | None = None
    """File with the query, relative to the pipeline's folder."""
    watermark: Watermark | None = None
    """How late rows of this view may arrive. For streams only."""
    cache: bool = False
    """Whether the rows are kept in memory, so that every sink that reads the view gets the same rows. For batches only."""

    def __attrs_post_init__(self) -> None:
        if (self.sql is None) is (self.sql_file is None):
            raise ConfigError("a step has either 'sql' or 'sql_file'")


@attrs.frozen(kw_only=True)
class StreamSection:
    """The settings of a streaming pipeline."""

    checkpoint: str = attrs.field()
    """The folder of the checkpoints; each sink has a subfolder."""
    trigger: Literal["availableNow", "processingTime"] = "availableNow"
    """``availableNow`` processes the available messages and ends; ``processingTime`` runs until it is stopped."""
    interval_ms: int = option(0, unit="ms", minimum=0)
    """For ``processingTime``: ms from the start of a batch to the start of the next; 0 for no pause."""
    watermark: Watermark | None = None
    """How late messages may arrive."""

    def __attrs_post_init__(self) -> None:
        if self.interval_ms and self.trigger != "processingTime":
            raise ConfigError("'interval_ms' goes with trigger processingTime", key="interval_ms")


@attrs.frozen(kw_only=True)
class SparkSection:
    """The settings of the Spark session."""

    master: str | None = None
    """Where Spark runs: ``local[*]``, ``spark://…``, ``k8s://…``, ``yarn``, or ``sc://…`` for Spark Connect."""
    conf: Mapping[str, Text] = attrs.field(factory=dict)
    """Spark's own settings, keyed by name."""


@attrs.frozen(kw_only=True)
class Sink:
    """A destination of rows: the keys that all sinks have."""

    format: str
    """``parquet``, ``delta``, ``jdbc``, ``console`` or ``flintmq``."""
    name: str = ""
    """The sink's name in progress and in the checkpoint; by default its format, with a number if there are several."""
    view: str = ""
    """The view whose rows the sink writes (``from`` in the file); by default the last step's."""
    output_mode: OutputMode = "append"
    """For streams: new rows, changed rows, or the whole result each time."""


@attrs.frozen(kw_only=True)
class FileSink(Sink):
    """A sink that writes Parquet files or a Delta table."""

    path: str
    """The folder of the files or the table."""
    mode: SaveMode = "errorifexists"
    """For batches: the treatment of existing rows in the folder."""
    partition_by: tuple[str, ...] = ()
    """Columns whose values become folders."""
    options: Mapping[str, Text] = attrs.field(factory=dict)
    """Options of the format, keyed by name."""


@attrs.frozen(kw_only=True)
class JdbcSink(Sink):
    """A sink that writes to a table of a database over JDBC."""

    url: Text
    """The database's address, ``jdbc:…``."""
    table: str
    """The table; created if it does not exist."""
    mode: SaveMode = "append"
    """For batches: the treatment of an existing table."""
    user: Text | None = None
    """The database's user."""
    password: Text | None = None
    """The user's password: ``{env: NAME}`` or ``{file: PATH}``."""
    driver: str | None = None
    """The class of the JDBC driver. ``spark.conf`` names its jar (``spark.jars`` or ``spark.jars.packages``)."""
    batch_column: str | None = None
    """For streams: a column that gets the batch's number, so that repeated rows can be recognized."""
    options: Mapping[str, Text] = attrs.field(factory=dict)
    """Spark's JDBC options: ``batchsize``, ``isolationLevel``, …"""


@attrs.frozen(kw_only=True)
class ConsoleSink(Sink):
    """A sink that prints rows on the terminal."""

    rows: int = option(20, minimum=1, maximum=10_000)
    """Number of rows to print; for streams, of each batch."""
    truncate: bool = True
    """Whether long values are shortened."""


@attrs.frozen(kw_only=True)
class TopicSink(Sink):
    """A sink that sends rows to a topic of a broker with RocketMQ 4.9's protocol. The rows need a column ``body``."""

    options: Mapping[str, Text] = attrs.field(factory=dict)
    """The writer's options, such as ``nameServer`` and ``topic``."""


@attrs.frozen(kw_only=True)
class Pipeline:
    """A pipeline. Immutable; safe to share between threads."""

    name: str
    """The name in Spark's session and queries."""
    source: Mapping[str, Text]
    """Options of ``spark.read.format("flintmq")``; one of ``path``, ``nameServer`` and ``brokerAddr`` is required."""
    decode: DecodeSection = attrs.field(factory=DecodeSection)
    """How message bodies become columns."""
    steps: tuple[StepSection, ...] = ()
    """SQL queries, in order."""
    sinks: tuple[Sink, ...] = ()
    """The destinations of the rows."""
    stream: StreamSection | None = None
    """The settings of a stream; None for a batch."""
    spark: SparkSection = attrs.field(factory=SparkSection)
    """The settings of the Spark session."""

    @property
    def is_streaming(self) -> bool:
        return self.stream is not None

    @property
    def views(self) -> tuple[str, ...]:
        """The names of all views, in order."""
        rejects = (self.decode.rejects,) if self.decode.on_error == "reject" else ()
        return (*rejects, self.decode.view, *(step.view for step in self.steps))
