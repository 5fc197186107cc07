"""The one way into the store: sends, in-process puts, send-backs, replies, transactions and deliveries all go through here.

And what an acknowledgement waits for, and what is answered where the promise of durability was not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from flintmq.core.broker.faults import BrokerFaults
from flintmq.core.broker.followers import Followers
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.errors import RefusedError, StoreError, StoreFullError
from flintmq.core.kernel.ports import AppendUnit, DispatchRequest, FlushStatus, FlushWaiter, StoredMessages, requests_of
from flintmq.core.log.commit_log import Appended
from flintmq.core.log.no_room import no_room
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.message_store import MessageStore
from flintmq.core.store.message_writer import Put

Incoming = MessageExtBrokerInner | MessageBatch
"""What is put: a message, or the messages of a batch send."""


class Stored:
    """What became of messages that were put together, and the promise that they are durable. Made per append."""

    __slots__ = ("_faults", "messages", "results", "took_s", "units", "waiter")

    def __init__(self, put: Put, faults: BrokerFaults) -> None:
        self._faults = faults
        self.units: Sequence[AppendUnit] = put.records
        """Everything that was stored, in log order; a batch send is one unit."""
        self.messages = put.messages
        """How many messages those are."""
        self.took_s = put.took_s
        """How long the append took, without the wait for its durability."""
        self.waiter: FlushWaiter = put.waiter
        """Done when everything is as durable as the flush strategy and replication promise."""
        self.results: Sequence[AppendUnit | RefusedError] = (
            put.records if len(put.records) == len(put.results) else _results(put.results)
        )
        """For each message or batch in its order: where it is, or why it was not stored."""

    def requests(self) -> list[DispatchRequest]:
        """Return the record of each message, in their order.

        Raises:
            RefusedError: one of them was not stored.
        """
        for result in self.results:
            if isinstance(result, RefusedError):
                raise result
        return requests_of(self.units)

    async def acknowledge(self, *, strict: bool = False) -> None:
        """Wait until the messages are as durable as promised; see :func:`flintmq.core.broker.sink.acknowledge`."""
        await acknowledge(self.waiter, strict=strict, faults=self._faults)


class MessageSink:
    """Appends messages, asks for their durability, and counts them. Loop thread.

    Args:
        store: what they are appended to.
        stats: counts them.
        dispatch: makes visible what is readable.
        followers: are told of each append.
    """

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats,
        dispatch: Callable[[], object],
        followers: Followers | None = None,
    ) -> None:
        self._store = store
        self._stats = stats
        self._dispatch = dispatch
        self._followers = followers if followers is not None else Followers()

    def put(self, messages: Sequence[Incoming]) -> Stored:
        """Append messages with one append and one promise of durability, then dispatch what is readable.

        Raises:
            RefusedError: the store takes no messages now. A message that it refuses by itself is in the results.
        """
        stored = self.append(messages)
        self._dispatch()
        return stored

    def append(self, messages: Sequence[Incoming]) -> Stored:
        """Append messages as :meth:`put` does; the caller dispatches later, after it has answered or put more."""
        return self._counted(self._store.put(messages), messages)

    def append_together(self, messages: Sequence[MessageExtBrokerInner]) -> Stored:
        """Append messages that must follow one another in one file of the log: all of them or none.

        Raises:
            RefusedError: the store takes no messages now. When it refuses these, the results are that refusal alone.
        """
        return self._counted(self._store.put([list(messages)]), messages)

    def _counted(self, put: Put, messages: Sequence[Incoming]) -> Stored:
        self._stats.stored(put.records, put.took_s, put.messages)
        faults = self._stats.faults
        stored = Stored(put, faults)
        if stored.results is not put.records:
            for result in stored.results:
                if isinstance(result, RefusedError):
                    faults.refused(result)
        if faults.are_some and put.records:
            faults.stored()
        if self._followers.all:
            results = stored.results
            if len(results) != len(messages):  # they were to be appended together, and are refused together
                results = [results[0]] * len(messages)
            self._followers.stored(StoredMessages(messages, results, put.took_s, put.flushed, put.waiter))
        return stored


def _results(appended: Sequence[Appended]) -> list[AppendUnit | RefusedError]:
    """Return the results of an append of which something was refused, or of messages that were appended together."""
    results: list[AppendUnit | RefusedError] = []
    for result in appended:
        if isinstance(result, list):
            results += result
        elif isinstance(result, StoreError):
            results.append(not_stored(result))
        else:
            results.append(result)
    return results


def not_stored(error: StoreError | RefusedError) -> RefusedError:
    """Return what a client is answered when the store could not take its message."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, StoreFullError):
        return no_room(error)
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed",
        reason="store.file",
        measured=str(error),
        key="store.path",
    )


