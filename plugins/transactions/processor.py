"""END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323) (docs/internals/algorithms.md, Transactions)."""

from __future__ import annotations

from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.durability import acknowledge
from flintmq.core.client_log import client_log
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import ADMIN, Permission
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.record.message_id import decode_message_id
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions.transactional_messages import EndTransaction, TransactionalMessageService
from flintmq.remoting.processors import needs
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import ResumeCheckHalfMessageRequestHeader
from flintmq.remoting.wire.headers_message import EndTransactionRequestHeader

log = client_log("flintmq.broker")


class EndTransactionProcessor(DeclaredProcessor):
    """Ends transactions. Loop thread. The request is one-way: a refusal is logged, and answered only where the client
    waits for it."""

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
        """Commit or roll back a transaction; answer when that is as durable as a send."""
        header = request.header(EndTransactionRequestHeader)
        if self._api.config.broker.id != 0 or self._api.config.broker.is_slave:
            raise RefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "Transaction message is not supported by slave, please commit at master",
                reason="store.slave",
                key="broker.role (brokerRole)",
            )
        decided = EndTransaction(
            producer_group=header.producer_group,
            half_queue_offset=header.tran_state_table_offset,
            commit_log_offset_bytes=header.commit_log_offset_bytes,
            decision=header.commit_or_rollback,
            msg_id=header.msg_id,
            transaction_id=header.transaction_id or "",
            from_check=header.from_transaction_check,
        )
        try:
            self._transactions.end(decided)
        except RefusedError as error:
            log.warning("a transaction of %s is not ended: %s", request.channel.remote_address, error.remark)
            raise
        await _acknowledge(self._api)
        return Response()


class ResumeCheckProcessor(DeclaredProcessor):
    """Lets administrators have a half message checked from the start again. Loop thread."""

    def __init__(self, api: BrokerApi, transactions: TransactionalMessageService) -> None:
        self._api = api
        self._transactions = transactions

    @handles(
        RequestCode.RESUME_CHECK_HALF_MESSAGE, header=ResumeCheckHalfMessageRequestHeader, needs=ADMIN, audited=True
    )
    async def resume(self, request: Request) -> Response:
        """Check a half message from the start again."""
        message_id = request.header(ResumeCheckHalfMessageRequestHeader).msg_id or ""
        try:
            place = decode_message_id(message_id)
        except ValueError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error), reason="message_id.malformed") from error
        self._transactions.resume(place.commit_log_offset_bytes)
        await _acknowledge(self._api)
        return Response()


async def _acknowledge(api: BrokerApi) -> None:
    waiter = api.store.writer.promise()
    api.dispatch()
    await acknowledge(waiter, strict=api.config.store.compat == "strict")
