"""Appends messages, and chunks of a master's log, to the commit log, and requests that they be made durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from flintmq.core.errors import RefusedError, StoreFencedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import (
    AppendedBatch,
    AppendUnit,
    DispatchRequest,
    FlushWaiter,
    ReplicationGate,
    count_messages,
)
from flintmq.core.log.commit_log import Appendable, Appended, CommitLog
from flintmq.core.log.log_chunk import LogChunk
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.reput_message_service import ReputMessageService
from flintmq.core.store.store_services import StoreServices


class MessageWriter:
    """The part of a store in use that appends messages. Used only on the event loop's thread.

    Args:
        commit_log: the log to append to.
        reput: receives the appended records for the dispatchers.
        services: the flush services, which make records durable.
        clock: measures the duration of appends.
        check_writeable: raises RefusedError if writes are not allowed now.
        fence: makes the store refuse all further writes; called with the reason if an append failed in the middle.
        appended: called after each append of messages.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        reput: ReputMessageService,
        services: StoreServices,
        clock: Clock,
        *,
        check_writeable: Callable[[], None],
        fence: Callable[[str], None],
        appended: Callable[[], None],
    ) -> None:
        self._commit_log = commit_log
        self._watermarks = commit_log.watermarks
        self._reput = reput
        self._services = services
        self._clock = clock
        self._check_writeable = check_writeable
        self._fence = fence
        self._appended = appended
        self.slow_appends = SlowLog(clock)
        self._gate: ReplicationGate | None = None

    def put(self, messages: Sequence[Appendable]) -> Put:
        """Append messages and request that they be made durable, with one waiter for all of them.

        Raises:
            RefusedError: the store is not writeable.
        """
        self._check_writeable()
        began_s, began_bytes = self._clock.monotonic_s(), self._watermarks.wrote
        try:
            results = self._commit_log.append(messages)
        except StoreFencedError as error:
            raise RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error), reason="store.fenced") from error
        except Exception as error:
            # Only a recovery can find out which records a failed append has written, so the store refuses further writes.
            self._fence(f"an append failed: {type(error).__name__}: {error}; restart the broker to recover")
            raise
        took_s = self._clock.monotonic_s() - began_s
        units, stored = _stored(results)
        self._reput.appended(units, stored)
        flushed, waiter = self.promises()
        self._appended()
        if took_s > SLOW_S:
            self._warn_of_slow_append(took_s, stored, began_bytes)
        return Put(results, units, stored, flushed, waiter, took_s)

    def promise(self) -> FlushWaiter:
        """Request the durability of all appended records on this broker and, if configured, on a slave; return the waiter."""
        return self.promises()[1]

    def promises(self) -> tuple[FlushWaiter, FlushWaiter]:
        """Request the durability of all appended records; return two waiters: one for the local flush, and one for the
        local flush and the slaves."""
        wrote = self._watermarks.wrote
        flushed = self._services.flush_service.submit(wrote)
        return flushed, flushed if self._gate is None else self._gate.promise(wrote, flushed)

    def wait_for_slaves(self, gate: ReplicationGate | None) -> None:
        """Set the object that decides whether and how long the acknowledgments of later appends wait for a slave.

        If ``gate`` is None, acknowledgments wait only for the local flush.
        """
        self._gate = gate

    def append_raw(self, chunks: Sequence[LogChunk]) -> FlushWaiter:
        """Append verified chunks of a master's log and request their durability, with one waiter for all of them.

        Raises:
            StoreError: the store refuses writes after an error, the disk is full, or a chunk does not begin at the log's end.
                The chunks before the failed chunk were appended.
        """
        began_s, began_bytes = self._clock.monotonic_s(), self._watermarks.wrote
        for chunk in chunks:
            self._commit_log.append_raw(chunk.offset_bytes, chunk.data, chunk.store_timestamp_ms)
        took_s = self._clock.monotonic_s() - began_s
        if took_s > SLOW_S:
            self._warn_of_slow_append(took_s, sum(chunk.messages for chunk in chunks), began_bytes)
        return self._services.flush_service.submit(self._watermarks.wrote)

    def _warn_of_slow_append(self, took_s: float, messages: int, began_bytes: int) -> None:
        file = self._commit_log.queue.last()
        self.slow_appends.warn(
            took_s,
            f"[NOTIFYME]putMessage in lock cost time(ms)={took_s * 1000:.0f}, {messages} messages, "
            f"{self._watermarks.wrote - began_bytes} bytes at {began_bytes}, file {file.path if file is not None else 'none'}",
        )


def _stored(results: list[Appended]) -> tuple[Sequence[AppendUnit], int]:
    """Return the stored records and batches of an append, in log order, and the number of their messages."""
    kinds = {*map(type, results)}
    if kinds == {DispatchRequest}:
        return cast("list[DispatchRequest]", results), len(results)
    if kinds == {AppendedBatch}:
        return cast("list[AppendedBatch]", results), count_messages(cast("list[AppendedBatch]", results))
    units: list[AppendUnit] = []
    for result in results:
        if isinstance(result, list):
            units += result
        elif isinstance(result, (DispatchRequest, AppendedBatch)):
            units.append(result)
    return units, count_messages(units)


class Put(msgspec.Struct, eq=False):
    """The results of one append of messages, and the waiters for the append's durability."""

    results: list[Appended]
    """Results of the append, one for each message or batch that was passed to the append."""
    records: Sequence[AppendUnit]
    """Stored records, and stored batches as a whole, in log order."""
    messages: int
    """Number of stored messages."""
    flushed: FlushWaiter
    """Waiter for the flush to the local disk alone, without slaves."""
    waiter: FlushWaiter
    took_s: float = 0.0
    """Duration of the append in seconds, without the wait for durability."""
