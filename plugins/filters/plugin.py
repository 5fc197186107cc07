"""Registers the filters by tags and by SQL92, their bit maps, and the service that keeps the groups' filters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.subscription import SQL92, build_subscription
from flintmq.core.errors import StoreError
from flintmq.core.kernel.hookspecs import (
    DispatcherContext,
    RegisterDispatcher,
    RegisterFilter,
    RegisterService,
    hookimpl,
)
from flintmq.core.kernel.ports import CommitLogDispatcher, MessageFilter
from flintmq.core.log_events import event_log
from flintmq.dispatchers.filter_bitmap import CalcBitMap
from flintmq.plugins.filters.consumer_filter_file import FilePart
from flintmq.plugins.filters.consumer_filters import PERSIST_INTERVAL_S, ConsumerFilterManager, load_filters

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

log = event_log("flintmq.broker")
FILTER_BITMAP: Final = "filter_bitmap"


class FiltersPlugin:
    """Registers filtering by tags and by SQL92 expressions over properties."""

    plugin_name = "filters"

    @hookimpl
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        register("TAG", lambda _context: tag_filter)
        register("SQL92", lambda _context: _sql92_filter)

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        register(FILTER_BITMAP, _filter_bitmap)

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("filters", lambda context: FilterService(context.api))


def _sql92_filter(expression: str, codes: frozenset[int]) -> MessageFilter:
    from flintmq.plugins.filters.sql92 import sql92_filter

    return sql92_filter(expression, codes)


def _filter_bitmap(context: DispatcherContext[object]) -> CommitLogDispatcher:
    return CalcBitMap(load_filters(context.folder.config, context.filters, context.clock, context.folder.disk))


class FilterService:
    """Keeps the table of the groups' filters. Used only on the event loop's thread.

    Args:
        api: the broker.

    Raises:
        StoreFormatError: the file of the table and its backup cannot be read.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        table = _table_of_bit_maps(api)
        if table is None:
            table = load_filters(api.settings.current, api.clients.filters, api.clock, api.folder.disk)
        self.table = table
        """Table of the consumer groups' filters. The broker computes the bit maps of messages with this table."""
        self._writing: asyncio.Task[None] | None = None
        self._seen: object = None
        """State at the last removal of unwanted filters, as a tuple: the value of ``pull.property_filter``, the version of the
        topic table, and the version of the group table."""
        table.is_wanted = self._is_wanted
        api.topics.deleted.subscribe(table.forget_topic)
        api.groups.deleted.subscribe(table.forget_group)
        api.clients.consumers.registered.subscribe(table.register)
        api.clients.consumers.unregistered.subscribe(table.unregister)

    def _is_wanted(self, topic: str, group: str, expression_type: str) -> bool:
        """Return whether a group's filter for a topic is kept. The topic and the group must exist. Filters by SQL92 are kept
        only if SQL92 is switched on."""
        api = self._api
        is_served = expression_type != SQL92 or api.settings.current.pull.property_filter
        return is_served and topic in api.topics and group in api.groups

    def start(self) -> None:
        """Begin to write the table of the groups' filters at intervals."""
        self._forget_unwanted()
        self._api.work.every(PERSIST_INTERVAL_S, self._write, "consumer filters")

    async def stop(self) -> None:
        """Wait until the current write of the table of filters ends. The broker writes the table again with :meth:`persist`."""
        if self._writing is not None:
            await self._writing

    def _write(self) -> None:
        """Write the table of the groups' filters in a thread if the table has changed."""
        if self._writing is not None and not self._writing.done():
            return
        self._forget_unwanted()
        parts = self.table.take_changes()
        if parts is not None:
            self._writing = asyncio.get_running_loop().create_task(self._write_in_thread(parts))

    async def _write_in_thread(self, parts: list[FilePart]) -> None:
        try:
            await self._api.work.background(self.table.file.write, parts)
        except StoreError as error:
            # A failed write is repeated later. If the filters are lost meanwhile, heartbeats of consumers restore them.
            log.error("filters.write_failed", "the consumer filters are not written: %(error)s", error=error)

    def _forget_unwanted(self) -> None:
        """Remove unwanted filters if topics, groups or the setting ``pull.property_filter`` changed.

        Events of deleted topics and groups are not sufficient. A slave replaces its whole tables of topics and groups by those
        of its master, and publishes no event for each deletion.
        """
        api = self._api
        seen = api.settings.current.pull.property_filter, api.topics.file.data_version, api.groups.file.data_version
        if seen != self._seen:
            self._seen = seen
            self.table.forget_unwanted()

    def persist(self) -> bool:
        """Write the table of the groups' filters if the table has changed. Raises ``StoreError``."""
        return self.table.persist()

    def backed(
        self, topic: str, group: str, expression_type: str, made: MessageFilter, expression: str
    ) -> MessageFilter:
        """Return the filter for a group's subscription. If the table of the groups' filters contains the same SQL92 expression
        for the group and topic, the returned filter checks a message's bit map before it calls ``made``. Otherwise, return
        ``made`` unchanged. See :class:`~flintmq.core.kernel.ports.filter.SupportsFilterBacking`."""
        return self.table.backed(topic, group, expression_type, made, expression)


def _table_of_bit_maps(api: BrokerApi) -> ConsumerFilterManager | None:
    """Return the table of filters that the dispatcher of bit maps has read; None if the broker has no such dispatcher."""
    try:
        filters = api.part(CalcBitMap).filters
    except LookupError:
        return None
    return filters if isinstance(filters, ConsumerFilterManager) else None


class TagFilter:
    """Accepts messages whose tags code is in a set. An empty set accepts all messages.

    The filter cannot distinguish tags with the same hash. The client compares the tags themselves. Read-only, any thread.
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
    """Return a filter for tags codes, or for an expression of tags if no codes are given (see ``MessageFilterFactory``).

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED.
    """
    return TagFilter(codes or build_subscription("", expression).code_set)
