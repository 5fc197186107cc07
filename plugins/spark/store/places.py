"""Converts the options for the beginning and end of a read to positions in the commit log. The value of an option may be
``earliest`` or ``latest``, a time, a number of messages, queue offsets, or a physical offset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from flintmq.core.log.epochs import Epochs
from flintmq.core.log_events import event_log
from flintmq.plugins.spark.decoder import RowFilter
from flintmq.plugins.spark.errors import CheckpointError, OptionError, OutOfRangeError
from flintmq.plugins.spark.option_values import EARLIEST_QUEUE_OFFSET, LATEST_QUEUE_OFFSET, Place
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import ANY, OFFSET_VERSION, Offset, Range, check_offset
from flintmq.plugins.spark.store.choices import Choice, Stretch, joined, read_up_to
from flintmq.plugins.spark.store.pieces import first_place, first_place_from, splitters
from flintmq.plugins.spark.store.queue_units import QueueUnits, list_queues
from flintmq.plugins.spark.store.visible_end import StoreView

log = event_log("flintmq.spark")


@attrs.frozen
class Places:
    """Finds the positions in a store's log that the options of a read name."""

    root: Path
    options: ReadOptions
    view: StoreView
    rows: RowFilter
    """Filter that chooses the queues to read."""

    def start(self, default: Literal["earliest", "latest"]) -> StoreOffset:
        """Return the offset at which a read begins. Raises OptionError, DataLossError."""
        options = self.options
        if options.starting_timestamp_ms is not None:
            return self._from_timestamp(options.starting_timestamp_ms)
        place = options.starting_offsets or Place(default)
        if place.kind == "age":
            found = self._first_from(int(time.time() * 1000) - place.age_ms)
            return StoreOffset.at(self.view.end.end if found is None else found, self.view.epochs)
        if place.kind == "rows":
            place = self._last_rows(place.rows)
        if place.kind == "queues":
            return self.at_queues(place, default)
        start = self._place(place, "startingOffsets")
        return StoreOffset.at(start, self.view.epochs)

    def end(self) -> StoreOffset:
        """Return the offset at which a batch read ends. Raises OptionError, DataLossError."""
        options = self.options
        if options.ending_timestamp_ms is not None:
            end = self._first_from(options.ending_timestamp_ms)
            end = self.view.end.end if end is None else end
            return StoreOffset.at(end, self.view.epochs)
        place = options.ending_offsets or Place("latest")
        if place.kind == "queues":
            limits: dict[str, dict[str, int]] = {}
            for (topic, queue_id), end in self._resolved(place, "endingOffsets").items():
                limits.setdefault(topic, {})[str(queue_id)] = end
            return StoreOffset.at(self.view.end.end, self.view.epochs, queue_ends=limits)
        return StoreOffset.at(self._place(place, "endingOffsets"), self.view.epochs)

    def _first_from(self, timestamp_ms: int) -> int | None:
        queues = splitters(list(list_queues(self.root, self.rows)))
        return first_place_from(self.view.log, queues, timestamp_ms, self.view.end.end)

    def _from_timestamp(self, timestamp_ms: int) -> StoreOffset:
        start = self._first_from(timestamp_ms)
        if start is None:
            if self.options.starting_offsets_by_timestamp_strategy == "error":
                raise OptionError(
                    f"{self.root}: no message was stored since startingTimestamp {timestamp_ms}. Give an earlier time, or "
                    "option startingOffsetsByTimestampStrategy=latest to begin with the next message"
                )
            start = self.view.end.end
        return StoreOffset.at(start, self.view.epochs)

    def _last_rows(self, rows: int) -> Place:
        """Return, for each queue, the queue offset at which the last ``rows`` messages begin."""
        name = self.options.broker_name or ""
        places = {}
        for queue in list_queues(self.root, self.rows):
            low, high = queue.first_at(self.view.log.start), queue.first_at(self.view.end.end)
            places[queue.topic, name, queue.queue_id] = max(low, high - rows)
        return Place("queues", queue_offsets=places)

    def at_queues(self, place: Place, default: Literal["earliest", "latest"]) -> StoreOffset:
        """Return the offset at which a read begins, if the read's options name a queue offset for each queue.

        The read begins at the position in the log of the first message to read in any queue. Queues that ``place`` does not
        name begin at ``default``.

        The returned offset also records the first queue offset to read in each queue. These queue offsets apply up to the
        current end of the log. After this end all messages are read.
        """
        resolved = self._resolved(place, "startingOffsets")
        start = end = self.view.end.end
        limits: dict[str, dict[str, int]] = {}
        for queue in list_queues(self.root, self.rows):
            name = queue.topic, queue.queue_id
            if name not in resolved and default == "latest":
                resolved[name] = queue.first_at(end)
            first = max(resolved.get(name, 0), queue.first_unit)
            unit = queue.unit(queue.behind_fillers(first, queue.end_unit))
            if unit is not None:
                start = min(start, max(unit[0], self.view.log.start))
            if name in resolved:
                limits.setdefault(queue.topic, {})[str(queue.queue_id)] = first
        if start >= end:
            return StoreOffset.at(end, self.view.epochs)
        return attrs.evolve(StoreOffset.at(start, self.view.epochs, limits), starts_until=end)

    def _resolved(self, place: Place, option: str) -> dict[tuple[str, int], int]:
        """Return the queue offsets that an option for the beginning or end of a read names, keyed by topic and queue id. The
        queue's first offset replaces -2, and its last offset replaces -1."""
        queues = {(queue.topic, queue.queue_id): queue for queue in list_queues(self.root, self.rows)}
        found = {}
        for (topic, broker, queue_id), queue_offset in place.queue_offsets.items():
            if self.options.broker_name not in (None, broker):
                raise OptionError(
                    f"option {option} names the broker {broker!r}, brokerName is {self.options.broker_name!r}"
                )
            if not self.rows.wants_queue(topic, queue_id):
                raise OptionError(f"option {option} names queue {queue_id} of {topic!r}, which is not subscribed to")
            queue = queues.get((topic, queue_id))
            if queue is None:
                if queue_offset > 0:
                    self.options.lost(
                        f"{self.root}: option {option} names queue offset {queue_offset} of queue {queue_id} of {topic!r}, "
                        "which the store does not have",
                        OutOfRangeError,
                    )
                found[topic, queue_id] = 0
                continue
            found[topic, queue_id] = self._in_range(queue, queue_offset, option)
        return found

    def _in_range(self, queue: QueueUnits, queue_offset: int, option: str) -> int:
        low, high = queue.first_at(self.view.log.start), queue.first_at(self.view.end.end)
        if queue_offset == EARLIEST_QUEUE_OFFSET:
            return low
        if queue_offset == LATEST_QUEUE_OFFSET:
            return high
        if low <= queue_offset <= high:
            return queue_offset
        self.options.lost(
            f"{self.root}: option {option} names queue offset {queue_offset} of queue {queue.queue_id} of {queue.topic!r}, "
            f"which has {low} to {high}",
            OutOfRangeError,
        )
        return low if queue_offset < low else high

    def _place(self, place: Place, option: str) -> int:
        if place.kind == "earliest":
            return self.view.log.start
        if place.kind == "latest":
            return self.view.end.end
        brokers = place.physical_offsets
        name = self.options.broker_name
        if len(brokers) != 1 or (name is not None and name not in brokers):
            raise OptionError(f"option {option} must name only this store's broker{f', {name!r}' if name else ''}")
        (position,) = brokers.values()
        if not self.view.log.start <= position <= self.view.end.end:
            self.options.lost(
                f"{self.root}: option {option} names physical offset {position}, but the log has {self.view.log.start} to "
                f"{self.view.end.end}",
                OutOfRangeError,
            )
            position = min(max(position, self.view.log.start), self.view.end.end)
        if position not in (self.view.log.start, self.view.end.end) and not self._is_boundary(position):
            raise OptionError(
                f"{self.root}: option {option} names physical offset {position}, but no record begins at this offset"
            )
        return position

    def _is_boundary(self, position: int) -> bool:
        """Return whether a record is known to begin at a position of the log, because a consume queue unit refers to the
        position or a file begins at the position."""
        file = self.view.log.holding(position)
        if file is not None and file.start == position:
            return True
        return first_place(self.view.log, list(list_queues(self.root)), position) == position


