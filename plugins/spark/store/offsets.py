"""The offset of a store's files: a place in the commit log, and in which history of which store it is one.

::

    {"v": 1, "transport": "store", "store": "<32 hex>", "epoch": "<16 hex>", "phys": 617789557}

Store id and epoch are those of ``flint/epochs`` (:mod:`flintmq.core.log.epochs`): the epoch that holds the last byte before
the place. A crash may cut the log's end and other messages may be written there; then the epoch tells that what was read is
not what lies there now. Stores that the Java broker wrote have neither. ``"queues"``, where a query began at queue offsets of
its own, holds them: ``{"topic": {"0": 23}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from flintmq.core.log.epochs import Epochs
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.ports import Offset

VERSION: Final = 1
_WAY_OUT: Final = "Give another checkpointLocation, and startingOffsets to say where to begin"
QueueLimits = Mapping[str, Mapping[str, int]]
_INT64_MAX: Final = 2**63 - 1


@attrs.frozen
class StoreOffset:
    """A place in a commit log."""

    physical_offset: int
    store_id: str | None = None
    """None for a store without ``flint/epochs``."""
    epoch_id: str | None = None
    queue_starts: QueueLimits = attrs.field(factory=dict)
    """Topic to queue id to the queue offset with which this query began; goes along from batch to batch."""
    queue_ends: QueueLimits = attrs.field(factory=dict)
    """Topic to queue id to the queue offset with which a batch read ends."""

    @classmethod
    def at(
        cls,
        physical_offset: int,
        epochs: Epochs | None,
        queue_starts: QueueLimits | None = None,
        queue_ends: QueueLimits | None = None,
    ) -> StoreOffset:
        """The offset of a place in a store with those epochs."""
        limits = queue_starts or {}, queue_ends or {}
        if epochs is None:
            return cls(physical_offset, None, None, *limits)
        epoch = epochs.at(max(0, physical_offset - 1))
        return cls(physical_offset, epochs.store_id, epoch.id, *limits)

    def to_json(self) -> Offset:
        """Return the form in which Spark keeps it."""
        found: Offset = {"v": VERSION, "transport": "store", "phys": self.physical_offset}
        if self.store_id is not None:
            found |= {"store": self.store_id, "epoch": self.epoch_id}
        for name, limits in (("queues", self.queue_starts), ("until", self.queue_ends)):
            if limits:
                found[name] = {topic: dict(queues) for topic, queues in limits.items()}
        return found

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> StoreOffset:
        """Read it back.

        Raises:
            CheckpointError: it is another transport's, of a later version, or no offset.
        """
        transport = offset.get("transport")
        if transport != "store":
            raise CheckpointError(
                f"the checkpoint was written by a query with transport {transport!r}, this one reads the files of a store: "
                "offsets of one mean nothing to the other. Go on with nameServer, or give another checkpointLocation"
            )
        version, place = offset.get("v"), offset.get("phys")
        if version != VERSION:
            raise CheckpointError(f"the checkpoint has offsets of version {version!r}, this FlintMQ reads {VERSION}")
        if type(place) is not int or not 0 <= place <= _INT64_MAX:
            raise CheckpointError(f"the checkpoint's physical offset is {str(place)[:80]!r}")
        return cls(
            place, offset.get("store"), offset.get("epoch"), offset.get("queues") or {}, offset.get("until") or {}
        )

    def moved_to(self, physical_offset: int, epochs: Epochs | None) -> StoreOffset:
        """Return the offset of the same query at a later position."""
        return StoreOffset.at(physical_offset, epochs, self.queue_starts)


def check_reached(offset: StoreOffset, end: int, where: object) -> None:
    """Whether the log goes as far as an offset. Raises CheckpointError."""
    if offset.physical_offset > end:
        raise CheckpointError(
            f"{where}: the checkpoint stands at {offset.physical_offset}, the log ends at {end}: it is another store's, or the "
            f"log lost its end. {_WAY_OUT}"
        )


def check_history(offset: StoreOffset, epochs: Epochs | None, where: object) -> None:
    """Whether what lay before an offset is what lies there now.

    Args:
        offset: from a checkpoint.
        epochs: of the store now; None where it has none.
        where: the store, for errors.

    Raises:
        CheckpointError: it belongs to another store, or to a history of this one that was cut.
    """
    if offset.store_id is None:
        return
    if epochs is None or epochs.store_id != offset.store_id:
        found = epochs.store_id if epochs is not None else "none"
        raise CheckpointError(
            f"{where}: the checkpoint belongs to the store with id {offset.store_id}, this one's is {found}. {_WAY_OUT}"
        )
    epoch = next((one for one in epochs.entries if one.id == offset.epoch_id), None)
    if epoch is None:
        if offset.physical_offset <= epochs.entries[0].start_offset_bytes:
            return  # forgotten with its messages: what is missing is found out by the caller
        raise CheckpointError(
            f"{where}: the checkpoint stands at {offset.physical_offset} in an epoch of the log that is gone: a crash cut "
            f"it off, and what this query has read of it is not in the log. {_WAY_OUT}"
        )
    cut = epochs.end_offset_bytes(epoch, _INT64_MAX)
    if offset.physical_offset > cut:
        raise CheckpointError(
            f"{where}: the checkpoint stands at {offset.physical_offset}, but a crash cut the log at {cut} and other messages "
            f"were written since: this query has read messages that are not in the log. {_WAY_OUT}"
        )
