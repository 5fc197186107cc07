"""ReputMessageService: hands stored records to the dispatchers, in log order, up to the readable ceiling.

Records just appended are handed over in memory; after a restart, or when too many wait, they are read back from the log.
Both ways give the same records. Loop thread.

See docs/internals/algorithms.md, Dispatch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
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
"""Of the KEYS of a batch, a space counted nine times: up to 2,000 index entries, some 4 ms. Ordinary batches stay below,
or become a few."""
_RUN_S: Final = 0.005
"""How long one run keeps the loop's other work waiting, but for the batch it has begun."""
_BULK_LEAST_BYTES: Final = 128 * 1024
"""Of the log to be read back: so much of it is worth to be read in bulk."""
_BULK_BYTES: Final = 512 * 1024
"""Read in bulk at a time: some 2 ms of ordinary records, and at most a quarter of a million keys."""


def _keys_length(keys: str) -> int:
    return len(keys) + 8 * keys.count(" ")


def _fitting(batch: AppendedBatch, readable: int, messages_max: int, keys_length_max: int, *, is_first: bool) -> int:
    """Return how many of a batch's messages are readable and fit, from the first one on; one that is first in all
    always fits."""
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
    """Moves ``dispatched`` up to ``readable``.

    Args:
        commit_log: what is dispatched.
        dispatchers: those that receive the records, in this order.
    """

    def __init__(self, commit_log: CommitLog, dispatchers: Sequence[CommitLogDispatcher]) -> None:
        self._log = commit_log
        self._watermarks = commit_log.watermarks
        self.dispatchers = tuple(dispatchers)
        self.arrived: Event[[RecordBatch]] = Event()
        """Every dispatcher has a batch (wakes held pulls)."""
        self._waiting: deque[AppendUnit] = deque()
        self._batches_more = 0
        """How many messages those that are batches have beyond one each."""
        self.error: StoreError | None = None
        """Why dispatch stands still; it is tried again with each run. A StoreFormatError is damage in the log."""
        self._has_told = False
        """Whether the log says that the listener fails, until it does not."""

    def appended(self, units: Sequence[AppendUnit], messages: int) -> None:
        """Take what was just appended. Beyond a bound it is forgotten and read back later.

        Args:
            units: records, and batch sends as a whole.
            messages: how many they are together.
        """
        if len(self._waiting) + self._batches_more < _WAITING_MAX:
            self._waiting += units
            self._batches_more += messages - len(units)
        else:
            self.forget()

    def forget(self) -> None:
        """Drop what waits in memory: the log was cut. What is left of it is read back."""
        self._waiting.clear()
        self._batches_more = 0

    @property
    def behind_bytes(self) -> int:
        return self._watermarks.wrote - self._watermarks.dispatched

    def run(self, max_batches: int = 64) -> bool:
        """Dispatch what is readable; return whether more is left (so that the loop gets its turn in between).

        It stands still, see :attr:`error`, on a full disk, when an essential dispatcher raises, and where the log cannot be
        read though there must be a record: what lies before that is dispatched. Never raises.
        """
        watermarks = self._watermarks
        end_s = time.monotonic() + _RUN_S
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
            if time.monotonic() > end_s:
                break
        return watermarks.dispatched < watermarks.readable

    def run_all(self) -> None:
        """Dispatch everything that is readable, as far as it can be dispatched. Blocks."""
        while self.run():
            pass

    def catch_up(self) -> None:
        """Dispatch everything that is readable, before anybody listens: many records at a time where that is worth it.

        Stops where :meth:`run` does. Arrivals are not announced.
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
        """Have the dispatchers forget what the log has lost, and hand them what they lack of what is dispatched.

        Raises:
            StoreError: a dispatcher names a position at which no record begins.
        """
        truncate(self.dispatchers, self._watermarks.wrote)
        replay(self.dispatchers, self._log, self._watermarks.dispatched)

    def _read_in_bulk(self, readable: int) -> RecordBatch | None:
        """Read some of a long way behind in bulk, as a slave that catches up has it; None where it is not, or cannot be."""
        dispatched = self._watermarks.dispatched
        if self._waiting or readable - dispatched < _BULK_LEAST_BYTES or not lazy_numpy.ready():
            return None
        columns = next(self._log.columns(dispatched, min(readable, dispatched + _BULK_BYTES)), None)
        return RecordBatch.of_columns(columns) if columns is not None else None

    def _next(self, readable: int) -> RecordBatch | None:
        """Return the next batch of what waits in memory, or of what is read back one by one; None where there is
        none."""
        try:
            units = self._take(readable)
        except Exception as error:  # whatever damage does to its reader
            text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            self._stand_still(StoreFormatError(text), "until the broker is restarted and recovers its log")
            return None
        return RecordBatch.of_units(units) if units else None

    def _put_back(self, batch: RecordBatch) -> None:
        """Let what a dispatcher did not take wait again."""
        units = batch.units()
        self._waiting.extendleft(reversed(units))
        self._batches_more += count_messages(units) - len(units)

    def _tell(self, batch: RecordBatch) -> None:
        """Announce arrivals to waiting pulls. After a failure they wait for their deadlines, and dispatch continues."""
        try:
            self.arrived.publish(batch)
        except Exception as error:
            if not self._has_told:
                log.error("dispatch.not_woken", "held pulls are not woken", exc_info=error)
            self._has_told = True
        else:
            self._has_told = False

    def _hand_over(self, batch: RecordBatch) -> bool:
        """Give a batch to each dispatcher in turn; False, with :attr:`error` set, when one could not take it."""
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
        """Return the next batch: from memory where that continues the log without a hole, else from the log."""
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
                        f"the record at position {request.commit_log_offset_bytes} ends behind the log, at {end}"
                    )
                if end > until or len(batch) == _BATCH or (keys_length > _KEYS_LENGTH and batch):
                    break  # a slave may have acknowledged half a record
                batch.append(request)
            else:
                if not batch:
                    self._past_blank(dispatched, until)
        except Exception:
            if not batch:
                raise
            # What lies before it goes first; the next call meets it again.
        return batch

    def _take_some(self, readable: int) -> list[AppendUnit]:
        """Return as much of what waits as is readable and one batch may hold; it may end within a batch send."""
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
        """Go on behind the blank end of a file: nothing else lies there, and only its end is a place to go on from."""
        next_file = self._log.next_file_start(dispatched)
        if next_file <= until:
            self._watermarks.dispatched = next_file

    def _continues(self, dispatched: int, start: int) -> bool:
        """Return whether nothing but the blank end of a file lies between, as far as can be read."""
        if start == dispatched:
            return True
        if start < dispatched:
            return False
        until = min(start, self._watermarks.readable)
        return next(self._log.requests(dispatched, until), None) is None
