"""Sending a message together with a local transaction: it is delivered if, and only if, that commits.

::

    send ──▶ half message, stored and invisible
    local transaction ──▶ COMMIT:   delivered
                          ROLLBACK: never delivered
                          UNKNOWN:  the broker asks again later, any producer of the group ──▶ check
"""

from __future__ import annotations

import asyncio
import enum
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Unpack

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError, RefusedError, RemotingTimeoutError
from flintmq.core.record.host import decode_message_id
from flintmq.core.record.properties import PRODUCER_GROUP, TRANSACTION_PREPARED, UNIQ_KEY
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED as PREPARED_FLAG
from flintmq.remoting.client.callbacks import outcome_of, told
from flintmq.remoting.client.instance import ClientInstance, log
from flintmq.remoting.client.message import UNKNOWN_PLACE, Message, MessageExt, unpacked_messages
from flintmq.remoting.client.producer import SEND_TIMEOUT_MS, Producer, ProducerOptions
from flintmq.remoting.client.route import NameServers
from flintmq.remoting.client.send_result import SendResult, SendStatus
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import CheckTransactionStateRequestHeader, EndTransactionRequestHeader


class TransactionState(enum.Enum):
    """What became of a local transaction."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NOT
    """Not decided yet: the broker asks later."""


_TRACED_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
LocalTransaction = Callable[[Message, str], "TransactionState | Awaitable[TransactionState]"]
"""Does the local part, given the message and the transaction's id; a function or a coroutine function."""
TransactionCheck = Callable[[MessageExt], "TransactionState | Awaitable[TransactionState]"]
"""Tells what became of the local part of a message that is not ended; ``message.msg_id`` is the transaction's id. It is also
asked about a message whose body cannot be read (``message.body_error``)."""


@attrs.frozen
class TransactionResult:
    """A half message that was stored, and what its producer decided."""

    sent: SendResult
    state: TransactionState


