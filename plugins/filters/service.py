"""The service that keeps the filters of groups: from heartbeats, in ``consumerFilter.json``, and for pulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.consumer_filters import PERSIST_INTERVAL_S, ConsumerFilterManager, load_filters

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import MessageFilter


class FilterService:
    """Keeps the table of the groups' filters. Loop thread.

    Args:
        api: the broker.

    Raises:
        StoreFormatError: the file of the table and its backup cannot be read.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        table = _table_of_bit_maps(api)
        if table is None:
            table = load_filters(api.config, api.filters, api.clock, api.store.disk)
        self.table = table
        """The filters by topic and group; those that bit maps are computed with."""
        api.consumers.registered.subscribe(self.table.register)
        api.consumers.unregistered.subscribe(self.table.unregister)

    def start(self) -> None:
        """Write the table at intervals from now on."""
        self._api.timers.every(PERSIST_INTERVAL_S, self.table.persist, "consumer filters")

    def stop(self) -> None:
        """Do nothing: the table is written when the log is on disk."""

    def persist(self) -> bool:
        """Write the table if it has changed. Raises ``StoreError``."""
        return self.table.persist()

    def backed(
        self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str
    ) -> MessageFilter:
        """See :class:`~flintmq.core.kernel.ports.filter.SupportsFilterBacking`."""
        return self.table.backed(topic, group, expression_type, made, expression)


def _table_of_bit_maps(api: BrokerApi) -> ConsumerFilterManager | None:
    """Return the table of the dispatcher that computes bit maps, which read it before the store began to dispatch."""
    for dispatcher in api.store.reput.dispatchers:
        inner = getattr(dispatcher, "inner", dispatcher)
        if isinstance(inner, CalcBitMap) and isinstance(inner.filters, ConsumerFilterManager):
            return inner.filters
    return None