async def until_flushed(waiter: FlushWaiter) -> FlushStatus:
    """Wait on the running loop until a flush waiter is done; its callback comes from the flush service's thread."""
    status = waiter.status
    if status is not None:
        return status
    loop = asyncio.get_running_loop()
    future: asyncio.Future[FlushStatus] = loop.create_future()

    def finish(final: FlushStatus) -> None:
        if not future.done():
            future.set_result(final)

    def done(final: FlushStatus) -> None:
        loop.call_soon_threadsafe(finish, final)

    waiter.add_done_callback(done)
    return await future


def not_durable(status: FlushStatus) -> RefusedError | None:
    """Return the answer to a client whose message was stored, but not kept as promised; None where it was.

    The only table from a flush status to an answer: sends, send-backs, replies, ended transactions and in-process puts use it
    (RocketMQ: ``SendMessageProcessor.handlePutMessageResult``).
    """
    match status:
        case FlushStatus.FLUSHED:
            return None
        case FlushStatus.SLAVE_TIMEOUT:
            return RefusedError(
                ResponseCode.FLUSH_SLAVE_TIMEOUT,
                "no slave held the message in time",
                reason="ha.timeout",
                key="ha.slave_timeout_ms (slaveTimeout)",
            )
        case FlushStatus.SLAVE_NOT_AVAILABLE:
            return RefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "no slave follows, or all are too far behind",
                reason="ha.no_slave",
                key="ha.slave_fallbehind_max_bytes (haSlaveFallbehindMax)",
            )
        case FlushStatus.TIMEOUT:
            return RefusedError(
                ResponseCode.FLUSH_DISK_TIMEOUT,
                "the flush did not end in time",
                reason="flush.timeout",
                key="flush.group_commit.sync_flush_timeout_ms (syncFlushTimeout)",
            )
        case FlushStatus.FENCED:
            return RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now: a sync failed, so the message may not be on disk",
                reason="store.fenced",
                key="store.path (see to the disk, then restart the broker)",
            )


async def acknowledge(waiter: FlushWaiter, *, strict: bool, faults: BrokerFaults | None = None) -> None:
    """Wait until what was appended for a request is as durable as the flush strategy and replication promise.

    Args:
        waiter: of the append.
        strict: with ``store.compat: strict`` a late flush and a missing slave are no reason to answer anything but success,
            as in RocketMQ's answers to 36 and 37.
        faults: takes note of how the promise ended.

    Raises:
        RefusedError: it is stored, but the promise was not kept.
    """
    status = await until_flushed(waiter)
    refusal = not_durable(status) if faults is None else told_durable(status, faults)
    if refusal is not None and not (strict and refusal.reason != "store.fenced"):
        raise refusal


def told_durable(status: FlushStatus, faults: BrokerFaults, times: int = 1) -> RefusedError | None:
    """Return what :func:`not_durable` does, and take note of it: of so many messages. Loop thread."""
    refusal = not_durable(status)
    if refusal is not None:
        faults.refused(refusal, times)
    elif faults.are_some:
        faults.durable()
    return refusal
