"""Transactional messages: a message is delivered if and only if a local transaction of the producer commits.

::

    send ──▶ half message, stored and invisible
    local transaction ──▶ COMMIT:   delivered
                          ROLLBACK: never delivered
                          UNKNOWN:  the broker later asks any producer of the group ──▶ check
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Unpack

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError, RefusedError
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
    """The outcome of a local transaction, which decides about the transaction's message: ``COMMIT`` delivers the message to
    consumers, ``ROLLBACK`` discards it, and after ``UNKNOWN`` the broker asks for the outcome again."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NOT
    """Outcome of a transaction that is not decided yet. The broker asks for the outcome again later."""


_TRACED_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
LocalTransaction = Callable[[Message, str], "TransactionState | Awaitable[TransactionState]"]
"""A function or coroutine function that runs the local transaction. Its arguments are the message and the transaction id."""
TransactionCheck = Callable[[MessageExt], "TransactionState | Awaitable[TransactionState]"]
"""A function that returns the state of the local transaction of a half message. ``message.msg_id`` is the transaction's id.

The function is called even if the message's body cannot be read (``message.body_error``)."""


@attrs.frozen
class TransactionResult:
    """The send result of a half message, and the state of its local transaction."""

    sent: SendResult
    state: TransactionState


class TransactionProducer(Producer):
    """Sends messages in transactions. Used only on the event loop's thread, usually in an ``async with`` statement.

    ::

        async with TransactionProducer("orders", "127.0.0.1:9876", check=look_up) as producer:
            await producer.send_in_transaction(Message("Orders", b"…"), book)

    Args:
        group: the producer group; a broker can ask any member about any transaction of the group.
        name_servers: see :class:`Producer`.
        check: returns the state of a transaction when a broker asks. An error that it raises is logged, and the broker asks
            again.
        options: the keyword arguments of :class:`Producer`.
    """

    def __init__(
        self, group: str, name_servers: NameServers = (), *, check: TransactionCheck, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(group, name_servers, **options)
        self._check = check

    async def start(self) -> None:
        """Start the producer like :meth:`Producer.start`, and begin to answer brokers' transaction checks.

        Raises:
            ValueError: the shared ``client`` already has a transaction producer of this group.
        """
        client = self.client
        if client.transaction_checks.get(self.group, self._asked) != self._asked:
            raise InvalidArgumentError(
                f"group {self.group} has a transaction producer on this client already, which answers the brokers' checks: "
                "give this producer another client"
            )
        await super().start()
        client.transaction_checks[self.group] = self._asked
        client.remoting.register_processor(RequestCode.CHECK_TRANSACTION_STATE, partial(_dispatch_check, client))

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            # The handler of brokers' transaction checks is removed only after super().close() has ended.
            # While super().close() runs, a concurrent start() can add the handler of transaction checks again.
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
        """Send a half message, call the function ``local``, and send its result (commit or rollback) to the broker.

        If the result does not reach the broker, no error is raised, and the broker later asks ``check`` for the result.

        Args:
            message: the message to deliver. It cannot have a delay level. With FlintMQ brokers it can have a delivery time
                (``TIMER_DELAY_MS``, ...); a delay counts from the commit.
            local: runs the local transaction. Its exceptions are raised here; the transaction then stays undecided, and the
                broker asks ``check`` after some time.
            queue: the queue to send to; None: the topic's next queue.
            timeout_ms: the limit for sending the half message, including the route and the heartbeat before it.

        Raises:
            ValueError: the message is too long, or has a delay level.
            RefusedError: the broker or the name server refuses the half message. ``local`` was not called.
            RemotingError: the half message may or may not be stored. ``local`` was not called.
            TypeError: ``local`` did not return a state; the transaction stays undecided.
        """
        sent = await self.send_half(message, queue, timeout_ms=timeout_ms)
        if sent.status is SendStatus.SEND_OK:
            outcome = local(message, sent.msg_id)
            state = await outcome if inspect.isawaitable(outcome) else outcome
        else:
            state = TransactionState.ROLLBACK  # The half message may be lost, so the local transaction must not run.
        return await self.end(sent, state)

    async def send_half(
        self, message: Message, queue: MessageQueue | None = None, *, timeout_ms: int = SEND_TIMEOUT_MS
    ) -> SendResult:
        """Send a half message, which no consumer gets until :meth:`end` commits it; the caller runs the local transaction.

        See :meth:`send_in_transaction`, which raises the same exceptions. If the send status is not SEND_OK, the caller must
        roll back the half message.
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
        return await self._sender.send(prepared, queue, await self._introduce(message.topic, timeout_ms))

    async def end(self, sent: SendResult, state: TransactionState) -> TransactionResult:
        """Commit or roll back a half message at its broker.

        If the broker does not get the request, the broker asks ``check`` later.

        Raises:
            TypeError: ``state`` is not a :class:`TransactionState`. The transaction stays undecided.
        """
        if not isinstance(state, TransactionState):
            raise TypeError(
                f"a local transaction must return a TransactionState, not {state!r}: the broker will check the transaction "
                "later"
            )
        if state is not TransactionState.UNKNOWN:
            await self._end(sent, state)
        return TransactionResult(sent, state)

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
        except Exception as failure:
            # If the result cannot be sent, for example because a hook raises an exception, the error is only logged.
            # The local transaction has already ended, so its result cannot change.
            log.warning(
                "client.transaction_end_unknown",
                "the result of transaction %(message)s was not sent to the broker, which will ask for it: %(error)s",
                message=sent.msg_id,
                error=told(failure),
            )
            return
        if self._tracer is not None:
            topic, traced = sent.queue.topic, _TRACED_STATES[state]
            self._tracer.ended(topic, sent.msg_id, header.transaction_id or "", address, traced, is_checked=False)

    async def _asked(self, command: RemotingCommand, address: str, message: MessageExt) -> None:
        """Answer a broker's transaction check (request code 39): call ``check`` and send its result to the broker."""
        asked = decode_header(CheckTransactionStateRequestHeader, command.ext_fields)
        try:
            state = await outcome_of(self._check, message)
            if not isinstance(state, TransactionState):
                raise TypeError(f"the check must return a TransactionState, not {state!r}")
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
    """Pass a transaction check to the producer of the group that a half message names.

    The check is passed on even if the body of the half message cannot be read.
    """
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
            "%(broker)s asks about a transaction of producer group %(group)s, but this client has no such producer",
            broker=address,
            group=group,
        )
