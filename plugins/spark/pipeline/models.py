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
    """The watermark of a streaming pipeline: how late rows may arrive, according to a timestamp column."""

    column: str
    """Name of the timestamp column by which the age of a row is measured, for example ``storeTimestamp``."""
    delay_ms: int = option(600_000, unit="ms", minimum=0)
    """Maximum age of a row in ms, relative to the newest row. Spark may drop rows that are older."""


@attrs.frozen(kw_only=True)
class DecodeSection:
    """The section ``decode`` of a pipeline: how columns are made from message bodies."""

    format: DecodeFormat = "binary"
    """The format of the message bodies; ``binary`` leaves bodies unchanged."""
    column: str = _view("body")
    """Name of the column whose values are decoded."""
    into: str = _view("value")
    """Name of the column that gets the decoded body. The column is a struct, or a text for the format ``string``."""
    view: str = _view(DEFAULT_VIEW)
    """Name of the view of the decoded rows, for SQL steps and sinks."""
    flatten: bool = False
    """Whether the fields of the decoded struct become columns beside the message's columns, instead of the single column
    ``into``."""
    on_error: Literal["fail", "null", "drop", "reject"] = "fail"
    """Treatment of a message body that cannot be decoded. ``fail`` ends the run and names the message, ``null`` sets the column
    ``into`` to null, ``drop`` drops the row, and ``reject`` moves the row to the view :attr:`rejects`."""
    rejects: str = _view("rejects")
    """Name of the view of the rejected messages, for steps and sinks. The view's column ``badRecord`` has the reason."""
    schema: str | None = None
    """Schema of the message bodies. For JSON: columns as Spark's DDL (``id BIGINT, name STRING``). For Avro: the schema as
    JSON."""
    schema_file: Path | None = None
    """File with the schema of the message bodies, relative to the pipeline's folder: Spark's DDL for JSON, JSON for Avro, or a
    Protobuf descriptor set."""
    message: str | None = None
    """For Protobuf: name of the message type with its package, such as ``shop.Order``."""
    framing: Literal["plain", "confluent", "single_object"] = "plain"
    """For Avro and Protobuf: header before each message body. ``plain`` means no header, ``confluent`` a schema registry's
    header, and ``single_object`` Avro's single-object header."""
    options: Mapping[str, str] = attrs.field(factory=dict)
    """For JSON: options of Spark's ``from_json``, keyed by name."""

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
            raise ConfigError(
                "'message' is required for the format protobuf, and not allowed for other formats", key="message"
            )
        if self.format == "protobuf" and self.schema is not None:
            raise ConfigError(
                "'schema' is not allowed for protobuf: give 'schema_file', which protoc --descriptor_set_out makes",
                key="schema",
            )
        if self.framing != "plain" and self.format not in ("avro", "protobuf"):
            raise ConfigError(f"'framing' has no meaning for {self.format}", key="framing")
        if self.framing == "single_object" and self.format != "avro":
            raise ConfigError("'framing' single_object is only for the format avro", key="framing")
        if self.on_error == "reject" and self.format == "binary":
            raise ConfigError(
                "'on_error' reject has no meaning for binary, because every body is valid", key="on_error"
            )
        if self.on_error == "reject" and self.rejects.casefold() == self.view.casefold():
            raise ConfigError(f"'rejects': another view already has the name '{self.view}'", key="rejects")
        if self.options and self.format != "json":
            raise ConfigError(f"'options' have no meaning for {self.format}", key="options")
        if self.flatten and self.format in ("binary", "string"):
            raise ConfigError(f"'flatten' has no meaning for {self.format}", key="flatten")


@attrs.frozen(kw_only=True)
class StepSection:
    """A step of a pipeline: a SQL query, and the name of the view with the query's result."""

    view: str = attrs.field(validator=_named)
    """Name of the view with the result of the step's SQL query, for later steps and sinks."""
    sql: str | None = None
    """The step's SQL query over views of earlier steps; None if :attr:`sql_file` has the query."""
    sql_file: Path | None = None
    """File with the step's SQL query, relative to the pipeline's folder; None if :attr:`sql` has the query."""
    watermark: Watermark | None = None
    """For streams: how late the rows of this view may arrive."""
    cache: bool = False
    """For batches: whether the view's rows are kept in memory, so that every sink that reads the view gets the same rows."""

    def __attrs_post_init__(self) -> None:
        if (self.sql is None) is (self.sql_file is None):
            raise ConfigError("a step must have exactly one of 'sql' and 'sql_file'")


@attrs.frozen(kw_only=True)
class StreamSection:
    """The section ``stream`` of a pipeline: the settings of a streaming pipeline."""

    checkpoint: str = attrs.field()
    """Folder of the stream's checkpoints. Each sink has a subfolder in this folder."""
    trigger: Literal["availableNow", "processingTime"] = "availableNow"
    """When micro-batches run. ``availableNow`` processes the available messages and ends; ``processingTime`` runs until the
    stream is stopped."""
    interval_ms: int = option(0, unit="ms", minimum=0)
    """For the trigger ``processingTime``: time in ms from the start of a batch to the start of the next batch; 0 for no
    pause."""
    watermark: Watermark | None = None
    """How late messages may arrive in the stream; None for no limit."""

    def __attrs_post_init__(self) -> None:
        if self.interval_ms and self.trigger != "processingTime":
            raise ConfigError("'interval_ms' is only for the trigger processingTime", key="interval_ms")


