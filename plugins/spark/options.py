"""The options of a read and of a write, with their readers, defaults and documentation (docs/spark.md).

Names are case-insensitive, as everywhere in Spark. An unknown name is an error, because ignoring a misspelled
``failOnDataLos`` could lose data. The error's text suggests the most similar known name.
"""
# ruff: noqa: RUF009 - the functions that the defaults call return attrs fields

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

import attrs

from flintmq.core.limits import BATCH_MAX_MESSAGES
from flintmq.core.log_events import event_log
from flintmq.plugins.spark import option_values as values
from flintmq.plugins.spark.errors import DataLossError, OptionError, SparkPluginError
from flintmq.plugins.spark.option_values import Place
from flintmq.plugins.spark.ports import ANY, Range
from flintmq.plugins.spark.schema import ALL_NAMES, BAD_RECORD, BadRecords, chosen, nearest

log = event_log("flintmq.spark")

Transport = Literal["store", "broker"]
Visibility = Literal["flushed", "dispatched", "confirmed"]

DEFAULT_GROUP: Final = "FLINTMQ_SPARK_WRITER"
STREAM_BROKER_AWAY_MS: Final = 600_000
"""Time in ms for which a stream waits by default for a broker that does not answer. The time is long enough for a broker with a
large store to restart after a crash."""


@attrs.frozen
class Option:
    """An option of a Spark read or write: its name, its documentation, and the function that reads its text."""

    name: str
    read: Callable[[str, str], Any]
    """Function that converts the option's text to its value. Its arguments are the option's name and text. Raises
    OptionError."""
    default: str
    """The option's default as the documentation shows it; empty if the option has no default."""
    meaning: str
    aliases: tuple[str, ...] = ()
    only: Transport | None = None
    """The transport that accepts the option: ``store`` for the files of a store, or ``broker`` for brokers over the network.
    None if both transports accept the option."""


def _option(
    name: str,
    read: Callable[[str, str], Any],
    default: str | None,
    meaning: str,
    *,
    shown: str | None = None,
    aliases: tuple[str, ...] = (),
    only: Transport | None = None,
) -> Any:
    """Return an attrs attribute whose value an option sets. ``default`` is the text of the option's default, or None if the
    option has no default. ``shown`` is the default as the documentation shows it."""
    shown = (default or "") if shown is None else shown
    value = None if default is None else read(name, default)
    return attrs.field(default=value, metadata={"option": Option(name, read, shown, meaning, aliases, only)})


def _columns(option: str, value: str) -> tuple[str, ...]:
    return chosen(values.names(option, value))


