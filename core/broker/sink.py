"""The one way into the store: sends, in-process puts, send-backs, replies, transactions and deliveries all go through here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flintmq.core.broker.durability import acknowledge
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.errors import RefusedError, StoreError, StoreFullError
from flintmq.core.kernel.ports import AppendUnit, DispatchRequest, FlushWaiter, requests_of
from flintmq.core.log.appender import Appended
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

    __slots__ = ("messages", "results", "took_s", "units", "waiter")

    def __init__(self, put: Put) -> None:
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
        """Wait until the messages are as durable as promised; see :func:`flintmq.core.broker.durability.acknowledge`."""
        await acknowledge(self.waiter, strict=strict)


class MessageSink:
    """Appends messages, asks for their durability, and counts them. Loop thread.

    Args:
        store: what they are appended to.
        stats: counts them.
        dispatch: makes visible what is readable.
    """

    def __init__(self, store: MessageStore, stats: BrokerStats, dispatch: Callable[[], object]) -> None:
        self._store = store
        self._stats = stats
        self._dispatch = dispatch

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
        return self._counted(self._store.put(messages))

    def append_together(self, messages: Sequence[MessageExtBrokerInner]) -> Stored:
        """Append messages that must follow one another in one file of the log: all of them or none.

        Raises:
            RefusedError: the store takes no messages now. When it refuses these, the results are that refusal alone.
        """
        return self._counted(self._store.put([list(messages)]))

    def _counted(self, put: Put) -> Stored:
        self._stats.stored(put.records, put.took_s, put.messages)
        return Stored(put)


def _results(appended: Sequence[Appended]) -> list[AppendUnit | RefusedError]:
    """The results of an append of which something was refused, or of messages that were appended together."""
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
