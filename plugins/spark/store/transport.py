"""Reads messages directly from the files of a store of FlintMQ or RocketMQ, whether its broker runs or is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs

from flintmq.core.log_events import event_log
from flintmq.core.record.record import RECORD_MIN_BYTES, store_timestamp_at
from flintmq.plugins.spark.decoder import Decoder, RowFilter
from flintmq.plugins.spark.decoder.rows import Life
from flintmq.plugins.spark.errors import UnknownTopicError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import ANY, Bounds, Limit, Offset, Range
from flintmq.plugins.spark.schema import nearest
from flintmq.plugins.spark.store.choices import Choice, Unread, newly_read, unread
from flintmq.plugins.spark.store.lives import lives
from flintmq.plugins.spark.store.piece_reader import PieceReader
from flintmq.plugins.spark.store.pieces import (
    Piece,
    StorePart,
    Told,
    always_fits,
    even_parts,
    first_place,
    first_place_from,
    parted,
    splitters,
    target_bytes,
    whole_pieces,
)
from flintmq.plugins.spark.store.places import Places, StoreOffset, check_history, check_reached, queue_ranges
from flintmq.plugins.spark.store.queue_units import QueueUnits, list_queues, list_topics
from flintmq.plugins.spark.store.topic_table import broker_name_of, topic_table
from flintmq.plugins.spark.store.unit_rows import told_by_units
from flintmq.plugins.spark.store.visible_end import StoreView, live_feed, open_view, root_of

if TYPE_CHECKING:
    import pyarrow

log = event_log("flintmq.spark")

_QUEUES_BY_UNITS_MAX: Final = 4_096
"""Maximum number of consume queues that are read to find messages. With more queues, reading the whole log is faster."""
BY_UNITS_FROM_BYTES: Final = 4 * 1024 * 1024
"""Minimum size in bytes of a range of the log in which messages are found by consume queues. For a smaller range, reading all
records of the log is faster."""
QUIET_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Number of bytes of the log, for streams whose topics have few messages. If a stream finds no message of its topics in the
next bytes of the log, and these are at least this number of bytes, an empty batch moves the stream's offset past them. Later
batches then do not search these bytes again."""
COUNTED_MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum number of bytes of the log that are read to count unread messages, if the consume queues do not have all messages."""
_ALL: Final = 2**63 - 1
_SPARSE: Final = 4
"""Factor by which the maximum size of a task's part of the log is multiplied if only some messages of the part are read."""
_UNITS_ALONE: Final = 16
"""Factor by which the maximum size of a task's part of the log is multiplied if the task reads only consume queue units, which
have 20 bytes each, and no messages."""