@attrs.frozen(kw_only=True)
class SparkSection:
    """The section ``spark`` of a pipeline: the settings of the Spark session."""

    master: str | None = None
    """Spark's master URL: ``local[*]``, ``spark://…``, ``k8s://…``, ``yarn``, or ``sc://…`` for Spark Connect."""
    conf: Mapping[str, Text] = attrs.field(factory=dict)
    """Spark's own settings, keyed by name."""


@attrs.frozen(kw_only=True)
class Sink:
    """A sink of a pipeline, to which rows are written: the keys that all formats of sinks have."""

    format: str
    """Format of the sink: ``parquet``, ``delta``, ``jdbc``, ``console`` or ``flintmq``."""
    name: str = ""
    """Name of the sink in progress messages and in the checkpoint. The default is the sink's format, with a number if several
    sinks have the format."""
    view: str = ""
    """Name of the view whose rows the sink writes (key ``from`` in the pipeline's file). The default is the last step's
    view."""
    output_mode: OutputMode = "append"
    """For streams: whether a micro-batch writes new rows (``append``), changed rows (``update``) or the whole result
    (``complete``)."""


@attrs.frozen(kw_only=True)
class FileSink(Sink):
    """A pipeline's sink that writes rows to Parquet files or to a Delta table."""

    path: str
    """Folder of the Parquet files or the Delta table."""
    mode: SaveMode = "errorifexists"
    """For batches: the treatment of rows that already exist in the sink's folder."""
    partition_by: tuple[str, ...] = ()
    """Names of the columns by whose values the rows are divided into subfolders."""
    options: Mapping[str, Text] = attrs.field(factory=dict)
    """Options of the writer for the sink's format, keyed by name."""


@attrs.frozen(kw_only=True)
class JdbcSink(Sink):
    """A pipeline's sink that writes rows to a table of a database over JDBC."""

    url: Text
    """The JDBC address of the database, ``jdbc:…``."""
    table: str
    """Name of the database table. Spark creates the table if it does not exist."""
    mode: SaveMode = "append"
    """For batches: the treatment of a database table that already exists."""
    user: Text | None = None
    """Name of the user with which Spark connects to the database."""
    password: Text | None = None
    """Password with which Spark connects to the database, as a reference: ``{env: NAME}`` for an environment variable that has
    the password, or ``{file: PATH}`` for a file that has the password."""
    driver: str | None = None
    """Class of the JDBC driver. Spark's settings ``spark.jars`` or ``spark.jars.packages`` name the driver's jar."""
    batch_column: str | None = None
    """For streams: name of a column that gets the micro-batch's number, so that repeated rows can be recognized."""
    options: Mapping[str, Text] = attrs.field(factory=dict)
    """Spark's JDBC options, keyed by name: ``batchsize``, ``isolationLevel``, …"""


@attrs.frozen(kw_only=True)
class ConsoleSink(Sink):
    """A pipeline's sink that prints rows on the terminal."""

    rows: int = option(20, minimum=1, maximum=10_000)
    """Maximum number of rows that the console sink prints; for streams, the maximum for each micro-batch."""
    truncate: bool = True
    """Whether long values are shortened in the printed table."""


@attrs.frozen(kw_only=True)
class TopicSink(Sink):
    """A pipeline's sink that sends rows as messages to a topic of a broker, with RocketMQ 4.9's protocol. The rows need a
    column ``body``."""

    options: Mapping[str, Text] = attrs.field(factory=dict)
    """Options of FlintMQ's writer, such as ``nameServer`` and ``topic``, keyed by name."""


@attrs.frozen(kw_only=True)
class Pipeline:
    """A pipeline from a YAML file: a source, the decoding of message bodies, SQL steps and sinks. Immutable; safe to share
    between threads."""

    name: str
    """Name of the pipeline, which Spark shows for the session and its queries."""
    source: Mapping[str, Text]
    """Options of ``spark.read.format("flintmq")``, keyed by name. One of ``path``, ``nameServer`` and ``brokerAddr`` is
    required."""
    decode: DecodeSection = attrs.field(factory=DecodeSection)
    """The settings for making columns from message bodies."""
    steps: tuple[StepSection, ...] = ()
    """The SQL steps of the pipeline, in the order in which their views are made."""
    sinks: tuple[Sink, ...] = ()
    """The sinks to which the pipeline's rows are written."""
    stream: StreamSection | None = None
    """The settings of a streaming pipeline; None for a batch pipeline."""
    spark: SparkSection = attrs.field(factory=SparkSection)
    """The settings of the Spark session."""

    @property
    def is_streaming(self) -> bool:
        return self.stream is not None

    @property
    def views(self) -> tuple[str, ...]:
        """The names of all views of the pipeline, in the order in which the views are made."""
        rejects = (self.decode.rejects,) if self.decode.on_error == "reject" else ()
        return (*rejects, self.decode.view, *(step.view for step in self.steps))
