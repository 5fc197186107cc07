"""Distinguishes users' topics and groups from the system's by their names. The functions are pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flintmq.config.rocketmq.system_topics import SYSTEM_TOPICS
from flintmq.core.broker.topic_name import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    reply_topic,
)
from flintmq.programs.cluster_view.values import Kind

_SYSTEM_GROUPS: Final = (SYSTEM_GROUP_PREFIX, "SELF_TEST_", "CID_ONS", "TOOLS_CONSUMER", "FILTERSRV_")
"""Prefixes of the names of system groups, which every broker has or RocketMQ's tools create."""


def kind_of_topic(topic: str, places: Iterable[tuple[str, str]] = ()) -> Kind:
    """Return the kind of a topic.

    Args:
        topic: the topic's name.
        places: (broker, cluster) pairs that may hold the topic. Each broker and each cluster has system topics that are named
            after it.
    """
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead_letter"
    own = {name for broker, cluster in places for name in (broker, cluster, reply_topic(cluster))}
    return "system" if topic in SYSTEM_TOPICS or topic in own or topic.startswith(SYSTEM_TOPIC_PREFIX) else "user"


def kind_of_group(group: str) -> Kind:
    """Return whether a group is a user's or the system's."""
    return "system" if group.startswith(_SYSTEM_GROUPS) else "user"