def queue_ranges(starts: QueueLimits, last: StoreOffset) -> tuple[tuple[str, int, Range], ...]:
    """Return the range of queue offsets to read, for each queue for which the options name a beginning or an end."""
    found: dict[tuple[str, int], Range] = {}
    for topic, queues in starts.items():
        for queue_id, low in queues.items():
            found[topic, int(queue_id)] = Range(low=low)
    for topic, queues in last.queue_ends.items():
        for queue_id, end in queues.items():
            key = topic, int(queue_id)
            found[key] = found.get(key, ANY).both(Range(high=end - 1))
    return tuple((topic, queue_id, offsets) for (topic, queue_id), offsets in found.items())


_WAY_OUT: Final = "Give another checkpointLocation, and choose the begin with startingOffsets"
QueueLimits = Mapping[str, Mapping[str, int]]
_INT64_MAX: Final = 2**63 - 1


@attrs.frozen
class StoreOffset:
    """The offset of a read of a store's files: a position in the commit log, with the store's id and the epoch of its log.

    ::

        {"v": 1, "transport": "store", "store": "<32 hex>", "epoch": "<16 hex>", "phys": 617789557}

    Store id and epoch come from ``flint/epochs`` (:mod:`flintmq.core.log.epochs`). The epoch is that of the last byte before
    the position. After a crash has truncated the log, other messages may be written at the same position. The epoch of these
    messages differs, so a query notices that it has read messages that are gone. Stores that the Java broker wrote have neither
    store id nor epoch.

    Further members are optional. ``"queues"`` has the queue offsets at which a query began, as ``{"topic": {"0": 23}}``, and
    ``"queuesTo"`` has the end of the log when the query began. ``"of"`` has the topics and queues that the
    query's options choose. If the options were changed, ``"read"`` lists the parts of the log, each with the topics and queues
    that were read in it. If a batch reads messages that were excluded before, ``"historyFrom"`` is the physical offset at which
    the batch begins.
    """

    physical_offset: int
    store_id: str | None = None
    """The store's id; None for a store without ``flint/epochs``."""
    epoch_id: str | None = None
    queue_starts: QueueLimits = attrs.field(factory=dict)
    """First queue offset that the query reads in each queue, keyed by topic and queue id. The offset of each batch repeats
    these queue offsets."""
    queue_ends: QueueLimits = attrs.field(factory=dict)
    """Queue offset at which a batch read ends in each queue, keyed by topic and queue id."""
    starts_until: int = _INT64_MAX
    """Physical offset up to which :attr:`queue_starts` limits the read: the end of the log when the query began. After this
    offset, all messages are read. If a topic is deleted and recreated after the query began, its new messages may have smaller
    queue offsets than :attr:`queue_starts`, and must still be read."""
    choice: Choice | None = None
    """Topics and queues that the query's options choose. None if the query is not a stream. None also if this offset comes from
    a checkpoint of an earlier version of FlintMQ, which did not record the chosen topics and queues."""
    read: tuple[Stretch, ...] = ()
    """The parts of the log that were read, each with the topics and queues that were read in it; empty if the stream's options
    always chose the same topics and queues."""
    history_from: int | None = None
    """Physical offset at which a batch begins, if the batch reads messages that the query excluded before; None for other
    batches."""

    @classmethod
    def at(
        cls,
        physical_offset: int,
        epochs: Epochs | None,
        queue_starts: QueueLimits | None = None,
        queue_ends: QueueLimits | None = None,
    ) -> StoreOffset:
        """Return the offset of a read at a position in a store's commit log.

        Args:
            physical_offset: the position.
            epochs: the store's id and the epochs of its log, from ``flint/epochs``. An epoch is a part of the log in which each
                physical offset was used only once. The result names the epoch of the last byte before the position. None for a
                store that the Java broker wrote.
            queue_starts: the first queue offset to read in each queue.
            queue_ends: the queue offset at which a batch read ends in each queue.
        """
        limits = queue_starts or {}, queue_ends or {}
        if epochs is None:
            return cls(physical_offset, None, None, *limits)
        epoch = epochs.at(max(0, physical_offset - 1))
        return cls(physical_offset, epochs.store_id, epoch.id, *limits)

    def to_json(self) -> Offset:
        """Convert this offset of a read of a store to JSON for Spark's checkpoint."""
        found: Offset = {"v": OFFSET_VERSION, "transport": "store", "phys": self.physical_offset}
        if self.store_id is not None:
            found |= {"store": self.store_id, "epoch": self.epoch_id}
        for name, limits in (("queues", self.queue_starts), ("until", self.queue_ends)):
            if limits:
                found[name] = {topic: dict(queues) for topic, queues in limits.items()}
        if self.queue_starts and self.starts_until != _INT64_MAX:
            found["queuesTo"] = self.starts_until
        if self.choice is not None:
            found["of"] = self.choice.to_json()
        if self.read:
            found["read"] = [{"to": one.end, "of": [choice.to_json() for choice in one.choices]} for one in self.read]
        if self.history_from is not None:
            found["historyFrom"] = self.history_from
        return found

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> StoreOffset:
        """Parse the JSON of a checkpoint, and return the offset of a read of a store.

        Raises:
            CheckpointError: the offset belongs to another transport, has a later version, or is not valid.
        """
        check_offset(offset, "store")
        place = offset.get("phys")
        if type(place) is not int or not 0 <= place <= _INT64_MAX:
            raise CheckpointError(f"the checkpoint's physical offset is not valid: {str(place)[:80]!r}")
        try:
            return cls(
                place,
                offset.get("store"),
                offset.get("epoch"),
                offset.get("queues") or {},
                offset.get("until") or {},
                int(offset.get("queuesTo", _INT64_MAX)),
                Choice.from_json(offset["of"]) if "of" in offset else None,
                tuple(
                    Stretch(int(one["to"]), tuple(map(Choice.from_json, one["of"]))) for one in offset.get("read", ())
                ),
                int(offset["historyFrom"]) if "historyFrom" in offset else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's offset cannot be read: {str(offset)[:200]}") from error

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The parts of the log before this offset's position, each with the topics and queues that the query has read in it."""
        if self.read or self.choice is None:
            return self.read
        return joined([Stretch(self.physical_offset, (self.choice,))])

    def of(self, choice: Choice) -> StoreOffset:
        """Return a copy of this offset for a query whose options now choose the topics and queues in ``choice``. If the options
        chose other topics and queues before, the copy also records the parts of the log that were read with them
        (:attr:`read`)."""
        if self.choice is None or self.choice == choice:
            return attrs.evolve(self, choice=choice)
        return attrs.evolve(self, choice=choice, read=self.stretches)

    def read_up_to(self, physical_offset: int, history_from: int) -> StoreOffset:
        """Return the offset at the end of a batch that reads earlier messages, of topics or queues that the query excluded
        before and now includes (:attr:`choice`).

        The batch lies before this offset's position in the log, and the result keeps this position. The result additionally
        records that the query has read the topics and queues of :attr:`choice` in the whole log before ``physical_offset``.

        Args:
            physical_offset: the physical offset at which the batch ends.
            history_from: the physical offset at which the batch begins.
        """
        assert self.choice is not None
        found = self._with(read_up_to(self.stretches, physical_offset, self.choice))
        return attrs.evolve(found, history_from=history_from)

    def _with(self, stretches: tuple[Stretch, ...]) -> StoreOffset:
        """Return a copy of this offset in which the query has read the parts ``stretches`` of the log; each part names the
        topics and queues that were read in it.

        If the query has read only the topics and queues of :attr:`choice`, in a single part, :attr:`read` of the copy is empty.
        Then :attr:`physical_offset` and :attr:`choice` are enough to compute the part (:attr:`stretches`).
        """
        assert self.choice is not None
        plain = len(stretches) <= 1 and all(one.choices == (self.choice,) for one in stretches)
        return attrs.evolve(self, read=() if plain else stretches)

    def moved_to(self, physical_offset: int, epochs: Epochs | None) -> StoreOffset:
        """Return the checkpoint offset of this offset's query after the query has read the log up to a later position.

        The new offset has the topics and queues that this offset's query reads. It also has the queue offsets at which the
        query began (:attr:`queue_starts`), if the position is before :attr:`starts_until`. From there on, the query reads all
        messages.

        Args:
            physical_offset: the later position in the commit log, in bytes.
            epochs: the epochs of the store's log; None for a store without ``flint/epochs``.
        """
        starts = self.queue_starts if physical_offset < self.starts_until else {}
        until = self.starts_until if starts else _INT64_MAX
        found = attrs.evolve(StoreOffset.at(physical_offset, epochs, starts), starts_until=until, choice=self.choice)
        if self.choice is None or not self.read:
            return found
        return found._with(joined([*self.read, Stretch(physical_offset, (self.choice,))]))


def check_reached(offset: StoreOffset, end: int, where: object) -> None:
    """Raise CheckpointError if the log of a store ends before the position in a checkpoint's offset."""
    if offset.physical_offset > end:
        raise CheckpointError(
            f"{where}: the checkpoint is at {offset.physical_offset}, but the log ends at {end}: it is a checkpoint of "
            f"another store, or the log lost its end. {_WAY_OUT}"
        )


def check_history(offset: StoreOffset, epochs: Epochs | None, where: object) -> None:
    """Check that the log before a checkpoint's offset still contains the messages that the query has read.

    Raises:
        CheckpointError: the offset belongs to another store, or to a part of this store's log that was truncated.
    """
    if offset.store_id is None:
        return
    if epochs is None or epochs.store_id != offset.store_id:
        found = epochs.store_id if epochs is not None else "none"
        raise CheckpointError(
            f"{where}: the checkpoint belongs to the store with id {offset.store_id}, this store's id is {found}. {_WAY_OUT}"
        )
    epoch = next((one for one in epochs.entries if one.id == offset.epoch_id), None)
    if epoch is None:
        if offset.physical_offset <= epochs.entries[0].start_offset_bytes:
            # The checkpoint's position cannot be checked, because the position's epoch was deleted together with its messages.
            # If the query has not read some of the deleted messages, the caller reports their loss.
            return
        raise CheckpointError(
            f"{where}: the checkpoint is at {offset.physical_offset}, in an epoch that the log no longer has: a crash "
            f"removed it, and messages that this query has read are not in the log. {_WAY_OUT}"
        )
    cut = epochs.end_offset_bytes(epoch, _INT64_MAX)
    if offset.physical_offset > cut:
        raise CheckpointError(
            f"{where}: the checkpoint is at {offset.physical_offset}, but a crash cut the log at {cut} and other messages "
            f"were written since: this query has read messages that are not in the log. {_WAY_OUT}"
        )
