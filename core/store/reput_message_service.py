"""ReputMessageService: hands stored records to the dispatchers, in log order, up to the readable ceiling.

Records just appended are handed over in memory; after a restart, or when too many wait, they are read back from the log.
Both ways give the same requests. A batch send is handed over as a whole to dispatchers that take it so. Loop thread.

See docs/internals/algorithms.md, Dispatch.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from flintmq.core.errors import StoreError, StoreFormatError, StoreFullError
from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import (
    AppendedBatch,
    ColumnDispatcher,
    CommitLogDispatcher,
    Run,
    RunDispatcher,
    requests_of,
)
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.record.bulk_columns import RecordColumns

log = logging.getLogger("flintmq.store")

Batch = TypeVar("Batch")

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
    """How many of a batch's messages are readable and fit, from the first one on; one that is first in all always fits."""
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


def _nobody(_arrived: Sequence[Run] | RecordColumns) -> None:
    """The arrival listener nobody has set."""


class ReputMessageService:
    """Moves ``dispatched`` up to ``readable``."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._watermarks = commit_log.watermarks
        self._dispatchers: tuple[CommitLogDispatcher, ...] = ()
        self._takers: list[Callable[[Sequence[Any]], None]] = []
        self._run_takers: list[Callable[[Sequence[Run]], None]] = []
        """Of as many dispatchers as are in front of the first one that takes requests only."""
        self._column_takers: list[Callable[[RecordColumns], None]] = []
        """Of all dispatchers, or of none where one of them does not take columns."""
        self.on_arrival: Callable[[Sequence[Run]], object] = _nobody
        """Called with each batch once every dispatcher has it (wakes held pulls)."""
        self.on_arrival_of_columns: Callable[[RecordColumns], object] = _nobody
        """Called instead with those that were read in bulk."""
        self._waiting: deque[Run] = deque()
        self._batches = 0
        """How many of them are batches, and how many messages these have beyond one each."""
        self._batches_more = 0
        self.error: StoreError | None = None
        """Why dispatch stands still; it is tried again with each run. A StoreFormatError is damage in the log."""
        self._has_told = False
        """Whether the log says that the listener fails, until it does not."""

    @property
    def dispatchers(self) -> tuple[CommitLogDispatcher, ...]:
        """Who is handed the records, in this order."""
        return self._dispatchers

    @dispatchers.setter
    def dispatchers(self, dispatchers: tuple[CommitLogDispatcher, ...]) -> None:
        self._dispatchers = dispatchers
        self._takers = [one.dispatch for one in dispatchers]
        self._run_takers = []
        for one in dispatchers:
            if not isinstance(one, RunDispatcher):
                break
            self._run_takers.append(one.dispatch_runs)
        self._column_takers = [one.dispatch_columns for one in dispatchers if isinstance(one, ColumnDispatcher)]
        if len(self._column_takers) < len(dispatchers):
            self._column_takers = []

    def appended(self, runs: Sequence[Run], batches: Sequence[AppendedBatch] = ()) -> None:
        """Takes what was just appended. Beyond a bound it is forgotten and read back later.

        Args:
            batches: those of the runs that are batches.
        """
        if len(self._waiting) + self._batches_more < _WAITING_MAX:
            self._waiting += runs
            self._count(batches)
        else:
            self.forget()

    def forget(self) -> None:
        """Drops what waits in memory: the log was cut. What is left of it is read back."""
        self._waiting.clear()
        self._batches = self._batches_more = 0

    def _count(self, batches: Sequence[AppendedBatch]) -> None:
        self._batches += len(batches)
        self._batches_more += sum(map(len, batches)) - len(batches)

    @property
    def behind_bytes(self) -> int:
        return self._watermarks.wrote - self._watermarks.dispatched

    def run(self, max_batches: int = 64) -> bool:
        """Dispatches what is readable; returns whether more is left (so that the loop gets its turn in between).

        It stands still, see :attr:`error`, on a full disk, when an essential dispatcher raises, and where the log cannot be
        read though there must be a record: what lies before that is dispatched. Never raises.
        """
        watermarks = self._watermarks
        end_s = time.monotonic() + _RUN_S
        for _ in range(max_batches):
            readable = watermarks.readable
            if watermarks.dispatched >= readable:
                return False
            if (
                not self._waiting
                and readable - watermarks.dispatched >= _BULK_LEAST_BYTES
                and self._run_columns(readable)
            ):
                if time.monotonic() > end_s:
                    break
                continue
            may_have_batches = self._batches > 0
            try:
                runs = self._take(readable)
            except Exception as error:  # whatever damage does to who reads it
                text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
                self._stand_still(StoreFormatError(text), "until the broker is restarted and recovers its log")
                return False
            if not runs:
                return False
            batches = [run for run in runs if type(run) is AppendedBatch] if may_have_batches else []
            if not self._hand_over([self._dispatch_runs] if batches else self._takers, runs):
                self._waiting.extendleft(reversed(runs))
                self._count(batches)
                return False
            last = runs[-1]
            watermarks.dispatched = last.commit_log_offset_bytes + last.message_size_bytes
            self._tell(self.on_arrival, runs)
            if time.monotonic() > end_s:
                break
        return watermarks.dispatched < watermarks.readable

    def run_in_bulk(self) -> None:
        """Dispatches what lies in the log before anybody listens: many records at a time, where every dispatcher takes them so.

        What is left (all of it without numpy) is for :meth:`run`. Nobody is told of arrivals.
        """
        if not self._column_takers or self._waiting:
            return
        watermarks = self._watermarks
        found = self._log.columns(watermarks.dispatched, watermarks.readable)
        while (columns := self._next(found)) is not None:
            if not self._hand_over(self._column_takers, columns):
                return
            watermarks.dispatched = columns.end_offset_bytes

    @staticmethod
    def _next(found: Iterator[RecordColumns]) -> RecordColumns | None:
        """The next columns; None where nothing more can be read in bulk: one by one it is seen what is there."""
        try:
            return next(found, None)
        except Exception:
            log.warning("records cannot be read in bulk and are read one by one", exc_info=True)
            return None

    def _run_columns(self, readable: int) -> bool:
        """Dispatches some of a long way behind in bulk, as a slave that catches up has it; says whether it did.

        One by one is how those are dispatched that cannot be read so, and those that a dispatcher did not take.
        """
        if not self._column_takers or not lazy_numpy.ready():
            return False
        watermarks = self._watermarks
        until = min(readable, watermarks.dispatched + _BULK_BYTES)
        columns = self._next(self._log.columns(watermarks.dispatched, until))
        if columns is None or not self._hand_over(self._column_takers, columns):
            return False
        watermarks.dispatched = columns.end_offset_bytes
        self._tell(self.on_arrival_of_columns, columns)
        return True

    def _tell(self, listener: Callable[[Batch], object], arrived: Batch) -> None:
        """Tells who waits; what goes wrong with that leaves them waiting for their deadlines, and dispatch goes on."""
        try:
            listener(arrived)
        except Exception as error:
            if not self._has_told:
                log.error("held pulls are not woken", exc_info=error)
            self._has_told = True
        else:
            self._has_told = False

    def _dispatch_runs(self, runs: Sequence[Run]) -> None:
        """To each dispatcher in turn; from the first one on that takes requests only, all are handed the same ones."""
        for take_runs in self._run_takers:
            take_runs(runs)
        rest = self._takers[len(self._run_takers) :]
        if rest:
            requests = requests_of(runs)
            for take in rest:
                take(requests)

    def _hand_over(self, takers: Sequence[Callable[[Batch], None]], batch: Batch) -> bool:
        """Gives a batch to each in turn; False, with :attr:`error` set, when one could not take it."""
        try:
            for taker in takers:
                taker(batch)
        except StoreFullError as error:
            self._stand_still(error, "until there is room")
            return False
        except Exception as error:
            failure = StoreError(f"an essential dispatcher failed: {type(error).__name__}: {error}")
            self._stand_still(failure, "until it works again")
            return False
        if self.error is not None:
            log.warning("dispatch goes on")
            self.error = None
        return True

    def _stand_still(self, error: StoreError, until: str) -> None:
        if self.error is None:
            log.error("dispatch stands still %s: %s", until, error)
        self.error = error

    def _take(self, readable: int) -> list[Run]:
        """The next batch: from memory where that continues the log without a hole, else from the log."""
        waiting = self._waiting
        dispatched = self._watermarks.dispatched
        if waiting and self._continues(dispatched, waiting[0].commit_log_offset_bytes):
            if len(waiting) + self._batches_more <= _BATCH:
                last = waiting[-1]
                if (
                    last.commit_log_offset_bytes + last.message_size_bytes <= readable
                    and _keys_length("".join([one.keys for one in waiting])) <= _KEYS_LENGTH
                ):
                    runs = list(waiting)
                    self.forget()
                    return runs
            return self._take_some(readable)
        until = min(readable, waiting[0].commit_log_offset_bytes) if waiting else readable
        batch: list[Run] = []
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

    def _take_some(self, readable: int) -> list[Run]:
        """As much of what waits as is readable, and one batch may hold; it may end within the messages of a batch send."""
        waiting = self._waiting
        runs: list[Run] = []
        messages = keys_length = 0
        while waiting and messages < _BATCH:
            first = waiting[0]
            if type(first) is AppendedBatch:
                whole = len(first)
                fits = _fitting(first, readable, _BATCH - messages, _KEYS_LENGTH - keys_length, is_first=not runs)
                if not fits:
                    break
                if fits == whole:
                    waiting.popleft()
                    self._batches -= 1
                    self._batches_more -= whole - 1
                else:
                    waiting[0] = first.part(fits, whole)
                    self._batches_more -= fits
                    first = first.part(0, fits)
                messages += fits
                keys_length += _keys_length(first.keys)
                runs.append(first)
                if fits < whole:
                    break
                continue
            keys_length += _keys_length(first.keys)
            if first.commit_log_offset_bytes + first.message_size_bytes > readable or (
                keys_length > _KEYS_LENGTH and runs
            ):
                break
            runs.append(waiting.popleft())
            messages += 1
        return runs

    def _past_blank(self, dispatched: int, until: int) -> None:
        """Nothing but the blank end of a file lies there; only its end is a place to go on from."""
        next_file = self._log.next_file_start(dispatched)
        if next_file <= until:
            self._watermarks.dispatched = next_file

    def _continues(self, dispatched: int, start: int) -> bool:
        """Whether nothing but the blank end of a file lies between, as far as can be read."""
        if start == dispatched:
            return True
        if start < dispatched:
            return False
        until = min(start, self._watermarks.readable)
        return next(self._log.requests(dispatched, until), None) is None