@attrs.define
class StoreTransport:
    """The transport that reads the files of a store; see :class:`~flintmq.plugins.spark.ports.MessageTransport`. The transport
    itself keeps no file open."""

    options: ReadOptions
    bounds: Bounds = attrs.field(factory=Bounds)

    # --- methods that return the beginning and the end of a read ---

    def initial(self, default: Literal["earliest", "latest"]) -> Offset:
        self._view()  # _view() is called first, so that an unusable store folder is reported before missing topics.
        self._check_topics()
        return self.places().start(default).of(Choice.of(self.options)).to_json()

    def final(self) -> Offset:
        return self.places().end().to_json()

    def latest(self) -> Offset:
        view = self._view()
        return StoreOffset.at(view.end.end, view.epochs).of(Choice.of(self.options)).to_json()

    def settled(self) -> Offset:
        return self.latest()

    def reported(self, start: Offset, end: Offset) -> Offset:
        """Return the offset ``end`` with the lag of the query. The lag in ``bytes`` includes messages of other topics.
        ``contactAgeMs`` is the time in ms since the broker last wrote its feed file ``flint/feed``."""
        view = self._view()
        first, last = StoreOffset.from_json(start).physical_offset, StoreOffset.from_json(end).physical_offset
        first = max(first, view.log.start)
        lag: dict[str, int | None] = {"messages": 0, "bytes": max(0, last - first), "ms": 0}
        now_ms = int(time.time() * 1000)
        if first < last:
            told = self._told(view)
            lag["messages"] = lag["ms"] = None
            if told.is_countable(first, last, COUNTED_MAX_BYTES):
                lag["messages"] = told.count(first, last, _ALL)
                place = told.first(first, last)
                record = view.log.bytes_at(place, RECORD_MIN_BYTES) if place is not None else None
                lag["ms"] = max(0, now_ms - store_timestamp_at(record, 0)) if record is not None else 0
                lag["bytes"] = lag["bytes"] if lag["messages"] else 0
        feed = live_feed(self.root, now_ms)
        name = broker_name_of(self.root, self.options) or ""
        contact = {name: {"contactAgeMs": feed.age_ms(now_ms) if feed is not None else None}}
        return {**end, "lag": lag, "brokers": contact}

    # --- methods that plan and check the batches of a stream ---

    def limited(self, start: Offset, end: Offset, limit: Limit) -> Offset:
        """Return the offset at which a batch ends, so that the batch is as large as the limit allows. If the query's topics
        have no new messages, return ``start``. If the log has also grown by at least :data:`QUIET_MAX_BYTES` since ``start``,
        return the log's end, so that the next batch does not search these bytes again."""
        first = StoreOffset.from_json(start).of(Choice.of(self.options))
        last = StoreOffset.from_json(end).physical_offset
        view = self._view()
        check_history(first, view.epochs, self.root)
        for part in unread(first.stretches, Choice.of(self.options)):
            told = self._told(view, part.read)
            low = min(max(part.start, view.log.start), part.end)
            # A batch includes the positions of deleted messages, too, so that the plan of the batch reports their loss.
            lacks = self._lacks(part, view)
            if lacks or told.count(low, part.end, 1):
                place = told.cut(low, part.end, limit)
                return first.read_up_to(place, history_from=part.start if lacks else low).to_json()
        here = first.physical_offset
        if here >= last:
            # After a restart, a broker may not have published the end of its log yet, so the batch is empty.
            return start
        told = self._told(view)
        if last - here < QUIET_MAX_BYTES and not told.count(here, last, 1):
            return start
        place = last if always_fits(here, last, limit) else told.cut(here, last, limit)
        return first.moved_to(place, view.epochs).to_json()

    def rows_between(self, start: Offset, end: Offset, enough: int) -> int:
        first, last = StoreOffset.from_json(start), StoreOffset.from_json(end).physical_offset
        view = self._view()
        rows = 0
        for part in unread(first.of(Choice.of(self.options)).stretches, Choice.of(self.options)):
            rows += self._told(view, part.read).count(max(part.start, view.log.start), part.end, enough)
        return rows + self._told(view).count(first.physical_offset, last, enough)

    def checked(self, offset: Offset) -> Offset:
        view = self._view()
        found = StoreOffset.from_json(offset)
        check_history(found, view.epochs, self.root)
        check_reached(found, view.end.end, self.root)
        self._check_topics(found)
        found = found.of(Choice.of(self.options))  # Losses in topics that the query no longer reads are not reported.
        for part in unread(found.stretches, Choice.of(self.options)):
            if self._lacks(part, view):
                self.options.lost(
                    f"{self.root}: the log begins at {view.log.start}, and messages are gone of topics or queues that this "
                    f"query left out from {part.start} to {part.end}"
                )
        here = found.physical_offset
        if here < view.log.start and _may_hold(self.root, here, view.log.start, self._rows()):
            self.options.lost(
                f"{self.root}: the query is at {found.physical_offset}, but the log begins at {view.log.start}: retention has "
                "deleted the messages between them; keep messages longer (fileReservedTime)"
            )
        if found.physical_offset < view.log.start:
            return found.moved_to(view.log.start, view.epochs).to_json()
        return offset

    def commit(self, end: Offset) -> None:
        """Do nothing when Spark has finished a batch: a broker keeps no offsets for readers of its files."""

    def close(self) -> None:
        """Do nothing: the transport that reads a store's files keeps no file open."""

    # --- methods that plan Spark's tasks, and read messages in a task ---

    def narrowed(self, bounds: Bounds) -> StoreTransport:
        return StoreTransport(self.options, bounds)

    def plan(self, start: Offset, end: Offset) -> Sequence[StorePart]:
        first, last = StoreOffset.from_json(start), StoreOffset.from_json(end)
        view = self._view()
        for offset in (first, last):
            check_history(offset, view.epochs, self.root)
        if last.store_id is None:
            check_reached(last, view.end.end, self.root)
        choice = last.choice or Choice.of(self.options)
        parts: list[StorePart] = []
        for part in newly_read(first.stretches, last.of(choice).stretches, first.physical_offset):
            rows = self._rows(choice, part.read)
            # Older FlintMQ versions did not record where a batch of previously excluded messages begins (``history_from``).
            # Without ``history_from``, a batch of previously excluded messages begins at its first possible log position.
            oldest = 0 if part.start else view.log.start
            low = max(part.start, oldest if last.history_from is None else last.history_from)
            if low < part.end:
                low = self._without_gone(view, low, part.end, rows)
                parts += self._parts(view, low, part.end, rows, queue_ranges({}, last))
        rows = self._rows(choice)
        low, high = self._within_bounds(view, first.physical_offset, last.physical_offset)
        if low < high:
            low = self._without_gone(view, low, high, rows)
        border = min(max(first.starts_until, low), high) if first.queue_starts else low
        parts += self._parts(view, low, border, rows, queue_ranges(first.queue_starts, last))
        return [*parts, *self._parts(view, border, high, rows, queue_ranges({}, last))]

    def _parts(
        self, view: StoreView, low: int, high: int, rows: RowFilter, queue_offsets: tuple[tuple[str, int, Range], ...]
    ) -> list[StorePart]:
        """Return the inputs of the Spark tasks that together read a part of the log."""
        if low >= high:
            return []
        is_large = high - low >= BY_UNITS_FROM_BYTES and self.options.bad_records != "keep"
        by_units = is_large and _reads_by_units(self.root, self._rows())
        by_units_to = view.end.units_complete_to if by_units else 0
        pieces = whole_pieces(view.log, low, high, by_units_to=by_units_to)
        parts = self._parted(view, pieces, rows)
        present = _lives(view, self.root, rows)
        return [StorePart(part, attrs.evolve(rows, queue_offsets=queue_offsets, lives=present)) for part in parts]

    def read(self, part: StorePart) -> Iterator[pyarrow.RecordBatch]:
        reader = PieceReader(self.root, self.options, _decoder(self.root, self.options, part.rows))
        for piece in part.pieces:
            yield from reader.read(piece)

    def _parted(self, view: StoreView, pieces: Sequence[Piece], rows: RowFilter) -> list[tuple[Piece, ...]]:
        wanted = self._target_bytes(pieces)
        several = sum(piece.size for piece in pieces) > wanted
        # Each task's range of the log begins at a record, and the units of consume queues give the positions of records.
        # If tasks read the log record by record, a task's range may begin at a record of any queue.
        # If tasks find the records by the units of the wanted queues, a task's range must begin at a record of a wanted queue.
        all_by_units = all(piece.by_units for piece in pieces)
        queues = list_queues(self.root, rows if all_by_units else None) if several else ()
        parts = parted(view.log, splitters(list(queues)), pieces, wanted)
        least = self.options.min_partitions
        if least is None or not pieces or view.end.units_complete_to < pieces[-1].end:
            return parts
        return even_parts(view.log, list(list_queues(self.root, rows)), pieces, max(least, len(parts)))

    def _target_bytes(self, pieces: Sequence[Piece]) -> int:
        options = self.options
        total = sum(piece.size for piece in pieces)
        wanted = target_bytes(total, options.max_partition_bytes, options.min_partitions)
        larger = _SPARSE if any(piece.by_units for piece in pieces) else 1
        if told_by_units(options.columns, self._rows(), examines_records=options.examines_records):
            larger = _UNITS_ALONE
        if options.min_partitions is None and larger > 1:
            wanted = max(wanted, target_bytes(total, wanted * larger, None))
        return wanted

    def _without_gone(self, view: StoreView, low: int, high: int, rows: RowFilter) -> int:
        """Return the first position in the range [low, high) of the log that still exists. If messages to read were deleted,
        raise DataLossError, or log a warning with ``failOnDataLoss`` off."""
        files = view.log.between(low, high)
        borders = [low, *(file.end for file in files)]
        holes = [(end, file.start) for end, file in zip(borders, files, strict=False) if file.start > end]
        if borders[-1] < high:
            holes.append((borders[-1], high))
        for hole_start, hole_end in holes:
            if not _may_hold(self.root, hole_start, hole_end, rows):
                continue
            self.options.lost(
                f"{self.root}: the log has no file for {hole_start} to {hole_end}, which should be read: retention has "
                "deleted it; keep messages longer (fileReservedTime)"
            )
        return max(low, files[0].start) if files else high

    def _within_bounds(self, view: StoreView, low: int, high: int) -> tuple[int, int]:
        """Narrow the range [low, high) of the log to the limits that the query's filters set for physical offsets and store
        times, and return the narrowed range.

        The new end for a maximum physical offset is the first record after this offset to which a consume queue unit refers. If
        no unit refers to such a record, the end is not changed, because only a scan of the log could find the record.
        """
        physical, stored = self.bounds.physical_offset, self.bounds.store_timestamp_ms
        queues = list(list_queues(self.root, self._rows())) if physical != ANY or stored != ANY else []
        if physical.low > low:
            place = _place_before(view, queues, min(physical.low, high), low)
            low = max(low, place)
        if physical.high < high - 1:
            place_behind = first_place(view.log, splitters(queues), physical.high + 1)
            high = min(high, place_behind) if place_behind is not None else high
        if stored.low > ANY.low:
            first = first_place_from(view.log, splitters(queues), stored.low, view.end.end)
            low = max(low, first if first is not None else high)
        if stored.high < ANY.high:
            behind = first_place_from(view.log, splitters(queues), stored.high + 1, view.end.end)
            high = min(high, behind) if behind is not None else high
        return low, high

    # --- methods that examine the store that is read ---

    @property
    def root(self) -> Path:
        """The folder of the store that is read."""
        return root_of(self.options)

    def _view(self) -> StoreView:
        return open_view(self.root, self.options)

    def places(self) -> Places:
        """Return an object that finds the positions in the store's log that the read's options name. Raises
        SparkPluginError."""
        return Places(self.root, self.options, self._view(), self._rows())

    def _rows(self, choice: Choice | None = None, read: tuple[Choice, ...] = ()) -> RowFilter:
        """Return the filter for the rows to read.

        Args:
            choice: the topics and queues to read; None for the topics and queues in the options.
            read: topics and queues whose rows are left out, because the query has already read them.
        """
        options = self.options
        rows = (Choice.of(options) if choice is None else choice).rows()
        return attrs.evolve(
            rows,
            tags=frozenset(options.tags) if options.tags else None,
            store_timestamp_ms=options.stored_ms,
            without=tuple(one.rows() for one in read),
        ).narrowed(self.bounds)

    def _lacks(self, part: Unread, view: StoreView) -> bool:
        """Return whether unread messages may have been deleted from a part of the log. Only queues count that the query has
        already read in the log before this part.

        A queue that is new to the query begins with its oldest existing message, so it loses nothing.
        """
        end = min(part.end, view.log.start)
        if part.start >= end or not part.known:
            return False
        known = [choice.rows() for choice in part.known]
        queues = [
            queue
            for queue in list_queues(self.root, self._rows(read=part.read))
            if any(rows.wants_queue(queue.topic, queue.queue_id) for rows in known)
        ]
        return any(queue.may_have_had(part.start, end) for queue in queues) or not any(list_queues(self.root))

    def _told(self, view: StoreView, read: tuple[Choice, ...] = ()) -> Told:
        rows = self._rows(read=read)
        rows = attrs.evolve(rows, lives=_lives(view, self.root, rows))
        return Told(view.log, list(list_queues(self.root, rows)), view.end.units_complete_to, rows)

    def _check_topics(self, offset: StoreOffset | None = None) -> None:
        """Check that the topics in the options of a read exist. Topics in the checkpoint's offset need not exist.

        Raises:
            UnknownTopicError: a topic does not exist.
        """
        asked = [
            (option, name)
            for option, names in (("subscribe", self.options.subscribe), ("queues", self.options.queues))
            for name in names or ()
        ]
        if offset is not None:
            known = [one.rows() for part in offset.stretches for one in part.choices]
            asked = [(option, name) for option, name in asked if known and not any(one.wants(name) for one in known)]
        if not asked:
            return
        there = {*list_topics(self.root), *topic_table(self.root)}
        for option, name in asked:
            if name not in there:
                raise UnknownTopicError(
                    f"{self.root}: option {option} names the topic {name!r}, which the store does not have"
                    f"{nearest(name, sorted(there))}"
                )


