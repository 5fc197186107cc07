"""Appends messages, and pieces of a master's log, and asks for their durability."""

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
from flintmq.core.log.appender import Appendable, Appended
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.log_chunk import LogChunk
from flintmq.core.log.slow import SLOW_S, SlowLog
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.reput_message_service import ReputMessageService
from flintmq.core.store.store_services import StoreServices


class MessageWriter:
    """Writes a started store. Loop thread.

    Args:
        commit_log: what is appended to.
        reput: takes what was appended, for the dispatchers.
        services: make it durable.
        clock: measures how long an append takes.
        check_writeable: raises RefusedError when nothing may be written now.
        fence: called with the reason when an append failed in the middle.
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
        """Append messages and ask for their durability: one waiter for all of them.

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
            # What is written and which offsets are given away is unknown now: only a restart can tell.
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
        """Ask for the durability of everything that was appended so far, here and at a slave where one is waited for.

        Returns:
            What becomes of it.
        """
        return self.promises()[1]

    def promises(self) -> tuple[FlushWaiter, FlushWaiter]:
        """Ask as :meth:`promise` does; return what becomes of the flush alone, and of everything that is waited for."""
        wrote = self._watermarks.wrote
        flushed = self._services.flush_service.submit(wrote)
        return flushed, flushed if self._gate is None else self._gate.promise(wrote, flushed)

    def wait_for_slaves(self, gate: ReplicationGate | None) -> None:
        """From now on acknowledge an append when it is durable here and a slave holds it; with None when it is durable here."""
        self._gate = gate

    def append_raw(self, chunks: Sequence[LogChunk]) -> FlushWaiter:
        """Append checked pieces of a master's log and ask for their durability: one waiter for all of them.

        Raises:
            StoreError: the store is fenced, full, or the pieces do not follow its end. What came before that was appended.
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
    """Return everything that an append stored, in the order of the log, and how many messages that are."""
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
    """What one append became, and the promise that it is durable."""

    results: list[Appended]
    """One entry for each message or batch that was handed over."""
    records: Sequence[AppendUnit]
    """Everything that was stored, in the order of the log; the messages of a batch as a whole."""
    messages: int
    """How many those are."""
    flushed: FlushWaiter
    """What becomes of its flush alone, without the wait for a slave."""
    waiter: FlushWaiter
    took_s: float = 0.0
    """How long the append took, without the wait for its durability."""