@attrs.frozen
class ReadOptions:
    """The checked options of a Spark read. An attribute is None if its option is not given and has no default. Instances are
    pickled to the workers."""

    path: str | None = _option(
        "path",
        values.text,
        None,
        "A store's folder, whose files are read. Exactly one of `path`, `nameServer` and `brokerAddr` is needed.",
    )
    name_server: str | None = _option(
        "nameServer", values.text, None, "Addresses `host:port`, separated by `;`; pulls from the brokers they know."
    )
    broker_addr: str | None = _option(
        "brokerAddr", values.text, None, "One broker's `host:port`; pulls from it without a name server."
    )
    subscribe: tuple[str, ...] | None = _option(
        "subscribe",
        values.names,
        None,
        "Topics, separated by commas.",
        shown="all but system topics",
        aliases=("topic",),
    )
    subscribe_pattern: re.Pattern[str] | None = _option(
        "subscribePattern", values.pattern, None, "A regular expression that must fit a topic's whole name."
    )
    queues: Mapping[str, frozenset[int]] | None = _option(
        "queues", values.queues, None, 'Queues of topics, as JSON: `{"orders": [0, 1]}`.', shown="all"
    )
    tags: tuple[str, ...] = _option(
        "tags", values.tags, "*", "`a || b`: messages with one of these tags.", aliases=("subExpression",)
    )
    """Tags of the messages to read. A message must have one of these tags; an empty tuple accepts every message."""
    include_system_topics: bool = _option(
        "includeSystemTopics",
        values.boolean,
        "false",
        "Also delayed messages in waiting, half messages, retries and dead letters (`SCHEDULE_TOPIC_XXXX`, `RMQ_SYS_*`, "
        "`%RETRY%*`, `%DLQ%*`). A topic that `subscribe` names is read in any case.",
    )
    starting_offsets: Place | None = _option(
        "startingOffsets",
        values.start,
        None,
        '`earliest`, `latest`, `{"topic": {"broker": {"0": 23}}}` (-2 earliest, -1 latest), `{"broker": {"phys": 1048576}}`, '
        "`-100` (the last 100 messages of each queue) or `-10m` (what was stored since ten minutes ago).",
        shown="earliest; a stream: latest",
    )
    ending_offsets: Place | None = _option(
        "endingOffsets",
        values.place,
        None,
        "The same without the last two, for the end of a batch read; exclusive.",
        shown="latest",
    )
    starting_timestamp_ms: int | None = _option(
        "startingTimestamp",
        values.start_time,
        None,
        "Read messages stored at or after this time: ms since 1970, a time such as `2026-01-31T12:00:00+01:00`, or `-10m` "
        "for ten minutes before now.",
    )
    ending_timestamp_ms: int | None = _option(
        "endingTimestamp",
        values.time_ms,
        None,
        "Read messages stored before this time, in ms since 1970 or as a date and time. Only for batch reads.",
    )
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = _option(
        "startingOffsetsByTimestampStrategy",
        values.one_of("error", "latest"),
        "error",
        "If nothing was stored since `startingTimestamp`: raise an error, or begin at the latest offset.",
    )
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger", values.count, None, "The most messages in a micro-batch."
    )
    max_bytes_per_trigger: int | None = _option(
        "maxBytesPerTrigger",
        values.size_bytes,
        None,
        "The most bytes of records in a micro-batch; it holds at least one message.",
        shown="256m; none beside maxOffsetsPerTrigger",
    )
    """Maximum number of bytes of records in a micro-batch; None if the option is not given. The property
    :attr:`bytes_per_trigger` adds the default."""
    min_offsets_per_trigger: int | None = _option(
        "minOffsetsPerTrigger",
        values.count,
        None,
        "The fewest messages in a micro-batch. Fewer messages wait until there are enough.",
    )
    max_trigger_delay_ms: int = _option(
        "maxTriggerDelay", values.duration_ms, "15m", "The longest wait for `minOffsetsPerTrigger`."
    )
    max_partition_bytes: int = _option(
        "maxPartitionBytes",
        values.size_bytes,
        "64m",
        "About how many bytes of records a task reads; 16 times as many if the consume queues suffice.",
    )
    min_partitions: int | None = _option(
        "minPartitions",
        values.count,
        None,
        "The fewest tasks, unless there are fewer messages than tasks. The tasks share the messages evenly.",
    )
    batch_rows: int = _option("batchRows", values.count, "10000", "The most rows in an Arrow batch.")
    batch_bytes: int = _option(
        "batchBytes",
        values.size_bytes,
        "16m",
        "The most bytes in an Arrow batch: of records, or of decompressed bodies.",
    )
    columns: tuple[str, ...] = _option(
        "columns",
        _columns,
        ",".join(ALL_NAMES),
        "Read only these columns, in this order; `.schema(...)` does the same.",
        shown="all",
    )
    visibility: Visibility | None = _option(
        "visibility",
        values.one_of("flushed", "dispatched", "confirmed"),
        None,
        "Which messages of a store that is being written are read: those synced to disk, those that consumers can see, or "
        "those that a slave has too.",
        shown="flushed",
        only="store",
    )
    """Name of the position up to which the messages of a store are read. A broker records these positions for readers of its
    store. None means the safest recorded position, if possible ``flushed``."""
    fail_on_data_loss: bool = _option(
        "failOnDataLoss",
        values.boolean,
        "true",
        "If messages that should be read are gone: raise an error, or log a warning and continue with the oldest message.",
    )
    verify_crc: bool = _option("verifyCrc", values.boolean, "false", "Check each body's CRC-32.")
    bad_records: BadRecords = _option(
        "badRecords",
        values.one_of(*get_args(BadRecords)),
        "fail",
        "If bytes are not a valid record: raise an error, skip them, or keep them as a row with the column `badRecord`.",
    )
    raw_body: bool = _option("rawBody", values.boolean, "false", "Leave compressed bodies as they are stored.")
    properties_format: Literal["map", "json"] = _option(
        "propertiesFormat",
        values.one_of("map", "json"),
        "map",
        "The type of `properties`: a map, or a string of JSON as rocketmq-spark has it.",
    )
    pushdown: bool = _option(
        "pushdown",
        values.boolean,
        "false",
        "Leave out rows by the query's own filters; only in batch reads. Needs `spark.sql.python.filterPushdown.enabled`, "
        "which `session()` sets.",
    )
    broker_name: str | None = _option(
        "brokerName",
        values.text,
        None,
        "The broker's name in the column `brokerName` and in offsets.",
        only="store",
    )
    commit_log_path: tuple[str, ...] | None = _option(
        "commitLogPath",
        values.names,
        None,
        "Folders of the commit log, separated by commas, when the broker keeps it elsewhere.",
        shown="`commitlog` in the store",
        only="store",
    )
    commit_group: str | None = _option(
        "commitGroup",
        values.text,
        None,
        "Also commit offsets to the broker as this group, for its lag display.",
        only="broker",
    )
    max_broker_away_ms: int | None = _option(
        "maxBrokerAway",
        values.duration_ms,
        None,
        "How long to wait for a broker that does not answer. After that the read fails, or logs a warning if "
        "`failOnDataLoss=false`.",
        shown="10m; a batch: 0s",
        only="broker",
    )
    """Time in ms to wait for a broker that does not answer; None if the option is not given. Without the option, a stream waits
    for a default time (:meth:`for_stream`), and a batch does not wait."""
    pull_batch_size: int = _option(
        "pullBatchSize", values.count, "256", "How many messages a pull asks for.", only="broker"
    )
    pull_timeout_ms: int = _option(
        "pullTimeoutMs", values.count, "3000", "How long an answer may take, in ms.", only="broker"
    )
    pull_pipeline: int = _option(
        "pullPipeline", values.count, "4", "How many pulls may wait for an answer at once.", only="broker"
    )

    @property
    def transport(self) -> Transport:
        """The transport from which a Spark read gets its messages: ``store`` if a path is given, else brokers."""
        return "store" if self.path is not None else "broker"

    @property
    def bytes_per_trigger(self) -> int | None:
        """The limit in bytes of a micro-batch; 256 MiB by default, None if only a limit in messages is given."""
        if self.max_bytes_per_trigger is None and self.max_offsets_per_trigger is None:
            return 256 * 1024 * 1024
        return self.max_bytes_per_trigger

    def for_stream(self) -> ReadOptions:
        """Return these read options with the defaults of a streaming read for options that are not given."""
        if self.max_broker_away_ms is not None:
            return self
        return attrs.evolve(self, max_broker_away_ms=STREAM_BROKER_AWAY_MS)

    def lost(self, what: str, kind: type[SparkPluginError] = DataLossError) -> None:
        """Report that messages to be read no longer exist: raise an error, or log a warning if ``failOnDataLoss`` is off.

        Args:
            what: the beginning of the error's or warning's text.
            kind: the class of the error.
        """
        if self.fail_on_data_loss:
            raise kind(f"{what}. With option failOnDataLoss=false the read continues with the remaining messages")
        log.warning(
            "spark.data_loss",
            "%(what)s; failOnDataLoss=false: the read continues with the remaining messages",
            what=what,
        )

    @property
    def examines_records(self) -> bool:
        """Whether a read must read every record of the log, even if the consume queues contain all requested columns."""
        return self.verify_crc or self.bad_records == "keep"

    @property
    def stored_ms(self) -> Range:
        """The range of store times of the messages to read, in ms since 1970."""
        start, end = self.starting_timestamp_ms, self.ending_timestamp_ms
        return Range(ANY.low if start is None else start, ANY.high if end is None else end - 1)

    def check_stream(self) -> None:
        """Raise OptionError if one of the read options is not possible in a streaming read."""
        for attribute in ("ending_offsets", "ending_timestamp_ms"):
            if getattr(self, attribute) is not None:
                raise OptionError(
                    f"option {READ_OPTIONS[attribute].name} is only for batch reads, because a stream has no end. Remove it, "
                    "or read with spark.read. With the trigger AvailableNow a stream ends after the present messages"
                )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Parse and check the options of a ``spark.read`` or ``spark.readStream``.

        Raises:
            OptionError: an option is unknown, is given under two names, has an unusable value, or conflicts with another.
        """
        found = _parsed(cls, given)
        options = cls(**found)
        _check(options, found)
        if options.bad_records == "keep" and "columns" not in found:
            options = attrs.evolve(options, columns=(*ALL_NAMES, BAD_RECORD))
        since = found.get("starting_timestamp_ms")
        if isinstance(since, Place):
            options = attrs.evolve(options, starting_timestamp_ms=None, starting_offsets=since)
        return options


@attrs.frozen
class WriteOptions:
    """The checked options of a Spark write. Instances are pickled to the workers."""

    name_server: str | None = _option(
        "nameServer", values.text, None, "Addresses `host:port`, separated by `;`. This or `brokerAddr` is needed."
    )
    broker_addr: str | None = _option(
        "brokerAddr", values.text, None, "One broker's `host:port`, without a name server; its topics must exist."
    )
    topic: str | None = _option(
        "topic",
        values.text,
        None,
        "The topic of all rows, in place of a column `topic`; without it each row names its topic.",
    )
    group: str = _option("group", values.text, DEFAULT_GROUP, "The producer group.")
    send_batch: int = _option(
        "sendBatch", values.count, "256", f"The most rows in a request, at most {BATCH_MAX_MESSAGES}."
    )
    send_pipeline: int = _option(
        "sendPipeline", values.count, "4", "How many requests of a task may wait for an answer at once."
    )
    send_timeout_ms: int = _option("sendTimeoutMs", values.count, "3000", "How long an answer may take, in ms.")
    send_attempts: int = _option(
        "sendAttempts", values.count, "6", "How often a request is sent before the task fails."
    )
    max_message_size_bytes: int = _option(
        "maxMessageSize",
        values.size_bytes,
        "4m",
        "The largest request; set it to the brokers' `maxMessageSize`. A larger body fails the query.",
    )
    compress_over_bytes: int | None = _option(
        "compressOver",
        values.size_bytes,
        None,
        "Bodies of at least this size are compressed and sent one per request.",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Parse and check the options of a ``df.write`` or ``writeStream``.

        Raises:
            OptionError: an option is unknown or has an unusable value, or no address or more than one address is given.
        """
        # Spark's own options, such as ``queryName``, are removed, because _parsed() would refuse them as unknown options.
        options = cls(**_parsed(cls, {name: value for name, value in given.items() if name.lower() not in _SPARKS}))
        if (options.name_server is None) is (options.broker_addr is None):
            raise OptionError("the target of the write is missing: give one of the options nameServer and brokerAddr")
        if options.send_batch > BATCH_MAX_MESSAGES:
            raise OptionError(f"option sendBatch must be at most {BATCH_MAX_MESSAGES}, not {options.send_batch}")
        return options


