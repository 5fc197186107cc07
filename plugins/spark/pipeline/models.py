"""A pipeline as a value: :class:`Pipeline`, frozen, every section with its defaults.

The keys of the file are the fields' names, in snake case; options that are handed on to Spark, or to the source, keep the names
they have there (``startingOffsets``, ``maxBytesPerTrigger``).
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
    """How late rows may come."""

    column: str
    """The timestamp column the watermark follows, ``storeTimestamp`` for example."""
    delay_ms: int = option(600_000, unit="ms", minimum=0)
    """How far behind the latest one a row may be and still count."""


@attrs.frozen(kw_only=True)
class DecodeSection:
    """How bodies become columns."""

    format: DecodeFormat = "binary"
    """What bodies are; ``binary`` leaves them as they are."""
    column: str = _view("body")
    """The column that is decoded."""
    into: str = _view("value")
    """The column that the decoded body is in: a struct, a text for ``string``."""
    view: str = _view(DEFAULT_VIEW)
    """The name under which SQL steps find the rows."""
    flatten: bool = False
    """Whether a struct's fields stand beside the message's own columns, instead of in ``into``."""
    on_error: Literal["fail", "null", "drop", "reject"] = "fail"
    """What becomes of a body that cannot be decoded: the run fails and names the message, ``into`` is null, no row, or a row of
    the view ``rejects``, for a sink of its own."""
    rejects: str = _view("rejects")
    """The name under which steps and sinks find what was rejected: the messages as they are."""
    schema: str | None = None
    """JSON: columns as Spark writes them (``id BIGINT, name STRING``). Avro: the schema, as JSON."""
    schema_file: Path | None = None
    """The schema in a file, looked for beside the pipeline: columns or Avro JSON, or a Protobuf descriptor set."""
    message: str | None = None
    """Protobuf: the message type with its package, ``shop.Order``."""
    framing: Literal["plain", "confluent", "single_object"] = "plain"
    """Avro and Protobuf: what stands before each body: nothing, a schema registry's header, Avro's single-object header."""
    options: Mapping[str, str] = attrs.field(factory=dict)
    """JSON: options of Spark's ``from_json``."""

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
    """One SQL statement and the name of its result."""

    view: str = attrs.field(validator=_named)
    """The name under which later steps and sinks find the rows."""
    sql: str | None = None
    """A query over the views before it."""
    sql_file: Path | None = None
    """The query in a file, looked for beside the pipeline."""
    watermark: Watermark | None = None
    """How late rows of this view may come (streaming)."""
    cache: bool = False
    """Whether the rows are kept for all sinks that read the view, so that every sink sees the same ones (batch)."""

    def __attrs_post_init__(self) -> None:
        if (self.sql is None) is (self.sql_file is None):
            raise ConfigError("a step has either 'sql' or 'sql_file'")


@attrs.frozen(kw_only=True)
class StreamSection:
    """What makes a pipeline a streaming one."""

    checkpoint: str = attrs.field()
    """The folder that remembers what is done; each sink has its own folder in it."""
    trigger: Literal["availableNow", "processingTime"] = "availableNow"
    """Up to what there is now, then end; or go on until stopped."""
    interval_ms: int = option(0, unit="ms", minimum=0)
    """With ``processingTime``: from one batch's start to the next one's; 0: at once."""
    watermark: Watermark | None = None
    """How late messages may come."""

    def __attrs_post_init__(self) -> None:
        if self.interval_ms and self.trigger != "processingTime":
            raise ConfigError("'interval_ms' goes with trigger processingTime", key="interval_ms")


@attrs.frozen(kw_only=True)
class SparkSection:
    """The session."""

    master: str | None = None
    """``local[*]``, ``spark://…``, ``k8s://…``, ``yarn``, or ``sc://…`` for Spark Connect."""
    conf: Mapping[str, Text] = attrs.field(factory=dict)
    """Spark's own settings."""


@attrs.frozen(kw_only=True)
class Sink:
    """Where rows go: what all sinks have."""

    format: str
    """``parquet``, ``delta``, ``jdbc``, ``console`` or ``flintmq``."""
    name: str = ""
    """What it is called in progress and in the checkpoint; its format, numbered where there are several."""
    view: str = ""
    """``from`` in the file: the view whose rows it takes; the last step's by default."""
    output_mode: OutputMode = "append"
    """Streaming: new rows, changed rows, or the whole result each time."""


@attrs.frozen(kw_only=True)
class FileSink(Sink):
    """Files: Parquet or Delta."""

    path: str
    """The folder."""
    mode: SaveMode = "errorifexists"
    """Batch: what to do where the folder has rows already."""
    partition_by: tuple[str, ...] = ()
    """Columns that become folders."""
    options: Mapping[str, Text] = attrs.field(factory=dict)
    """The format's own options."""


@attrs.frozen(kw_only=True)
class JdbcSink(Sink):
    """A table of a database."""

    url: Text
    """``jdbc:…``."""
    table: str
    """The table; made when it is not there."""
    mode: SaveMode = "append"
    """Batch: what to do where the table exists."""
    user: Text | None = None
    """The database's user."""
    password: Text | None = None
    """``{env: NAME}`` or ``{file: PATH}``."""
    driver: str | None = None
    """The driver's class; its jar comes by ``spark.conf`` (``spark.jars`` or ``spark.jars.packages``)."""
    batch_column: str | None = None
    """Streaming: a column that gets the batch's number, so that rows written twice can be distinguished."""
    options: Mapping[str, Text] = attrs.field(factory=dict)
    """Spark's JDBC options: ``batchsize``, ``isolationLevel``, …"""


@attrs.frozen(kw_only=True)
class ConsoleSink(Sink):
    """The terminal."""

    rows: int = option(20, minimum=1, maximum=10_000)
    """How many rows are shown, of each batch where it is streaming."""
    truncate: bool = True
    """Whether long values are cut."""


@attrs.frozen(kw_only=True)
class TopicSink(Sink):
    """A topic of any 4.9-compatible broker. Rows have a ``body``, and what else a message has."""

    options: Mapping[str, Text] = attrs.field(factory=dict)
    """The writer's options: ``nameServer``, ``topic``, …"""


@attrs.frozen(kw_only=True)
class Pipeline:
    """A pipeline. Immutable; safe to share between threads."""

    name: str
    """What it is called: in the session, in query names."""
    source: Mapping[str, Text]
    """Options of ``spark.read.format("flintmq")``; ``path`` or ``nameServer`` is among them."""
    decode: DecodeSection = attrs.field(factory=DecodeSection)
    """How bodies become columns."""
    steps: tuple[StepSection, ...] = ()
    """SQL, in order."""
    sinks: tuple[Sink, ...] = ()
    """Where rows go."""
    stream: StreamSection | None = None
    """How it streams; None: it is a batch."""
    spark: SparkSection = attrs.field(factory=SparkSection)
    """The session."""

    @property
    def is_streaming(self) -> bool:
        return self.stream is not None

    @property
    def views(self) -> tuple[str, ...]:
        """Every view's name, in order."""
        rejects = (self.decode.rejects,) if self.decode.on_error == "reject" else ()
        return (*rejects, self.decode.view, *(step.view for step in self.steps))
