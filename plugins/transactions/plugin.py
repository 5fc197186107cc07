"""The plugin ``transactions``: registers the service and the request processors of transactions.

The plugin also registers an intake step, which is called before a message is stored. The step moves a message that begins a
transaction to the half topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.readers import OPEN_TRANSACTIONS
from flintmq.core.broker.redirected_message import check_deliverable, drop, has_real_topic
from flintmq.core.broker.role import MASTER_ID, Role
from flintmq.core.broker.sink import acknowledge
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Scheduled
from flintmq.core.kernel.hookspecs import (
    RegisterIntakeStep,
    RegisterProcessor,
    RegisterService,
    RegisterSystemTopic,
    hookimpl,
)
from flintmq.core.kernel.ports import Measurement, Sent, SystemTopic
from flintmq.core.kernel.ports.access import ADMIN, Permission
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.core.log_events import client_log
from flintmq.core.record import properties as props
from flintmq.core.record.host import decode_message_id
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions.half_message import (
    HALF_PROPERTIES_SPARE_BYTES,
    TRANSACTION_GROUP,
    asks_for_transaction,
    redirect_to_half,
)
from flintmq.plugins.transactions.store import TransactionStore
from flintmq.plugins.transactions.transactional_messages import TransactionalMessageService
from flintmq.remoting.processors import needs
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import ResumeCheckHalfMessageRequestHeader
from flintmq.remoting.wire.headers_message import EndTransactionRequestHeader

_NAMES: Final = frozenset({props.TRANSACTION_PREPARED})
_FIRST_S = 0.05
log = client_log("flintmq.broker")


class TransactionsPlugin:
    """The plugin for messages that are delivered only after their producer has committed."""

    plugin_name = "transactions"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(SystemTopic(TRANS_HALF_TOPIC, holds_messages=True))
        register(SystemTopic(TRANS_OP_HALF_TOPIC))
        register(SystemTopic(TRANS_CHECK_MAX_TIME_TOPIC))

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("transactions", lambda context: TransactionsService(context.api))

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("transactions", lambda context: TransactionStep(context.api))

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register(
            "end_transaction",
            declared_by(EndTransactionProcessor),
            lambda context: EndTransactionProcessor(context.api, context.api.part(TransactionsService).transactions),
        )
        register(
            "resume_check",
            declared_by(ResumeCheckProcessor),
            lambda context: ResumeCheckProcessor(context.api, context.api.part(TransactionsService).transactions),
        )


class TransactionStep:
    """Moves a message that begins a transaction to the half topic, before the message is stored. Used only on the event loop's
    thread.

    The class is an intake step (:class:`flintmq.core.kernel.ports.IntakeStep`) for messages with the property ``TRAN_MSG``.

    Args:
        api: the broker, for its settings and tables.
    """

    topic_prefixes: tuple[str, ...] = ()

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.property_names = _NAMES

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Move a message that begins a transaction to the half topic, and return whether the message was moved.

        If the message has a delay, the delay begins when the transaction is committed.

        Raises:
            RefusedError: the broker accepts no transactions, or the message could never be delivered. These conditions are
                checked before the commit, because a producer that ends a transaction does not wait for an answer.
        """
        if sent is None or not asks_for_transaction(message.properties, message.reconsume_times):
            return False
        api = self._api
        if api.settings.current.transactions.reject:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{api.address.host_port}] sending transaction message is forbidden",
                reason="transaction.rejected",
                key="transactions.reject (rejectTransactionMessage)",
            )
        api.intake.steps.check_ahead(message.properties)
        real_topic, file_bytes = message.topic, api.settings.current.store.commit_log_file_bytes
        redirect_to_half(message)
        check_deliverable(message, real_topic, file_bytes, spare_bytes=HALF_PROPERTIES_SPARE_BYTES)
        api.topics.create_in_send_back(message.topic, 1)
        return True


