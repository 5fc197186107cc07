"""Registers the filters of subscriptions by tags and by SQL92."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterFilter, hookimpl
from flintmq.core.kernel.ports import MessageFilter


class FiltersPlugin:
    """Registers filtering by tags and by SQL92 expressions over properties."""

    plugin_name = "filters"

    @hookimpl
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        register("TAG", _tag_filter)
        register("SQL92", _sql92_filter)


def _tag_filter(expression: str, codes: frozenset[int]) -> MessageFilter:
    from flintmq.plugins.filters.tags import tag_filter

    return tag_filter(expression, codes)


def _sql92_filter(expression: str, codes: frozenset[int]) -> MessageFilter:
    from flintmq.plugins.filters.sql92 import sql92_filter

    return sql92_filter(expression, codes)
