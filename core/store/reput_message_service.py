"""ReputMessageService: passes stored records to the dispatchers, in log order, up to the readable end of the log.

New records are passed to the dispatchers from memory. After a restart, or if too many records wait, they are read back from the
log. The records are the same in both cases. Used only on the event loop's thread.

See docs/internals/algorithms.md, Dispatch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from flintmq.core.errors import StoreError, StoreFormatError, StoreFullError
from flintmq.core.event import Event
from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import AppendedBatch, AppendUnit, CommitLogDispatcher, RecordBatch, count_messages
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log_events import event_log
from flintmq.core.recovery.replay import replay, truncate

log = event_log("flintmq.store")

_BATCH: Final = 2_048
_WAITING_MAX: Final = 262_144
_KEYS_LENGTH: Final = 16_384
"""Maximum length of the KEYS in a dispatched batch, in characters; a space counts as nine characters, because it begins a
further key.

This length limits a batch to about 2,000 index entries, which take about 4 ms. Ordinary batches stay below this length.
"""
_RUN_S: Final = 0.005
"""Seconds after which one run of dispatch ends with its current batch, so that the event loop can do other work."""
_BULK_LEAST_BYTES: Final = 128 * 1024
"""Minimum number of bytes to dispatch for which the log is read in bulk."""
_BULK_BYTES: Final = 512 * 1024
"""Number of bytes of the log that are read at once if the log is read in bulk for dispatch. One such step takes about 2 ms for
ordinary records. The records in these bytes have at most 250,000 keys in the property KEYS, and each key needs an index entry.
"""


def _keys_length(keys: str) -> int:
    return len(keys) + 8 * keys.count(" ")


def _fitting(batch: AppendedBatch, readable: int, messages_max: int, keys_length_max: int, *, is_first: bool) -> int:
    """Return the number of a batch's first messages that are readable and within the limits of a dispatch.

    If ``is_first`` is true, the batch begins the dispatch. Its first message is then accepted even if its keys alone exceed
    ``keys_length_max``.
    """
    end = batch.commit_log_offset_bytes + batch.message_size_bytes
    if end <= readable and len(batch) <= messages_max and _keys_length(batch.keys) <= keys_length_max:
        return len(batch)
    keys_length = 0
    positions = zip(batch.positions, batch.sizes, batch.all_keys, strict=True)
    for number, (position, size, keys) in enumerate(islice(positions, messages_max)):
        keys_length += _keys_length(keys)
        if position + size > readable or (keys_length > keys_length_max and (number or not is_first)):
            return number
    return min(messages_max, len(batch))


class ReputMessageService:
    """Dispatches the records of the log, moving the watermark ``dispatched`` up to ``readable``. Used only on the event loop's
    thread.

    Args:
        commit_log: the log whose records are dispatched.
        dispatchers: the receivers of the records, in the order of dispatch.
        now_s: the stopwatch of a clock (:func:`flintmq.core.io.clock.stopwatch_of`), which limits the time of each :meth:`run`.
    """

    def __init__(
        self, commit_log: CommitLog, dispatchers: Sequence[CommitLogDispatcher], now_s: Callable[[], float]
    ) -> None:
        self._now_s = now_s
        self._log = commit_log
        self._watermarks = commit_log.watermarks
        self.dispatchers = tuple(dispatchers)
        self.arrived: Event[[RecordBatch]] = Event()
        """Event published with a batch after every dispatcher has received the batch; the event wakes held pulls."""
        self._waiting: deque[AppendUnit] = deque()
        self._batches_more = 0
        """Number of messages that must be added to the length of ``_waiting`` to get the number of messages that wait for
        dispatch. A batch send is one element of ``_waiting``, but may have several messages."""
        self.error: StoreError | None = None
        """Error that has stopped dispatch; None if dispatch works. Each run of dispatch tries again. A ``StoreFormatError``
        means a damaged log."""
        self._has_told = False
        """Whether a failure of a listener of :attr:`arrived` is already logged; reset when the listeners succeed again."""

    def appended(self, units: Sequence[AppendUnit], messages: int) -> None:
        """Keep new records in memory until they are dispatched.

        If too many records wait for dispatch, all of them are dropped from memory, and are read back from the log later.

        Args:
            units: the dispatch requests of records, and batch sends as a whole.
            messages: the total number of messages in ``units``.
        """
        if len(self._waiting) + self._batches_more < _WAITING_MAX:
            self._waiting += units
            self._batches_more += messages - len(units)
        else:
            self.forget()

    def forget(self) -> None:
        """Drop the records that wait in memory for dispatch. Records that are still in the log are read back from the log."""
        self._waiting.clear()
        self._batches_more = 0

    @property
    def behind_bytes(self) -> int:
        return self._watermarks.wrote - self._watermarks.dispatched

    def run(self, max_batches: int = 64) -> bool:
        """Dispatch readable records for some milliseconds; return whether more records are left, for a later call.

        Dispatch stops, see :attr:`error`, if the disk is full, an essential dispatcher raises, or a record of the log cannot be
        read. The records before the failed record are dispatched. Never raises.
        """
        watermarks = self._watermarks
        end_s = self._now_s() + _RUN_S
        for _ in range(max_batches):
            readable = watermarks.readable
            if watermarks.dispatched >= readable:
                return False
            batch = self._read_in_bulk(readable)
            if batch is None or not self._hand_over(batch):
                batch = self._next(readable)
                if batch is None:
                    return False
                if not self._hand_over(batch):
                    self._put_back(batch)
                    return False
            watermarks.dispatched = batch.end_offset_bytes
            self._tell(batch)
            if self._now_s() > end_s:
                break
        return watermarks.dispatched < watermarks.readable

    def run_all(self) -> None:
        """Dispatch all readable records, unless dispatch stops with an :attr:`error` earlier. Blocks."""
        while self.run():
            pass

    def catch_up(self) -> None:
        """Dispatch all readable records at a start, in bulk if possible.

        Errors stop the dispatch as in :meth:`run`. Bulk batches are not published to :attr:`arrived`.
        """
        watermarks = self._watermarks
        if not self._waiting:
            for columns in self._log.columns(watermarks.dispatched, watermarks.readable):
                if not self._hand_over(RecordBatch.of_columns(columns)):
                    break
                watermarks.dispatched = columns.end_offset_bytes
        while self.run() and self.error is None:
            pass

    def replay(self) -> None:
        """Truncate the dispatchers' data to the log's end, and pass to each dispatcher the dispatched records that it lacks.

        Raises:
            StoreError: a dispatcher's position is not the start of a record.
        """
        truncate(self.dispatchers, self._watermarks.wrote)
        replay(self.dispatchers, self._log, self._watermarks.dispatched)

    def _read_in_bulk(self, readable: int) -> RecordBatch | None:
        """Return a batch of records read in bulk if many bytes wait for dispatch, as on a slave that catches up; else None."""
        dispatched = self._watermarks.dispatched
        if self._waiting or readable - dispatched < _BULK_LEAST_BYTES or not lazy_numpy.ready():
            return None
        columns = next(self._log.columns(dispatched, min(readable, dispatched + _BULK_BYTES)), None)
        return RecordBatch.of_columns(columns) if columns is not None else None

    def _next(self, readable: int) -> RecordBatch | None:
        """Return the next batch for dispatch, from memory or from the log; None if no record is left or the next record cannot
        be read.
        """
        try:
            units = self._take(readable)
        except Exception as error:  # Reading a damaged record can raise any exception, so all exceptions are caught.
            text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            self._stand_still(StoreFormatError(text), "until the broker is restarted and recovers its log")
            return None
        return RecordBatch.of_units(units) if units else None

    def _put_back(self, batch: RecordBatch) -> None:
        """Put a batch that a dispatcher refused back to the front of the records that wait for dispatch."""
        units = batch.units()
        self._waiting.extendleft(reversed(units))
        self._batches_more += count_messages(units) - len(units)

    def _tell(self, batch: RecordBatch) -> None:
        """Publish a dispatched batch, so that held pulls are resumed.

        If a listener fails, held pulls wait for their deadlines.
        """
        try:
            self.arrived.publish(batch)
        except Exception as error:
            if not self._has_told:
                log.error("dispatch.not_woken", "held pulls are not woken", exc_info=error)
            self._has_told = True
        else:
            self._has_told = False

    def _hand_over(self, batch: RecordBatch) -> bool:
        """Pass a batch to each dispatcher in turn; return False and set :attr:`error` if a dispatcher fails."""
        try:
            for dispatcher in self.dispatchers:
                dispatcher.dispatch(batch)
        except StoreFullError as error:
            self._stand_still(error, "until there is room")
            return False
        except Exception as error:
            failure = StoreError(f"an essential dispatcher failed: {type(error).__name__}: {error}")
            self._stand_still(failure, "until it works again")
            return False
        if self.error is not None:
            log.warning("dispatch.goes_on", "dispatch goes on")
            self.error = None
        return True

    def _stand_still(self, error: StoreError, until: str) -> None:
        if self.error is None:
            log.error("dispatch.stands_still", "dispatch stands still %(until)s: %(error)s", until=until, error=error)
        self.error = error

    def _take(self, readable: int) -> list[AppendUnit]:
        """Return the records of the next batch.

        They are taken from memory if the records in memory begin at the watermark ``dispatched``, and are read from the log
        otherwise.
        """
        waiting = self._waiting
        dispatched = self._watermarks.dispatched
        if waiting and self._continues(dispatched, waiting[0].commit_log_offset_bytes):
            if len(waiting) + self._batches_more <= _BATCH:
                last = waiting[-1]
                if (
                    last.commit_log_offset_bytes + last.message_size_bytes <= readable
                    and _keys_length("".join([one.keys for one in waiting])) <= _KEYS_LENGTH
                ):
                    units = list(waiting)
                    self.forget()
                    return units
            return self._take_some(readable)
        until = min(readable, waiting[0].commit_log_offset_bytes) if waiting else readable
        batch: list[AppendUnit] = []
        keys_length = 0
        try:
            for request in self._log.requests(dispatched, until):
                keys_length += _keys_length(request.keys)
                end = request.commit_log_offset_bytes + request.message_size_bytes
                if end > self._watermarks.wrote:
                    raise StoreError(
                        f"the record at position {request.commit_log_offset_bytes} ends at {end}, beyond the end of the log"
                    )
                if end > until or len(batch) == _BATCH or (keys_length > _KEYS_LENGTH and batch):
                    # The readable end can be inside a record, because slaves acknowledge bytes, not records.
                    break
                batch.append(request)
            else:
                if not batch:
                    self._past_blank(dispatched, until)
        except Exception:
            if not batch:
                raise
            # The readable records before an unreadable record are returned and dispatched. The next call raises the error.
        return batch

    def _take_some(self, readable: int) -> list[AppendUnit]:
        """Return the waiting records that are readable and fit in one batch for dispatch; a batch send may be split."""
        waiting = self._waiting
        units: list[AppendUnit] = []
        messages = keys_length = 0
        while waiting and messages < _BATCH:
            first = waiting[0]
            if type(first) is AppendedBatch:
                whole = len(first)
                fits = _fitting(first, readable, _BATCH - messages, _KEYS_LENGTH - keys_length, is_first=not units)
                if not fits:
                    break
                if fits == whole:
                    waiting.popleft()
                    self._batches_more -= whole - 1
                else:
                    waiting[0] = first.part(fits, whole)
                    self._batches_more -= fits
                    first = first.part(0, fits)
                messages += fits
                keys_length += _keys_length(first.keys)
                units.append(first)
                if fits < whole:
                    break
                continue
            keys_length += _keys_length(first.keys)
            if first.commit_log_offset_bytes + first.message_size_bytes > readable or (
                keys_length > _KEYS_LENGTH and units
            ):
                break
            units.append(waiting.popleft())
            messages += 1
        return units

    def _past_blank(self, dispatched: int, until: int) -> None:
        """Move the watermark ``dispatched`` past the blank end of a log file to the start of the next file, if readable."""
        next_file = self._log.next_file_start(dispatched)
        if next_file <= until:
            self._watermarks.dispatched = next_file

    def _continues(self, dispatched: int, start: int) -> bool:
        """Return whether only the blank end of a file lies between two positions of the log, and no readable record."""
        if start == dispatched:
            return True
        if start < dispatched:
            return False
        until = min(start, self._watermarks.readable)
        return next(self._log.requests(dispatched, until), None) is None
