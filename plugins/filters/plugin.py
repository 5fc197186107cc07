"""Registers the filters of subscriptions by tags and by SQL92, their bit maps, and the service that keeps groups' filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.subscription import build_subscription
from flintmq.core.kernel.hookspecs import (
    DispatcherContext,
    RegisterDispatcher,
    RegisterFilter,
    RegisterService,
    hookimpl,
)
from flintmq.core.kernel.ports import CommitLogDispatcher, MessageFilter
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.consumer_filters import PERSIST_INTERVAL_S, ConsumerFilterManager, load_filters

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

FILTER_BITMAP: Final = "filter_bitmap"


class FiltersPlugin:
    """Registers filtering by tags and by SQL92 expressions over properties."""

    plugin_name = "filters"

    @hookimpl
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        register("TAG", tag_filter)
        register("SQL92", _sql92_filter)

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        register(FILTER_BITMAP, _filter_bitmap)

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("filters", FilterService)


def _sql92_filter(expression: str, codes: frozenset[int]) -> MessageFilter:
    from flintmq.plugins.filters.sql92 import sql92_filter

    return sql92_filter(expression, codes)


def _filter_bitmap(context: DispatcherContext[object]) -> CommitLogDispatcher:
    return CalcBitMap(load_filters(context.folder.config, context.filters, context.clock, context.folder.disk))


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


class TagFilter:
    """Lets entries pass whose tags code is one of a set; an empty set lets everything pass.

    Two tags of the same hash cannot be distinguished here: the client looks at the tag itself. Read-only, any thread.
    """

    __slots__ = ("_codes", "_everything")

    needs_properties = False

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes
        self._everything = not codes

    def matches_tags_code(self, tags_code: int) -> bool:
        return self._everything or tags_code in self._codes

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return True


def tag_filter(expression: str, codes: frozenset[int]) -> TagFilter:
    """Make a filter of codes, or of an expression when there are none (see ``MessageFilterFactory``).

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED.
    """
    return TagFilter(codes or build_subscription("", expression).code_set)
