"""Runs the transactions of a broker: ends them, and asks producers about those that were not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.plugins.transactions.store import TransactionStoreAdapter
from flintmq.plugins.transactions.transactional_messages import TransactionalMessageService

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_FIRST_S = 0.05


class TransactionsService:
    """The service ``transactions`` (:class:`flintmq.core.kernel.ports.Service`). Loop thread.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.transactions = TransactionalMessageService(
            TransactionStoreAdapter(api),
            api.producers,
            lambda message: api.intake_steps.take(message),
            lambda: api.config,
            api.clock,
        )

    def start(self) -> None:
        """Read from the queues what is open, and begin to ask producers; a slave asks none. Raises ``RefusedError``."""
        self.transactions.load()
        if self._api.config.broker.id == 0:
            self._api.timers.pace(_FIRST_S, self._check, "transaction checks")

    def stop(self) -> None:
        """Do nothing: the timers have ended, and the positions are kept by :meth:`persist`."""

    def _check(self) -> float:
        wait_s = self.transactions.run()
        self._api.dispatch()
        return wait_s

    def persist(self) -> None:
        """Keep how far the half and the op queue are done with, on a master."""
        if not self._api.config.broker.is_slave:
            self.transactions.save()
