"""Appends messages to the store and waits for their durability.

The module appends the messages of clients and of the broker's own process, messages that consumers send back, replies, ended
transactions and delayed messages. It also maps the outcome of a flush to the answer that a client gets.
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
"""A message to append, or all messages of a batch send."""


class Stored:
    """The results of one append, and the waiter for its durability. :class:`MessageSink` makes an object of this class for each
    append.
    """

    __slots__ = ("_faults", "messages", "results", "took_s", "units", "waiter")

    def __init__(self, put: Put, faults: BrokerFaults) -> None:
        self._faults = faults
        self.units: Sequence[AppendUnit] = put.records
        """Stored records and batches in log order; all messages of a batch send are one unit."""
        self.messages = put.messages
        """Number of messages in :attr:`units`."""
        self.took_s = put.took_s
        """Duration of the append in seconds, without the wait for durability."""
        self.waiter: FlushWaiter = put.waiter
        """Waiter that completes when all messages of the append are as durable as required: flushed as the flush strategy
        promises, and copied to slaves as replication promises."""
        self.results: Sequence[AppendUnit | RefusedError] = (
            put.records if len(put.records) == len(put.results) else _results(put.results)
        )
        """Result of each message or batch, in the order of the append: the stored unit, or the error for which the store
        refused it."""

    def requests(self) -> list[DispatchRequest]:
        """Return the dispatch request of each appended message, in the order of the append.

        Raises:
            RefusedError: a message was not stored.
        """
        for result in self.results:
            if isinstance(result, RefusedError):
                raise result
        return requests_of(self.units)

    async def acknowledge(self, *, strict: bool = False) -> None:
        """Wait until the appended messages are as durable as promised; see :func:`flintmq.core.broker.sink.acknowledge`."""
        await acknowledge(self.waiter, strict=strict, faults=self._faults)


class MessageSink:
    """Appends messages to the store, requests their flush, and counts them. Used only on the event loop's thread.

    Args:
        store: the store.
        stats: counts the messages.
        dispatch: dispatches readable records to the queues and the index.
        followers: calls the services that follow messages for each append; None if no service follows messages.
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
        """Append messages together, with one waiter for their durability, then dispatch readable records.

        Raises:
            RefusedError: the store takes no messages now. The error about a single refused message is not raised, but is in the
                results.
        """
        stored = self.append(messages)
        self._dispatch()
        return stored

    def append(self, messages: Sequence[Incoming]) -> Stored:
        """Append messages like :meth:`put`, but without dispatch.

        The caller dispatches later, for example after it has answered the client.
        """
        return self._counted(self._store.put(messages), messages)

    def append_together(self, messages: Sequence[MessageExtBrokerInner]) -> Stored:
        """Append all messages or none, one directly after the other in the same file of the log.

        Returns:
            The stored messages. If the store refuses these messages, for example because they do not fit in one file, the
            result contains one error for all of them.

        Raises:
            RefusedError: the store takes no messages at all now.
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
            if len(results) != len(messages):
                # If messages that must be stored together are refused, the store returns one error for all messages.
                results = [results[0]] * len(messages)
            self._followers.stored(StoredMessages(messages, results, put.took_s, put.flushed, put.waiter))
        return stored


def _results(appended: Sequence[Appended]) -> list[AppendUnit | RefusedError]:
    """Return a result for each message or batch of an append. Errors of the store become the refusals that clients get."""
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
    """Return the answer to a client whose message the store could not append."""
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
    """Wait on the running loop until a flush waiter is done, and return the waiter's status.

    The waiter may be completed on the flush service's thread.
    """
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
    """Return the answer to a client whose stored message is not as durable as promised; None if it is as durable as promised.

    The same mapping of flush statuses applies to messages of clients and of the broker's own process, to messages that
    consumers send back, to replies and to ended transactions. It corresponds to RocketMQ's
    ``SendMessageProcessor.handlePutMessageResult``.
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
    """Wait until the messages of an append are as durable as the flush strategy and replication promise.

    Args:
        waiter: the waiter of the append.
        strict: whether a late flush and a missing slave are ignored, as in RocketMQ's answers to CONSUMER_SEND_MSG_BACK
            (request 36) and END_TRANSACTION (request 37). Callers pass True if ``store.compat`` is ``strict``.
        faults: records whether the messages became durable; None to record nothing.

    Raises:
        RefusedError: the messages are stored, but not as durable as promised.
    """
    status = await until_flushed(waiter)
    refusal = not_durable(status) if faults is None else told_durable(status, faults)
    if refusal is not None and not (strict and refusal.reason != "store.fenced"):
        raise refusal


def told_durable(status: FlushStatus, faults: BrokerFaults, times: int = 1) -> RefusedError | None:
    """Return the answer of :func:`not_durable` for a flush status, and record it in ``faults``. Called only on the event loop's
    thread.

    Args:
        status: the status of a flush.
        faults: records the refusal, or that the messages became durable.
        times: number of messages that waited for the flush.
    """
    refusal = not_durable(status)
    if refusal is not None:
        faults.refused(refusal, times)
    elif faults.are_some:
        faults.durable()
    return refusal
