"""The Spark feed as a plugin: the dispatcher ``spark_feed`` (see :mod:`flintmq.dispatchers.spark_feed.spark_feed`).

``dispatchers: [consume_queue, index, spark_feed]`` publishes the positions up to which other programs may read the log. With
``spark_feed.landing.path``, messages are also copied to files. A broker without the dispatcher removes the feed of an earlier
run, because that feed would no longer be updated.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.config.errors import ConfigError
from flintmq.core.errors import StoreError
from flintmq.core.io.paths import feed_path
from flintmq.core.kernel.hookspecs import DispatcherContext, RegisterDispatcher, hookimpl
from flintmq.core.kernel.ports import CommitLogDispatcher
from flintmq.core.log_events import event_log
from flintmq.core.store.opened_store import commit_log_folders

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.broker.feature_folder import FeatureFolder
    from flintmq.core.broker.log_view import LogView
    from flintmq.dispatchers.spark_feed.spark_feed import SparkFeed
    from flintmq.plugins.spark.landing.feeder import LandingFeeder

log = event_log("flintmq.broker")

NAME: Final = "spark_feed"
_NEEDED: Final = {"parquet": ("spark", "numpy", "pyarrow"), "delta": ("delta", "numpy", "pyarrow", "deltalake")}
"""Python packages that a landing zone needs, keyed by the file format of the landing zone. The first element of each value is
the extra of FlintMQ that installs these packages. The other elements are the packages."""


class SparkFeedPlugin:
    """Registers the dispatcher ``spark_feed``, and updates the Spark feed while the broker runs."""

    plugin_name = NAME

    @hookimpl
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        register(NAME, make_dispatcher)

    @hookimpl
    def flintmq_broker_starting(self, api: BrokerApi) -> None:
        log = api.log
        named = any(name.rpartition("/")[2] == NAME for name in api.settings.current.dispatchers)
        feed = find_feed(api) if named else None
        if feed is None:
            _remove_old(api.folder)
            return
        from flintmq.dispatchers.spark_feed.spark_feed import HEARTBEAT_S, FeedPublisher

        publisher = feed.publisher
        assert isinstance(publisher, FeedPublisher)
        is_synchronous = log.marks.synchronous
        publisher.open(api.work.loop.call_later, None if is_synchronous else log.flush_soon)
        if not is_synchronous:
            # A synchronous flush strategy flushes messages before they are dispatched, and each dispatch publishes the feed.
            # With an asynchronous flush strategy, a flush can follow the dispatch, so each flush publishes the feed, too.
            log.progressed.subscribe(publisher.publish)
        api.work.every(HEARTBEAT_S, publisher.publish, "feed")
        _write_topics(api)
        landing = feed.landing
        if landing is not None:
            landing.start()
        api.figures.add(lambda: figures(feed, log))


def _write_topics(api: BrokerApi) -> None:
    """Write the table of topics, from which readers of the store's files get the broker's name. If the table cannot be written,
    the next change of a topic writes it.
    """
    try:
        api.topics.file.persist()
    except StoreError as error:
        log.warning(
            "spark.name_not_written",
            "readers of the store's files do not know this broker's name yet: %(error)s",
            error=error,
        )


def _remove_old(folder: FeatureFolder) -> None:
    try:
        if not folder.disk.exists(feed_path(folder.path)):
            return
        from flintmq.dispatchers.spark_feed.spark_feed import remove_feed

        remove_feed(folder.disk, folder.path)
    except (OSError, StoreError) as error:
        # The broker starts even if the old feed file cannot be removed, but readers must not trust the file's positions.
        log.error(
            "feed.not_removed",
            "the feed of an earlier run cannot be removed; readers of the store's files must not trust it: %(error)s",
            error=error,
        )


def make_dispatcher(context: DispatcherContext[object]) -> CommitLogDispatcher:
    """Return the dispatcher ``spark_feed`` for a store, made from its configuration.

    Raises:
        ConfigError: a landing zone is configured, and a package that it needs is not installed.
    """
    from flintmq.dispatchers.spark_feed.spark_feed import FeedPublisher, SparkFeed

    store = context.store
    publisher = FeedPublisher(store, context.clock, lambda: store.epochs.epochs.current.number)
    return SparkFeed(publisher, _landing(context))


def find_feed(api: BrokerApi) -> SparkFeed | None:
    """Return the broker's dispatcher ``spark_feed``; None if this dispatcher does not run."""
    from flintmq.dispatchers.spark_feed.spark_feed import SparkFeed

    try:
        return api.part(SparkFeed)
    except LookupError:
        return None


def figures(feed: SparkFeed, log: LogView) -> Mapping[str, str]:
    """Return the figures of the Spark feed that GET_BROKER_RUNTIME_INFO (request code 28) and ``flintmq status`` show."""
    from flintmq.dispatchers.spark_feed.spark_feed import FeedPublisher

    publisher = feed.publisher
    found = {"sparkFeedMessages": str(feed.messages)}
    if isinstance(publisher, FeedPublisher):
        found["sparkFeedWrites"] = str(publisher.writes)
    found["sparkFeedEndOffset"] = str(min(log.marks.dispatched, log.marks.flushed))
    landing = feed.landing
    if landing is not None:
        found |= {f"sparkFeedLanding{name}": text for name, text in landing.runtime_info().items()}
    return found


def _landing(context: DispatcherContext[object]) -> LandingFeeder | None:
    store = context.store
    settings = store.config.spark_feed.landing
    if settings.path is None:
        return None
    extra, *needed = _NEEDED[settings.format]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"'spark_feed.landing.path' is set, but {', '.join(missing)} is not installed: "
            f"pip install '.[{extra}]' in FlintMQ's folder, or remove the key",
            key="spark_feed.landing.path",
        )
    from flintmq.plugins.spark.landing.feeder import LanderHandle, LandingFeeder
    from flintmq.plugins.spark.landing.manifest import committed_position
    from flintmq.plugins.spark.landing.task import LandingTask, LogSource

    marks = store.watermarks
    root = Path(settings.path).absolute()

    read_only = map(Path, store.config.store.read_only_commit_log_paths)
    folders = tuple(str(folder.absolute()) for folder in (*commit_log_folders(store.config.store), *read_only))

    def task() -> LandingTask:
        epochs = store.epochs.epochs
        return LandingTask(
            path=str(root),
            format=settings.format,
            compression=settings.compression,
            topics=settings.topics,
            include_system_topics=settings.include_system_topics,
            log_folders=folders,
            source=LogSource(
                store_id=epochs.store_id,
                broker_name=store.config.broker.name,
                epochs=tuple((epoch.number, epoch.start_offset_bytes) for epoch in epochs.entries),
            ),
        )

    def make_lander(begin_offset_bytes: int) -> LanderHandle:
        if settings.engine == "thread":
            from flintmq.plugins.spark.landing.lander import Lander

            return Lander(task(), begin_offset_bytes)
        from flintmq.plugins.spark.landing.worker import LanderProcess

        return LanderProcess(task(), begin_offset_bytes)

    newest = marks.dispatched
    return LandingFeeder(
        make_lander,
        settings,
        lambda: min(marks.dispatched, marks.flushed),
        lambda: newest if settings.start == "latest" else store.commit_log.min_offset_bytes,
        committed_position(store.disk, root) if settings.format == "parquet" else None,
        context.clock,
    )
