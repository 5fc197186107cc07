"""The interface between Spark's readers and a transport. A transport finds and reads messages, either in the files of a store
or at brokers over the network.

The readers (:mod:`~flintmq.plugins.spark.source`) implement Spark's interface. Each transport is made from
:class:`~flintmq.plugins.spark.options.ReadOptions`, and is sent to Spark's workers with pickle. A transport opens files and
connections at first use. Its methods are not thread-safe.

An *offset* is the JSON object that Spark writes into a checkpoint. Only the transport makes and reads offsets. An offset always
has ``"v"``, the version of the format, and ``"transport"``, so that each transport recognizes its offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from flintmq.plugins.spark.errors import CheckpointError

if TYPE_CHECKING:
    import pyarrow


Offset = dict[str, Any]
"""Offset of a query: its position in every queue that the query reads, as a JSON object."""
Part = Any
"""The input of one Spark task: a small, picklable value that the transport defines."""


OFFSET_VERSION = 1


def check_offset(offset: Mapping[str, Any], transport: Literal["store", "broker"]) -> None:
    """Raise CheckpointError if an offset in a checkpoint belongs to another transport, or has a version that is not
    supported."""
    if offset.get("transport") != transport:
        reads, way = (
            ("reads the files of a store", "nameServer")
            if transport == "store"
            else ("pulls from brokers", "load('/data/store')")
        )
        raise CheckpointError(
            f"the checkpoint was written by a query with transport {offset.get('transport')!r}, but this query {reads}; "
            f"the checkpoint's offsets do not fit. Continue with {way}, or give another checkpointLocation"
        )
    if offset.get("v") != OFFSET_VERSION:
        raise CheckpointError(
            f"the checkpoint has offsets of version {offset.get('v')!r}, this FlintMQ reads version {OFFSET_VERSION}"
        )


@attrs.frozen
class Limit:
    """The largest number of rows and of bytes in a micro-batch; None for no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None


_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1


@attrs.frozen
class Range:
    """An interval of whole numbers. Both ends are included."""

    low: int = _INT64_MIN
    high: int = _INT64_MAX

    def both(self, other: Range) -> Range:
        """Return the intersection of this range and another range."""
        return Range(max(self.low, other.low), min(self.high, other.high))

    def holds(self, numbers: Any) -> Any:
        """Return whether a number is in the range. For an array of numbers, return an array with the answer for each
        element."""
        return (numbers >= self.low) & (numbers <= self.high)


ANY = Range()
"""The range that contains every signed 64-bit number. It stands for a column without a condition."""


@attrs.frozen
class Bounds:
    """Conditions that every row of a query's result fulfills. A transport may leave out rows that do not fulfill them. Spark
    checks the conditions again."""

    topics: frozenset[str] | None = None
    """Topics of the rows in the query's result; None for any topic."""
    tags: frozenset[str] | None = None
    queue_id: Range = ANY
    queue_offset: Range = ANY
    physical_offset: Range = ANY
    store_timestamp_ms: Range = ANY


class MessageTransport(Protocol):
    """The interface of a transport, from which Spark's readers get messages: the files of a store, or brokers."""

    def initial(self, default: Literal["earliest", "latest"]) -> Offset:
        """Return the offset at which the read begins, from the option ``startingOffsets`` or ``startingTimestamp``. Without
        these options, return the offset that ``default`` names.

        Raises:
            SparkPluginError: a topic is unknown, an offset is out of range, or the store cannot be read. The text names the
                option.
        """
        ...

    def final(self) -> Offset:
        """Return the offset before which a batch read ends, from the option ``endingOffsets`` or ``endingTimestamp``. Without
        these options, return the latest offset. Raises SparkPluginError for the same reasons as :meth:`initial`."""
        ...

    def latest(self) -> Offset:
        """Return the offset just past the last message that can be read now. Raises SparkPluginError if a topic is unknown, or
        the store or the brokers cannot be read."""
        ...

    def settled(self) -> Offset:
        """Return the offset just past the last message, for a query that reads up to this offset and then ends. Unlike
        :meth:`latest`, the method waits up to ``maxBrokerAway`` for brokers that do not answer. Raises SparkPluginError
        for the same reasons as :meth:`latest`."""
        ...

    def reported(self, start: Offset, end: Offset) -> Offset:
        """Return the offset ``end`` with two more members, ``"lag"`` and ``"brokers"``, which Spark displays.

        ``"lag"`` describes the messages between ``start`` and ``end``. Its member ``messages`` is the number of the messages,
        ``bytes`` is their size, and ``ms`` is the age of the oldest message. ``"brokers"`` has an object for each broker, keyed
        by broker name. The object's member ``contactAgeMs`` is the time in ms since the broker's last answer. Unknown values
        are null.
        """
        ...

    def limited(self, start: Offset, end: Offset, limit: Limit) -> Offset:
        """Return the offset at which a batch ends. The batch begins at ``start``, ends at ``end`` or earlier, and is as large
        as the limit allows. It has at least one message if a message lies between ``start`` and ``end``."""
        ...

    def rows_between(self, start: Offset, end: Offset, enough: int) -> int:
        """Return the number of messages between two offsets. Counting may stop when ``enough`` messages are counted."""
        ...

    def checked(self, offset: Offset) -> Offset:
        """Check that an offset from a checkpoint belongs to this transport and to messages that still exist, and return the
        offset.

        With ``failOnDataLoss`` off, deleted messages are skipped, so the returned offset may be later than the given one.

        Raises:
            CheckpointError: the offset belongs to another transport, to another store, or to messages that were truncated.
            DataLossError: the messages that follow the offset are gone.
        """
        ...

    def narrowed(self, bounds: Bounds) -> MessageTransport:
        """Return a transport that may leave out rows that do not fulfill the conditions in ``bounds``. Spark filters the rows
        again."""
        ...

    def plan(self, start: Offset, end: Offset) -> Sequence[Part]:
        """Divide the messages between the offsets ``start`` and ``end`` among Spark tasks, and return the input of each task.
        Each message belongs to exactly one task. The tasks are few and large (docs/spark.md)."""
        ...

    def read(self, part: Part) -> Iterator[pyarrow.RecordBatch]:
        """Read the messages of one Spark task, and yield the messages as rows with the columns that the options name. Runs in a
        worker.

        Raises:
            SparkPluginError: messages of the task cannot be read; see :mod:`flintmq.plugins.spark.errors`.
        """
        ...

    def commit(self, end: Offset) -> None:
        """Record that all messages before the offset ``end`` are processed. The record is only for displays; recovery does not
        use it."""
        ...

    def close(self) -> None:
        """Close the files and connections of the transport. Other methods open files and connections again."""
        ...
