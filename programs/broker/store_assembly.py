"""Assembles the store of a broker from plugins' parts: flush strategy, pool, consume queues, index and dispatchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs

from flintmq.core.errors import PluginError, StoreError
from flintmq.core.kernel.hookspecs import DispatcherContext, FolderContext, PoolContext
from flintmq.core.kernel.plugin_shapes import CONSUME_QUEUES, INDEX_BUILDER
from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    ConsumeQueues,
    FlushStrategy,
    IndexBuilder,
    MessageFilterFactory,
    StoreFolder,
    TransientStorePool,
    tags_codes_of,
)
from flintmq.core.kernel.registries import INDEX, Registries
from flintmq.core.log_events import event_log
from flintmq.core.store.message_store import MessageStore, open_store
from flintmq.core.store.opened_store import OpenedStore, StoreSpec
from flintmq.plugins.builtin import CONSUME_QUEUE
from flintmq.programs.broker.filter_factories import filter_factory
from flintmq.programs.broker.isolated_dispatcher import IsolatedDispatcher

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.broker.role import Role
    from flintmq.core.io.clock import Clock
    from flintmq.core.io.disk import Disk
    from flintmq.core.kernel.kernel import Kernel
    from flintmq.core.kernel.registry import Registered
    from flintmq.programs.broker.loading import PluginSettings

C = TypeVar("C")

log = event_log("flintmq.broker")

FILTER_BITMAP: Final = "filter_bitmap"
"""Name of the dispatcher that the setting ``pull.calc_filter_bitmap`` puts before all other dispatchers."""


class StoreAssembly:
    """Assembles the store of one broker. For the loop thread only.

    Args:
        config: the settings of the broker.
        kernel: the registry of plugins, with the objects that they registered.
        settings: the plugins' sections of the configuration.
        disk: the disk that the store reads, writes and syncs.
        clock: the clock.
        role: says whether the store accepts messages.

    Raises:
        ConfigError, PluginError: a plugin is at fault, or a name is not registered.
    """

    def __init__(
        self, config: BrokerConfig, kernel: Kernel, settings: PluginSettings, disk: Disk, clock: Clock, role: Role
    ) -> None:
        self._config = config
        self._kernel = kernel
        self.filters: Mapping[str, MessageFilterFactory] = {
            kind: filter_factory(kernel, kind) for kind in kernel.registries.filters.names()
        }
        """The factories of message filters, keyed by expression type."""
        self._named = self._named_dispatchers()
        registered = kernel.registries.flush_strategies.pick(config.flush.strategy)
        strategy = attrs.evolve(registered.value, factory=partial(kernel.make, registered, registered.value.factory))
        of_strategy = settings.of_strategy(registered)
        self.waits_for_flushes = strategy.synchronous or strategy.uses_pool
        """Whether appended messages become readable only after a flush or a commit."""
        self._spec = StoreSpec(
            config=config,
            strategy=strategy,
            tags_codes=tags_codes_of(kernel.registries.features_topics()),
            settings=of_strategy,
            pool=self._pool(strategy, of_strategy),
            disk=disk,
            clock=clock,
            make_queues=self._make_queues,
            make_index=self._make_index,
            takes_writes=lambda: role.takes_writes,
            indexes=any(entry.shape is INDEX_BUILDER for entry in self._named),
        )

    def open(self) -> MessageStore:
        """Open the broker's store and return it. Raises StoreError, and PluginError for a dispatcher that cannot be created."""
        return open_store(self._spec, self._dispatchers)

    def _dispatchers(self, opened: OpenedStore) -> list[CommitLogDispatcher]:
        """Return the enabled dispatchers of the store, in order. The failures of each dispatcher are counted for its plugin."""
        try:
            opened.begin_tags_codes()
        except StoreError as error:
            # A plugin may define how the store computes a message's tags code, which is stored in the consume queue.
            # At each start, the store records the log position from which the plugin's tags codes are used.
            # If a start cannot record the log position, the position that an earlier start recorded remains valid.
            log.error("tags_codes.not_written", "the newest notes on tags codes are lost: %(error)s", error=error)
        dispatchers: list[CommitLogDispatcher] = []
        for entry in self._named:
            made: CommitLogDispatcher
            name, part = entry.name, self._kernel.part(entry)
            # The index is not created again, because recovery has already created it.
            if entry.shape is INDEX_BUILDER:
                made, name = opened.index, INDEX
            elif entry.name == CONSUME_QUEUE:
                made = opened.consume_queues
            else:
                context = self._context(entry, DispatcherContext, opened.folder, store=opened)
                made = self._kernel.make(entry, entry.value, context)
            essential = entry.essential or name == CONSUME_QUEUE
            dispatchers.append(IsolatedDispatcher(made, part, essential=essential, name=name))
        return dispatchers

    def _pool(self, strategy: FlushStrategy[Any], settings: object) -> TransientStorePool | None:
        if not strategy.uses_pool:
            return None
        config = self._config
        buffers = getattr(settings, "pool_size", config.flush.commit_real_time.pool_size)
        registered = self._kernel.registries.pools.pick(config.flush.pool)
        context = self._kernel.context(
            registered, PoolContext, buffers=buffers, size_bytes=config.store.commit_log_file_bytes
        )
        return self._kernel.make(registered, registered.value, context)

    def _named_dispatchers(self) -> tuple[Registered[Any], ...]:
        """Return the dispatchers that the configuration names and that are switched on, in the configuration's order."""
        config = self._config
        check_dispatchers(self._kernel.registries, config.dispatchers)
        off = {
            name
            for name, on in ((INDEX, config.index.enable), (FILTER_BITMAP, config.pull.calc_filter_bitmap))
            if not on
        }
        plain = [name.rpartition("/")[2] for name in config.dispatchers]
        names = [full for full, name in zip(config.dispatchers, plain, strict=True) if name not in off]
        if FILTER_BITMAP not in (*off, *plain):
            names.insert(0, FILTER_BITMAP)
        registries = self._kernel.registries
        return tuple(
            registries.index_builders.pick(config.index.builder) if name == INDEX else registries.dispatchers.pick(name)
            for name in names
        )

    def _make_queues(self, folder: StoreFolder) -> ConsumeQueues:
        """Create the consume queues with the factory of the configured dispatcher ``consume_queue``."""
        (entry,) = [one for one in self._named if one.name == CONSUME_QUEUE and one.shape is not INDEX_BUILDER]
        # The consume queues' factory gets a FolderContext (the store's folder), because the store is not open yet.
        # Factories of other dispatchers run later, and get a DispatcherContext, which has the open store.
        make = cast("Callable[[FolderContext[Any]], CommitLogDispatcher]", entry.value)
        made = self._kernel.make(entry, make, self._context(entry, FolderContext, folder))
        CONSUME_QUEUES.check_made(entry.owner, entry.name, made)
        return cast("ConsumeQueues", made)

    def _make_index(self, folder: StoreFolder) -> IndexBuilder:
        entry = self._kernel.registries.index_builders.pick(self._config.index.builder)
        return self._kernel.make(entry, entry.value, self._context(entry, FolderContext, folder))

    def _context(self, entry: Registered[Any], kind: Callable[..., C], folder: StoreFolder, **given: object) -> C:
        return self._kernel.context(entry, kind, folder=folder, filters=self.filters, **given)


def check_dispatchers(registries: Registries, names: Iterable[str]) -> None:
    """Check that a list of dispatchers contains the essential dispatchers, which may be replaced but not left out. Raises
    ``PluginError``."""
    plain = {name.rpartition("/")[2] for name in names}
    for essential in registries.dispatchers.essential_names():
        if essential not in plain:
            raise PluginError(
                f"'dispatchers' lacks '{essential}', without which stored messages cannot be found: add it"
            )