def _may_hold(root: Path, start: int, end: int, rows: RowFilter) -> bool:
    """Return whether a deleted part of the log may have contained messages to read. The consume queues show whether this is
    possible."""
    queues = list(list_queues(root, rows))
    return not queues or any(queue.may_have_had(start, end) for queue in queues)


def _lives(view: StoreView, root: Path, rows: RowFilter) -> tuple[Life, ...]:
    """Return where the messages of recreated topics begin in the log. Only topics whose messages can become rows are
    included."""
    return lives(root, view.log, view.end.end, view.end.units_complete_to, rows)


def _place_before(view: StoreView, queues: list[QueueUnits], position: int, least: int) -> int:
    """Return a position of the log, at or before ``position``, at which a record begins. A consume queue unit refers to the
    record, or the record begins a file. The result is at least ``least``."""
    best = least
    file = view.log.holding(position)
    if file is not None:
        best = max(best, file.start)
    for queue in splitters(queues):
        unit = queue.unit(queue.first_at(position + 1) - 1)
        if unit is not None and best < unit[0] <= position and view.log.has_record(unit[0], unit[1]):
            best = unit[0]
    return best


def _reads_by_units(root: Path, rows: RowFilter) -> bool:
    """Return whether a read should find its messages in consume queues, because this avoids reading a large part of the log."""
    chosen = rows.topics is not None or rows.topic_pattern is not None or rows.queues or rows.tags is not None
    if not chosen:
        return False
    few = sum(1 for _ in islice(list_queues(root, rows), _QUEUES_BY_UNITS_MAX + 1))
    return few <= _QUEUES_BY_UNITS_MAX


def _decoder(root: Path, options: ReadOptions, rows: RowFilter) -> Decoder:
    return Decoder(
        options.columns,
        rows,
        broker_name=broker_name_of(root, options) if "brokerName" in options.columns else None,
        raw_body=options.raw_body,
        properties_format=options.properties_format,
        verify_crc=options.verify_crc,
        bad_records=options.bad_records,
    )
