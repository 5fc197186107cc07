"""The options of a read, in one table: how each is read, what it means, and where it applies (docs/spark.md).

Names know no case, as everywhere in Spark. An unknown one is an error that names the nearest known one: a misspelled
``failOnDataloss`` that is ignored costs data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from flintmq.plugins.spark import option_values as values
from flintmq.plugins.spark.errors import OptionError
from flintmq.plugins.spark.option_values import Place
from flintmq.plugins.spark.schema import ALL_NAMES, chosen, nearest

Transport = Literal["store", "broker"]
Visibility = Literal["flushed", "dispatched", "confirmed"]


@attrs.frozen
class Option:
    """One option, for reading it and for the documentation."""

    name: str
    read: Callable[[str, str], Any]
    """Makes a value of (the option's name, its text). Raises OptionError."""
    default: str
    """As the documentation shows it; empty for none."""
    meaning: str
    aliases: tuple[str, ...] = ()
    only: Transport | None = None
    """The transport that knows it; None for both."""


def _columns(option: str, value: str) -> tuple[str, ...]:
    return chosen(values.names(option, value))


READ_OPTIONS: Final = (
    Option(
        "path", values.text, "", "A store's folder; reads its files. This or `nameServer` or `brokerAddr` is needed."
    ),
    Option("nameServer", values.text, "", "Addresses `host:port`, separated by `;`; pulls from the brokers they know."),
    Option("brokerAddr", values.text, "", "One broker's `host:port`; pulls from it without a name server."),
    Option("subscribe", values.names, "all but system topics", "Topics, separated by commas.", ("topic",)),
    Option("subscribePattern", values.pattern, "", "A regular expression that must fit a topic's whole name."),
    Option("queues", values.queues, "all", 'Queues of topics, as JSON: `{"orders": [0, 1]}`.'),
    Option("tags", values.tags, "*", "`a || b`: messages with one of these tags.", ("subExpression",)),
    Option(
        "includeSystemTopics",
        values.boolean,
        "false",
        "Also delayed messages in waiting, half messages, retries and dead letters (`SCHEDULE_TOPIC_XXXX`, `RMQ_SYS_*`, "
        "`%RETRY%*`, `%DLQ%*`). A topic that `subscribe` names is read in any case.",
    ),
    Option(
        "startingOffsets",
        values.place,
        "earliest; a stream: latest",
        '`earliest`, `latest`, `{"topic": {"broker": {"0": 23}}}` (-2 earliest, -1 latest) or `{"broker": {"phys": 1048576}}`.',
    ),
    Option("endingOffsets", values.place, "latest", "The same, for the end of a batch read; exclusive."),
    Option("startingTimestamp", values.milliseconds_since_1970, "", "Messages stored from then on, in ms since 1970."),
    Option("endingTimestamp", values.milliseconds_since_1970, "", "Messages stored before then, in ms since 1970."),
    Option(
        "startingOffsetsByTimestampStrategy",
        values.one_of("error", "latest"),
        "error",
        "When nothing was stored since `startingTimestamp`: an error, or begin at the latest.",
    ),
    Option("maxOffsetsPerTrigger", values.count, "", "At most so many messages in a micro-batch."),
    Option(
        "maxBytesPerTrigger",
        values.size_bytes,
        "256m; none beside maxOffsetsPerTrigger",
        "At most so many bytes of records in a micro-batch, but at least one message.",
    ),
    Option("minOffsetsPerTrigger", values.count, "", "No micro-batch before so many messages are there."),
    Option("maxTriggerDelay", values.duration_ms, "15m", "But one after this time in any case."),
    Option(
        "maxPartitionBytes",
        values.size_bytes,
        "64m",
        "How many bytes of records a task reads, about; 16 times as many where consume queues tell all.",
    ),
    Option("minPartitions", values.count, "", "At least so many tasks, where there are as many messages."),
    Option("batchRows", values.count, "10000", "An Arrow batch ends at so many rows …"),
    Option("batchBytes", values.size_bytes, "16m", "… or at so many bytes of records, whichever comes first."),
    Option("columns", _columns, "all", "Read only these columns, in this order; `.schema(...)` does the same."),
    Option(
        "visibility",
        values.one_of("flushed", "dispatched", "confirmed"),
        "flushed",
        "How far a store that is being written is read: what is synced, what consumers can see, what a slave has too.",
        only="store",
    ),
    Option(
        "failOnDataLoss",
        values.boolean,
        "true",
        "When messages that should be read are gone: an error, or a warning and on with the oldest there is.",
    ),
    Option("verifyCrc", values.boolean, "false", "Check each body's CRC-32."),
    Option(
        "badRecords",
        values.one_of("fail", "skip"),
        "fail",
        "Where no record is though one should be: an error, or go on.",
    ),
    Option("rawBody", values.boolean, "false", "Leave compressed bodies as they are stored."),
    Option(
        "propertiesFormat",
        values.one_of("map", "json"),
        "map",
        "The type of `properties`: a map, or a string of JSON as rocketmq-spark has it.",
    ),
    Option(
        "pushdown",
        values.boolean,
        "false",
        "Prune by the query's own filters, in batches; needs `spark.sql.python.filterPushdown.enabled` (`session()` sets it).",
    ),
    Option(
        "brokerName",
        values.text,
        "",
        "What stands in the column `brokerName`, and names the broker in offsets.",
        only="store",
    ),
    Option(
        "commitLogPath",
        values.names,
        "`commitlog` in the store",
        "Folders of the commit log, separated by commas, when the broker keeps it elsewhere.",
        only="store",
    ),
    Option(
        "commitGroup",
        values.text,
        "",
        "Also commit offsets to the broker as this group, for its lag display.",
        only="broker",
    ),
    Option("pullBatchSize", values.count, "256", "How many messages a pull asks for.", only="broker"),
    Option("pullTimeoutMs", values.count, "3000", "How long an answer may take, in ms.", only="broker"),
    Option("pullPipeline", values.count, "4", "How many pulls are under way at once.", only="broker"),
)
"""Every option of a read, in the order of the documentation."""


@attrs.frozen
class ReadOptions:
    """The options of one read, checked. A value that pickles: it travels to the workers."""

    path: str | None = None
    name_server: str | None = None
    broker_addr: str | None = None
    subscribe: tuple[str, ...] | None = None
    """None for every topic."""
    subscribe_pattern: re.Pattern[str] | None = None
    queues: Mapping[str, frozenset[int]] | None = None
    tags: tuple[str, ...] = ()
    """Empty for every message."""
    include_system_topics: bool = False
    starting_offsets: Place | None = None
    """None for the default of the read."""
    ending_offsets: Place | None = None
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = "error"
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    """None when it was not asked for: see :attr:`bytes_per_trigger`."""
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60 * 1000
    max_partition_bytes: int = 64 * 1024 * 1024
    min_partitions: int | None = None
    batch_rows: int = 10_000
    batch_bytes: int = 16 * 1024 * 1024
    columns: tuple[str, ...] = ALL_NAMES
    visibility: Visibility | None = None
    """None when it was not asked for: ``flushed`` as far as the store tells."""
    fail_on_data_loss: bool = True
    verify_crc: bool = False
    bad_records: Literal["fail", "skip"] = "fail"
    raw_body: bool = False
    properties_format: Literal["map", "json"] = "map"
    pushdown: bool = False
    broker_name: str | None = None
    commit_log_path: tuple[str, ...] = ()
    commit_group: str | None = None
    pull_batch_size: int = 256
    pull_timeout_ms: int = 3_000
    pull_pipeline: int = 4

    @property
    def transport(self) -> Transport:
        """Which transport reads: a path means files."""
        return "store" if self.path is not None else "broker"

    @property
    def bytes_per_trigger(self) -> int | None:
        """The limit in bytes: as given, else 256 MiB, but none where there is one in messages."""
        if self.max_bytes_per_trigger is None and self.max_offsets_per_trigger is None:
            return 256 * 1024 * 1024
        return self.max_bytes_per_trigger

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read the options of a ``spark.read`` or ``spark.readStream``.

        Raises:
            OptionError: one is unknown, comes twice by two names, has a value that cannot be used, or does not go with another.
        """
        fields = {field_of(name): value for name, value in parse(READ_OPTIONS, given).items()}
        options = cls(**fields)
        _check(options, fields)
        return options


def parse(table: tuple[Option, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """Read options by a table; the result is by the table's names.

    Raises:
        OptionError: one is unknown, comes twice by two names, or has a value that cannot be used.
    """
    known = {name.lower(): option for option in table for name in (option.name, *option.aliases)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        option = known.get(name.lower())
        if option is None:
            raise OptionError(f"unknown option {name[:80]!r}{nearest(name, [one.name for one in known.values()])}")
        if option.name in found:
            raise OptionError(f"option {option.name} is given twice, also as {' or '.join(option.aliases)}")
        found[option.name] = option.read(option.name, value)
    return found


_FIELDS: Final = {
    "startingTimestamp": "starting_timestamp_ms",
    "endingTimestamp": "ending_timestamp_ms",
    "maxTriggerDelay": "max_trigger_delay_ms",
    "maxMessageSize": "max_message_size_bytes",
    "compressOver": "compress_over_bytes",
}
"""Attributes that end in a unit, by option."""


def field_of(option: str) -> str:
    """Return the attribute that holds an option."""
    return _FIELDS.get(option) or re.sub(r"(?<=[a-z])([A-Z])", r"_\1", option).lower()


def _check(options: ReadOptions, fields: Mapping[str, Any]) -> None:
    """What no option can tell by itself."""
    addresses = [name for name in ("path", "name_server", "broker_addr") if name in fields]
    if len(addresses) != 1:
        got = " and ".join(_name(field) for field in addresses) or "none of them"
        raise OptionError(
            f"where from? Give one of load('/data/store'), option nameServer or option brokerAddr; there is {got}"
        )
    for option in READ_OPTIONS:
        if option.only not in (None, options.transport) and field_of(option.name) in fields:
            way = "nameServer or brokerAddr" if option.only == "broker" else "load('/data/store')"
            raise OptionError(f"option {option.name} only goes with {way}")
    if options.subscribe is not None and options.subscribe_pattern is not None:
        raise OptionError("give either subscribe or subscribePattern")
    if options.transport == "broker" and options.subscribe is None and options.subscribe_pattern is None:
        raise OptionError("pulling from a broker needs the option subscribe or subscribePattern")
    for end in ("starting", "ending"):
        if f"{end}_offsets" in fields and f"{end}_timestamp_ms" in fields:
            raise OptionError(f"give either {end}Offsets or {end}Timestamp")
    if (options.min_offsets_per_trigger or 0) > (options.max_offsets_per_trigger or 2**63):
        raise OptionError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")


def _name(field: str) -> str:
    return next(option.name for option in READ_OPTIONS if field_of(option.name) == field)
