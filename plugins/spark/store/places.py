"""Where a read begins and ends: what the options say in words, times, queue offsets or positions, as a place in the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import attrs

from flintmq.plugins.spark.bounds import ANY, Range
from flintmq.plugins.spark.decoder import RowFilter
from flintmq.plugins.spark.errors import DataLossError, OptionError
from flintmq.plugins.spark.option_values import EARLIEST_QUEUE_OFFSET, LATEST_QUEUE_OFFSET, Place
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.store.by_time import first_place_from
from flintmq.plugins.spark.store.offsets import StoreOffset
from flintmq.plugins.spark.store.queue_units import QueueUnits, list_queues
from flintmq.plugins.spark.store.record_places import first_place, splitters
from flintmq.plugins.spark.store.view import StoreView

log = logging.getLogger("flintmq.spark")


@attrs.frozen
class Places:
    """The places that the options of a read name in a store as it is now."""

    root: Path
    options: ReadOptions
    view: StoreView
    rows: RowFilter
    """Which queues are read."""

    def start(self, default: Literal["earliest", "latest"]) -> StoreOffset:
        """Where a read begins. Raises OptionError, DataLossError."""
        options = self.options
        if options.starting_timestamp_ms is not None:
            return self._from_timestamp(options.starting_timestamp_ms)
        place = options.starting_offsets or Place(default)
        if place.kind == "queues":
            return self._from_queues(place)
        start = self._place(place, "startingOffsets")
        return StoreOffset.at(start, self.view.epochs)

    def end(self) -> StoreOffset:
        """Where a batch read ends. Raises OptionError, DataLossError."""
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
        queues = splitters(list(list_queues(self.root)))
        return first_place_from(self.view.log, queues, timestamp_ms, self.view.end.end)

    def _from_timestamp(self, timestamp_ms: int) -> StoreOffset:
        start = self._first_from(timestamp_ms)
        if start is None:
            if self.options.starting_offsets_by_timestamp_strategy == "error":
                raise OptionError(
                    f"{self.root}: nothing was stored since startingTimestamp {timestamp_ms}. Give an earlier one, or option "
                    "startingOffsetsByTimestampStrategy=latest to begin with what comes"
                )
            start = self.view.end.end
        return StoreOffset.at(start, self.view.epochs)

    def _from_queues(self, place: Place) -> StoreOffset:
        """The first of all places at which a queue begins. Each queue's own start goes along, for all batches to come."""
        resolved = self._resolved(place, "startingOffsets")
        start = self.view.end.end
        limits: dict[str, dict[str, int]] = {}
        for queue in list_queues(self.root, self.rows.wants_queue):
            first = resolved.get((queue.topic, queue.queue_id), queue.first_unit)
            unit = queue.unit(queue.behind_fillers(max(first, queue.first_unit), queue.end_unit))
            if unit is not None:
                start = min(start, max(unit[0], self.view.log.start))
            if (queue.topic, queue.queue_id) in resolved:
                limits.setdefault(queue.topic, {})[str(queue.queue_id)] = first
        return StoreOffset.at(start, self.view.epochs, limits)

    def _resolved(self, place: Place, option: str) -> dict[tuple[str, int], int]:
        """Queue offsets of a place, with earliest and latest found out."""
        queues = {(queue.topic, queue.queue_id): queue for queue in list_queues(self.root)}
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
                    raise OptionError(
                        f"option {option} names queue {queue_id} of {topic!r}, which the store does not have"
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
        what = (
            f"{self.root}: option {option} names queue offset {queue_offset} of queue {queue.queue_id} of {queue.topic!r}, "
            f"which holds {low} to {high}"
        )
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{what}. Name one of these, or take the nearest with option failOnDataLoss=false")
        log.warning("%s; going on with the nearest", what)
        return low if queue_offset < low else high

    def _place(self, place: Place, option: str) -> int:
        if place.kind == "earliest":
            return self.view.log.start
        if place.kind == "latest":
            return self.view.end.end
        brokers = place.physical_offsets
        name = self.options.broker_name
        if len(brokers) != 1 or (name is not None and name not in brokers):
            raise OptionError(f"option {option} must name this store's broker alone{f', {name!r}' if name else ''}")
        (position,) = brokers.values()
        if not self.view.log.start <= position <= self.view.end.end:
            raise OptionError(
                f"{self.root}: option {option} names physical offset {position}, the log holds {self.view.log.start} to "
                f"{self.view.end.end}"
            )
        if position not in (self.view.log.start, self.view.end.end) and not self._is_boundary(position):
            raise OptionError(f"{self.root}: option {option} names physical offset {position}, where no record begins")
        return position

    def _is_boundary(self, position: int) -> bool:
        """Whether a record begins there: only its consume queue, or the start of a file, can vouch for it."""
        file = self.view.log.holding(position)
        if file is not None and file.start == position:
            return True
        return first_place(self.view.log, list(list_queues(self.root)), position) == position


def queue_ranges(first: StoreOffset, last: StoreOffset) -> tuple[tuple[str, int, Range], ...]:
    """The queue offsets of queues that begin or end at ones of their own."""
    found: dict[tuple[str, int], Range] = {}
    for topic, queues in first.queue_starts.items():
        for queue_id, low in queues.items():
            found[topic, int(queue_id)] = Range(low=low)
    for topic, queues in last.queue_ends.items():
        for queue_id, end in queues.items():
            key = topic, int(queue_id)
            found[key] = found.get(key, ANY).both(Range(high=end - 1))
    return tuple((topic, queue_id, offsets) for (topic, queue_id), offsets in found.items())
