"""The port between Spark's readers and what messages are read from: files of a store, or a broker over the wire.

The readers (:mod:`~flintmq.plugins.spark.source`) know Spark; a transport
knows offsets. It is made from :class:`~flintmq.plugins.spark.options.ReadOptions`, pickled to the workers, and opens nothing
before it is used there. No method is called from two threads at once.

An *offset* is what Spark writes into a checkpoint: a JSON object that the transport makes and understands. It always has
``"v"``, the version of its form, and ``"transport"``, so that one is never taken for the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from flintmq.plugins.spark.errors import CheckpointError

if TYPE_CHECKING:
    import pyarrow


Offset = dict[str, Any]
"""A position in everything that is read, as JSON."""
Part = Any
"""What one task reads: a small value of the transport's that pickles."""


OFFSET_VERSION = 1


def check_offset(offset: Mapping[str, Any], transport: Literal["store", "broker"]) -> None:
    """Check that an offset is one of a transport, of the version that is read. Raises CheckpointError."""
    if offset.get("transport") != transport:
        reads, way = (
            ("reads the files of a store", "nameServer")
            if transport == "store"
            else ("pulls from brokers", "load('/data/store')")
        )
        raise CheckpointError(
            f"the checkpoint was written by a query with transport {offset.get('transport')!r}, this one {reads}: offsets of "
            f"one mean nothing to the other. Go on with {way}, or give another checkpointLocation"
        )
    if offset.get("v") != OFFSET_VERSION:
        raise CheckpointError(
            f"the checkpoint has offsets of version {offset.get('v')!r}, this FlintMQ reads {OFFSET_VERSION}"
        )


@attrs.frozen
class Limit:
    """How much a micro-batch may hold; None means any number."""

    max_rows: int | None = None
    max_bytes: int | None = None


_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1


@attrs.frozen
class Range:
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int = _INT64_MIN
    high: int = _INT64_MAX

    def both(self, other: Range) -> Range:
        """Return what lies in both."""
        return Range(max(self.low, other.low), min(self.high, other.high))

    def holds(self, numbers: Any) -> Any:
        """Return whether a number, or each of an array, lies in it."""
        return (numbers >= self.low) & (numbers <= self.high)


ANY = Range()
"""Every number."""


@attrs.frozen
class Bounds:
    """What a query's own filters say about its rows: those outside cannot be in the result; those inside may or may not."""

    topics: frozenset[str] | None = None
    """None for any."""
    tags: frozenset[str] | None = None
    queue_id: Range = ANY
    queue_offset: Range = ANY
    physical_offset: Range = ANY
    store_timestamp_ms: Range = ANY


class MessageTransport(Protocol):
    """Where messages come from."""

    def initial(self, default: Literal["earliest", "latest"]) -> Offset:
        """Return where reading begins: what ``startingOffsets`` or ``startingTimestamp`` say, else the default.

        Raises:
            SparkPluginError: an unknown topic, an offset out of range, a store that cannot be read; names the option.
        """
        ...

    def final(self) -> Offset:
        """Return where a batch read ends, exclusive: ``endingOffsets``, ``endingTimestamp``, or the latest. Raises as
        above."""
        ...

    def latest(self) -> Offset:
        """Return the end of what may be read now. Raises as above."""
        ...

    def settled(self) -> Offset:
        """Return the end of what may be read now, for a query that ends there: waits for what is away. Raises as above."""
        ...

    def reported(self, start: Offset, end: Offset) -> Offset:
        """Return an end for people to see, with how far ``start`` is behind it.

        ``"lag"`` has ``messages``, ``bytes`` of records, and ``ms`` that the oldest of them has waited; ``"brokers"`` has the
        name of each broker with ``contactAgeMs``, how long ago it answered. What cannot be told is null.
        """
        ...

    def limited(self, start: Offset, end: Offset, limit: Limit) -> Offset:
        """Return the furthest offset between two that keeps within a limit, but behind ``start`` where anything is
        there at all."""
        ...

    def rows_between(self, start: Offset, end: Offset, enough: int) -> int:
        """Return how many messages lie between; may stop counting at ``enough``."""
        ...

    def checked(self, offset: Offset) -> Offset:
        """Return an offset out of a checkpoint, if it belongs to this transport, this store and its history.

        With ``failOnDataLoss`` switched off, what is gone is skipped: the offset returned may lie further on.

        Raises:
            CheckpointError: it belongs elsewhere.
            DataLossError: what follows it is gone.
        """
        ...

    def narrowed(self, bounds: Bounds) -> MessageTransport:
        """Return a transport that may leave out what lies outside the bounds; Spark filters again."""
        ...

    def plan(self, start: Offset, end: Offset) -> Sequence[Part]:
        """Return the tasks that together read every message in [start, end) once: few and large (docs/spark.md)."""
        ...

    def read(self, part: Part) -> Iterator[pyarrow.RecordBatch]:
        """Yield, in a worker, the rows of a part, with the columns of the options in their order.

        Raises:
            SparkPluginError: see :mod:`flintmq.plugins.spark.errors`.
        """
        ...

    def commit(self, end: Offset) -> None:
        """Note that everything before ``end`` has been processed. Never used for recovery."""
        ...

    def close(self) -> None:
        """Let go of files and connections; :meth:`plan` and the others may be called again afterwards."""
        ...
