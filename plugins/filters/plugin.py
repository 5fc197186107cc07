"""Registers the filters of subscriptions by tags and by SQL92, their bit maps, and the service that keeps groups' filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.core.kernel.hookspecs import (
    DispatcherContext,
    RegisterDispatcher,
    RegisterFilter,
    RegisterService,
    hookimpl,
)
from flintmq.core.kernel.ports import CommitLogDispatcher, MessageFilter

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.filters.service import FilterService

FILTER_BITMAP: Final = "filter_bitmap"


class FiltersPlugin:
    """Registers filtering by tags and by SQL92 expressions over properties."""

    plugin_name = "filters"

    @hookimpl
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        register("TAG", _tag_filter)
        register("SQL92", _sql92_filter)

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        register(FILTER_BITMAP, _filter_bitmap)

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("filters", _service)


def _tag_filter(expression: str, codes: frozenset[int]) -> MessageFilter:
    from flintmq.plugins.filters.tags import tag_filter

    return tag_filter(expression, codes)


def _sql92_filter(expression: str, codes: frozenset[int]) -> MessageFilter:
    from flintmq.plugins.filters.sql92 import sql92_filter

    return sql92_filter(expression, codes)


def _filter_bitmap(context: DispatcherContext[object]) -> CommitLogDispatcher:
    from flintmq.dispatchers.filter_bitmap import CalcBitMap
    from flintmq.plugins.filters.consumer_filters import load_filters

    return CalcBitMap(load_filters(context.folder.config, context.filters, context.clock, context.folder.disk))


def _service(api: BrokerApi) -> FilterService:
    from flintmq.plugins.filters.service import FilterService

    return FilterService(api)