class TransactionProducer(Producer):
    """Sends messages in transactions. Loop thread only; use it in an ``async with`` statement.

    ::

        async with TransactionProducer("orders", "127.0.0.1:9876", check=look_up) as producer:
            await producer.send_in_transaction(Message("Orders", b"…"), book)

    Args:
        group: the producer group: any member may be asked about any transaction of the group.
        name_servers: see :class:`Producer`.
        check: answers the broker's question; what it raises is logged, and the broker asks again.
        options: for :class:`Producer`.
    """

    def __init__(
        self, group: str, name_servers: NameServers = (), *, check: TransactionCheck, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(group, name_servers, **options)
        self._check = check

    async def start(self) -> None:
        """Start as :meth:`Producer.start` does, and answer what brokers ask.

        Raises:
            ValueError: the ``client`` that it shares with others has another transaction producer of the group.
        """
        client = self.client
        if client.transaction_checks.get(self.group, self._asked) != self._asked:
            raise InvalidArgumentError(
                f"group {self.group} has a transaction producer on this client already, which brokers ask: "
                "give this producer a client of its own"
            )
        await super().start()
        client.transaction_checks[self.group] = self._asked
        client.remoting.register_processor(RequestCode.CHECK_TRANSACTION_STATE, partial(_dispatch_check, client))

    async def close(self) -> None:
        try:
            await super().close()
        finally:  # last, as a start that is under way enters the check
            if self.client.transaction_checks.get(self.group) == self._asked and not self._is_member:
                del self.client.transaction_checks[self.group]

    async def send_in_transaction(
        self,
        message: Message,
        local: LocalTransaction,
        queue: MessageQueue | None = None,
        *,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> TransactionResult:
        """Store a half message, do the local part, and tell the broker what came of it.

        When the broker cannot be reached, the outcome of the local part stands, and the broker asks for it later.

        Args:
            message: what to deliver. It can have no delay level, but name a time (``TIMER_DELAY_MS``, ...) where brokers are
                FlintMQ's: a delay counts from the commit.
            local: the local part. What it raises is raised here, and the transaction is left undecided, because nobody knows
                how far the local part came: the broker asks ``check``, first after some time.
            queue: where to; None: the topic's next queue.
            timeout_ms: for the send of the half message, the name server and the heartbeat before it included.

        Raises:
            ValueError: the message is too long, or asks for a delay.
            RefusedError: the broker, or the name server, refuses it. ``local`` was not called.
            RemotingError: it is not known whether the half message was stored. ``local`` was not called.
            TypeError: ``local`` returned something else than a state; the transaction is left undecided.
        """
        sent = await self.send_half(message, queue, timeout_ms=timeout_ms)
        if sent.status is SendStatus.SEND_OK:
            outcome = local(message, sent.msg_id)
            state = await outcome if inspect.isawaitable(outcome) else outcome
        else:
            state = TransactionState.ROLLBACK  # the half message may be lost: nothing local must depend on it
        return await self.end(sent, state)

    async def send_half(
        self, message: Message, queue: MessageQueue | None = None, *, timeout_ms: int = SEND_TIMEOUT_MS
    ) -> SendResult:
        """Store a half message, which nobody sees until :meth:`end` commits it: for who does the local part by themselves.

        See :meth:`send_in_transaction`, which raises the same. Unless the status is SEND_OK, roll back.
        """
        if message.delay_level > 0:
            raise InvalidArgumentError("a message in a transaction cannot be delayed")
        marked = {
            **message.properties,
            TRANSACTION_PREPARED: "true",
            PRODUCER_GROUP: self.client.namespace.wrap(self.group),
        }
        prepared = self._preparer.one(attrs.evolve(message, properties=marked))
        prepared = attrs.evolve(prepared, sys_flag=prepared.sys_flag | PREPARED_FLAG)
        begin_s = self.client.clock.monotonic_s()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._introduce(message.topic, timeout_ms)
        except TimeoutError as failure:
            raise RemotingTimeoutError(
                f"the brokers of topic {message.topic} did not answer within {timeout_ms} ms: nothing was sent"
            ) from failure
        left_ms = timeout_ms - (self.client.clock.monotonic_s() - begin_s) * 1000
        return await self._sender.send(prepared, queue, max(1.0, left_ms))

    async def end(self, sent: SendResult, state: TransactionState) -> TransactionResult:
        """Tell the broker what came of the local part of a half message. A broker that does not learn it asks later.

        Raises:
            TypeError: the state is none. The transaction is undecided, and the broker asks.
        """
        if not isinstance(state, TransactionState):
            raise TypeError(f"a local transaction ends with a TransactionState, not {state!r}: the broker will ask")
        if state is not TransactionState.UNKNOWN:
            await self._end(sent, state)
        return TransactionResult(sent, state)

    async def _introduce(self, topic: str, timeout_ms: float) -> None:
        """Tell brokers that the group has a member before they may have to ask it."""
        route = await self._sender.route(topic, timeout_ms)
        addresses = {route.address(queue.broker_name) for queue in route.write_queues}
        # Named: a topic that is not there yet has no route of its own with brokers to notify.
        await self.client.requests.announce(sorted(addresses), timeout_ms)

    async def _end(self, sent: SendResult, state: TransactionState) -> None:
        header = EndTransactionRequestHeader(
            producer_group=self.client.namespace.wrap(self.group),
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset_bytes=decode_message_id(sent.offset_msg_id).commit_log_offset_bytes,
            commit_or_rollback=state.value,
            msg_id=sent.msg_id,
            transaction_id=sent.transaction_id or sent.msg_id,
            broker_name=sent.queue.broker_name,
        )
        try:
            address = (await self._sender.route(sent.queue.topic)).address(sent.queue.broker_name)
            await self.client.remoting.invoke_oneway(address, request(RequestCode.END_TRANSACTION, header))
        except Exception as failure:  # of a hook, too: what the local part has decided stands
            log.warning(
                "client.transaction_end_unknown",
                "transaction %(message)s: the broker did not learn its end and will ask: %(error)s",
                message=sent.msg_id,
                error=told(failure),
            )
            return
        if self._tracer is not None:
            topic, traced = sent.queue.topic, _TRACED_STATES[state]
            self._tracer.ended(topic, sent.msg_id, header.transaction_id or "", address, traced, is_checked=False)

    async def _asked(self, command: RemotingCommand, address: str, message: MessageExt) -> None:
        """39: tells the broker what became of a transaction."""
        asked = decode_header(CheckTransactionStateRequestHeader, command.ext_fields)
        try:
            state = await outcome_of(self._check, message)
            if not isinstance(state, TransactionState):
                raise TypeError(f"the check returns a TransactionState, not {state!r}")
        except Exception:
            log.exception(
                "client.check_failed",
                "the check of transaction %(message)s failed; the broker will ask again",
                message=message.msg_id,
            )
            return
        header = EndTransactionRequestHeader(
            producer_group=self.client.namespace.wrap(self.group),
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset_bytes=asked.commit_log_offset_bytes,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.properties.get(UNIQ_KEY) or asked.msg_id or "",
            transaction_id=asked.transaction_id,
        )
        await self.client.remoting.invoke_oneway(address, request(RequestCode.END_TRANSACTION, header))
        if self._tracer is not None:
            topic, traced = message.topic, _TRACED_STATES[state]
            self._tracer.ended(topic, message.msg_id, asked.transaction_id or "", address, traced, is_checked=True)


async def _dispatch_check(client: ClientInstance, command: RemotingCommand, address: str) -> None:
    """Hand the question to the group that the half message names, also if its body cannot be read: the check may need none."""
    messages = await unpacked_messages(command.body)
    if not messages or messages[0].queue_offset == UNKNOWN_PLACE:
        reason = messages[0].body_error if messages else "there is no record"
        log.warning(
            "client.check_damaged",
            "%(broker)s asks about a transaction whose half message is damaged; it will ask again: %(reason)s",
            broker=address,
            reason=reason,
        )
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no half message: {reason}", reason="body.malformed")
    group = client.namespace.unwrap(messages[0].properties.get(PRODUCER_GROUP, ""))
    if group in client.transaction_checks:
        await client.transaction_checks[group](command, address, client.namespace.unwrap_message(messages[0]))
    else:
        log.warning(
            "client.check_not_ours",
            "%(broker)s asks about a transaction of producer group %(group)s, which is not here",
            broker=address,
            group=group,
        )