_SPARKS: Final = ("checkpointlocation", "queryname", "path")


def _table(of: type[attrs.AttrsInstance]) -> dict[str, Option]:
    return {field.name: field.metadata["option"] for field in attrs.fields(of)}


READ_OPTIONS: Final = _table(ReadOptions)
"""The options of a read in the order of the documentation, keyed by the name of the attribute in :class:`ReadOptions`."""

WRITE_OPTIONS: Final = _table(WriteOptions)
"""The options of a write in the order of the documentation, keyed by the name of the attribute in :class:`WriteOptions`."""


def _parsed(of: type[attrs.AttrsInstance], given: Mapping[str, str]) -> dict[str, Any]:
    """Read the given options of a Spark read or write, and return their values, keyed by attribute.

    Raises:
        OptionError: an option is unknown, is given under two names, or has an unusable value.
    """
    table = _table(of)
    fields = {name.lower(): field for field, option in table.items() for name in (option.name, *option.aliases)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        field = fields.get(name.lower())
        if field is None:
            raise OptionError(f"unknown option {name[:80]!r}{nearest(name, [one.name for one in table.values()])}")
        option = table[field]
        if field in found:
            raise OptionError(f"option {option.name} is given twice, also as {' or '.join(option.aliases)}")
        found[field] = option.read(option.name, value)
    return found


def _check(options: ReadOptions, found: Mapping[str, Any]) -> None:
    """Check that the options of a read do not conflict and that no required option is missing. Raises OptionError."""
    addresses = [READ_OPTIONS[name].name for name in ("path", "name_server", "broker_addr") if name in found]
    if len(addresses) != 1:
        raise OptionError(
            "a read needs exactly one source: load('/data/store'), option nameServer or option brokerAddr; "
            f"given: {' and '.join(addresses) or 'none'}"
        )
    for option in map(READ_OPTIONS.__getitem__, found):
        if option.only not in (None, options.transport):
            way = "nameServer or brokerAddr" if option.only == "broker" else "load('/data/store')"
            raise OptionError(f"option {option.name} is only for reads with {way}")
    if options.subscribe is not None and options.subscribe_pattern is not None:
        raise OptionError("subscribe and subscribePattern are both given: give only one of them")
    if options.transport == "broker" and options.subscribe is None and options.subscribe_pattern is None:
        raise OptionError("pulling from a broker needs the option subscribe or subscribePattern")
    for end in ("starting", "ending"):
        if f"{end}_offsets" in found and f"{end}_timestamp_ms" in found:
            raise OptionError(f"{end}Offsets and {end}Timestamp are both given: give only one of them")
    if (options.min_offsets_per_trigger or 0) > (options.max_offsets_per_trigger or 2**63):
        raise OptionError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
