"""Turns a message that begins a transaction into a half message, which waits for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.core.broker.deliverable import check_deliverable
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import Sent
from flintmq.core.record import properties as props
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions.half_message import (
    HALF_PROPERTIES_SPARE_BYTES,
    asks_for_transaction,
    redirect_to_half,
)

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_NAMES: Final = frozenset({props.TRANSACTION_PREPARED})


class TransactionStep:
    """Redirects messages with the property ``TRAN_MSG`` (:class:`flintmq.core.kernel.ports.IntakeStep`). Loop thread.

    Args:
        api: the settings and tables of the broker.
    """

    topic_prefixes: tuple[str, ...] = ()

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.property_names = _NAMES

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message that a client sends to begin a transaction; a delay that it asks for counts from its commit.

        Raises:
            RefusedError: the broker takes no transactions; or the message could never be delivered. That is refused now: the
                producer that ends the transaction waits for no answer.
        """
        if sent is None or not asks_for_transaction(message.properties, message.reconsume_times):
            return False
        api = self._api
        if api.config.transactions.reject:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{api.address.host_port}] sending transaction message is forbidden",
                reason="transaction.rejected",
                key="transactions.reject (rejectTransactionMessage)",
            )
        api.intake_steps.check_ahead(message.properties)
        real_topic, file_bytes = message.topic, api.config.store.commit_log_file_bytes
        redirect_to_half(message)
        check_deliverable(message, real_topic, file_bytes, spare_bytes=HALF_PROPERTIES_SPARE_BYTES)
        api.topics.create_in_send_back(message.topic, 1)
        return True
