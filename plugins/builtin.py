"""The built-in plugins of brokers and name servers, registered through the same hooks as plugins of third parties."""

from __future__ import annotations

from typing import Final

from flintmq.config.sections.models import CommitRealTimeSection, FlushRealTimeSection, GroupCommitSection
from flintmq.core.kernel.hookspecs import (
    FolderContext,
    PoolContext,
    RegisterDispatcher,
    RegisterFlushStrategy,
    RegisterIndexBuilder,
    RegisterPool,
    hookimpl,
)
from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    FlushCommitLogService,
    FlushContext,
    FlushStrategy,
    IndexBuilder,
    TransientStorePool,
)
from flintmq.dispatchers.consume_queue.consume_queue_table import make_consume_queues
from flintmq.dispatchers.index.index_service import make_index
from flintmq.plugins.acl.plugin import AclPlugin
from flintmq.plugins.alarms.plugin import AlarmsPlugin
from flintmq.plugins.console.plugin import ConsolePlugin
from flintmq.plugins.delay.plugin import DelayPlugin
from flintmq.plugins.filters.plugin import FiltersPlugin
from flintmq.plugins.metrics.plugin import MetricsPlugin
from flintmq.plugins.registration.registration import RegistrationPlugin
from flintmq.plugins.replication.plugin import ReplicationPlugin
from flintmq.plugins.retention.plugin import RetentionPlugin
from flintmq.plugins.retry.plugin import RetryPlugin
from flintmq.plugins.spark_feed.plugin import SparkFeedPlugin
from flintmq.plugins.timer.plugin import TimerPlugin
from flintmq.plugins.tracing.plugin import TracingPlugin
from flintmq.plugins.transactions.plugin import TransactionsPlugin
from flintmq.programs.broker.upkeep import UpkeepPlugin

CONSUME_QUEUE: Final = "consume_queue"


class FlushPlugin:
    """Registers RocketMQ's three flush strategies, and the transient store pool. Only what the configuration uses is
    imported."""

    plugin_name = "flush"

    @hookimpl
    def flintmq_flush_services(self, register: RegisterFlushStrategy) -> None:
        register(FlushStrategy("group_commit", _group_commit, GroupCommitSection, synchronous=True))
        register(FlushStrategy("flush_real_time", _flush_real_time, FlushRealTimeSection))
        register(FlushStrategy("commit_real_time", _commit_real_time, CommitRealTimeSection, uses_pool=True))

    @hookimpl
    def flintmq_transient_store_pools(self, register: RegisterPool) -> None:
        register("default", _buffer_pool)


class DispatchersPlugin:
    """Registers the dispatchers of consume queues and of the index."""

    plugin_name = "dispatchers"

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        register(CONSUME_QUEUE, _consume_queue, essential=True)

    @hookimpl
    def flintmq_index_builders(self, register: RegisterIndexBuilder) -> None:
        register("index", _index)


def _group_commit(context: FlushContext[GroupCommitSection]) -> FlushCommitLogService:
    from flintmq.flush.group_commit import GroupCommit

    return GroupCommit(context)


def _flush_real_time(context: FlushContext[FlushRealTimeSection]) -> FlushCommitLogService:
    from flintmq.flush.real_time import FlushRealTime

    return FlushRealTime(context)


def _commit_real_time(context: FlushContext[CommitRealTimeSection]) -> FlushCommitLogService:
    from flintmq.flush.real_time import CommitRealTime

    return CommitRealTime(context)


def _buffer_pool(context: PoolContext[object]) -> TransientStorePool:
    from flintmq.flush.transient_store_pool import AnonymousBufferPool

    return AnonymousBufferPool(context.buffers, context.size_bytes)


def _consume_queue(context: FolderContext[object]) -> CommitLogDispatcher:
    return make_consume_queues(context.folder)


def _index(context: FolderContext[object]) -> IndexBuilder:
    return make_index(context.folder)


BUILTIN_PLUGINS: tuple[object, ...] = (
    UpkeepPlugin(),
    FlushPlugin(),
    DispatchersPlugin(),
    FiltersPlugin(),
    SparkFeedPlugin(),
    RetryPlugin(),
    TransactionsPlugin(),
    DelayPlugin(),
    TimerPlugin(),
    AclPlugin(),
    RegistrationPlugin(),
    ReplicationPlugin(),
    RetentionPlugin(),
    AlarmsPlugin(),
    TracingPlugin(),
    MetricsPlugin(),
    ConsolePlugin(),
)
"""The built-in plugins of a broker, for ``Kernel.assemble(builtins=...)``."""

_SHARED: Final = tuple(plugin for plugin in BUILTIN_PLUGINS if getattr(plugin, "serves_name_servers", False))

BROKER_ONLY: Final = frozenset(
    getattr(plugin, "plugin_name", "") for plugin in BUILTIN_PLUGINS if plugin not in _SHARED
)
"""Names of built-in plugins that brokers have and name servers lack. A name server accepts these names in ``disabled_plugins``,
too."""


def name_server_plugins() -> tuple[object, ...]:
    """Return the built-in plugins of a name server. A process that runs only a broker does not import them."""
    from flintmq.programs.name_server.processors import NamesrvProcessorsPlugin

    return (NamesrvProcessorsPlugin(), *_SHARED)