class TransactionsService:
    """The service ``transactions`` (:class:`flintmq.core.kernel.ports.Service`). Used only on the event loop's thread.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.transactions = TransactionalMessageService(
            TransactionStore(api),
            api.clients.producers,
            self._place,
            lambda: api.settings.current,
            api.clock,
            partial(has_real_topic, api),
            partial(drop, api.figures.counts),
        )
        api.topics.deleted.subscribe(self.transactions.forget_topic)

    def _place(self, message: MessageExtBrokerInner) -> None:
        """Set the queue of a committed message: either a queue that its topic has now, or a queue in which the message waits
        until it is due."""
        message.queue_id = self._api.topics.queue_inside(message.topic, message.queue_id)
        self._api.intake.steps.take(message)

    def start(self) -> None:
        """Begin to end transactions and to ask producers about them, whenever this broker is the master of its broker set.
        Raises ``RefusedError``."""
        api = self._api
        api.offsets.readers.add(TRANS_HALF_TOPIC, self._position, name=OPEN_TRANSACTIONS, is_done=self._is_done)
        api.role.run_while(lambda: ends_transactions(api.role), self._begin)

    def _begin(self) -> Callable[[], None]:
        """Read the open transactions from the queues, and begin to ask producers. Raises ``RefusedError``.

        Returns:
            A function that stops asking producers.
        """
        self.transactions.load()
        timer = self._api.work.pace(_FIRST_S, self._check, "transaction checks", self.transactions.rest_s)
        return partial(self._end, timer)

    def _end(self, timer: Scheduled) -> None:
        timer.cancel()
        self.transactions.save()

    def _position(self, queue_id: int) -> int:
        """Return the queue offset of the first half message that may be open. A slave takes it from its master's consumer
        offsets."""
        if ends_transactions(self._api.role):
            return self.transactions.table.position
        return max(0, self._api.offsets.query(TRANS_HALF_TOPIC, TRANSACTION_GROUP, queue_id))

    def _is_done(self, half_queue_offset: int) -> bool:
        return ends_transactions(self._api.role) and self.transactions.table.is_done(half_queue_offset)

    def stop(self) -> None:
        """Do nothing, because no work is left. The broker has already ended the periodic transaction checks, and
        :meth:`persist` saves the positions in the half and op queues."""

    def _check(self) -> float:
        wait_s = self.transactions.run()
        self._api.log.dispatch()
        return wait_s

    def metrics(self) -> Iterator[Measurement]:
        """Return the numbers of committed and of rolled back transactions, each by topic, and the number of half messages of
        all topics that are not done.

        A half message is done if its transaction has ended, if a later copy replaced it, or if the broker gave it up because
        its producer never answered.
        """
        for (topic, is_commit), count in self.transactions.ended.items():
            name = f"rocketmq_{'commit' if is_commit else 'rollback'}_messages_total"
            yield Measurement(name, count, {"topic": topic}, "counter")
        end = self._api.log.reader.max_queue_offset(TRANS_HALF_TOPIC, 0)
        if ends_transactions(self._api.role):
            open_messages = self.transactions.table.open_before(end)
        else:
            open_messages = max(0, end - self._position(0))
        yield Measurement("flintmq_half_messages", open_messages)

    def persist(self) -> None:
        """Save the positions in the half and op queues, if this broker is the master of its broker set."""
        if ends_transactions(self._api.role):
            self.transactions.save()


def ends_transactions(role: Role) -> bool:
    """Return whether a broker ends transactions and asks producers about them. Only the master of a broker set does so."""
    return role.takes_writes and role.broker_id == MASTER_ID


class EndTransactionProcessor(DeclaredProcessor):
    """Ends transactions. Used only on the event loop's thread.

    Clients usually send END_TRANSACTION one-way. A refusal is logged, and answered only if the client waits for an answer.
    """

    def __init__(self, api: BrokerApi, transactions: TransactionalMessageService) -> None:
        self._api = api
        self._transactions = transactions

    @handles(
        RequestCode.END_TRANSACTION,
        header=EndTransactionRequestHeader,
        pool="end_transaction",
        needs=needs.record(EndTransactionRequestHeader, Permission.PUB),
    )
    async def end(self, request: Request) -> Response:
        """Commit or roll back a transaction. The answer is sent after the result is as durable as a sent message."""
        header = request.header(EndTransactionRequestHeader)
        if not ends_transactions(self._api.role):
            raise RefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "Transaction message is not supported by slave, please commit at master",
                reason="store.slave",
                key="broker.role (brokerRole)",
            )
        try:
            is_kept = self._transactions.end(header)
        except RefusedError as error:
            log.warning(
                "transaction.not_ended",
                "a transaction of %(client)s is not ended: %(error)s",
                client=request.channel.remote_address,
                error=error.remark,
            )
            raise
        await _acknowledge(self._api)
        if not is_kept:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                "the transaction has ended, but its message is dropped, because the topic was deleted",
                reason="topic.missing",
            )
        return Response()


class ResumeCheckProcessor(DeclaredProcessor):
    """Answers administrators who reset the number of checks of a half message. Used only on the event loop's thread."""

    def __init__(self, api: BrokerApi, transactions: TransactionalMessageService) -> None:
        self._api = api
        self._transactions = transactions

    @handles(
        RequestCode.RESUME_CHECK_HALF_MESSAGE, header=ResumeCheckHalfMessageRequestHeader, needs=ADMIN, audited=True
    )
    async def resume(self, request: Request) -> Response:
        """Reset the number of times that a half message was checked."""
        message_id = request.header(ResumeCheckHalfMessageRequestHeader).msg_id or ""
        try:
            place = decode_message_id(message_id)
        except ValueError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error), reason="message_id.malformed") from error
        self._transactions.resume(place.commit_log_offset_bytes)
        await _acknowledge(self._api)
        return Response()


async def _acknowledge(api: BrokerApi) -> None:
    waiter = api.log.promise()
    api.log.dispatch()
    await acknowledge(waiter, strict=api.settings.current.store.compat == "strict", faults=api.figures.counts.faults)
