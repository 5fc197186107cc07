"""ReputMessageService: hands stored records to the dispatchers, in log order, up to the readable ceiling (algorithms 5).

Records just appended are handed over in memory; after a restart, or when too many wait, they are read back from the log.
Both ways give the same requests. Loop thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from flintmq.core.errors import StoreError, StoreFullError
from flintmq.core.ports import ColumnDispatcher, CommitLogDispatcher, DispatchRequest
from flintmq.core.store.commit_log import CommitLog

log = logging.getLogger("flintmq.store")

Batch = TypeVar("Batch")

_BATCH: Final = 2_048
_WAITING_MAX: Final = 262_144
_KEYS_LENGTH: Final = 16_384
"""Of the KEYS of a batch, a space counted nine times: up to 2,000 index entries, some 4 ms. Ordinary batches stay below,
or become a few."""
_RUN_S: Final = 0.005
"""How long one run keeps the loop's other work waiting, but for the batch it has begun."""


def _keys_length(keys: str) -> int:
    return len(keys) + 8 * keys.count(" ")


def _nobody(_batch: Sequence[DispatchRequest]) -> None:
    """The arrival listener nobody has set."""


class ReputMessageService:
    """Moves ``dispatched`` up to ``readable``."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._watermarks = commit_log.watermarks
        self.dispatchers: tuple[CommitLogDispatcher, ...] = ()
        self.on_arrival: Callable[[Sequence[DispatchRequest]], object] = _nobody
        """Called with each batch once every dispatcher has it (wakes held pulls)."""
        self._waiting: deque[DispatchRequest] = deque()
        self.error: StoreError | None = None
        """Why dispatch stands still; it is tried again with each run."""

    def appended(self, requests: Sequence[DispatchRequest]) -> None:
        """Takes records just appended. Beyond a bound they are forgotten and read back later."""
        if len(self._waiting) < _WAITING_MAX:
            self._waiting += requests
        else:
            self._waiting.clear()

    def forget(self) -> None:
        """Drops what waits in memory: the log was cut. What is left of it is read back."""
        self._waiting.clear()

    @property
    def behind_bytes(self) -> int:
        return self._watermarks.wrote - self._watermarks.dispatched

    def run(self, max_batches: int = 64) -> bool:
        """Dispatches what is readable; returns whether more is left (so that the loop gets its turn in between).

        A full disk and an essential dispatcher that raises make it stand still: see :attr:`error`.

        Raises:
            StoreError: the log cannot be read where records must be.
        """
        watermarks = self._watermarks
        end_s = time.monotonic() + _RUN_S
        for _ in range(max_batches):
            readable = watermarks.readable
            if watermarks.dispatched >= readable:
                return False
            batch = self._take(readable)
            if not batch:
                return False
            if not self._hand_over([dispatcher.dispatch for dispatcher in self.dispatchers], batch):
                self._waiting.extendleft(reversed(batch))
                return False
            last = batch[-1]
            watermarks.dispatched = last.commit_log_offset_bytes + last.message_size_bytes
            self.on_arrival(batch)
            if time.monotonic() > end_s:
                break
        return watermarks.dispatched < watermarks.readable

    def run_in_bulk(self) -> None:
        """Dispatches what lies in the log before anybody listens: many records at a time, where every dispatcher takes them so.

        What is left (all of it without numpy) is for :meth:`run`. Nobody is told of arrivals.
        """
        takers = [one.dispatch_columns for one in self.dispatchers if isinstance(one, ColumnDispatcher)]
        if len(takers) < len(self.dispatchers) or self._waiting:
            return
        watermarks = self._watermarks
        for columns in self._log.columns(watermarks.dispatched, watermarks.readable):
            if not self._hand_over(takers, columns):
                return
            watermarks.dispatched = columns.end_offset_bytes

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
        self.error = None
        return True

    def _stand_still(self, error: StoreError, until: str) -> None:
        if self.error is None:
            log.error("dispatch stands still %s: %s", until, error)
        self.error = error

    def _take(self, readable: int) -> list[DispatchRequest]:
        """The next batch: from memory where that continues the log without a hole, else from the log."""
        waiting = self._waiting
        dispatched = self._watermarks.dispatched
        if waiting and self._continues(dispatched, waiting[0].commit_log_offset_bytes):
            batch: list[DispatchRequest] = []
            if len(waiting) <= _BATCH:
                last = waiting[-1]
                if (
                    last.commit_log_offset_bytes + last.message_size_bytes <= readable
                    and _keys_length("".join([one.keys for one in waiting])) <= _KEYS_LENGTH
                ):
                    batch = list(waiting)
                    waiting.clear()
                    return batch
            keys_length = 0
            while waiting and len(batch) < _BATCH:
                first = waiting[0]
                keys_length += _keys_length(first.keys)
                if first.commit_log_offset_bytes + first.message_size_bytes > readable or (
                    keys_length > _KEYS_LENGTH and batch
                ):
                    break
                batch.append(waiting.popleft())
            return batch
        until = min(readable, waiting[0].commit_log_offset_bytes) if waiting else readable
        batch = []
        keys_length = 0
        for request in self._log.requests(dispatched, until):
            keys_length += _keys_length(request.keys)
            if (
                request.commit_log_offset_bytes + request.message_size_bytes > until
                or len(batch) == _BATCH
                or (keys_length > _KEYS_LENGTH and batch)
            ):
                break  # a slave may have acknowledged half a record
            batch.append(request)
        else:
            if not batch:
                self._past_blank(dispatched, until)
        return batch

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
