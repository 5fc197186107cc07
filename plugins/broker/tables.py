"""The tables of a broker that are kept in files: topics, groups and consumer offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.io.config_manager import ConfigJournal, JsonFile

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig
    from flintmq.core.io.clock import Clock
    from flintmq.core.io.disk import Disk
    from flintmq.core.kernel.ports import SystemTopic


def load_topics(
    config: BrokerConfig, features: tuple[SystemTopic, ...], disk: Disk, clock: Clock
) -> TopicConfigManager:
    """Return the table of topics of a store, with those that every broker has.

    Args:
        config: the settings of the broker.
        features: the topics that plugins registered.
        disk: what files are read and written through.
        clock: time.

    Raises:
        StoreFormatError: the file and its backup cannot be read.
    """
    root = Path(config.store.path)
    boot = boot_topics(
        cluster=config.broker.cluster,
        broker_name=config.broker.name,
        auto_create=config.topics.auto_create,
        default_queue_nums=config.topics.default_queue_nums,
        cluster_topic=config.topics.cluster_topic,
        broker_topic=config.topics.broker_topic,
        trace_topic=config.topics.trace_topic_name if config.topics.trace_topic_enable else None,
        features=features,
    )
    topics = TopicConfigManager(
        JsonFile(root / "config" / "topics.json", disk),
        clock,
        boot,
        auto_create=config.topics.auto_create,
        count_max=config.topics.count_max,
        journal=ConfigJournal(root / "flint" / "new-topics", disk),
        features=features,
    )
    topics.load()
    return topics


def load_groups(config: BrokerConfig, disk: Disk, clock: Clock) -> SubscriptionGroupManager:
    """Return the table of subscription groups of a store. Raises ``StoreFormatError``."""
    root = Path(config.store.path)
    groups = SubscriptionGroupManager(
        JsonFile(root / "config" / "subscriptionGroup.json", disk),
        clock,
        auto_create=config.groups.auto_create,
        count_max=config.groups.count_max,
        journal=ConfigJournal(root / "flint" / "new-groups", disk),
    )
    groups.load()
    return groups


def load_offsets(config: BrokerConfig, disk: Disk) -> ConsumerOffsetManager:
    """Return the table of consumer offsets of a store. Raises ``StoreFormatError``."""
    file = JsonFile(Path(config.store.path) / "config" / "consumerOffset.json", disk)
    offsets = ConsumerOffsetManager(file, entries_max=config.offsets.entries_max)
    offsets.load()
    return offsets
